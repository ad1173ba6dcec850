//! The rules of style that a machine can check. Each rule names its reason when it is broken.

mod links;
mod manifest;
mod names;
mod size;
mod source;
mod words;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

pub use source::Source;

/// Checks every file that git tracks or would track below `root`.
pub fn run(root: &Path) -> Result<()> {
    let ratchet = size::Ratchet::read(&root.join("xtask/tidy.toml"))?;
    let paths = files(root)?;
    let mut findings = names::paths(&paths);
    let mut sources = Vec::new();
    for path in &paths {
        if let Some(text) = text_of_interest(root, path)? {
            sources.push(Source::new(path, &text));
        }
    }
    for path in paths.iter().filter(|path| path.ends_with(".md")) {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| path.clone())?;
        findings.extend(links::check(path, &text, &paths));
    }
    for source in &sources {
        findings.extend(check(source));
    }
    findings.extend(size::check(&sources, &ratchet));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).context(path.to_string());
    findings.extend(manifest::reasons(&read("Cargo.toml")?, &read("CONTRIBUTING.md")?));
    crate::conclude("tidy", &findings)?;
    println!("tidy: {} files, of which {} are source", paths.len(), sources.len());
    Ok(())
}

/// All rules that need no more than one file.
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

fn text_of_interest(root: &Path, path: &str) -> Result<Option<String>> {
    let is_manifest = path.ends_with("/Cargo.toml") && !path.starts_with("verify/fuzz/");
    let is_source = [".rs", ".c", ".h", ".p4", ".py", ".lua"].iter().any(|end| path.ends_with(end));
    if !(is_manifest || is_source) {
        return Ok(None);
    }
    let text = std::fs::read_to_string(root.join(path)).with_context(|| path.to_string())?;
    Ok(Some(text))
}

/// The paths of the project, relative to the root: tracked, or new and not ignored.
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

    /// The whole way: a project on disk that breaks one rule of each kind.
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
