//! Private words in identifiers, file names, comments and documents.
//!
//! The words and their standard terms stand in `xtask/vocabulary.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Source;
use super::prose::Line;

const FILE: &str = "xtask/vocabulary.toml";

/// The private words, each with its standard term, by where they are refused.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vocabulary {
    everywhere: BTreeMap<String, String>,
    names: BTreeMap<String, String>,
    prose: BTreeMap<String, String>,
    exempt: BTreeMap<String, Exemption>,
}

/// Where a word is a term of the field.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exemption {
    #[serde(rename = "in")]
    paths: Vec<String>,
    /// Required, so that every exemption has a reason; only readers of the file use it.
    #[serde(rename = "why")]
    _why: String,
}

impl Vocabulary {
    /// Reads the table of the project at `root`; a project without one has no private words.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(&path).with_context(|| FILE.to_string())?;
        toml::from_str(&text).with_context(|| FILE.to_string())
    }

    /// Returns the private words in the identifiers of a Rust file.
    pub fn identifiers(&self, source: &Source) -> Vec<String> {
        let mut findings = Vec::new();
        for (at, line) in source.code.lines().enumerate() {
            for name in identifiers(line) {
                for (word, term) in
                    words_of(name).filter_map(|word| self.term_of(&source.path, word))
                {
                    findings.push(format!(
                        "{}:{}: `{name}`: not `{word}`, but {term}",
                        source.path,
                        at + 1
                    ));
                }
            }
        }
        findings
    }

    /// Returns the private words in file and folder names.
    pub fn paths(&self, paths: &[String]) -> Vec<String> {
        let mut findings = Vec::new();
        for path in paths {
            let parts = path.split(['/', '.']);
            for (word, term) in parts.flat_map(words_of).filter_map(|word| self.term_of(path, word))
            {
                findings.push(format!("{path}: not `{word}` in a file name, but {term}"));
            }
        }
        findings
    }

    /// Returns the private words and phrases in lines of comments or documents.
    pub fn prose(&self, path: &str, lines: &[Line<'_>]) -> Vec<String> {
        let mut findings = Vec::new();
        for line in lines {
            let text = without_code(line.text).to_lowercase();
            for (word, term) in self.everywhere.iter().chain(&self.prose) {
                if contains_word(&text, word) && !self.is_exempt(path, word) {
                    findings.push(format!("{path}:{}: not `{word}`, but {term}", line.number));
                }
            }
        }
        findings
    }

    /// Returns a private word of a name with its standard term; `None` for any other word.
    fn term_of(&self, path: &str, word: String) -> Option<(String, &str)> {
        let term = self.everywhere.get(&word).or_else(|| self.names.get(&word))?;
        (!self.is_exempt(path, &word)).then_some((word, term))
    }

    fn is_exempt(&self, path: &str, word: &str) -> bool {
        let exemption = self.exempt.get(word);
        exemption.is_some_and(|exempt| exempt.paths.iter().any(|prefix| path.starts_with(prefix)))
    }
}

/// Returns the identifiers of a line of code, without calls of methods of the standard library:
/// `octets()` of addresses, `peek()` of iterators and sockets.
fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let names = line.split(move |c: char| !is_part(c)).filter(|name| !name.is_empty());
    names.filter(move |name| {
        let is_call = |method: &str| *name == method && line.contains(&format!(".{method}("));
        !is_call("octets") && !is_call("peek")
    })
}

/// Returns the words of an identifier or file name, in lower case: the parts between underscores
/// and hyphens, divided before each capital. `two_way` and `one_way` are terms of OSPF, so their
/// `way` is not returned.
fn words_of(name: &str) -> impl Iterator<Item = String> {
    let mut words: Vec<String> = Vec::new();
    for part in name.split(['_', '-']).filter(|part| !part.is_empty()) {
        let mut word = String::new();
        let mut was_lower = false;
        for c in part.chars() {
            if c.is_uppercase() && was_lower {
                words.push(std::mem::take(&mut word));
            }
            was_lower = c.is_lowercase() || c.is_numeric();
            word.extend(c.to_lowercase());
        }
        let is_direction = matches!(words.last().map(String::as_str), Some("two" | "one"));
        if word == "way" && is_direction {
            words.pop();
            word = "direction".to_string();
        }
        words.push(word);
    }
    // The check above sees whole parts only: `TwoWay` is one part that gives two words.
    while let Some(at) = words
        .windows(2)
        .position(|pair| matches!(pair[0].as_str(), "two" | "one") && pair[1] == "way")
    {
        words.drain(at..at + 2);
    }
    words.into_iter()
}

/// Returns the text without what stands in backticks: identifiers are checked where they are
/// defined.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Returns whether `word`, or the words of a phrase, stand in `text` by themselves. The `life` of
/// "life cycle" is no private word.
fn contains_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(word).any(|(at, _)| {
        let behind = &text[at + word.len()..];
        let is_part_of_word = text[..at].ends_with(is_part) || behind.starts_with(is_part);
        let is_cycle = word == "life" && behind.trim_start().starts_with("cycle");
        !is_part_of_word && !is_cycle
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> Vocabulary {
        let text = "[everywhere]\ntold = 'notified'\n[names]\nway = 'path'\noctets = 'bytes'\n\
                    [prose]\n'for good' = 'permanently'\nlife = 'incarnation'\n\
                    [exempt]\ntold = { in = ['docs/'], why = 'because' }\n";
        toml::from_str(text).expect("a table")
    }

    #[test]
    fn private_words_in_identifiers_fail() {
        let code = "fn is_told() {}\nstruct LinkWay;\nlet total = 1; // told\nlet is_two_way = 2;\n\
                    let a = ip.octets();\nstruct OneWay;\nlet frame_octets = 3;\n";
        let found = vocabulary().identifiers(&Source::new("a.rs", code));
        assert_eq!(
            found,
            [
                "a.rs:1: `is_told`: not `told`, but notified",
                "a.rs:2: `LinkWay`: not `way`, but path",
                "a.rs:7: `frame_octets`: not `octets`, but bytes",
            ]
        );
    }

    #[test]
    fn private_words_in_file_names_fail() {
        let paths = ["a/ways.rs", "a/told.rs", "a/way.rs", "docs/told.md"].map(str::to_string);
        assert_eq!(vocabulary().paths(&paths).len(), 2);
    }

    #[test]
    fn private_words_and_phrases_in_prose_fail() {
        let line = |text| [Line { number: 7, text, begins_sentence: true }];
        let found = |text| vocabulary().prose("a.rs", &line(text));
        assert_eq!(found("a peer is told"), ["a.rs:7: not `told`, but notified"]);
        assert_eq!(found("gone for good."), ["a.rs:7: not `for good`, but permanently"]);
        for fine in ["`told` is a name", "the life cycle of a link", "untold", "a way to go"] {
            assert_eq!(found(fine), [""; 0], "{fine}");
        }
        assert_eq!(vocabulary().prose("docs/a.md", &line("a peer is told")), [""; 0]);
    }
}
