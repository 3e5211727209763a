//! The objects and strings of a pickle, and the memo that refers to them.
//!
//! An object that the consumer has read passes its place and its memory to the next one, unless something
//! else may still refer to it. In that case its shell stays, and a later reference gives its token, or an
//! error if it has none.

use std::sync::Arc;

use super::{
    PickleError, TextId, Token,
    memo::{Entry, Memo},
    text::Texts,
    value::{ObjectId, Shape, Value},
};

/// Largest capacity of a list of values that the next object may reuse, in values.
const KEPT_VALUES: usize = 64;

/// A container, or a scalar that the memo holds.
struct Object {
    shape: Shape,
    /// Set if something besides its first place may refer to the object.
    shared: bool,
    /// Index of the object in the memo.
    memo: Option<u32>,
    /// Byte offset at which the object begins in the pickle.
    offset: u64,
    /// Elements of the object; in a dict, keys and values alternate.
    values: Vec<Value>,
}

/// All objects and strings of a pickle that are kept.
pub(crate) struct Store {
    objects: Vec<Object>,
    free: Vec<u32>,
    memo: Memo,
    texts: Texts,
    /// Number of values in all objects.
    values_count: usize,
    /// Memory that the consumer has asked to be counted, in bytes.
    charged_bytes: usize,
}

impl Store {
    /// Creates an empty store. The strings in `known` get the first ids, in their order.
    pub(super) fn new(known: &[&str]) -> Self {
        Self {
            objects: Vec::new(),
            free: Vec::new(),
            memo: Memo::default(),
            texts: Texts::new(known),
            values_count: 0,
            charged_bytes: 0,
        }
    }

    /// Returns an estimate of the memory in use, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.objects.len() * size_of::<Object>()
            + self.values_count * size_of::<Value>()
            + self.memo.held_bytes()
            + self.texts.held_bytes()
            + self.charged_bytes
    }

    /// Counts `bytes` of memory that the consumer holds.
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.charged_bytes += bytes;
    }

    /// Creates an object without elements, which begins at byte `offset` of the pickle.
    pub(super) fn create(&mut self, shape: Shape, offset: u64) -> ObjectId {
        if let Some(free) = self.free.pop() {
            let object = &mut self.objects[free as usize];
            (object.shape, object.shared, object.memo, object.offset) = (shape, false, None, offset);
            return ObjectId(free);
        }
        self.objects.push(Object { shape, shared: false, memo: None, offset, values: Vec::new() });
        ObjectId((self.objects.len() - 1) as u32)
    }

    /// Appends elements to an object.
    pub(super) fn extend(&mut self, id: ObjectId, values: &[Value]) {
        self.values_count += values.len();
        self.objects[id.0 as usize].values.extend_from_slice(values);
    }

    /// Returns the id of a string; a string that is new gets the next one.
    pub(super) fn number(&mut self, word: &str) -> TextId {
        self.texts.number(word)
    }

    /// Returns the string that has an id.
    pub(crate) fn word(&self, id: TextId) -> &Arc<str> {
        self.texts.word(id)
    }

    /// Returns the type of an object.
    pub(super) fn shape(&self, id: ObjectId) -> Shape {
        self.objects[id.0 as usize].shape
    }

    /// Returns the number of an object's elements; in a dict, keys and values both count.
    pub(super) fn len(&self, id: ObjectId) -> usize {
        self.objects[id.0 as usize].values.len()
    }

    /// Returns the byte offset at which an object begins in the pickle.
    pub(crate) fn offset(&self, id: ObjectId) -> u64 {
        self.objects[id.0 as usize].offset
    }

    /// Marks an object as one to which more than one place refers.
    pub(super) fn mark_shared(&mut self, value: Value) {
        if let Value::Object(id) = value {
            self.objects[id.0 as usize].shared = true;
        }
    }

    /// Returns the number of entries in the memo.
    pub(super) fn memo_len(&self) -> usize {
        self.memo.len()
    }

    /// Puts a value into the memo at `index`. `offset` is that of the opcode, for errors.
    pub(super) fn memoize(&mut self, index: u32, value: Value, offset: u64) -> Result<(), PickleError> {
        let entry = match value {
            Value::Text(text) => Entry::Text(text),
            Value::Token(token) => Entry::Token(token),
            Value::Object(id) => {
                let object = &mut self.objects[id.0 as usize];
                object.shared |= object.memo.is_some();
                object.memo = Some(index);
                Entry::Object(id)
            }
            other => {
                let id = self.create(Shape::Scalar, offset);
                self.extend(id, &[other]);
                Entry::Object(id)
            }
        };
        let too_many = || PickleError::at(offset, "it has more objects than can be told apart");
        self.memo.put(index, entry).ok_or_else(too_many)
    }

    /// Returns the value at `index` of the memo. Errs if there is none, or if it is no longer kept.
    #[inline]
    pub(super) fn recall(&mut self, index: u32, offset: u64) -> Result<Value, PickleError> {
        let Some(entry) = self.memo.get(index) else {
            let reason = format!("it refers to object {index} of its memo, which it has not put there");
            return Err(PickleError::at(offset, reason));
        };
        let value = entry.value();
        if let Some(Value::Object(id)) = value {
            let object = &mut self.objects[id.0 as usize];
            object.shared = true;
            match object.shape {
                Shape::Scalar => return Ok(object.values.first().copied().unwrap_or(Value::None)),
                Shape::Token(token) => return Ok(Value::Token(token)),
                Shape::Gone => {}
                _ => return Ok(Value::Object(id)),
            }
        } else if let Some(value) = value {
            return Ok(value);
        }
        let reason = format!(
            "it refers to object {index} of its memo a second time, which was a part that occurs once \
             (an event, a segment, a block) and is not kept"
        );
        Err(PickleError::at(offset, reason))
    }

    /// Returns the elements of a container. Errs if the value is not of the type `shape`; `what` names it in
    /// the error, and `near` is the byte offset for a value that has none of its own.
    pub(crate) fn values(
        &self,
        value: Value,
        shape: Shape,
        what: &str,
        near: u64,
    ) -> Result<(ObjectId, &[Value]), PickleError> {
        let (found, offset) = match value {
            Value::Object(id) => {
                let object = &self.objects[id.0 as usize];
                if object.shape == shape {
                    return Ok((id, &object.values));
                }
                (object.shape.name(), object.offset)
            }
            other => (other.name(), near),
        };
        Err(PickleError::at(offset, format!("{what} is {found}, not {}", shape.name())))
    }

    /// Returns the token that has replaced an object, if there is one.
    pub(crate) fn token(&self, id: ObjectId) -> Option<Token> {
        match self.objects[id.0 as usize].shape {
            Shape::Token(token) => Some(token),
            _ => None,
        }
    }

    /// Takes the elements out of a container; a call of [`Store::finish`] must follow.
    pub(crate) fn take(&mut self, id: ObjectId) -> Vec<Value> {
        std::mem::take(&mut self.objects[id.0 as usize].values)
    }

    /// Declares that the container whose elements were taken has been read. Later references to it give
    /// `token`, or an error if that is `None`.
    pub(crate) fn finish(&mut self, id: ObjectId, mut values: Vec<Value>, token: Option<Token>) {
        self.values_count = self.values_count.saturating_sub(values.len());
        values.clear();
        if values.capacity() > KEPT_VALUES {
            values = Vec::new();
        }
        let object = &mut self.objects[id.0 as usize];
        object.shape = token.map_or(Shape::Gone, Shape::Token);
        if object.shared {
            return;
        }
        object.values = values;
        if let Some(index) = object.memo {
            // The entry exists, and its replacement is no larger, so this cannot fail.
            let _ = self.memo.put(index, token.map_or(Entry::Gone, Entry::Token));
        }
        self.free.push(id.0);
    }

    /// Errs if an object that can be reached from `root` contains itself.
    pub(super) fn check_acyclic(&self, root: Value) -> Result<(), PickleError> {
        /// How much of an object has been examined.
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            No,
            Inside,
            Whole,
        }
        let Value::Object(root) = root else {
            return Ok(());
        };
        let mut seen = vec![Seen::No; self.objects.len()];
        seen[root.0 as usize] = Seen::Inside;
        let mut path = vec![(root, 0)];
        while let Some((id, next)) = path.last_mut() {
            let object = &self.objects[id.0 as usize];
            let Some(value) = object.values.get(*next) else {
                seen[id.0 as usize] = Seen::Whole;
                path.pop();
                continue;
            };
            *next += 1;
            if let Value::Object(inner) = value {
                match seen[inner.0 as usize] {
                    Seen::No => {
                        seen[inner.0 as usize] = Seen::Inside;
                        path.push((*inner, 0));
                    }
                    Seen::Inside => {
                        let offset = self.objects[inner.0 as usize].offset;
                        let reason =
                            format!("{} that begins here contains itself", self.shape(*inner).name());
                        return Err(PickleError::at(offset, reason));
                    }
                    Seen::Whole => {}
                }
            }
        }
        Ok(())
    }
}
