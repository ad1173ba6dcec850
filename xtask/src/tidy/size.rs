//! Limits on the length of files and lines.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Source;

/// The maximum length of a file without its tests. A file that is listed in `xtask/tidy.toml` may
/// be longer, and may only shrink.
const LINES_MAX: usize = 500;
/// The maximum length of a file with its tests, listed or not.
const LINES_WITH_TESTS_MAX: usize = 800;
const REMEDY: &str = "divide it into the stages that a message passes";
/// The maximum width of a line, in characters (rustfmt does not wrap strings, comments and macros).
const WIDTH_MAX: usize = 100;

/// The files that are longer than [`LINES_MAX`], with the length that each had when the list was
/// last changed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratchet {
    #[serde(default)]
    lines: BTreeMap<String, usize>,
}

impl Ratchet {
    /// Reads the list.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }
}

/// Returns the files that are too long, and the entries of the list that are out of date.
pub fn check(sources: &[Source], ratchet: &Ratchet) -> Vec<String> {
    let mut findings = Vec::new();
    let is_program = |source: &&Source| !source.path.ends_with(".toml");
    for source in sources.iter().filter(is_program) {
        let (path, lines) = (&source.path, source.lines_without_tests());
        let with_tests = source.text.lines().count();
        if with_tests > LINES_WITH_TESTS_MAX {
            findings.push(format!(
                "{path}: {with_tests} lines, above {LINES_WITH_TESTS_MAX}: {REMEDY}"
            ));
        }
        match ratchet.lines.get(path) {
            None if lines > LINES_MAX => findings
                .push(format!("{path}: {lines} lines without tests, above {LINES_MAX}: {REMEDY}")),
            Some(listed) if lines > *listed => findings.push(format!(
                "{path}: {lines} lines without tests; a listed file only shrinks, it had {listed}"
            )),
            Some(_) if lines <= LINES_MAX => {
                findings.push(format!("{path}: short enough now, take it off xtask/tidy.toml"));
            }
            Some(listed) if lines < *listed => {
                findings.push(format!("{path}: has shrunk, write {lines} in xtask/tidy.toml"));
            }
            _ => {}
        }
    }
    for listed in ratchet.lines.keys() {
        if !sources.iter().any(|source| source.path == *listed) {
            findings.push(format!("{listed}: is gone, take it off xtask/tidy.toml"));
        }
    }
    findings
}

/// Returns comments that are too wide; rustfmt handles code. URLs and rows of tables cannot be
/// wrapped and are exempt.
pub fn width(source: &Source) -> Vec<String> {
    let is_row = |line: &str| {
        let line = line.trim_start();
        line.starts_with("//! |") || line.starts_with("/// |")
    };
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let is_too_wide = |line: &str| {
        let is_wide = line.chars().count() > WIDTH_MAX;
        is_wide && is_comment(line) && !line.contains("://") && !is_row(line)
    };
    let lines = source.text.lines().enumerate().filter(|(_, line)| is_too_wide(line));
    let path = &source.path;
    lines.map(|(at, _)| format!("{path}:{}: wider than {WIDTH_MAX} characters", at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: usize) -> Source {
        Source::new("cli/src/long.rs", &"fn f() {}\n".repeat(lines))
    }

    fn listed(lines: usize) -> Ratchet {
        Ratchet { lines: BTreeMap::from([("cli/src/long.rs".to_string(), lines)]) }
    }

    #[test]
    fn a_file_at_the_limit_passes_and_one_above_fails() {
        assert_eq!(check(&[file(500)], &Ratchet::default()), [""; 0]);
        assert!(check(&[file(501)], &Ratchet::default())[0].contains("501 lines without tests"));
    }

    #[test]
    fn tests_do_not_count_until_the_hard_limit() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// A test.\n".repeat(400));
        let long = Source::new("cli/src/a.rs", &("fn f() {}\n".repeat(300) + &tests));
        assert_eq!(check(&[long], &Ratchet::default()), [""; 0]);
        let longer = Source::new("cli/src/a.rs", &("fn f() {}\n".repeat(400) + &tests));
        assert!(check(&[longer], &Ratchet::default())[0].contains("above 800"));
    }

    #[test]
    fn a_listed_file_only_shrinks() {
        assert_eq!(check(&[file(600)], &listed(600)), [""; 0]);
        assert!(check(&[file(601)], &listed(600))[0].contains("only shrinks"));
        assert!(check(&[file(599)], &listed(600))[0].contains("write 599"));
        assert!(check(&[file(500)], &listed(600))[0].contains("take it off"));
        assert!(check(&[], &listed(600))[0].contains("is gone"));
        assert!(check(&[file(801)], &listed(801))[0].contains("above 800"));
    }

    #[test]
    fn a_wide_line_fails() {
        let line = |width: usize| Source::new("a.rs", &format!("//{}\n", "é".repeat(width - 2)));
        assert_eq!(width(&line(100)), [""; 0]);
        assert_eq!(width(&line(101)), ["a.rs:1: wider than 100 characters"]);
        let row = Source::new("a.rs", &format!("    /// | {} |\n", "x".repeat(100)));
        assert_eq!(width(&row), [""; 0]);
        let code = Source::new("a.rs", &format!("    say(\"{}\");\n", "x".repeat(100)));
        assert_eq!(width(&code), [""; 0]);
    }
}
