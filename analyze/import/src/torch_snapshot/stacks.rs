//! Call stacks, each distinct one with a number and spelled out once.
//!
//! A snapshot has a list of frames for nearly every event, innermost first; most of them are equal. A list
//! becomes a number as soon as an event has it, and so does a frame.

use std::{collections::HashMap, sync::Arc};

use trace_schema::Text;

use crate::pickle::{ObjectId, PickleError, Shape, Store, Token, Value};

use super::{fields::field, keys};

/// Longest text of one stack; a longer one is not kept.
const STACK_BYTES: usize = 1 << 20;
/// Texts of all stacks; beyond it, new ones are not kept.
const ALL_BYTES: usize = 256 << 20;
/// Memory that a stack costs besides its frames' numbers.
const OVERHEAD_BYTES: usize = 96;

/// A distinct stack.
struct Stack {
    frames: Arc<[u32]>,
    /// Its text is too long to keep.
    left_out: bool,
    spelled: bool,
}

/// All distinct stacks and frames.
#[derive(Default)]
pub(super) struct Stacks {
    frames: Vec<Arc<str>>,
    frame_numbers: HashMap<Arc<str>, u32>,
    stacks: Vec<Stack>,
    stack_numbers: HashMap<Arc<[u32]>, u32>,
    text_bytes: usize,
    scratch: Vec<u32>,
    /// Stacks that were too long.
    left_out_count: u64,
}

/// Stands for a list without frames. (Numbers of stacks begin behind it.)
const NO_FRAMES: u32 = 0;

impl Stacks {
    /// What takes the place of a list of frames; what is no list stays what it is.
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

    /// The number of the stack in the scratch list.
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

    /// The number of a frame that has not been read yet, or of one that this list has had before.
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
        // Semicolons are between frames.
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

    /// The number of the stack that a value stands for, and its text (outermost first) when it is first asked
    /// for. `None`: there are no frames, or they were too many.
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

    /// Stacks that were too long to keep.
    pub(super) fn left_out_count(&self) -> u64 {
        self.left_out_count
    }
}
