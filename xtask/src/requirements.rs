//! `cargo xtask requirements`: every numbered requirement of `docs/spec` is cited by the code that
//! keeps it and by a test that shows it.
//!
//! A requirement is a paragraph that begins with `**R12**`. A citation is a comment on a line of
//! its own, `//= spec/ordering.md#R12`, above the item or statement that keeps the requirement.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use crate::tidy::{Project, Source};

/// A requirement: its document below `docs/`, and its number.
type Id = (String, u32);

/// Where a requirement is cited.
#[derive(Debug, Default)]
struct Citations {
    code: u32,
    tests: u32,
}

/// Checks the project at `root`.
pub fn run(root: &Path) -> Result<()> {
    let project = Project::read(root)?;
    let requirements = requirements(&project.documents);
    let findings = check(&requirements, &project.sources);
    crate::report_findings("requirements", &findings)?;
    println!("requirements: {}, each cited by code and by a test", requirements.len());
    Ok(())
}

fn requirements(documents: &[(String, String)]) -> BTreeSet<Id> {
    let mut found = BTreeSet::new();
    for (path, text) in documents.iter().filter(|(path, _)| path.starts_with("docs/spec/")) {
        let page = path.trim_start_matches("docs/").to_string();
        let numbers = text.lines().filter_map(|line| line.strip_prefix("**R")?.split_once("**"));
        found.extend(numbers.filter_map(|(number, _)| Some((page.clone(), number.parse().ok()?))));
    }
    found
}

/// Returns citations of requirements that do not exist, and requirements that lack a citation.
fn check(requirements: &BTreeSet<Id>, sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut cited: BTreeMap<&Id, Citations> =
        requirements.iter().map(|id| (id, Citations::default())).collect();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        for (at, line) in source.comments.lines().enumerate() {
            let Some(citation) = line.trim().strip_prefix("//= ") else { continue };
            let id = citation.split_once("#R").and_then(|(page, number)| {
                Some((page.to_string(), number.trim().parse::<u32>().ok()?))
            });
            match id.as_ref().and_then(|id| cited.get_mut(id)) {
                Some(citations) if source.is_test_line(at) => citations.tests += 1,
                Some(citations) => citations.code += 1,
                None => findings.push(format!(
                    "{}:{}: cites {citation}, which is no requirement of docs/spec",
                    source.path,
                    at + 1
                )),
            }
        }
    }
    for ((page, number), citations) in cited {
        if citations.code == 0 {
            findings.push(format!("docs/{page}: no code cites R{number}"));
        }
        if citations.tests == 0 {
            findings.push(format!("docs/{page}: no test cites R{number}"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let page = "# A\n\n**R1** A node MUST.\n\n**R2** A node SHOULD,\nsee **R3**.\n".to_string();
        let requirements = requirements(&[("docs/spec/a.md".to_string(), page)]);
        assert_eq!(requirements.len(), 2);
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(path, text)).collect();
        check(&requirements, &sources)
    }

    const CODE: (&str, &str) = ("a/src/b.rs", "//= spec/a.md#R1\n//= spec/a.md#R2\nfn f() {}\n");
    const TEST: (&str, &str) = ("a/tests/b.rs", "//= spec/a.md#R1\n//= spec/a.md#R2\nfn t() {}\n");

    #[test]
    fn requirements_cited_by_code_and_tests_pass() {
        assert_eq!(found(&[CODE, TEST]), [""; 0]);
    }

    #[test]
    fn requirements_without_code_or_test_fail() {
        assert_eq!(found(&[CODE]).len(), 2);
        let found = found(&[TEST]);
        assert_eq!(found, ["docs/spec/a.md: no code cites R1", "docs/spec/a.md: no code cites R2"]);
    }

    #[test]
    fn citations_of_nothing_fail() {
        let gone = ("a/src/c.rs", "//= spec/a.md#R9\nconst S: &str = \"//= spec/a.md#R8\";\n");
        let found = found(&[CODE, TEST, gone]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a/src/c.rs:1: cites spec/a.md#R9"));
    }
}
