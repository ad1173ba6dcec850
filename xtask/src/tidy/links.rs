//! References in documents to files that do not exist.

/// Returns links to relative paths, and names of files in backticks, that do not exist.
pub fn check(path: &str, text: &str, paths: &[String]) -> Vec<String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    for (at, line) in prose(text) {
        for link in links(line) {
            let target = resolve(folder, link);
            if !is_there(&target, paths) {
                findings.push(format!("{path}:{at}: links to {link}, which is not there"));
            }
        }
        for name in names(line) {
            let ending = format!("/{name}");
            if !paths.iter().any(|path| path == name || path.ends_with(&ending)) {
                findings.push(format!("{path}:{at}: names {name}, which is not there"));
            }
        }
    }
    findings
}

/// Returns the lines outside fenced blocks, with their number from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((at + 1, line))
    })
}

/// Returns the targets of `[text](target)` that are paths of this project.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.filter(|target| !target.is_empty() && !target.contains(':'))
}

/// Returns the file names in backticks, without patterns and commands.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let is_plain = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    let endings = [".rs", ".md", ".toml", ".hex"];
    quoted.filter(move |name| {
        name.chars().all(is_plain) && endings.iter().any(|ending| name.ends_with(ending))
    })
}

fn resolve(folder: &str, link: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/').filter(|part| !part.is_empty()) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns whether `target` is a file, or a folder that holds one.
fn is_there(target: &str, paths: &[String]) -> bool {
    let inside = format!("{target}/");
    paths.iter().any(|path| path == target || path.starts_with(&inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let paths = ["README.md", "docs/wire-format.md", "protocol/wire/src/lib.rs"];
        check("docs/glossary.md", text, &paths.map(str::to_string))
    }

    #[test]
    fn what_is_there_passes() {
        let text = "[a](wire-format.md#flags) [b](../README.md) [c](../protocol/wire) \
                    [d](https://example.org/x.md) [e](#here) `src/lib.rs` `*.rs` `cargo x.rs`";
        assert_eq!(found(text), [""; 0]);
        assert_eq!(found("```\n[a](gone.md)\n```\n"), [""; 0]);
    }

    #[test]
    fn what_is_not_there_fails() {
        let gone = "links to gone.md, which is not there";
        assert_eq!(found("\n[a](gone.md)"), [format!("docs/glossary.md:2: {gone}")]);
        assert!(found("[a](../docs/wire)")[0].contains("links to ../docs/wire,"));
        assert!(found("see `wire/src/header.rs`")[0].contains("names wire/src/header.rs"));
        assert_eq!(found("see `b.rs`").len(), 1, "the end of a path is not the end of a name");
    }
}
