//! The maintenance commands of the repository. Every check that CI runs is one of them.
//!
//! ```text
//! cargo xtask test [--quick]   everything; what CI runs
//! cargo xtask layers           which crate may import which
//! cargo xtask tidy             sizes, names, words, crate roots, manifests
//! cargo xtask no-std           proves that no machine can reach an operating system
//! cargo xtask licences         licence and origin of every dependency
//! cargo xtask bugs [MISTAKE]   shows that the simulator catches every seeded bug
//! cargo xtask fuzz TARGET SEC  fuzzes one target of verify/fuzz on the nightly toolchain
//! cargo xtask mutants CRATE    names the changes of a crate that its own tests do not notice
//! cargo xtask requirements     each requirement of docs/spec is cited by code and by a test
//! cargo xtask same             compares simulated histories with the recorded ones
//! cargo xtask soak [OPTIONS]   breaks a fabric of real programs at random, and judges it
//! cargo xtask spec             checks verify/spec by TLC, and that it finds each mistake
//! ```
//!
//! # Invariants
//! - A check says what is wrong, where, why it is wrong, and exits non-zero.
//! - Every check has a test that shows it failing.

#![forbid(unsafe_code)]

mod bugs;
mod build;
mod fuzz;
mod layers;
mod licences;
mod mutants;
mod no_std;
mod requirements;
mod same;
mod soak;
mod spec;
mod test;
mod tidy;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

const USAGE: &str = "\
usage: cargo xtask COMMAND [--root DIR]

  test [OPTIONS]        format, layers, tidy, lints, all tests, no_std, documentation, licences;
                        installs the tools and Debian packages that are missing, each named first;
                        --quick stops after the unit tests; --no-install installs nothing, and names
                        the tests that it leaves out
  layers                which crate may import which (ARCHITECTURE.md)
  tidy [--count [--list]]
                        sizes, names, words, sentences, references, crate roots, manifests
                        (CONTRIBUTING.md); --count prints how many private words there are, by kind, and
                        --list which
  no-std                compiles the machines against a library without std
  licences              licence and origin of every dependency (deny.toml)
  bugs [MISTAKE]        counts the seeds until a checker catches each seeded mistake; writes
                        docs/results/seeded-bugs.md
  fuzz TARGET SECONDS   fuzzes a target of verify/fuzz (needs a nightly toolchain)
  mutants CRATE [K/N]   changes a crate in one place at a time, and fails if its own tests notice
                        fewer than 85 % of these mutants; K/N takes each N-th one from the K-th on
                        (installs cargo-mutants)
  requirements          every requirement of docs/spec is cited by code and by a test
  same [--debug] [--record]
                        compares digests of simulated histories, golden frames, grants and schedules
                        with verify/histories/testdata/histories.txt, or records them there
  soak [--debug] [--minutes N] [--fault KIND --lasting TIME --times N] [--seed S] [--busy N] [--json]
                        breaks a fabric of real programs in network namespaces at random, and judges
                        it by what its processes print (needs root, `ip`, `tc`, `nft`, `nsenter`)
  spec                  checks the specification of agreed multicast in verify/spec by TLC, and that
                        it finds each mistake (needs Java, and Maven the first time)
";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is::<Reported>() {
                eprintln!("{error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

/// A failure that has been reported already, so `main` prints nothing more.
#[derive(Debug)]
struct Reported;

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a step failed")
    }
}

impl std::error::Error for Reported {}

fn run(mut arguments: Vec<String>) -> Result<()> {
    let root = take_root(&mut arguments)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["test", ref options @ ..] => {
            let extent = match options.contains(&"--quick") {
                true => test::Extent::Quick,
                false => test::Extent::Full,
            };
            let install = match options.contains(&"--no-install") {
                true => test::Install::Nothing,
                false => test::Install::Missing,
            };
            let is_known = |option: &&str| ["--quick", "--no-install"].contains(option);
            match options.iter().find(|option| !is_known(option)) {
                Some(option) => bail!("no such option: {option}\n\n{USAGE}"),
                None => test::run(&root, extent, install),
            }
        }
        ["layers"] => layers::run(&root),
        ["tidy"] => tidy::run(&root),
        ["tidy", "--count"] => tidy::count(&root, false),
        ["tidy", "--count", "--list"] => tidy::count(&root, true),
        ["no-std"] => no_std::run(&root),
        ["licences"] => licences::run(&root),
        ["bugs"] => bugs::run(&root, None),
        ["bugs", mistake] => bugs::run(&root, Some(mistake)),
        ["mutants", name] => mutants::run(&root, name, None),
        ["mutants", name, sample] => mutants::run(&root, name, Some(sample)),
        ["requirements"] => requirements::run(&root),
        ["same", ref options @ ..] => same::run(&root, options),
        ["soak", ref options @ ..] => soak::run(&root, options),
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

/// Returns the workspace to check: `--root DIR`, or the one that this program was built from.
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

/// Prints the findings of a check. Returns an error if there are any.
fn report_findings(check: &str, findings: &[String]) -> Result<()> {
    for finding in findings {
        eprintln!("{finding}");
    }
    ensure!(findings.is_empty(), "{check}: {} found", findings.len());
    Ok(())
}
