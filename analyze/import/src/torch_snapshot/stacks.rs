//! Call stacks, each distinct one with a number and spelled out once.
//!
//! A snapshot has a list of frames for nearly every event, with the innermost first; most of the lists are
//! equal. A list is replaced by a number as soon as an event has it, and so is a frame.

use std::{collections::HashMap, sync::Arc};

use trace_schema::Text;

use crate::pickle::{ObjectId, PickleError, Shape, Store, Token, Value};

use super::{fields::field, keys};

/// Longest text of one stack, in bytes; a stack with a longer one is not kept.
const STACK_BYTES: usize = 1 << 20;
/// Largest size of all stacks' texts, in bytes; beyond it, new stacks are not kept.
const ALL_BYTES: usize = 256 << 20;
/// Estimated memory of a stack besides the numbers of its frames, in bytes.
const OVERHEAD_BYTES: usize = 96;

/// A distinct call stack.
struct Stack {
    frames: Arc<[u32]>,
    /// Set if the text is not kept because it is too long.
    left_out: bool,
    spelled: bool,
}

/// All distinct call stacks and frames.
#[derive(Default)]
pub(super) struct Stacks {
    frames: Vec<Arc<str>>,
    frame_numbers: HashMap<Arc<str>, u32>,
    stacks: Vec<Stack>,
    stack_numbers: HashMap<Arc<[u32]>, u32>,
    text_bytes: usize,
    scratch: Vec<u32>,
    /// Number of stacks that are not kept because they are too long.
    left_out_count: u64,
}

/// Number in the token of a list without frames. (The token of a stack has the stack's number plus 1.)
const NO_FRAMES: u32 = 0;

impl Stacks {
    /// Returns the token that replaces a list of frames. A value that is not a list is returned unchanged.
    pub(super) fn condense(&mut self, value: Value, store: &mut Store) -> Result<Value, PickleError> {
        let Value::Object(id) = value else {
            return Ok(value);
        };
        if let Some(token) = store.token(id) {
            return Ok(Value::Token(token));
        }
        let Ok((_, frames)) = store.values(value, Shape::List, "frames", 0) else {
            return Ok(value);
        };
        let is_frame = |frame: &Value| match frame {
            Value::Token(Token::Second(_)) => true,
            Value::Object(id) if matches!(store.token(*id), Some(Token::Second(_))) => true,
            other => store.values(*other, Shape::Dict, "a frame", 0).is_ok(),
        };
        if !frames.iter().all(is_frame) {
            let reason = "`frames` that begins here is not a list of frames: something else is in it";
            return Err(PickleError::at(store.offset(id), reason));
        }
        let offset = store.offset(id);
        let frames = store.take(id);
        self.scratch.clear();
        for frame in &frames {
            let number = match *frame {
                Value::Object(frame) => self.frame(frame, store)?,
                Value::Token(Token::Second(number)) => number,
                other => {
                    return Err(PickleError::at(offset, format!("a frame is {}", other.name())));
                }
            };
            self.scratch.push(number);
        }
        let number = if self.scratch.is_empty() { NO_FRAMES } else { self.number(store) + 1 };
        let token = Token::First(number);
        store.finish(id, frames, Some(token));
        Ok(Value::Token(token))
    }

    /// Returns the number of the stack whose frames are in `scratch`.
    fn number(&mut self, store: &mut Store) -> u32 {
        if let Some(number) = self.stack_numbers.get(&self.scratch[..]) {
            return *number;
        }
        let number = self.stacks.len() as u32;
        let frames: Arc<[u32]> = self.scratch[..].into();
        store.charge(size_of_val(&*frames) + OVERHEAD_BYTES);
        let bytes: usize = frames.iter().map(|frame| self.frames[*frame as usize].len() + 1).sum();
        let left_out = bytes > STACK_BYTES || self.text_bytes + bytes > ALL_BYTES;
        if left_out {
            self.left_out_count += 1;
        } else {
            self.text_bytes += bytes;
        }
        self.stacks.push(Stack { frames: Arc::clone(&frames), left_out, spelled: false });
        self.stack_numbers.insert(frames, number);
        number
    }

    /// Returns the number of a frame, which is read unless this list has had it before.
    fn frame(&mut self, id: ObjectId, store: &mut Store) -> Result<u32, PickleError> {
        if let Some(Token::Second(number)) = store.token(id) {
            return Ok(number);
        }
        let values = store.take(id);
        let word = |key| match field(&values, key) {
            Some(Value::Text(text)) => store.word(text).as_ref(),
            _ => "",
        };
        let (name, file) = (word(keys::NAME), word(keys::FILENAME));
        let text = match (file, field(&values, keys::LINE)) {
            ("" | "??", _) => name.to_owned(),
            (_, Some(Value::Int(line))) if line > 0 => format!("{name} ({file}:{line})"),
            _ => format!("{name} ({file})"),
        };
        // Semicolons separate the frames of a stack, so none may occur in a frame.
        let text: Arc<str> = text.replace(';', ":").into();
        let number = match self.frame_numbers.get(&text) {
            Some(number) => *number,
            None => {
                let number = self.frames.len() as u32;
                store.charge(text.len() + OVERHEAD_BYTES);
                self.frames.push(Arc::clone(&text));
                self.frame_numbers.insert(text, number);
                number
            }
        };
        store.finish(id, values, Some(Token::Second(number)));
        Ok(number)
    }

    /// Returns the number of the stack that a value stands for, and its text (outermost frame first) if it is
    /// asked for the first time. Returns `None` if there are no frames, or the stack is too long to be kept.
    pub(super) fn look_up(
        &mut self,
        value: Option<Value>,
        offset: u64,
    ) -> Result<Option<(u32, Option<Text>)>, PickleError> {
        let number = match value {
            None | Some(Value::None | Value::Token(Token::First(NO_FRAMES))) => return Ok(None),
            Some(Value::Token(Token::First(number))) => number - 1,
            Some(other) => {
                let reason =
                    format!("`frames` of what begins here is {}, not a list of frames", other.name());
                return Err(PickleError::at(offset, reason));
            }
        };
        let stack = &mut self.stacks[number as usize];
        if stack.left_out {
            return Ok(None);
        }
        let first = !std::mem::replace(&mut stack.spelled, true);
        let text = first.then(|| {
            let frames: Vec<&str> =
                stack.frames.iter().rev().map(|frame| &*self.frames[*frame as usize]).collect();
            Text::from(frames.join(";"))
        });
        Ok(Some((number, text)))
    }

    /// Returns the number of distinct stacks that are not kept because they are too long.
    pub(super) fn left_out_count(&self) -> u64 {
        self.left_out_count
    }
}
