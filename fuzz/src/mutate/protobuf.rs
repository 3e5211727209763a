//! Changes of protocol buffers: of a field at any depth, with the lengths of the messages around it made right again.

use analyze_run::random::Random;

use super::bytes;

/// Messages within each other that are looked into.
const DEPTH: usize = 8;

/// The content of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    number: u64,
    value: Value,
}

fn varint(data: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for place in 0..10 {
        let (byte, rest) = data.split_first()?;
        *data = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn put_varint(data: &mut Vec<u8>, number: u64) {
    let mut left = number;
    while left >= 0x80 {
        data.push(left as u8 | 0x80);
        left >>= 7;
    }
    data.push(left as u8);
}

/// Reads the fields of a message; `None` if the bytes are none.
fn read(mut data: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !data.is_empty() {
        let tag = varint(&mut data)?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut data)?),
            1 => {
                let (bytes, rest) = data.split_first_chunk()?;
                data = rest;
                Value::Fixed64(*bytes)
            }
            5 => {
                let (bytes, rest) = data.split_first_chunk()?;
                data = rest;
                Value::Fixed32(*bytes)
            }
            2 => {
                let length = usize::try_from(varint(&mut data)?).ok()?;
                let (bytes, rest) = data.split_at_checked(length)?;
                data = rest;
                // A text may look like a message, and is then changed like one.
                let inner = if depth > 0 && !bytes.is_empty() { read(bytes, depth - 1) } else { None };
                inner.map_or_else(|| Value::Bytes(bytes.to_vec()), Value::Message)
            }
            _ => return None,
        };
        if tag >> 3 == 0 {
            return None;
        }
        fields.push(Field { number: tag >> 3, value });
    }
    Some(fields)
}

fn written(fields: &[Field]) -> Vec<u8> {
    let mut data = Vec::new();
    for Field { number, value } in fields {
        let tag = |data: &mut Vec<u8>, ty: u64| put_varint(data, number << 3 | ty);
        match value {
            Value::Varint(number) => {
                tag(&mut data, 0);
                put_varint(&mut data, *number);
            }
            Value::Fixed64(bytes) => {
                tag(&mut data, 1);
                data.extend(bytes);
            }
            Value::Fixed32(bytes) => {
                tag(&mut data, 5);
                data.extend(bytes);
            }
            Value::Bytes(bytes) => {
                tag(&mut data, 2);
                put_varint(&mut data, bytes.len() as u64);
                data.extend(bytes);
            }
            Value::Message(fields) => {
                let bytes = written(fields);
                tag(&mut data, 2);
                put_varint(&mut data, bytes.len() as u64);
                data.extend(bytes);
            }
        }
    }
    data
}

/// Changes one of the fields, or a field of a message in them.
fn change(fields: &mut Vec<Field>, random: &mut Random) {
    if fields.is_empty() {
        return fields.push(Field {
            number: 1 + random.below(12) as u64,
            value: Value::Varint(bytes::number(random)),
        });
    }
    let (at, other) = (random.below(fields.len()), random.below(fields.len()));
    if random.below(5) > 0
        && let Value::Message(inner) = &mut fields[at].value
    {
        return change(inner, random);
    }
    match random.below(8) {
        0 => drop(fields.remove(at)),
        1 => {
            let copy = fields[at].clone();
            fields.insert(other, copy);
        }
        2 => fields.swap(at, other),
        3 => fields[at].number = 1 + random.below(130) as u64,
        4 => fields[at].value = Value::Varint(bytes::number(random)),
        _ => match &mut fields[at].value {
            Value::Varint(number) => *number = bytes::number(random),
            Value::Fixed64(content) => *content = bytes::word(random).to_le_bytes(),
            Value::Fixed32(content) => *content = (bytes::word(random) as u32).to_le_bytes(),
            Value::Bytes(content) => bytes::bytes(content, random),
            Value::Message(inner) => {
                // What was a message becomes any bytes.
                let mut content = written(inner);
                bytes::bytes(&mut content, random);
                fields[at].value = Value::Bytes(content);
            }
        },
    }
}

/// Changes a message.
pub fn protobuf(data: &mut Vec<u8>, random: &mut Random) {
    match read(data, DEPTH) {
        Some(mut fields) if random.below(10) > 0 => {
            change(&mut fields, random);
            *data = written(&fields);
        }
        _ => bytes::bytes(data, random),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_and_written_back() {
        let bytes = b"\x0a\x09\x08\x96\x01\x12\x04\xff\xff\xff\xff\x15abcd\x19abcdefgh";
        let fields = read(bytes, DEPTH).expect("a message");
        let Value::Message(inner) = &fields[0].value else { panic!("{fields:?}") };
        assert_eq!(inner[0], Field { number: 1, value: Value::Varint(150) });
        assert_eq!(inner[1], Field { number: 2, value: Value::Bytes(vec![0xff; 4]) });
        assert_eq!(written(&fields), bytes);
        assert_eq!(read(b"\x0b", DEPTH), None);
    }
}
