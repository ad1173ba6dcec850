//! Files of one crate that import each other: one of the two holds what belongs to the other.
//!
//! A module and the modules directly below it count as one unit: a child may add methods to its
//! parent's type. Paths are resolved through `use` declarations and re-exports, as far as their
//! text shows.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// The path of a module inside its crate: `["send", "credit"]`; the crate root is empty.
type Module = Vec<String>;

/// How far re-exports are followed.
const REEXPORTS_MAX: u32 = 4;

/// Returns the pairs of files that import each other.
pub fn check(sources: &[Source]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Crate<'_>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        if let Some((folder, file)) = source.path.split_once("/src/")
            && let Some(file) = file.strip_suffix(".rs")
        {
            crates.entry(folder).or_default().files.insert(module(file), File::new(source));
        }
    }
    crates.values().flat_map(Crate::mutual_imports).collect()
}

fn module(file: &str) -> Module {
    let mut parts: Module = file.split('/').map(str::to_string).collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// A file and the paths that it names.
struct File<'a> {
    path: &'a str,
    imports: Vec<Vec<String>>,
    /// Those of `imports` that the file exports again.
    reexports: Vec<Vec<String>>,
}

impl<'a> File<'a> {
    fn new(source: &'a Source) -> Self {
        let lines = source.code.lines().enumerate();
        let code: String = lines
            .filter(|(at, _)| !source.is_test_line(*at))
            .flat_map(|(_, line)| [line.trim(), "\n"])
            .collect();
        let (mut imports, mut reexports) = (Vec::new(), Vec::new());
        let mut rest = code.as_str();
        while let Some(at) = next_use(rest) {
            let end = rest[at..].find(';').map_or(rest.len(), |end| at + end);
            let line_start = rest[..at].rfind('\n').map_or(0, |start| start + 1);
            let is_public = rest[line_start..at].starts_with("pub");
            let paths = expand(rest[at + "use ".len()..end].trim());
            if is_public {
                reexports.extend(paths.iter().cloned());
            }
            imports.extend(paths);
            rest = &rest[end..];
        }
        imports.extend(qualified(&code));
        Self { path: &source.path, imports, reexports }
    }
}

/// Returns where the next `use` declaration begins.
fn next_use(code: &str) -> Option<usize> {
    let starts = code.match_indices("use ").map(|(at, _)| at);
    starts.into_iter().find(|at| {
        let line = &code[code[..*at].rfind('\n').map_or(0, |start| start + 1)..*at];
        line.is_empty() || (line.starts_with("pub") && line.ends_with([' ']) && !line.contains(';'))
    })
}

/// Returns the paths of a use tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        let parts = path.split("::").map(|part| part.trim().to_string());
        return vec![parts.filter(|part| !part.is_empty()).collect()];
    };
    let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
    let (mut depth, mut start, mut branches) = (0, 0, Vec::new());
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                branches.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    branches.push(&inside[start..]);
    let branches = branches.into_iter().map(str::trim).filter(|branch| !branch.is_empty());
    branches.flat_map(|branch| expand(&format!("{prefix}{branch}"))).collect()
}

/// Returns the paths in code that begin with `crate::`, `super::` or `self::`.
fn qualified(code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = code.split(move |c: char| !is_part(c)).filter(|path| {
        ["crate::", "super::", "self::"].iter().any(|start| path.starts_with(start))
    });
    paths
        .map(|path| path.split("::").filter(|part| !part.is_empty()).map(str::to_string).collect())
        .collect()
}

#[derive(Default)]
struct Crate<'a> {
    files: BTreeMap<Module, File<'a>>,
}

impl Crate<'_> {
    fn mutual_imports(&self) -> Vec<String> {
        let mut edges: BTreeSet<(&Module, Module)> = BTreeSet::new();
        for (from, file) in self.files.iter().filter(|(from, _)| !from.is_empty()) {
            let targets = file.imports.iter().filter_map(|path| self.resolve(from, path, 0));
            edges.extend(targets.filter(|to| !to.is_empty() && to != from).map(|to| (from, to)));
        }
        let mut findings = Vec::new();
        for (from, to) in &edges {
            let is_mutual = *from < to && edges.iter().any(|(a, b)| *a == to && b == *from);
            let is_child = to[..to.len() - 1] == from[..] || from[..from.len() - 1] == to[..];
            if is_mutual && !is_child {
                let (one, other) = (self.files[*from].path, self.files[to].path);
                findings.push(format!(
                    "{one} and {other} import each other: one holds what belongs to the other"
                ));
            }
        }
        findings
    }

    /// Returns the module that a path leads to, seen from `from`; `None` when it leaves the crate.
    fn resolve(&self, from: &Module, path: &[String], depth: u32) -> Option<Module> {
        let (mut at, mut rest) = (from.clone(), path);
        match path.first()?.as_str() {
            "crate" => (at, rest) = (vec![], &path[1..]),
            "super" | "self" => {
                while let Some(first @ ("super" | "self")) = rest.first().map(String::as_str) {
                    if first == "super" {
                        at.pop();
                    }
                    rest = &rest[1..];
                }
            }
            child => {
                let child: Module = from.iter().cloned().chain([child.to_string()]).collect();
                self.files.get(&child)?;
            }
        }
        while let Some(next) = rest.first() {
            let child: Module = at.iter().cloned().chain([next.clone()]).collect();
            if !self.files.contains_key(&child) {
                break;
            }
            (at, rest) = (child, &rest[1..]);
        }
        if let (Some(item), Some(file)) = (rest.first(), self.files.get(&at))
            && depth < REEXPORTS_MAX
        {
            let reexport = file.reexports.iter().find(|path| path.last() == Some(item));
            if let Some(module) = reexport.and_then(|path| self.resolve(&at, path, depth + 1)) {
                return Some(module);
            }
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(path, text)).collect();
        check(&sources)
    }

    #[test]
    fn files_that_import_each_other_fail() {
        let found = found(&[
            ("a/src/lib.rs", "mod b;\nmod c;\npub use c::C;\n"),
            ("a/src/b.rs", "use crate::{C, d::E};\npub struct B;\n"),
            ("a/src/c.rs", "pub struct C(crate::b::B);\n"),
            ("a/src/d.rs", "pub struct E;\n"),
        ]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a/src/b.rs and a/src/c.rs import each other"));
    }

    #[test]
    fn one_direction_a_child_and_a_test_pass() {
        assert_eq!(
            found(&[
                ("a/src/lib.rs", "mod b;\nmod c;\n"),
                ("a/src/b/mod.rs", "mod e;\nuse e::E;\nuse crate::c::C;\npub struct B;\n"),
                ("a/src/b/e.rs", "use super::B;\npub struct E;\n"),
                ("a/src/c.rs", "pub struct C;\n#[cfg(test)]\nmod tests { use crate::b::B; }\n"),
            ]),
            [""; 0]
        );
    }

    #[test]
    fn use_trees_are_expanded() {
        let paths = expand("crate::{a::B, c::{D, E as F}}");
        let paths: Vec<String> = paths.iter().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["crate::a::B", "crate::c::D", "crate::c::E"]);
    }
}
