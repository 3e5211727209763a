//! The stack machine that executes a pickle, without the opcodes that import or call.

use super::{
    PickleError, Source, Store, TextId,
    number::long,
    value::{ObjectId, Shape, Value},
};

/// Memory in bytes that a pickle may need at a time, in addition to a quarter of the bytes read. A snapshot
/// keeps its blocks (about 250 bytes each), and four bytes for every object that its pickler has numbered.
pub(super) const HELD_BYTES: usize = 512 << 20;
/// The most memory in bytes that is added for the bytes read: a compressed pickle of zeros is long for nothing.
const ADDED_BYTES: u64 = 4 << 30;

/// Number of opcodes between two checks of the memory.
const CHECK_OPCODES: u32 = 1 << 14;

/// Receives elements as soon as they are complete.
pub(crate) trait Consumer {
    /// Takes an element of list `index` in the streamed list of lists. The implementation has to take it out
    /// of the store and to finish it. `near` is the offset up to which the pickle has been read.
    fn element(
        &mut self,
        index: usize,
        element: Value,
        store: &mut Store,
        near: u64,
    ) -> Result<(), PickleError>;

    /// Condenses a value that a dict has under the condensed key. The returned value takes its place; a list
    /// or dict that is replaced has to be taken out of the store and finished.
    fn condense(&mut self, value: Value, store: &mut Store) -> Result<Value, PickleError>;
}

/// The keys of dicts whose values the consumer handles.
#[derive(Clone, Copy)]
pub(crate) struct Keys {
    /// In the top dict, the key of a list of lists whose elements are streamed to the consumer.
    pub(crate) streamed: TextId,
    /// In any dict, the key of a value that is condensed as soon as the dict has it.
    pub(crate) condensed: TextId,
}

/// A list whose elements were streamed to the consumer.
pub(crate) struct Streamed {
    /// The list, which is now empty.
    pub(crate) list: ObjectId,
    /// Index of the list among the lists, as passed to [`Consumer::element`].
    pub(crate) index: usize,
}

/// The state of the machine that reads a pickle.
pub(crate) struct Machine<'a> {
    /// The bytes of the pickle.
    pub(super) source: Source<'a>,
    /// The objects, strings and memo.
    pub(super) store: Store,
    /// The stack of values.
    pub(super) stack: Vec<Value>,
    /// Length of the stack at each mark that is set.
    pub(super) marks: Vec<usize>,
    keys: Keys,
    streamed: Vec<Streamed>,
    /// Byte offset of the current opcode.
    pub(super) offset: u64,
    limit_bytes: usize,
}

impl<'a> Machine<'a> {
    /// Creates a machine that reads `source`. The strings in `known` get the first ids; the keys are among
    /// them.
    pub(crate) fn new(source: Source<'a>, known: &[&str], keys: Keys) -> Self {
        Self {
            source,
            store: Store::new(known),
            stack: Vec::new(),
            marks: Vec::new(),
            keys,
            streamed: Vec::new(),
            offset: 0,
            limit_bytes: HELD_BYTES,
        }
    }

    /// Sets another limit of memory, in bytes.
    #[cfg(test)]
    pub(super) fn with_limit(mut self, bytes: usize) -> Self {
        self.limit_bytes = bytes;
        self
    }

    /// Reads the pickle. Returns its top value, the objects that it consists of, and the lists whose elements
    /// were streamed.
    ///
    /// # Errors
    /// Returns an error with the byte offset if the pickle is damaged or malicious.
    pub(crate) fn run(
        mut self,
        consumer: &mut impl Consumer,
    ) -> Result<(Value, Store, Vec<Streamed>), PickleError> {
        let mut until_check = CHECK_OPCODES;
        loop {
            self.offset = self.source.offset();
            let code = self.source.byte()?;
            if code == b'.' {
                break;
            }
            self.step(code, consumer)?;
            until_check -= 1;
            if until_check == 0 {
                until_check = CHECK_OPCODES;
                self.check_memory(0)?;
            }
        }
        let root = self.pop()?;
        if !self.stack.is_empty() || !self.marks.is_empty() {
            return Err(self.error("the pickle ends with objects that belong nowhere"));
        }
        if !self.source.is_at_end()? {
            return Err(PickleError::at(self.source.offset(), "there are more bytes after the pickle's end"));
        }
        self.store.check_acyclic(root)?;
        Ok((root, self.store, self.streamed))
    }

    /// Creates an error at the current opcode.
    pub(super) fn error(&self, reason: impl Into<String>) -> PickleError {
        PickleError::at(self.offset, reason)
    }

    /// Errs if the memory in use and `more` bytes together exceed the limit.
    pub(super) fn check_memory(&self, more: usize) -> Result<(), PickleError> {
        let held = self.store.held_bytes() + self.stack.len() * size_of::<Value>() + self.marks.len() * 8;
        let limit = self.limit_bytes.saturating_add((self.offset / 4).min(ADDED_BYTES) as usize);
        if held.saturating_add(more) <= limit {
            return Ok(());
        }
        Err(self.error(format!("up to here it needs more than {} MiB of memory", limit >> 20)))
    }

    /// Returns the length of the stack at the last mark; objects below it cannot be taken.
    pub(super) fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    /// Takes the top value off the stack. Errs if there is none above the last mark.
    pub(super) fn pop(&mut self) -> Result<Value, PickleError> {
        if self.stack.len() <= self.floor() {
            return Err(self.error("it takes an object from an empty stack"));
        }
        self.stack.pop().ok_or_else(|| self.error("it takes an object from an empty stack"))
    }

    /// Returns the top value of the stack. Errs if there is none above the last mark.
    pub(super) fn top(&self) -> Result<Value, PickleError> {
        match self.stack.last() {
            Some(value) if self.stack.len() > self.floor() => Ok(*value),
            _ => Err(self.error("it needs an object, and the stack is empty")),
        }
    }

    /// Removes the last mark and returns the stack index at which the objects after it begin.
    pub(super) fn pop_mark(&mut self) -> Result<usize, PickleError> {
        self.marks.pop().ok_or_else(|| self.error("it goes back to a mark that it has not set"))
    }

    /// Returns the container right below index `from` of the stack. Errs if it is not of the type `shape`.
    pub(super) fn container(&self, from: usize, shape: Shape) -> Result<ObjectId, PickleError> {
        let below = from.checked_sub(1).filter(|at| *at >= self.floor()).map(|at| self.stack[at]);
        match below {
            Some(Value::Object(id)) if self.store.shape(id) == shape => Ok(id),
            Some(Value::Token(_)) => Err(self.error("it changes a list that has been read already")),
            Some(Value::Object(id)) => Err(self.error(format!(
                "it adds to {}, not to {}",
                self.store.shape(id).name(),
                shape.name()
            ))),
            Some(other) => Err(self.error(format!("it adds to {}, not to {}", other.name(), shape.name()))),
            None => Err(self.error("it adds to a container, and none is there")),
        }
    }

    fn step(&mut self, code: u8, consumer: &mut impl Consumer) -> Result<(), PickleError> {
        let value = match code {
            // Most of a snapshot consists of these opcodes.
            b'h' => {
                let index = self.source.byte()?;
                self.store.recall(u32::from(index), self.offset)?
            }
            b'j' => {
                let index = u32::from_le_bytes(self.source.array()?);
                self.store.recall(index, self.offset)?
            }
            b'K' => Value::Int(i64::from(self.source.byte()?)),
            b'M' => Value::Int(i64::from(u16::from_le_bytes(self.source.array()?))),
            b'J' => Value::Int(i64::from(i32::from_le_bytes(self.source.array()?))),
            0x8a => {
                let length = self.source.byte()?;
                long(self.source.take(usize::from(length))?)
            }
            0x94 => {
                let index = self.store.memo_len();
                return self.memoize(index as u64);
            }
            b'(' => {
                self.marks.push(self.stack.len());
                return Ok(());
            }
            b'u' => {
                let from = self.pop_mark()?;
                return self.put_items(from, consumer);
            }
            b'e' => {
                let from = self.pop_mark()?;
                return self.append(from, consumer);
            }
            b'a' => {
                self.top()?;
                return self.append(self.stack.len() - 1, consumer);
            }
            b'}' => self.create(Shape::Dict),
            b']' => self.create(Shape::List),
            0x8c => {
                let length = self.source.byte()?;
                return self.text(u64::from(length));
            }
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'G' => Value::Float(f64::from_be_bytes(self.source.array()?)),
            _ => return self.rare(code, consumer),
        };
        self.stack.push(value);
        Ok(())
    }

    fn create(&mut self, shape: Shape) -> Value {
        Value::Object(self.store.create(shape, self.offset))
    }

    /// Puts the top value of the stack into the memo at `index`.
    pub(super) fn memoize(&mut self, index: u64) -> Result<(), PickleError> {
        let value = self.top()?;
        let index = u32::try_from(index).map_err(|_| self.error("its memo has too many entries"))?;
        self.store.memoize(index, value, self.offset)
    }

    /// Reads a string of `length` bytes and pushes it onto the stack.
    pub(super) fn text(&mut self, length: u64) -> Result<(), PickleError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > CHECK_OPCODES as usize {
            self.check_memory(length.saturating_mul(2))?;
        }
        let bytes = self.source.take(length)?;
        // Python writes unpaired surrogates as they are; they have no meaning that could be kept.
        let text = self.store.number(&String::from_utf8_lossy(bytes));
        self.stack.push(Value::Text(text));
        Ok(())
    }

    /// Adds keys and values, from index `from` of the stack on, to the dict below them.
    pub(super) fn put_items(&mut self, from: usize, consumer: &mut impl Consumer) -> Result<(), PickleError> {
        let dict = self.container(from, Shape::Dict)?;
        if !(self.stack.len() - from).is_multiple_of(2) {
            return Err(self.error("a key of a dict has no value"));
        }
        for at in (from..self.stack.len()).step_by(2) {
            match self.stack[at] {
                Value::Text(key) if key == self.keys.condensed => {
                    self.stack[at + 1] = consumer.condense(self.stack[at + 1], &mut self.store)?;
                }
                Value::Object(key) if self.store.shape(key) != Shape::Tuple => {
                    let reason = format!("a key of a dict is {}", self.store.shape(key).name());
                    return Err(self.error(reason));
                }
                _ => {}
            }
        }
        self.store.extend(dict, &self.stack[from..]);
        self.stack.truncate(from);
        Ok(())
    }

    /// Appends the objects from index `from` of the stack on to the list below them, or streams them to the
    /// consumer.
    fn append(&mut self, from: usize, consumer: &mut impl Consumer) -> Result<(), PickleError> {
        let list = self.container(from, Shape::List)?;
        let mut streamed = None;
        if self.store.len(list) == 0 && from < self.stack.len() {
            streamed = self.streamed.iter().find(|streamed| streamed.list == list).map(|found| found.index);
            if streamed.is_none()
                && let Some(index) = self.streamed_index(from - 1)
            {
                if self.streamed.iter().any(|streamed| streamed.index == index) {
                    return Err(self.error(format!("element {index} of a list is there more than once")));
                }
                self.streamed.push(Streamed { list, index });
                // The list outlives its elements, so no other object may take its place in the store.
                self.store.mark_shared(Value::Object(list));
                streamed = Some(index);
            }
        }
        match streamed {
            None => self.store.extend(list, &self.stack[from..]),
            Some(index) => {
                let near = self.offset;
                for at in from..self.stack.len() {
                    consumer.element(index, self.stack[at], &mut self.store, near)?;
                }
            }
        }
        self.stack.truncate(from);
        Ok(())
    }

    /// Returns the index of a list among the lists of the streamed key, if the list at index `at` of the
    /// stack is an element of the list that this key will have. (The consumer has to check at the end that
    /// the list got there.)
    ///
    /// ```text
    /// stack: root ( … key outer ( list list ( element element …     elements of outer behind a mark
    /// stack: root ( … key outer list ( element element …            outer gets one at a time
    /// ```
    fn streamed_index(&self, at: usize) -> Option<usize> {
        let group = |at: usize| self.marks.iter().rev().copied().find(|mark| *mark <= at).unwrap_or(0);
        let list = |at: usize| match self.stack.get(at) {
            Some(Value::Object(id)) if self.store.shape(*id) == Shape::List => Some(*id),
            _ => None,
        };
        let behind_mark = group(at).checked_sub(1).and_then(|outer| Some((outer, list(outer)?)));
        let (outer, index) = match behind_mark {
            Some((outer, id)) => (outer, self.store.len(id) + at - group(at)),
            None => {
                let outer = at.checked_sub(1)?;
                (outer, self.store.len(list(outer)?))
            }
        };
        let key = self.stack.get(outer.checked_sub(1)?)?;
        let root = if group(outer) > 0 { group(outer) - 1 } else { outer.checked_sub(2)? };
        (*key == Value::Text(self.keys.streamed) && root == 0).then_some(index)
    }
}
