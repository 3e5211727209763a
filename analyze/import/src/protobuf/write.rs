//! Writes messages: a message is a buffer to which fields are appended.

use super::{BYTES, FIXED64, VARINT};

/// A message to which fields can be appended.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Appends a field of a varint type: int64, uint64, uint32, bool or enum.
    pub fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | VARINT);
        self.varint(value);
    }

    /// Appends a packed repeated field of a varint type. Appends nothing if `values` is empty.
    pub fn packed(&mut self, field: u64, values: &[u64]) {
        if !values.is_empty() {
            let mut packed = Self::default();
            values.iter().for_each(|value| packed.varint(*value));
            self.message(field, &packed);
        }
    }

    /// Appends a field of type fixed64.
    pub fn fixed64(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | FIXED64);
        self.0.extend(value.to_le_bytes());
    }

    /// Appends a field of type double.
    pub fn double(&mut self, field: u64, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    /// Appends a field of type string or bytes.
    pub fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    /// Appends a field that is a message.
    pub fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    /// Appends a field that is a message, which `build` fills.
    pub fn with(&mut self, field: u64, build: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        build(&mut inner);
        self.message(field, &inner);
    }

    /// Returns whether no field was appended.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the encoded message.
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected bytes are the examples of the format's own documentation.
    #[test]
    fn fields_are_encoded_as_documented() {
        let mut message = Message::default();
        message.number(1, 150);
        message.bytes(2, b"testing");
        message.with(3, |inner| inner.number(1, 150));
        assert_eq!(message.encoded(), b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01");
        let mut packed = Message::default();
        packed.packed(6, &[3, 270, 86942]);
        packed.packed(7, &[]);
        assert_eq!(packed.encoded(), b"\x32\x06\x03\x8e\x02\x9e\xa7\x05");
        let mut fixed = Message::default();
        fixed.double(1, 1.0);
        fixed.number(2, u64::MAX);
        assert_eq!(fixed.encoded(), b"\x09\0\0\0\0\0\0\xf0\x3f\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    }
}
