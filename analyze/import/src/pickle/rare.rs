//! Executes opcodes that occur rarely: those of old protocols, of sets and tuples, and those that are
//! refused.

use super::{
    Consumer, Machine, PickleError,
    number::{decimal, long},
    opcode::refused,
    text::{unescape_unicode, unquote},
    value::{Shape, Value},
};

/// The newest protocol that can be read.
const PROTOCOL: u8 = 5;

impl Machine<'_> {
    /// Executes an opcode that occurs rarely.
    pub(super) fn rare(&mut self, code: u8, consumer: &mut impl Consumer) -> Result<(), PickleError> {
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

    /// Returns the error for an opcode that is not executed.
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

    /// Executes the opcodes that make a container of values on the stack, and those of sets.
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
}
