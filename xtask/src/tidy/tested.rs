//! Tests that a document names in a table, and that do not exist.

use super::Source;

/// Returns the tests in the columns `test` of the tables of a document that are not in `sources`. A
/// test is a name in backquotes.
pub fn check(path: &str, text: &str, sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut column = None;
    for (line, number) in text.lines().zip(1..) {
        if !line.starts_with('|') {
            column = None;
            continue;
        }
        let Some(at) = column else {
            // One that no row has: this table names no tests.
            column = line.split('|').position(|cell| cell.trim() == "test").or(Some(usize::MAX));
            continue;
        };
        let cell = line.split('|').nth(at).unwrap_or_default();
        for name in cell.split('`').skip(1).step_by(2) {
            if !sources.iter().any(|source| has_test(source, name)) {
                findings.push(format!("{path}:{number}: there is no test `{name}`"));
            }
        }
    }
    findings
}

/// Whether `source` has a function of this name with the attribute `#[test]`.
fn has_test(source: &Source, name: &str) -> bool {
    let declaration = format!("fn {name}(");
    let mut lines = source.code.lines();
    let mut is_test = false;
    lines.any(|line| {
        is_test |= line.trim() == "#[test]";
        let is_it = is_test && line.contains(&declaration);
        is_test &= !line.contains("fn ");
        is_it
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "#[test]\n#[ignore]\nfn link_is_up() {}\nfn helper() {}\n// fn gone() {}\n";

    fn found(text: &str) -> Vec<String> {
        check("docs/a.md", text, &[Source::new("a.rs", CODE)])
    }

    #[test]
    fn tests_that_exist_pass() {
        let table = "| attack | test |\n|---|---|\n| `gone` | `link_is_up` (a.rs) |\n";
        assert_eq!(found(table), [""; 0]);
        assert_eq!(found("| a | b |\n|---|---|\n| a | `gone` |\n\nSee `gone`.\n"), [""; 0]);
    }

    #[test]
    fn tests_that_do_not_exist_fail() {
        let table = "| test | a |\n|---|---|\n| `gone`, `link_is_up` | |\n| `helper` | |\n";
        let expected = ["3: there is no test `gone`", "4: there is no test `helper`"];
        assert_eq!(found(table), expected.map(|text| format!("docs/a.md:{text}")));
    }
}
