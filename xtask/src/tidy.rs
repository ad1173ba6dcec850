//! `cargo xtask tidy`: the rules of style that a program can check. Each finding names the reason.

mod cycles;
mod links;
mod manifest;
mod names;
mod prose;
mod references;
mod size;
mod source;
mod tested;
mod vocabulary;
mod words;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use prose::Line;
use references::Documents;
pub use source::Source;
use vocabulary::Vocabulary;

/// Checks every file that git tracks or would track below `root`.
pub fn run(root: &Path) -> Result<()> {
    let ratchet = size::Ratchet::read(&root.join("xtask/tidy.toml"))?;
    let project = Project::read(root)?;
    let mut findings = names::paths(&project.paths);
    for (path, text) in &project.documents {
        findings.extend(links::check(path, text, &project.paths));
        findings.extend(tested::check(path, text, &project.sources));
    }
    for source in &project.sources {
        findings.extend(check(source));
    }
    findings.extend(size::check(&project.sources, &ratchet));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).context(path.to_string());
    findings.extend(manifest::reasons(&read("Cargo.toml")?, &read("CONTRIBUTING.md")?));
    let language = Language::of(&project, &Vocabulary::read(root)?);
    findings.extend(language.findings().cloned());
    crate::report_findings("tidy", &findings)?;
    println!("tidy: {} files, of which {} are source", project.paths.len(), project.sources.len());
    Ok(())
}

/// Prints the number of findings about the language of the project at `root`, by kind, and how
/// often standard terms occur. The table of words is that of this program's own checkout, so that
/// two states of the project can be compared. With `has_list` the findings precede the counts.
pub fn count(root: &Path, has_list: bool) -> Result<()> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let project = Project::read(root)?;
    let language = Language::of(&project, &Vocabulary::read(&own)?);
    for finding in language.findings().filter(|_| has_list) {
        println!("{finding}");
    }
    for (kind, count) in language.counts() {
        println!("{count:>6}  {kind}");
    }
    for term in STANDARD_TERMS {
        let count: usize =
            project.sources.iter().map(|s| s.text.to_lowercase().matches(term).count()).sum();
        println!("{count:>6}  \"{term}\" in sources");
    }
    Ok(())
}

/// Terms of the field that `count` looks for.
const STANDARD_TERMS: &[&str] =
    &["retransmi", "handshake", "backpressure", "flow control", "heartbeat", "in flight"];

/// The files that the rules check.
pub struct Project {
    /// Every path, relative to the root.
    pub paths: Vec<String>,
    /// Every source file and manifest.
    pub sources: Vec<Source>,
    /// Path and text of each Markdown document.
    pub documents: Vec<(String, String)>,
}

impl Project {
    /// Reads the project at `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let paths = files(root)?;
        let (mut sources, mut documents) = (Vec::new(), Vec::new());
        for path in &paths {
            if let Some(text) = read_source(root, path)? {
                sources.push(Source::new(path, &text));
            } else if path.ends_with(".md") {
                let text = std::fs::read_to_string(root.join(path));
                documents.push((path.clone(), text.with_context(|| path.clone())?));
            }
        }
        Ok(Self { paths, sources, documents })
    }
}

/// Findings about names and sentences, by kind.
#[derive(Debug, Default)]
struct Language {
    kinds: Vec<(&'static str, Vec<String>)>,
}

impl Language {
    fn of(project: &Project, vocabulary: &Vocabulary) -> Self {
        let rust = || project.sources.iter().filter(|source| source.path.ends_with(".rs"));
        let comments: Vec<(&str, Vec<Line<'_>>)> =
            rust().map(|source| (source.path.as_str(), prose::of_comments(source))).collect();
        // The changelog calls past things by the names that they had.
        let current = project.documents.iter().filter(|(path, _)| path != "CHANGELOG.md");
        let pages: Vec<(&str, Vec<Line<'_>>)> =
            current.map(|(path, text)| (path.as_str(), prose::of_document(text))).collect();
        let documents = Documents { paths: &project.paths, texts: &project.documents };
        let private = |lines: &[(&str, Vec<Line<'_>>)]| {
            lines.iter().flat_map(|(path, lines)| vocabulary.prose(path, lines)).collect()
        };
        let bare = |lines: &[(&str, Vec<Line<'_>>)]| {
            lines.iter().flat_map(|(path, lines)| prose::bare_subjects(path, lines)).collect()
        };
        let kinds = vec![
            (
                "private words in identifiers",
                rust().flat_map(|source| vocabulary.identifiers(source)).collect(),
            ),
            ("private words in file names", vocabulary.paths(&project.paths)),
            ("private words in comments", private(&comments)),
            ("private words in documents", private(&pages)),
            ("comment sentences that begin with who, nobody, …", bare(&comments)),
            ("document sentences that begin with who, nobody, …", bare(&pages)),
            ("doc comments of one word", rust().flat_map(prose::empty_docs).collect()),
            ("test names above 60 characters", rust().flat_map(prose::long_test_names).collect()),
            (
                "references that lead nowhere",
                comments.iter().flat_map(|(path, lines)| documents.check(path, lines)).collect(),
            ),
            ("pairs of files that import each other", cycles::check(&project.sources)),
        ];
        Self { kinds }
    }

    fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.kinds.iter().map(|(kind, findings)| (*kind, findings.len()))
    }

    fn findings(&self) -> impl Iterator<Item = &String> {
        self.kinds.iter().flat_map(|(_, findings)| findings)
    }
}

/// Applies the rules that need only one file.
fn check(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    if source.path.ends_with(".rs") {
        findings.extend(size::width(source));
        findings.extend(names::items(source));
        findings.extend(words::check(source));
    } else if source.path.ends_with("/Cargo.toml") {
        findings.extend(manifest::check(source));
    }
    findings
}

/// Returns the text of a source file or manifest; `None` for any other file.
fn read_source(root: &Path, path: &str) -> Result<Option<String>> {
    let is_manifest = path.ends_with("/Cargo.toml") && !path.starts_with("verify/fuzz/");
    let is_source = [".rs", ".c", ".h", ".p4", ".py", ".lua"].iter().any(|end| path.ends_with(end));
    if !(is_manifest || is_source) {
        return Ok(None);
    }
    let text = std::fs::read_to_string(root.join(path)).with_context(|| path.to_string())?;
    Ok(Some(text))
}

/// Returns the paths of the project, relative to the root: tracked, or new and not ignored.
fn files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .context("running git ls-files")?;
    ensure!(output.status.success(), "git ls-files failed in {}", root.display());
    let listed = String::from_utf8(output.stdout).context("paths are UTF-8")?;
    let mut paths: Vec<String> = listed.split_terminator('\0').map(str::to_string).collect();
    // A file that has been deleted and not yet committed is still listed.
    paths.retain(|path| root.join(path).is_file());
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// End to end: a project on disk that breaks a rule.
    #[test]
    fn a_made_up_project_that_breaks_the_rules_fails() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let root = root.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("inside")).expect("make a folder");
            std::fs::write(path, text).expect("write a file");
        };
        let git = Command::new("git").args(["init", "--quiet"]).current_dir(root).status();
        assert!(git.expect("git runs").success());
        write("xtask/tidy.toml", "[lines]\n");
        write("Cargo.toml", "[workspace]\n");
        write("CONTRIBUTING.md", "# Contributing\n");
        write("cli/src/main.rs", "//! Says nothing.\n\nfn main() {}\n");
        run(root).expect("a tidy project");

        write("cli/src/utils.rs", "fn f() {}\n");
        let refused = run(root).expect_err("a banned name");
        assert_eq!(refused.to_string(), "tidy: 1 found");
    }
}
