//! Parses hexadecimal numbers of foreign texts, which have no sign: the standard library's parser accepts one.

/// Parses a hexadecimal number without a sign and without a prefix. Returns `None` if the text is none, or if 64 bits do not
/// hold it.
pub(crate) fn from_hex(digits: &str) -> Option<u64> {
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_a_number() {
        assert_eq!(from_hex("7f00"), Some(0x7f00));
        assert_eq!(from_hex("FFFFffffFFFFffff"), Some(u64::MAX));
        for text in ["", "+7f", "-1", "0x7f", "10000000000000000", " 1"] {
            assert_eq!(from_hex(text), None, "{text}");
        }
    }
}
