//! Glob patterns of `KEYS` and `SCAN`.

/// Returns whether the whole text matches the pattern: `*`, `?`, `[a-c]`, `[^a]` and `\` before a
/// character that stands for itself. Takes time in proportion to the product of the lengths.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to continue if what follows the last `*` does not match: the star takes one byte more.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        match (single(&pattern[p..]), text.get(t)) {
            (None, None) => return true,
            (Some(single), Some(&byte)) if single.accepts(byte) => {
                p += single.len();
                t += 1;
                continue;
            }
            _ => {}
        }
        match retry {
            Some((after_star, from)) if from < text.len() => {
                (p, t) = (after_star, from + 1);
                retry = Some((after_star, t));
            }
            _ => return false,
        }
    }
}

/// The part of a pattern that matches one byte.
enum Single<'a> {
    Any,
    Byte { byte: u8, len: usize },
    Class { body: &'a [u8], is_negated: bool, len: usize },
}

/// Parses the first part of a pattern; `None` at its end.
fn single(pattern: &[u8]) -> Option<Single<'_>> {
    Some(match pattern {
        [] => return None,
        [b'?', ..] => Single::Any,
        [b'\\', byte, ..] => Single::Byte { byte: *byte, len: 2 },
        [b'[', rest @ ..] => {
            let is_negated = rest.first() == Some(&b'^');
            let start = usize::from(is_negated);
            let mut end = start;
            // A class without its bracket extends to the end of the pattern, as in Redis.
            while end < rest.len() && rest[end] != b']' {
                end += if rest[end] == b'\\' && end + 1 < rest.len() { 2 } else { 1 };
            }
            let len = (end + 2).min(pattern.len());
            Single::Class { body: &rest[start..end], is_negated, len }
        }
        [byte, ..] => Single::Byte { byte: *byte, len: 1 },
    })
}

impl Single<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Any => 1,
            Self::Byte { len, .. } | Self::Class { len, .. } => *len,
        }
    }

    fn accepts(&self, byte: u8) -> bool {
        match self {
            Self::Any => true,
            Self::Byte { byte: expected, .. } => *expected == byte,
            Self::Class { body, is_negated, .. } => class_has(body, byte) != *is_negated,
        }
    }
}

fn class_has(mut body: &[u8], byte: u8) -> bool {
    while !body.is_empty() {
        let (is_member, rest) = match body {
            [b'\\', escaped, rest @ ..] => (*escaped == byte, rest),
            [first, b'-', last, rest @ ..] => {
                ((*first.min(last)..=*first.max(last)).contains(&byte), rest)
            }
            [first, rest @ ..] => (*first == byte, rest),
            [] => return false,
        };
        if is_member {
            return true;
        }
        body = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("a*", "b", false),
            ("h?llo", "hello", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h[ab", "hb", true),
            ("h\\*", "h*", true),
            ("h\\*", "hx", false),
            ("[\\]]", "]", true),
            ("*a*b*c", "xxaxxbxxbxc", true),
            ("*a*b*c", "xxaxxbxxbx", false),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let text = [b'a'; 2_000];
        let pattern: alloc::vec::Vec<u8> = b"a*".iter().copied().cycle().take(400).collect();
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_patterns_never_panic(pattern in "[ab*?^\\\\\\[\\]-]{0,12}", text in "[ab\\]]{0,8}") {
            matches(pattern.as_bytes(), text.as_bytes());
            let star = [pattern.as_bytes(), b"*"].concat();
            // What a pattern matches is matched with a star behind it, unless it ends in a class
            // without its bracket, or in a backslash.
            if matches(pattern.as_bytes(), text.as_bytes()) && !pattern.contains(['[', '\\']) {
                assert!(matches(&star, text.as_bytes()));
            }
        }
    }
}
