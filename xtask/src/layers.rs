//! `cargo xtask layers`: which crate may import which, the table of ARCHITECTURE.md as code.
//!
//! Dev-dependencies obey the same table, with one exception: a crate of rank 5 may test against
//! others of rank 5 (the API against the switch daemon). The tests of a machine therefore cannot
//! reach a simulator, a transport or a sibling: tests that need several machines at once
//! are in `protocol/node` or `sim/scenarios`.

#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::Result;

use crate::workspace::{self, Member};

/// The rank of each folder. A pattern ends in `/*` for "any folder directly below".
const RANKS: &[(&str, u8)] = &[
    ("protocol/base", 0),
    ("protocol/simd", 0),
    ("verify/testing", 0),
    ("protocol/isolation", 1),
    ("protocol/reliability", 1),
    ("protocol/timeslots", 1),
    ("protocol/wire", 1),
    ("protocol/topology", 1),
    ("protocol/endpoint", 2),
    ("protocol/switch", 2),
    ("protocol/controller", 2),
    ("protocol/amcast", 2),
    ("protocol/bulk", 2),
    ("protocol/arbiter", 2),
    ("protocol/rivals", 2),
    ("protocol/join", 2),
    ("protocol/memory", 2),
    ("protocol/node", 3),
    ("protocol/large", 3),
    ("sim/*", 4),
    ("transport/*", 4),
    ("dataplane/*", 4),
    ("apps/*", 4),
    ("apps/*/replica", 4),
    ("daemons/*", 5),
    ("api/rust", 5),
    ("api/c", 6),
    ("api/python", 6),
    ("apps/*/server", 6),
    ("cli", 7),
    ("bench/figures", 7),
    ("bench/micro", 7),
    ("verify/*", 7),
    ("xtask", 7),
];

/// Rank 4: families (sim, transport, dataplane, apps). Crates of one family may import each other,
/// not those of another family.
const FAMILIES: u8 = 4;
/// Rank 5: what users start or link; runs in real time only.
const PRODUCTS: u8 = 5;
/// Rank 6: wrappers of the Rust API.
const WRAPPERS: u8 = 6;
/// What the servers of all applications may import beside their own one.
const SHARED_APPS: &[&str] =
    &["apps/history", "apps/journal", "apps/log", "apps/log/server", "apps/transaction"];
/// Rank 7: may import anything; nothing below imports it.
const TOP: u8 = 7;

/// Checks the workspace at `root`.
pub fn run(root: &Path) -> Result<()> {
    let members = workspace::members(root)?;
    crate::report_findings("layers", &check(&members))?;
    println!("layers: {} crates keep to the table", members.len());
    Ok(())
}

/// Returns every import that the table does not allow, and every crate that it does not list.
fn check(members: &[Member]) -> Vec<String> {
    let mut findings = Vec::new();
    for member in members {
        if rank(&member.folder).is_none() {
            findings.push(format!(
                "{}: a folder without a rank; give it one here and in ARCHITECTURE.md",
                member.folder
            ));
        }
        for import in &member.imports {
            if let Err(reason) = may_import(&member.folder, &import.folder, import.is_dev) {
                let how = if import.is_dev { "tests against" } else { "imports" };
                let (from, to) = (&member.folder, &import.folder);
                findings.push(format!("{from} {how} {to}: {reason}"));
            }
        }
    }
    findings
}

fn may_import(from: &str, to: &str, is_dev: bool) -> Result<(), &'static str> {
    let (Some(upper), Some(lower)) = (rank(from), rank(to)) else {
        return Err("one of the two has no rank");
    };
    let is_same_family = upper == FAMILIES && family(from) == family(to);
    match (upper, lower) {
        (TOP, _) => Ok(()),
        _ if lower > upper => Err("it lies above"),
        (WRAPPERS, _) if family(from) == "apps" && (lower == 0 || SHARED_APPS.contains(&to)) => {
            Ok(())
        }
        (WRAPPERS, FAMILIES) if application(from) == application(to) => Ok(()),
        (WRAPPERS, _) if to != "api/rust" => Err("a wrapper of the API imports `api/rust` alone"),
        (WRAPPERS, _) => Ok(()),
        (PRODUCTS, _) if family(to) == "sim" => Err("what users run does not hold a simulator"),
        (PRODUCTS, PRODUCTS) if is_dev => Ok(()),
        (FAMILIES, FAMILIES) if is_same_family => Ok(()),
        (FAMILIES, FAMILIES) => {
            Err("the families (sim, transport, dataplane, apps) never import each other")
        }
        _ if upper == lower => Err("siblings talk through `wire` frames or a crate that owns both"),
        _ => Ok(()),
    }
}

fn rank(folder: &str) -> Option<u8> {
    let fits = |pattern: &str| {
        let (pattern, folder) = (pattern.split('/'), folder.split('/'));
        pattern.clone().count() == folder.clone().count()
            && pattern.zip(folder).all(|(want, got)| want == "*" || want == got)
    };
    RANKS.iter().find(|(pattern, _)| fits(pattern)).map(|(_, rank)| *rank)
}

/// Returns the folder of an application that a crate is a part of, like `apps/block` of
/// `apps/block/server`.
fn application(folder: &str) -> Vec<&str> {
    folder.split('/').take(2).collect()
}

fn family(folder: &str) -> &str {
    folder.split('/').next().unwrap_or(folder)
}
