//! Inline commands: a line of words, as one types it in telnet.

/// Splits a line into words as Redis does. A word may be in double quotes, with the escapes `\n`,
/// `\r`, `\t`, `\b`, `\a`, `\xHH` and `\` before any other byte, or in single quotes, with the
/// escape `\'`. Returns `None` if a quote is not closed, or if no space follows it.
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = take_word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

fn take_word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] | [0, ..] => return Some((word, &[])),
            [byte, ..] if byte.is_ascii_whitespace() => return Some((word, rest)),
            [b'"', after @ ..] => rest = take_double_quoted(after, &mut word)?,
            [b'\'', after @ ..] => rest = take_single_quoted(after, &mut word)?,
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn take_double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, after) = match rest {
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) << 4 | hex(*low), after)
            }
            [b'\\', escaped, after @ ..] => (unescape(*escaped), after),
            [b'"', after @ ..] => return ends_word(after).then_some(after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        word.push(byte);
        rest = after;
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, after) = match rest {
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [b'\'', after @ ..] => return ends_word(after).then_some(after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        word.push(byte);
        rest = after;
    }
}

/// Returns whether a closing quote is followed by a space, or by nothing.
fn ends_word(after: &[u8]) -> bool {
    after.first().is_none_or(u8::is_ascii_whitespace)
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

/// Returns the value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.to_ascii_lowercase() - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split(line.as_bytes())?;
        Some(words.iter().map(|word| word.escape_ascii().to_string()).collect())
    }

    #[test]
    fn words_are_split_at_spaces() {
        assert_eq!(words("  set  a\tb "), Some(vec!["set".into(), "a".into(), "b".into()]));
        assert_eq!(words(" "), Some(vec![]));
    }

    #[test]
    fn quotes_hold_spaces_and_escapes() {
        assert_eq!(words(r#""a b" 'c "d'"#), Some(vec!["a b".into(), "c \\\"d".into()]));
        assert_eq!(words(r#""\x41\n\"" '\''"#), Some(vec!["A\\n\\\"".into(), "\\'".into()]));
        assert_eq!(words(r#""\xzz""#), Some(vec!["xzz".into()]));
        assert_eq!(words(r#"a"b""#), Some(vec!["ab".into()]));
        assert_eq!(words(r#""""#), Some(vec![String::new()]));
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [r#""a"#, "'a", r#""a"b"#, "'a'b", r#""a\"#] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
