//! The stack machine that a pickle is a program of, without the opcodes that import or call.

use super::{
    PickleError, Source, Store, TextId,
    number::{decimal, long},
    opcode::refused,
    text::{unescape_unicode, unquote},
    value::{ObjectId, Shape, Value},
};

/// The newest protocol.
const PROTOCOL: u8 = 5;

/// Memory that a pickle may need at a time: this, and a quarter of the bytes read. A snapshot keeps its blocks
/// (about 250 bytes each) and four bytes for every object that its pickler has numbered.
pub(super) const HELD_BYTES: usize = 512 << 20;

/// Opcodes between two looks at the memory.
const CHECK_OPCODES: u32 = 1 << 14;

/// Takes elements as they are complete.
pub(in crate::import) trait Consumer {
    /// An element of list `index` of the streamed list of lists. It is to be taken out of the store and
    /// finished. `near` is where the pickle has been read to.
    fn element(
        &mut self,
        index: usize,
        element: Value,
        store: &mut Store,
        near: u64,
    ) -> Result<(), PickleError>;

    /// A value that a dict has under the condensed key. What is returned takes its place; a list or dict that
    /// is replaced is to be taken out of the store and finished.
    fn condense(&mut self, value: Value, store: &mut Store) -> Result<Value, PickleError>;
}

/// The keys of dicts that the consumer has to do with.
#[derive(Clone, Copy)]
pub(in crate::import) struct Keys {
    /// In the top dict: a list of lists whose elements are handed out.
    pub(in crate::import) streamed: TextId,
    /// In any dict: a value that is condensed as soon as the dict has it.
    pub(in crate::import) condensed: TextId,
}

/// A list whose elements were handed out.
pub(in crate::import) struct Streamed {
    /// The list, now empty.
    pub(in crate::import) list: ObjectId,
    /// Its place among the lists, as the elements were told.
    pub(in crate::import) index: usize,
}

/// A pickle being read.
pub(in crate::import) struct Machine<'a> {
    source: Source<'a>,
    store: Store,
    stack: Vec<Value>,
    /// Lengths of the stack when a mark was set.
    marks: Vec<usize>,
    keys: Keys,
    streamed: Vec<Streamed>,
    /// Where the current opcode is.
    offset: u64,
    limit_bytes: usize,
}

impl<'a> Machine<'a> {
    /// A machine for a stream. The `known` strings get the first numbers; the keys are among them.
    pub(in crate::import) fn new(source: Source<'a>, known: &[&str], keys: Keys) -> Self {
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

    /// The same with another limit of memory.
    #[cfg(test)]
    pub(super) fn with_limit(mut self, bytes: usize) -> Self {
        self.limit_bytes = bytes;
        self
    }

    /// Reads the pickle: what it is, what it is made of, and which lists were handed out.
    ///
    /// # Errors
    /// If it is damaged or malicious, with the byte.
    pub(in crate::import) fn run(
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

    fn error(&self, reason: impl Into<String>) -> PickleError {
        PickleError::at(self.offset, reason)
    }

    fn check_memory(&self, more: usize) -> Result<(), PickleError> {
        let held = self.store.held_bytes() + self.stack.len() * size_of::<Value>() + self.marks.len() * 8;
        let limit = self.limit_bytes + (self.offset / 4) as usize;
        if held.saturating_add(more) <= limit {
            return Ok(());
        }
        Err(self.error(format!("up to here it needs more than {} MiB of memory", limit >> 20)))
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value, PickleError> {
        if self.stack.len() <= self.floor() {
            return Err(self.error("it takes an object from an empty stack"));
        }
        self.stack.pop().ok_or_else(|| self.error("it takes an object from an empty stack"))
    }

    fn top(&self) -> Result<Value, PickleError> {
        match self.stack.last() {
            Some(value) if self.stack.len() > self.floor() => Ok(*value),
            _ => Err(self.error("it needs an object, and the stack is empty")),
        }
    }

    /// Where the objects since the last mark begin.
    fn pop_mark(&mut self) -> Result<usize, PickleError> {
        self.marks.pop().ok_or_else(|| self.error("it goes back to a mark that it has not set"))
    }

    /// The container right below position `from`, if it is of a shape.
    fn container(&self, from: usize, shape: Shape) -> Result<ObjectId, PickleError> {
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
            // Most of a snapshot are these.
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

    /// Opcodes that are seldom met.
    fn rare(&mut self, code: u8, consumer: &mut impl Consumer) -> Result<(), PickleError> {
        match code {
            0x80 => {
                let version = self.source.byte()?;
                if version > PROTOCOL {
                    let reason = format!("it is of protocol {version}; {PROTOCOL} is the newest known");
                    return Err(self.error(reason));
                }
            }
            0x95 => {
                let length = u64::from_le_bytes(self.source.array()?);
                let left = self.source.length().map(|all| all.saturating_sub(self.source.offset()));
                if let Some(left) = left.filter(|left| length > *left) {
                    let reason = format!("a frame of {length} bytes begins here, and {left} are left");
                    return Err(self.error(reason));
                }
            }
            b'0' => {
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.pop()?;
                }
            }
            b'1' => {
                let from = self.pop_mark()?;
                self.stack.truncate(from);
            }
            b'2' => {
                let value = self.top()?;
                self.store.mark_shared(value);
                self.stack.push(value);
            }
            b'g' | b'p' => {
                let index = decimal(self.source.line()?);
                let Some(Value::Int(index)) = index else {
                    return Err(self.error("a number of the memo is no number"));
                };
                let Ok(index) = u32::try_from(index) else {
                    return Err(self.error(format!("{index} is no number of a memo")));
                };
                if code == b'p' {
                    return self.memoize(u64::from(index));
                }
                let value = self.store.recall(index, self.offset)?;
                self.stack.push(value);
            }
            b'q' => {
                let index = self.source.byte()?;
                return self.memoize(u64::from(index));
            }
            b'r' => {
                let index = u32::from_le_bytes(self.source.array()?);
                return self.memoize(u64::from(index));
            }
            b's' => {
                let from = self.stack.len().checked_sub(2).filter(|from| *from >= self.floor());
                let from = from.ok_or_else(|| self.error("it needs a key and a value"))?;
                return self.put_items(from, consumer);
            }
            b')' | b't' | b'l' | b'd' | 0x85..=0x87 | 0x8f | 0x90 | 0x91 => {
                return self.collect(code, consumer);
            }
            b'I' | b'L' | b'F' | b'S' | b'V' => return self.text_opcode(code),
            0x8b => {
                let length = u32::from_le_bytes(self.source.array()?);
                if length > i32::MAX as u32 {
                    return Err(self.error("an integer has a negative number of bytes"));
                }
                self.check_memory(length as usize)?;
                let value = long(self.source.take(length as usize)?);
                self.stack.push(value);
            }
            b'X' | b'T' => {
                let length = u32::from_le_bytes(self.source.array()?);
                return self.text(u64::from(length));
            }
            b'U' => {
                let length = self.source.byte()?;
                return self.text(u64::from(length));
            }
            0x8d => {
                let length = u64::from_le_bytes(self.source.array()?);
                return self.text(length);
            }
            b'B' => {
                let length = u32::from_le_bytes(self.source.array()?);
                return self.bytes(u64::from(length));
            }
            b'C' => {
                let length = self.source.byte()?;
                return self.bytes(u64::from(length));
            }
            0x8e | 0x96 => {
                let length = u64::from_le_bytes(self.source.array()?);
                return self.bytes(length);
            }
            _ => return Err(self.refuse(code)),
        }
        Ok(())
    }

    /// Why an opcode is not executed.
    fn refuse(&mut self, code: u8) -> PickleError {
        let Some(name) = refused(code) else {
            return self.error(format!("byte 0x{code:02x} is no opcode of a pickle: this is no pickle"));
        };
        let word = |value: Option<&Value>| match value {
            Some(Value::Text(text)) => self.store.word(*text).to_string(),
            _ => String::new(),
        };
        let named = match (code, &self.stack[..]) {
            (0x93, [.., module, name]) => format!(" {}.{}", word(Some(module)), word(Some(name))),
            (b'c', _) => {
                let mut line = || {
                    let line = self.source.line().map(|line| String::from_utf8_lossy(line).into_owned());
                    line.unwrap_or_default()
                };
                format!(" {}.{}", line(), line())
            }
            _ => String::new(),
        };
        let shown: String = named.chars().take(200).flat_map(char::escape_debug).collect();
        self.error(format!(
            "opcode {name}{shown} would run code or reach outside of the file; a snapshot is made of data only, \
             and nothing was executed"
        ))
    }

    fn create(&mut self, shape: Shape) -> Value {
        Value::Object(self.store.create(shape, self.offset))
    }

    fn memoize(&mut self, index: u64) -> Result<(), PickleError> {
        let value = self.top()?;
        let index = u32::try_from(index).map_err(|_| self.error("its memo has too many entries"))?;
        self.store.memoize(index, value, self.offset)
    }

    fn text(&mut self, length: u64) -> Result<(), PickleError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > CHECK_OPCODES as usize {
            self.check_memory(length.saturating_mul(2))?;
        }
        let bytes = self.source.take(length)?;
        // Python writes halves of surrogate pairs as they are; they have no meaning to keep.
        let text = self.store.number(&String::from_utf8_lossy(bytes));
        self.stack.push(Value::Text(text));
        Ok(())
    }

    fn bytes(&mut self, length: u64) -> Result<(), PickleError> {
        self.source.skip(length)?;
        self.stack.push(Value::Bytes);
        Ok(())
    }

    fn text_opcode(&mut self, code: u8) -> Result<(), PickleError> {
        let line = self.source.line()?;
        let value = match code {
            b'I' if line == b"00" => Some(Value::Bool(false)),
            b'I' if line == b"01" => Some(Value::Bool(true)),
            b'I' => decimal(line),
            b'L' => decimal(line.strip_suffix(b"L").unwrap_or(line)),
            b'F' => {
                std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok()).map(Value::Float)
            }
            b'S' => unquote(line).map(|text| Value::Text(self.store.number(&text))),
            _ => unescape_unicode(line).map(|text| Value::Text(self.store.number(&text))),
        };
        let value = value.ok_or_else(|| self.error("a number or string in text form is malformed"))?;
        self.stack.push(value);
        Ok(())
    }

    /// Opcodes that make a container of what is on the stack, and those of sets.
    fn collect(&mut self, code: u8, consumer: &mut impl Consumer) -> Result<(), PickleError> {
        let count_from = |machine: &Self, count: usize| {
            let from = machine.stack.len().checked_sub(count).filter(|from| *from >= machine.floor());
            from.ok_or_else(|| machine.error("it makes a tuple of more objects than there are"))
        };
        let (shape, from) = match code {
            b')' => (Shape::Tuple, self.stack.len()),
            0x85..=0x87 => (Shape::Tuple, count_from(self, usize::from(code - 0x84))?),
            b't' => (Shape::Tuple, self.pop_mark()?),
            b'l' => (Shape::List, self.pop_mark()?),
            b'd' => {
                let from = self.pop_mark()?;
                let dict = self.store.create(Shape::Dict, self.offset);
                self.stack.insert(from, Value::Object(dict));
                return self.put_items(from + 1, consumer);
            }
            0x8f => (Shape::Set, self.stack.len()),
            0x91 => (Shape::Set, self.pop_mark()?),
            _ => {
                let from = self.pop_mark()?;
                let set = self.container(from, Shape::Set)?;
                self.store.extend(set, &self.stack[from..]);
                self.stack.truncate(from);
                return Ok(());
            }
        };
        let container = self.store.create(shape, self.offset);
        self.store.extend(container, &self.stack[from..]);
        self.stack.truncate(from);
        self.stack.push(Value::Object(container));
        Ok(())
    }

    /// Puts keys and values from `from` on into the dict below them.
    fn put_items(&mut self, from: usize, consumer: &mut impl Consumer) -> Result<(), PickleError> {
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

    /// Puts the objects from `from` on into the list below them, or hands them out.
    fn append(&mut self, from: usize, consumer: &mut impl Consumer) -> Result<(), PickleError> {
        let list = self.container(from, Shape::List)?;
        let mut streamed = None;
        if self.store.len(list) == 0 {
            streamed =
                self.streamed.iter().rev().find(|streamed| streamed.list == list).map(|found| found.index);
            if streamed.is_none()
                && let Some(index) = self.streamed_index(from - 1)
            {
                self.streamed.push(Streamed { list, index });
                // The list outlives its elements: nobody may take its place.
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

    /// If the list at a position of the stack is an element of the list that the streamed key will have: its
    /// place there. (Whether it got there is for the consumer to check at the end.)
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
