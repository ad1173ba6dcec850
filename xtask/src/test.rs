//! Everything that CI checks, in the order of cost, as one command.

mod counts;
mod tools;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use counts::Counts;

/// What property tests draw their cases from here, unless the environment says otherwise: a change
/// is judged by its own faults, not by what was drawn. `cargo test` by hand draws anew each time.
const PROPERTY_SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What CI runs.
    Full,
    /// Up to the unit tests: for between two edits.
    Quick,
}

/// One check: its name, how it is run by hand, and what runs it here.
struct Step {
    name: &'static str,
    by_hand: &'static str,
    run: fn(&Path, &mut Counts, &'static str) -> Result<()>,
    part_of: &'static [Extent],
}

const ALWAYS: &[Extent] = &[Extent::Full, Extent::Quick];
const FULL: &[Extent] = &[Extent::Full];
const QUICK: &[Extent] = &[Extent::Quick];

const STEPS: &[Step] = &[
    Step { name: "format", by_hand: "cargo fmt --all --check", run: command, part_of: ALWAYS },
    Step { name: "layers", by_hand: "cargo xtask layers", run: layers, part_of: ALWAYS },
    Step { name: "tidy", by_hand: "cargo xtask tidy", run: tidy, part_of: ALWAYS },
    Step {
        name: "lints",
        by_hand: "cargo clippy --workspace --features onepipe-cli/etcd --all-targets \
                  -- -D warnings",
        run: command,
        part_of: ALWAYS,
    },
    Step {
        name: "unit tests",
        by_hand: "cargo test --workspace --no-fail-fast --lib --bins",
        run: tests,
        part_of: QUICK,
    },
    Step {
        // Unit, property, integration and documentation tests; fuzz corpora replayed.
        name: "tests",
        by_hand: "cargo test --workspace --features onepipe-cli/etcd --no-fail-fast",
        run: tests,
        part_of: FULL,
    },
    Step {
        // A build of its own, for the machines make no mistakes in any other.
        name: "mistakes",
        by_hand: "cargo test --package onepipe-sim-scenarios --package onepipe-sim-amcast \
                  --package onepipe-amcast --features mistakes --test mistakes",
        run: tests,
        part_of: FULL,
    },
    Step { name: "no-std", by_hand: "cargo xtask no-std", run: no_std, part_of: FULL },
    Step {
        name: "documentation",
        by_hand: "cargo doc --workspace --no-deps --lib",
        run: documentation,
        part_of: FULL,
    },
    Step { name: "licences", by_hand: "cargo xtask licences", run: licences, part_of: FULL },
];

/// Runs all steps of `extent`; stops at the first that fails.
pub fn run(root: &Path, extent: Extent) -> Result<()> {
    tools::provide()?;
    let steps: Vec<&Step> = STEPS.iter().filter(|step| step.part_of.contains(&extent)).collect();
    let mut counts = Counts::default();
    let outcome = run_steps(root, &steps, &mut counts);
    if outcome.is_ok() || counts.failed > 0 {
        counts.print();
    }
    outcome?;
    ensure!(counts.passed > 0, "cargo xtask test: not one test ran");
    Ok(())
}

fn run_steps(root: &Path, steps: &[&Step], counts: &mut Counts) -> Result<()> {
    let start = Instant::now();
    for (at, step) in steps.iter().enumerate() {
        say(&format!("[{}/{}] {}: {}", at + 1, steps.len(), step.name, step.by_hand));
        let began = Instant::now();
        let outcome = (step.run)(root, counts, step.by_hand);
        let seconds = began.elapsed().as_secs_f64();
        if let Err(error) = outcome {
            let (name, by_hand) = (step.name, step.by_hand);
            say(&format!("{name} FAILED after {seconds:.1} s: {error:#}; by hand: {by_hand}"));
            bail!(crate::Told);
        }
        say(&format!("{} ok, {seconds:.1} s", step.name));
    }
    say(&format!("all {} steps ok, {:.0} s", steps.len(), start.elapsed().as_secs_f64()));
    Ok(())
}

/// To the same stream as the tests' own output, so that they stay in order.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody may be reading any more; the exit status still tells.
    let _ = writeln!(out, "==> {line}").and_then(|()| out.flush());
}

fn layers(root: &Path, _: &mut Counts, _: &'static str) -> Result<()> {
    crate::layers::run(root)
}

fn tidy(root: &Path, _: &mut Counts, _: &'static str) -> Result<()> {
    crate::tidy::run(root)
}

fn no_std(root: &Path, _: &mut Counts, _: &'static str) -> Result<()> {
    crate::no_std::run(root)
}

fn licences(root: &Path, _: &mut Counts, _: &'static str) -> Result<()> {
    crate::licences::run(root)
}

fn documentation(root: &Path, _: &mut Counts, by_hand: &'static str) -> Result<()> {
    succeed(parse(root, by_hand).env("RUSTDOCFLAGS", "-D warnings"))
}

fn command(root: &Path, _: &mut Counts, by_hand: &'static str) -> Result<()> {
    succeed(&mut parse(root, by_hand))
}

/// Runs tests, passes their output on, and adds up what they report.
fn tests(root: &Path, counts: &mut Counts, by_hand: &'static str) -> Result<()> {
    let mut command = parse(root, by_hand);
    let (name, seed) = PROPERTY_SEED;
    if std::env::var_os(name).is_none() {
        command.env(name, seed);
    }
    let mut child = command.stdout(Stdio::piped()).spawn().context("running cargo")?;
    let output = child.stdout.take().context("its output is piped")?;
    let before = counts.failed;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("reading what the tests say")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        counts.read(&line);
    }
    let status = child.wait()?;
    if !status.success() && counts.failed == before {
        // A program that was killed, or did not build, reports nothing: that is a failure too.
        counts.failed += 1;
    }
    ensure!(status.success(), "{status}");
    Ok(())
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().context("running cargo")?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// The command that a step shows is the command that it runs.
fn parse(root: &Path, by_hand: &str) -> Command {
    let mut words = by_hand.split(' ');
    let mut command = Command::new(words.next().unwrap_or("cargo"));
    command.args(words).current_dir(root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(run: fn(&Path, &mut Counts, &'static str) -> Result<()>) -> Step {
        Step { name: "it", by_hand: "cargo no-such-command", run, part_of: ALWAYS }
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let (holds, fails) = (step(|_, _, _| Ok(())), step(|_, _, _| bail!("broken")));
        let never = step(|_, _, _| unreachable!("it comes after a failure"));
        let root = Path::new(".");
        let error = run_steps(root, &[&holds, &fails, &never], &mut Counts::default());
        assert!(error.expect_err("broken").is::<crate::Told>());
    }

    #[test]
    fn tests_that_do_not_even_start_count_as_a_failure() {
        let mut counts = Counts::default();
        run_steps(Path::new("."), &[&step(tests)], &mut counts).expect_err("no such command");
        assert_eq!((counts.passed, counts.failed), (0, 1));
    }
}
