//! Reads the encoding of protocol buffers.

/// A field of an encoded message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) number: u64,
    /// 0: a varint; 1: eight bytes; 2: what has a length.
    pub(crate) wire: u64,
    pub(crate) value: u64,
    pub(crate) content: &'a [u8],
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            break;
        }
    }
    value
}

pub(crate) fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, wire) = (key >> 3, key & 7);
        let (value, length) = match wire {
            0 => (varint(&mut bytes), 0),
            1 => (u64::from_le_bytes(bytes[..8].try_into().unwrap()), 8),
            2 => (0, varint(&mut bytes) as usize),
            other => panic!("wire type {other}"),
        };
        let (content, rest) = bytes.split_at(length);
        bytes = rest;
        fields.push(Field { number, wire, value, content });
    }
    fields
}

/// Numbers of a packed field.
pub(crate) fn packed(mut bytes: &[u8]) -> Vec<u64> {
    std::iter::from_fn(|| (!bytes.is_empty()).then(|| varint(&mut bytes))).collect()
}

pub(crate) fn number(fields: &[Field<'_>], number: u64) -> Option<u64> {
    fields.iter().find(|field| field.number == number).map(|field| field.value)
}

pub(crate) fn content<'a>(fields: &[Field<'a>], number: u64) -> Option<&'a [u8]> {
    fields.iter().find(|field| field.number == number).map(|field| field.content)
}

pub(crate) fn text(fields: &[Field<'_>], number: u64) -> Option<String> {
    content(fields, number).map(|content| String::from_utf8(content.to_vec()).unwrap())
}
