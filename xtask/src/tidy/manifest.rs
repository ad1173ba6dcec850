//! The fields that every member's manifest must have.

use super::Source;

/// Fields that a member inherits from the workspace, so that they change in one file.
const SHARED: &[&str] = &["version", "edition", "rust-version", "license", "publish"];

/// Checks one member's `Cargo.toml`.
pub fn check(source: &Source) -> Vec<String> {
    let path = &source.path;
    let manifest: toml::Table = match source.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let mut findings = Vec::new();
    let of_workspace = |table: Option<&toml::Value>| {
        table.and_then(|value| value.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
    };
    let package = manifest.get("package");
    for field in SHARED {
        if !of_workspace(package.and_then(|package| package.get(field))) {
            findings.push(format!("{path}: write `{field}.workspace = true`"));
        }
    }
    if package.and_then(|package| package.get("description")).is_none() {
        findings.push(format!("{path}: say in `description` what the crate is"));
    }
    if !of_workspace(manifest.get("lints")) {
        findings.push(format!("{path}: write `[lints]` with `workspace = true`"));
    }
    for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let Some(entries) = manifest.get(table).and_then(toml::Value::as_table) else { continue };
        for (name, _) in entries.iter().filter(|(_, entry)| !of_workspace(Some(entry))) {
            findings.push(format!(
                "{path}: `{name}` takes its version from [workspace.dependencies], \
                 so that the workspace has one version of it"
            ));
        }
    }
    findings
}

/// Checks that every third-party dependency of the root manifest has its row in "What we stand on",
/// the last section of CONTRIBUTING.md.
pub fn reasons(root_manifest: &str, contributing: &str) -> Vec<String> {
    let manifest: toml::Table = match root_manifest.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("Cargo.toml: {error}")],
    };
    let dependencies = manifest.get("workspace").and_then(|table| table.get("dependencies"));
    let Some(dependencies) = dependencies.and_then(toml::Value::as_table) else { return vec![] };
    let section = contributing.split("## What we stand on").nth(1).unwrap_or_default();
    let named: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .flat_map(|names| names.split([',', ' ', '(', ')']))
        .collect();
    let of_others = dependencies.iter().filter(|(_, entry)| entry.get("path").is_none());
    let without = of_others.filter(|(name, _)| !named.contains(&name.as_str()));
    without
        .map(|(name, _)| format!("Cargo.toml: `{name}` has no line in CONTRIBUTING.md: add one"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
[package]
name = \"onepipe-switch\"
description = \"A switch\"
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
publish.workspace = true

[dependencies]
onepipe-wire.workspace = true
clap = { workspace = true, optional = true }

[lints]
workspace = true
";

    fn found(text: &str) -> Vec<String> {
        check(&Source::new("protocol/switch/Cargo.toml", text))
    }

    #[test]
    fn a_complete_manifest_passes() {
        assert_eq!(found(GOOD), [""; 0]);
    }

    #[test]
    fn each_missing_line_is_named() {
        for field in SHARED {
            let one = found(&GOOD.replace(&format!("{field}.workspace = true\n"), ""));
            // `version.workspace` is also the end of `rust-version.workspace`.
            assert!(
                one.iter().any(|line| line.contains(&format!("`{field}.workspace"))),
                "{one:?}"
            );
        }
        assert!(found(&GOOD.replace("description", "about"))[0].contains("`description`"));
        assert!(found(&GOOD.replace("[lints]", "[lint]"))[0].contains("`[lints]`"));
        let versioned = GOOD.replace("onepipe-wire.workspace = true", "serde = \"1\"");
        assert!(found(&versioned)[0].contains("`serde` takes its version"));
        assert!(found("[package")[0].contains("TOML parse error"));
    }
    #[test]
    fn a_dependency_without_a_reason_is_named() {
        let contributing = "# C\n\n## What we stand on\n\n| crate | for |\n|---|---|\n\
                            | serde, toml | x |\n| xxhash-rust (XXH3) | x |\n";
        let manifest = "[workspace.dependencies]\nonepipe-wire = { path = \"protocol/wire\" }\n\
                        serde = \"1\"\nxxhash-rust = { version = \"0.8\" }\n";
        assert_eq!(reasons(manifest, contributing), [""; 0]);
        let more = format!("{manifest}openssl = \"1\"\n");
        assert!(reasons(&more, contributing)[0].starts_with("Cargo.toml: `openssl` has no line"));
        assert_eq!(reasons(manifest, "| serde | outside the section |").len(), 2);
    }
}
