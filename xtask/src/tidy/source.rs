//! A source file, divided into code, comments and tests.

use std::ops::Range;

/// A text file of the project.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path from the root, with forward slashes.
    pub path: String,
    /// Its content.
    pub text: String,
    /// The content, byte for byte, with comments and the insides of literals blanked.
    pub code: String,
    /// The content, byte for byte, with everything but comments blanked.
    pub comments: String,
    /// The lines, from 0, that belong to `#[cfg(test)]` items.
    test_lines: Vec<Range<usize>>,
}

impl Source {
    /// Splits `text`.
    pub fn new(path: &str, text: &str) -> Self {
        let (code, comments) = if path.ends_with(".rs") {
            code_and_comments(text)
        } else {
            (text.to_string(), String::new())
        };
        let test_lines = test_lines(&code);
        Self { path: path.to_string(), text: text.to_string(), code, comments, test_lines }
    }

    /// Returns whether the whole file is a test: in a folder `tests`, or a module of that name.
    pub fn is_test(&self) -> bool {
        let mut parts = self.path.split('/').rev();
        parts.next() == Some("tests.rs") || parts.any(|part| part == "tests")
    }

    /// Returns whether line `at`, counted from 0, belongs to a test.
    pub fn is_test_line(&self, at: usize) -> bool {
        self.is_test() || self.test_lines.iter().any(|lines| lines.contains(&at))
    }

    /// Returns the number of lines that neither belong to tests nor cite a requirement.
    pub fn lines_without_tests(&self) -> usize {
        let is_citation = |line: &str| line.trim_start().starts_with("//= ");
        let lines = self.text.lines().enumerate();
        lines.filter(|(at, line)| !self.is_test_line(*at) && !is_citation(line)).count()
    }

    /// Returns the lines, from 0, whose code (not comments or literals) contains `word` as a whole
    /// word.
    pub fn lines_with(&self, word: &str) -> Vec<usize> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let stands_alone = |line: &str, at: usize| {
            let goes_on_before = line[..at].ends_with(is_part) && word.starts_with(is_part);
            let behind = &line[at + word.len()..];
            let goes_on_behind = behind.starts_with(is_part) && word.ends_with(is_part);
            !goes_on_before && !goes_on_behind
        };
        self.code
            .lines()
            .enumerate()
            .filter(|(_, line)| line.match_indices(word).any(|(at, _)| stands_alone(line, at)))
            .map(|(at, _)| at)
            .collect()
    }
}

/// Returns the text with comments and the insides of literals blanked, and the text with all but
/// the comments blanked.
fn code_and_comments(text: &str) -> (String, String) {
    let clear = |bytes: &mut [u8]| {
        bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    };
    let (mut code, mut comments) = (text.as_bytes().to_vec(), text.as_bytes().to_vec());
    let mut at = 0;
    while at < text.len() {
        let end = end_of_comment_or_literal(text, at);
        match end {
            Some(end) => {
                clear(&mut code[at..end]);
                if text.as_bytes()[at] != b'/' {
                    clear(&mut comments[at..end]);
                }
                at = end;
            }
            None => {
                clear(&mut comments[at..=at]);
                at += 1;
            }
        }
    }
    let text_of = |bytes| String::from_utf8(bytes).expect("whole characters became blanks");
    (text_of(code), text_of(comments))
}

/// Returns the end of the comment or literal that begins at `at`; `None` if none begins there.
fn end_of_comment_or_literal(text: &str, at: usize) -> Option<usize> {
    let rest = text.as_bytes().get(at..)?;
    let until = |end: &str, from: usize| {
        let found = text.get(at + from..).and_then(|rest| rest.find(end));
        found.map_or(text.len(), |found| at + from + found + end.len())
    };
    match rest {
        [b'/', b'/', ..] => Some(until("\n", 0).min(text.len())),
        [b'/', b'*', ..] => Some(end_of_block_comment(text, at)),
        [b'"', ..] => Some(end_of_quoted(text, at + 1)),
        [b'r', b'"' | b'#', ..] if !follows_name(text, at) => {
            let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
            (rest.get(1 + hashes) == Some(&b'"'))
                .then(|| until(&format!("\"{}", "#".repeat(hashes)), 2 + hashes))
        }
        [b'\'', b'\\', _, ..] => Some(until("'", 3)),
        [b'\'', ..] => {
            let one = text[at + 1..].chars().next()?;
            let close = at + 1 + one.len_utf8();
            (text.as_bytes().get(close) == Some(&b'\'')).then_some(close + 1)
        }
        _ => None,
    }
}

/// Returns whether the `r` at `at` ends a name rather than opening a raw string (`br` and `cr` open
/// one).
fn follows_name(text: &str, at: usize) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let name = text.as_bytes()[..at].iter().rev().take_while(|byte| is_part(byte)).count();
    !matches!(&text[at - name..at], "" | "b" | "c")
}

fn end_of_quoted(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    while at < bytes.len() && bytes[at] != b'"' {
        at += 1 + usize::from(bytes[at] == b'\\');
    }
    (at + 1).min(bytes.len())
}

fn end_of_block_comment(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

/// Returns the lines of every item under `#[cfg(test)]`, from the attribute to its closing brace.
fn test_lines(code: &str) -> Vec<Range<usize>> {
    let line_of = |at: usize| code[..at].bytes().filter(|byte| *byte == b'\n').count();
    let mut found = Vec::new();
    for (start, attribute) in code.match_indices("#[cfg(test)]") {
        let body = start + attribute.len();
        let Some(open) = code[body..].find(['{', ';']).map(|offset| body + offset) else {
            continue;
        };
        let mut end = open;
        if code.as_bytes()[open] == b'{' {
            let mut depth = 0usize;
            for (offset, byte) in code[open..].bytes().enumerate() {
                depth += usize::from(byte == b'{');
                depth -= usize::from(byte == b'}');
                if depth == 0 {
                    end = open + offset;
                    break;
                }
            }
        }
        found.push(line_of(start)..line_of(end) + 1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_not_code() {
        let text = r####"let a = "f32 \" f32"; // f32
/* f32 /* f32 */ f32 */ let b = r#"f32 " f32"#; let c = br"f32";
let d = '"'; let e: &'static str = "f32"; let f = '\''; let bar = 1; let g: f32 = 0.0;"####;
        let source = Source::new("a.rs", text);
        assert_eq!(source.lines_with("f32"), [2]);
        assert_eq!(source.code.len(), text.len());
        assert!(source.code.contains("&'static str"), "{}", source.code);
    }

    #[test]
    fn a_word_stands_by_itself() {
        let source = Source::new("a.rs", "myf32\nf32x\nf32\nx.unwrap();\nx.unwrap_or(0)\n");
        assert_eq!(source.lines_with("f32"), [2]);
        assert_eq!(source.lines_with(".unwrap()"), [3]);
    }

    #[test]
    fn separates_test_items_from_the_rest() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { { } }\n}\nfn c() {}\n";
        let source = Source::new("src/a.rs", text);
        let tests: Vec<usize> = (0..6).filter(|at| source.is_test_line(*at)).collect();
        assert_eq!(tests, [1, 2, 3, 4]);
        assert_eq!(source.lines_without_tests(), 2);
        assert_eq!(Source::new("a.rs", "//= spec/a.md#R1\nfn a() {}\n").lines_without_tests(), 1);
        assert_eq!(Source::new("src/a/tests.rs", text).lines_without_tests(), 0);
        assert_eq!(Source::new("src/tests/pair.rs", text).lines_without_tests(), 0);
    }
}
