//! Decodes integers as pickles write them.

use super::Value;

/// Decodes an integer in two's complement, little-endian. An empty slice is 0.
pub(super) fn long(bytes: &[u8]) -> Value {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let fill = if negative { 0xff } else { 0 };
    let (low, high) = bytes.split_at(bytes.len().min(8));
    let mut eight = [fill; 8];
    eight[..low.len()].copy_from_slice(low);
    if high.iter().any(|byte| *byte != fill) {
        return Value::Huge;
    }
    let value = i64::from_le_bytes(eight);
    match (value < 0) == negative {
        true => Value::Int(value),
        false if !negative => Value::Unsigned(value as u64),
        false => Value::Huge,
    }
}

/// Parses a decimal integer. Returns `None` if the text is not one.
pub(super) fn decimal(text: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if let Ok(value) = text.parse() {
        return Some(Value::Int(value));
    }
    if let Ok(value) = text.parse() {
        return Some(Value::Unsigned(value));
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    whole.then_some(Value::Huge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longs_of_every_length() {
        assert_eq!(long(&[]), Value::Int(0));
        assert_eq!(long(&[0xff]), Value::Int(-1));
        assert_eq!(long(&[0xff, 0]), Value::Int(255));
        assert_eq!(long(&[0, 0, 0, 0x74, 0xe8, 0x7f]), Value::Int(0x7fe8_7400_0000));
        assert_eq!(long(&[0, 0, 0, 0, 0, 0, 0, 0x80]), Value::Int(i64::MIN));
        assert_eq!(long(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0]), Value::Unsigned(1 << 63));
        assert_eq!(long(&[0, 0, 0, 0, 0, 0, 0, 0, 1]), Value::Huge);
        assert_eq!(long(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff]), Value::Huge);
    }

    #[test]
    fn decimals() {
        assert_eq!(decimal(b"-12"), Some(Value::Int(-12)));
        assert_eq!(decimal(b"18446744073709551615"), Some(Value::Unsigned(u64::MAX)));
        assert_eq!(decimal(b"99999999999999999999999"), Some(Value::Huge));
        for bad in [&b""[..], b"-", b"1x", b"\xff", b"1.5"] {
            assert_eq!(decimal(bad), None);
        }
    }
}
