//! The chores of the repository: every check that CI runs is a command here, run by hand the same
//! way.
//!
//! ```text
//! cargo xtask test [--quick]   everything; what CI runs
//! cargo xtask layers           who may import whom
//! cargo xtask tidy             sizes, names, words, crate roots, manifests
//! cargo xtask no-std           proves that no machine can reach an operating system
//! cargo xtask licences         licence and origin of everything that we stand on
//! cargo xtask bugs [MISTAKE]   shows that the simulator catches every seeded bug
//! cargo xtask fuzz TARGET SEC  fuzzes one target of verify/fuzz on the nightly toolchain
//! cargo xtask same             compares simulated histories with the recorded ones
//! cargo xtask spec             checks verify/spec by TLC, and that it finds each mistake
//! ```
//!
//! # Invariants
//! - A check says what is wrong, where, why it is wrong, and exits non-zero.
//! - Every check has a test that shows it failing.

#![forbid(unsafe_code)]

mod bugs;
mod fuzz;
mod layers;
mod licences;
mod no_std;
mod same;
mod spec;
mod test;
mod tidy;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

const USAGE: &str = "\
usage: cargo xtask COMMAND [--root DIR]

  test [--quick]        format, layers, tidy, lints, all tests, no_std, documentation, licences;
                        --quick stops after the unit tests
  layers                who may import whom (ARCHITECTURE.md)
  tidy                  sizes, names, words, crate roots, manifests (CONTRIBUTING.md)
  no-std                compiles the machines against a library without std
  licences              licence and origin of everything that we stand on (deny.toml)
  bugs [MISTAKE]        counts the seeds that it takes to catch each mistake that the machines can be
                        told to make; writes docs/results/seeded-bugs.md
  fuzz TARGET SECONDS   fuzzes a target of verify/fuzz (needs a nightly toolchain)
  same [--record]       compares digests of simulated histories, golden frames, grants and schedules
                        with verify/histories/testdata/histories.txt, or records them there
  spec                  checks the specification of agreed multicast in verify/spec by TLC, and that
                        it finds each mistake (needs Java, and Maven the first time)
";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is::<Told>() {
                eprintln!("{error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

/// A failure that has been told already: the last line stays what it is.
#[derive(Debug)]
struct Told;

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a step failed")
    }
}

impl std::error::Error for Told {}

fn run(mut arguments: Vec<String>) -> Result<()> {
    let root = take_root(&mut arguments)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["test"] => test::run(&root, test::Extent::Full),
        ["test", "--quick"] => test::run(&root, test::Extent::Quick),
        ["layers"] => layers::run(&root),
        ["tidy"] => tidy::run(&root),
        ["no-std"] => no_std::run(&root),
        ["licences"] => licences::run(&root),
        ["bugs"] => bugs::run(&root, None),
        ["bugs", mistake] => bugs::run(&root, Some(mistake)),
        ["same"] => same::run(&root, false),
        ["same", "--record"] => same::run(&root, true),
        ["spec"] => spec::run(&root),
        ["fuzz", target, seconds] => {
            let seconds = seconds.parse().context("SECONDS is a whole number")?;
            fuzz::run(&root, target, seconds)
        }
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => bail!("no such command: {}\n\n{USAGE}", arguments.join(" ")),
    }
}

/// The workspace to look at: `--root DIR`, or the one that this program was built from.
fn take_root(arguments: &mut Vec<String>) -> Result<PathBuf> {
    if let Some(at) = arguments.iter().position(|argument| argument == "--root") {
        ensure!(at + 1 < arguments.len(), "--root needs a folder");
        let root = arguments.remove(at + 1);
        arguments.remove(at);
        return Path::new(&root).canonicalize().with_context(|| format!("no folder {root}"));
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask lies in a workspace")?.to_path_buf())
}

/// Prints what a check found and fails if that was anything.
fn conclude(check: &str, findings: &[String]) -> Result<()> {
    for finding in findings {
        eprintln!("{finding}");
    }
    ensure!(findings.is_empty(), "{check}: {} found", findings.len());
    Ok(())
}
