//! The prose of the project: lines of comments and of documents, and how their sentences begin.

use super::Source;

/// A line of prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its number in the file, from 1.
    pub number: usize,
    /// Its text without comment markers.
    pub text: &'a str,
    /// Whether it begins a comment, a paragraph or a list item, so that its first word begins a
    /// sentence.
    pub begins_sentence: bool,
}

/// Subjects without an antecedent. "Nobody waits" says less than "no thread waits".
const BARE: &[&str] =
    &["Who", "Whoever", "Whose", "Whom", "Nobody", "Somebody", "Everybody", "Anybody"];

/// Returns the lines of a Rust file's comments.
pub fn of_comments(source: &Source) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (at, comment) in source.comments.lines().enumerate() {
        let Some(start) = comment.find("//") else { continue };
        let text = &source.text.lines().nth(at).unwrap_or_default()[start..];
        let text = text.trim_start_matches('/').trim_start_matches('!').trim();
        let follows = lines.last().is_some_and(|last| last.number == at && !last.text.is_empty());
        let begins_sentence = !follows || begins_item(text);
        lines.push(Line { number: at + 1, text, begins_sentence });
    }
    without_fences(lines)
}

/// Returns the lines of a Markdown document.
pub fn of_document(text: &str) -> Vec<Line<'_>> {
    let mut was_empty = true;
    let mut lines = Vec::new();
    for (at, text) in text.lines().enumerate() {
        let text = text.trim();
        let begins_sentence = was_empty || begins_item(text);
        was_empty = text.is_empty();
        lines.push(Line { number: at + 1, text, begins_sentence });
    }
    without_fences(lines)
}

fn begins_item(text: &str) -> bool {
    text.starts_with(['#', '|', '*', '-'])
}

fn without_fences(lines: Vec<Line<'_>>) -> Vec<Line<'_>> {
    let mut is_fenced = false;
    let mut prose = Vec::new();
    for line in lines {
        let is_fence = line.text.starts_with("```");
        is_fenced ^= is_fence;
        if !is_fenced && !is_fence {
            prose.push(line);
        }
    }
    prose
}

/// Returns the sentences that begin with one of [`BARE`].
pub fn bare_subjects(path: &str, lines: &[Line<'_>]) -> Vec<String> {
    let mut findings = Vec::new();
    for line in lines {
        for word in first_words(line).filter(|word| BARE.contains(word)) {
            findings.push(format!(
                "{path}:{}: a sentence begins with `{word}`: name its subject",
                line.number
            ));
        }
    }
    findings
}

/// Returns the first word of each sentence that begins on this line. Questions are exempt: they are
/// headings of the design documents.
fn first_words<'a>(line: &Line<'a>) -> impl Iterator<Item = &'a str> {
    let text = line.text.trim_start_matches(['#', '*', '-', '|', ' ', '"']);
    let first = (line.begins_sentence && !line.text.ends_with('?')).then(|| word(text));
    let later = text.match_indices(". ").map(|(at, end)| word(&text[at + end.len()..]));
    first.into_iter().chain(later)
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

/// Returns the doc comments that are one word: they satisfy a lint and say nothing.
pub fn empty_docs(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    let docs: Vec<(usize, &str)> = source
        .text
        .lines()
        .enumerate()
        .filter_map(|(at, line)| Some((at, line.trim_start().strip_prefix("///")?.trim())))
        .collect();
    for (index, (at, text)) in docs.iter().enumerate() {
        let follows = index > 0 && docs[index - 1].0 + 1 == *at;
        let goes_on = docs.get(index + 1).is_some_and(|next| next.0 == at + 1);
        if !follows && !goes_on && !text.contains(' ') && !text.contains('`') {
            findings.push(format!(
                "{}:{}: `/// {text}` says nothing: what is it, in which unit?",
                source.path,
                at + 1
            ));
        }
    }
    findings
}

/// A test's name is a line of a report.
const TEST_NAME_MAX: usize = 60;

/// Returns the tests whose names are too long.
pub fn long_test_names(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    let mut is_test = false;
    for (at, line) in source.code.lines().enumerate() {
        let line = line.trim();
        is_test |= line.starts_with("#[test]");
        let Some((_, rest)) = line.split_once("fn ") else { continue };
        let name = rest.split(['(', '<']).next().unwrap_or_default();
        if std::mem::take(&mut is_test) && name.len() > TEST_NAME_MAX {
            findings.push(format!(
                "{}:{}: `{name}` has {} characters, above {TEST_NAME_MAX}",
                source.path,
                at + 1,
                name.len()
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_with_a_bare_subject_fail() {
        let text = "/// Whoever joins is late. Nobody waits.\n/// Who is there.\nfn f() {}\n\
                    // A process that waits for\n// Nobody, the pseudonym. Fine.\n\n\
                    // Whose? It is.\n";
        let source = Source::new("a.rs", text);
        let found = bare_subjects("a.rs", &of_comments(&source));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("a.rs:1:") && found[0].contains("`Whoever`"));
        assert!(found[1].contains("`Nobody`"));
        assert!(found[2].contains("a.rs:7:"));
    }

    #[test]
    fn documents_are_read_without_their_code() {
        let text = "# Who may import whom?\n\nNobody waits.\n\n```text\nNobody.\n```\n- Who.\n";
        let found = bare_subjects("a.md", &of_document(text));
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn doc_comments_of_one_word_fail() {
        let text = "/// Which.\na: u8,\n/// `Which`\nb: u8,\n/// Packets\n/// sent.\nc: u8,\n";
        assert_eq!(empty_docs(&Source::new("a.rs", text)).len(), 1);
    }

    #[test]
    fn long_test_names_fail() {
        let name = "a".repeat(61);
        let text =
            format!("#[test]\nfn {name}() {{}}\nfn {name}() {{}}\n#[test]\nfn short() {{}}\n");
        assert_eq!(long_test_names(&Source::new("a.rs", &text)).len(), 1);
    }
}
