//! Names without content, such as `utils`.

use super::Source;

const BANNED: &[&str] =
    &["utils", "util", "common", "helpers", "helper", "misc", "manager", "core2", "stuff"];

const REASON: &str =
    "says nothing about what is inside; name it after the thing (CONTRIBUTING.md, \"Style\")";

/// Returns files and folders with a banned name.
pub fn paths(paths: &[String]) -> Vec<String> {
    let is_banned = |part: &str| {
        let stem = part.split('.').next().unwrap_or(part).to_lowercase();
        stem.split(['_', '-']).any(|word| BANNED.contains(&word))
    };
    let banned = paths.iter().filter(|path| path.split('/').any(is_banned));
    banned.map(|path| format!("{path}: the name {REASON}")).collect()
}

/// Returns modules and types whose name is banned or ends in a banned one.
pub fn items(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (at, line) in source.code.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        while let Some(word) = words.next() {
            if !["mod", "struct", "enum", "trait", "type", "union"].contains(&word) {
                continue;
            }
            let name = words.next().unwrap_or_default().to_lowercase();
            if BANNED.iter().any(|banned| name.ends_with(banned)) {
                findings.push(format!("{}:{}: `{name}` {REASON}", source.path, at + 1));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_paths_fail() {
        for path in
            ["cli/src/utils.rs", "protocol/common/src/lib.rs", "a/net_helpers.rs", "MISC.md"]
        {
            assert_eq!(super::paths(&[path.to_string()]).len(), 1, "{path}");
        }
        let fine = ["cli/src/uncommon.rs", "docs/management.md"].map(str::to_string);
        assert_eq!(super::paths(&fine), [""; 0]);
    }

    #[test]
    fn banned_items_fail() {
        let source = Source::new("a.rs", "struct LinkManager;\nmod utils;\n// mod utils\n");
        let found = items(&source);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("a.rs:1: `linkmanager` says nothing"));
        assert_eq!(items(&Source::new("a.rs", "struct Registers;\nlet modulus = 1;")), [""; 0]);
    }
}
