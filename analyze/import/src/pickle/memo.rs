//! The memo: values to which a pickle has given an index, to refer to them again.
//!
//! Picklers memoize nearly every object and refer to few, so an entry takes four bytes. Indices normally come
//! without gaps; a pickle that leaves some pays for its entries one by one, and not for the gaps.

use std::collections::HashMap;

use super::{
    TextId, Token,
    value::{ObjectId, Value},
};

/// An entry of the memo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Entry {
    /// A string.
    Text(TextId),
    /// An object in the store.
    Object(ObjectId),
    /// The token that has replaced an object.
    Token(Token),
    /// An object that was read and is no longer kept.
    Gone,
}

/// Number of bits of a packed entry that hold the entry's number.
const NUMBER_BITS: u32 = 29;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;

impl Entry {
    fn pack(self) -> Option<u32> {
        let (tag, number) = match self {
            Self::Text(TextId(number)) => (0, number),
            Self::Object(ObjectId(number)) => (1, number),
            Self::Token(Token::First(number)) => (2, number),
            Self::Token(Token::Second(number)) => (3, number),
            Self::Gone => (4, 0),
        };
        (number <= NUMBER_MASK).then_some(tag << NUMBER_BITS | number)
    }

    fn unpack(packed: u32) -> Self {
        let number = packed & NUMBER_MASK;
        match packed >> NUMBER_BITS {
            0 => Self::Text(TextId(number)),
            1 => Self::Object(ObjectId(number)),
            2 => Self::Token(Token::First(number)),
            3 => Self::Token(Token::Second(number)),
            _ => Self::Gone,
        }
    }

    /// Returns the value that a reference to the entry gives, or `None` if the object is no longer kept.
    pub(super) fn value(self) -> Option<Value> {
        match self {
            Self::Text(text) => Some(Value::Text(text)),
            Self::Object(object) => Some(Value::Object(object)),
            Self::Token(token) => Some(Value::Token(token)),
            Self::Gone => None,
        }
    }
}

/// The entries of the memo, by their index.
#[derive(Default)]
pub(super) struct Memo {
    dense: Vec<u32>,
    /// Entries that lie beyond the first gap.
    sparse: HashMap<u32, u32>,
}

impl Memo {
    /// Returns the number of entries, which is the index of the next one that is added without a stated
    /// index.
    pub(super) fn len(&self) -> usize {
        self.dense.len() + self.sparse.len()
    }

    /// Sets an entry. Returns `None` if its number is too large, because there are too many objects.
    pub(super) fn put(&mut self, index: u32, entry: Entry) -> Option<()> {
        let packed = entry.pack()?;
        let at = index as usize;
        if at == self.dense.len() {
            self.dense.push(packed);
            if !self.sparse.is_empty() {
                self.sparse.remove(&index);
            }
        } else if let Some(slot) = self.dense.get_mut(at) {
            *slot = packed;
        } else {
            self.sparse.insert(index, packed);
        }
        Some(())
    }

    /// Returns an entry, or `None` if it was not set.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<Entry> {
        let packed = self.dense.get(index as usize).or_else(|| self.sparse.get(&index))?;
        Some(Entry::unpack(*packed))
    }

    /// Returns the memory that the entries take, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.dense.len() * size_of::<u32>() + self.sparse.len() * 24
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_cost_nothing_and_close() {
        let mut memo = Memo::default();
        let text = |number| Entry::Text(TextId(number));
        memo.put(u32::MAX, text(7)).unwrap();
        memo.put(1, text(8)).unwrap();
        assert!(memo.held_bytes() < 100);
        memo.put(0, text(9)).unwrap();
        memo.put(1, Entry::Token(Token::Second(3))).unwrap();
        assert_eq!(memo.get(1), Some(Entry::Token(Token::Second(3))));
        assert_eq!((memo.get(u32::MAX), memo.get(2)), (Some(text(7)), None));
        assert_eq!(memo.len(), 3);
        assert!(memo.put(2, text(1 << 29)).is_none());
    }
}
