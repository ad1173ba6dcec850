//! `cargo xtask licences`: checks licence and origin of every dependency against `deny.toml`.
//!
//! `cargo deny` reads the same file and checks more; this needs nothing installed and no network.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Clone, Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// `None` for crates of this workspace.
    source: Option<String>,
}

/// Checks every package that any member depends on, on any platform.
pub fn run(root: &Path) -> Result<()> {
    let deny = std::fs::read_to_string(root.join("deny.toml")).context("reading deny.toml")?;
    let deny: Deny = toml::from_str(&deny).context("reading deny.toml")?;
    let output = Command::new("cargo")
        .args(["metadata", "--all-features", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed:\n{stderr}");
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    crate::report_findings("licences", &findings(&metadata.packages, &deny))?;
    println!("licences: {} packages, all allowed by deny.toml", metadata.packages.len());
    Ok(())
}

fn findings(packages: &[Package], deny: &Deny) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or("none");
        if !is_allowed(licence, &deny.licenses.allow) {
            findings.push(format!("{name}: licence {licence} is not allowed by deny.toml"));
        }
        let Some(source) = &package.source else { continue };
        let registry = source.strip_prefix("registry+").unwrap_or(source);
        if !deny.sources.allow_registry.iter().any(|allowed| allowed == registry) {
            findings.push(format!("{name}: comes from {source}, not allowed by deny.toml"));
        }
    }
    findings
}

/// Returns whether the allowed licences satisfy an SPDX expression. `/` is the old form of OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    parse_or(&words, &mut at, allowed) == Some(true) && at == words.len()
}

/// Parses `TERM { OR TERM }`; `None` for a malformed expression.
fn parse_or(words: &[&str], at: &mut usize, allowed: &[String]) -> Option<bool> {
    let mut holds = parse_and(words, at, allowed)?;
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        holds |= parse_and(words, at, allowed)?;
    }
    Some(holds)
}

/// Parses `LICENCE { AND LICENCE }`, each a name, a name WITH an exception, or an expression in
/// brackets.
fn parse_and(words: &[&str], at: &mut usize, allowed: &[String]) -> Option<bool> {
    let mut holds = true;
    loop {
        let word = *words.get(*at)?;
        *at += 1;
        if word == "(" {
            holds &= parse_or(words, at, allowed)?;
            (words.get(*at) == Some(&")")).then(|| *at += 1)?;
        } else {
            let mut name = word.to_string();
            if words.get(*at) == Some(&"WITH") {
                name = format!("{word} WITH {}", words.get(*at + 1)?);
                *at += 2;
            }
            // An exception grants additional rights.
            holds &= allowed.iter().any(|licence| *licence == name || licence == word);
        }
        if words.get(*at) != Some(&"AND") {
            return Some(holds);
        }
        *at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "https://github.com/rust-lang/crates.io-index";

    fn deny() -> Deny {
        let allow = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_string).to_vec();
        let sources = Sources { allow_registry: vec![INDEX.to_string()] };
        Deny { licenses: Licenses { allow }, sources }
    }

    #[test]
    fn expressions_are_read() {
        let allowed = deny().licenses.allow;
        for fine in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(is_allowed(fine, &allowed), "{fine}");
        }
        for wrong in
            ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR X) AND GPL-2.0", "", "none", "MIT OR", "(MIT"]
        {
            assert!(!is_allowed(wrong, &allowed), "{wrong}");
        }
    }

    #[test]
    fn a_foreign_licence_or_origin_fails() {
        let package = |license: Option<&str>, source: &str| Package {
            name: "it".to_string(),
            version: "1.0.0".to_string(),
            license: license.map(str::to_string),
            source: Some(source.to_string()),
        };
        let registry = format!("registry+{INDEX}");
        assert_eq!(findings(&[package(Some("MIT"), &registry)], &deny()), [""; 0]);
        let found = findings(&[package(None, &registry)], &deny());
        assert_eq!(found, ["it 1.0.0: licence none is not allowed by deny.toml"]);
        let found = findings(&[package(Some("MIT"), "git+https://example.org/it")], &deny());
        assert!(found[0].contains("comes from git+https://example.org/it"));
    }
}
