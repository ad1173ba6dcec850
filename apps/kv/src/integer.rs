//! Integers in the text of arguments and of values.

/// Parses an integer as Redis does: no space, no plus sign, no zero in front.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        b"0" if digits.len() == text.len() => Some(0),
        [b'1'..=b'9', ..] => core::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_plain_form_is_an_integer() {
        let limits = ["0", "7", "-7", "9223372036854775807", "-9223372036854775808"];
        for text in limits {
            assert_eq!(parse_integer(text.as_bytes()), text.parse().ok(), "{text}");
        }
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
        }
    }
}
