//! `cargo xtask same`: shows that a change left the behaviour of every machine as it was.
//!
//! `verify/histories` runs several hundred simulated histories over every service and fault mix,
//! reads the golden frames, and computes grants, paths and block schedules; each yields a digest.
//! The digests of the committed state stand in `verify/histories/testdata/histories.txt`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::build;

const RECORDED: &str = "verify/histories/testdata/histories.txt";

const PACKAGE: &str = "onepipe-verify-histories";

/// Compares the digests of this checkout with the recorded ones, or records them with the option
/// `--record`. After `--debug`, perhaps with the features of tests, the program is that which tests
/// have compiled for the most part; the digests are the same.
pub fn run(root: &Path, options: &[&str]) -> Result<()> {
    let (is_debug, features, options) = build::take_debug(options);
    let is_recording = match options {
        [] => false,
        ["--record"] => true,
        _ => bail!("no such options: {}", options.join(" ")),
    };
    let programs = match is_debug {
        true => build::debug(root, features)?,
        false => build::release(root, &[&["--package", PACKAGE]])?,
    };
    let output = Command::new(programs.join(PACKAGE))
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("running the histories")?;
    ensure!(output.status.success(), "{PACKAGE}: {}", output.status);
    let found = String::from_utf8(output.stdout).context("digests are text")?;
    let path = root.join(RECORDED);
    if is_recording {
        std::fs::write(&path, &found).with_context(|| format!("cannot write {RECORDED}"))?;
        println!("same: {} digests recorded in {RECORDED}", found.lines().count());
        return Ok(());
    }
    let recorded =
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {RECORDED}"))?;
    crate::report_findings("same", &differences(&recorded, &found))?;
    println!("same: {} digests are as recorded", found.lines().count());
    Ok(())
}

/// Returns every case whose digest differs, is missing, or is new.
fn differences(recorded: &str, found: &str) -> Vec<String> {
    let (recorded, found) = (digests(recorded), digests(found));
    let mut findings = Vec::new();
    for (case, digest) in &recorded {
        match found.get(case) {
            None => findings.push(format!("{case}: recorded as {digest}, but was not run")),
            Some(other) if other != digest => {
                findings.push(format!("{case}: {other}, recorded as {digest}"));
            }
            Some(_) => {}
        }
    }
    let new = found.keys().filter(|case| !recorded.contains_key(*case));
    findings.extend(new.map(|case| format!("{case}: not recorded; cargo xtask same --record")));
    if recorded.is_empty() {
        findings.push(format!("{RECORDED} holds no digest"));
    }
    findings
}

/// Parses lines of the form `case digest`; a case's name may contain spaces.
fn digests(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.rsplit_once(' ')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_digests_pass() {
        assert_eq!(differences("a 1 07\nb 08\n", "a 1 07\nb 08\n"), [""; 0]);
    }

    #[test]
    fn changed_missing_and_new_cases_fail() {
        let found = differences("a 1 07\nb 08\n", "a 1 09\nc 08\n");
        assert_eq!(found.len(), 3);
        assert_eq!(found[0], "a 1: 09, recorded as 07");
        assert!(found[1].starts_with("b: recorded as 08"));
        assert!(found[2].starts_with("c: not recorded"));
    }

    #[test]
    fn an_empty_record_fails() {
        assert_eq!(differences("", "").len(), 1);
    }
}
