//! `cargo xtask test`: every check of CI, in ascending order of cost.

mod counts;
mod tools;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use counts::Counts;

/// The seed of property tests, unless the environment sets one: a change fails for its own faults,
/// not for a fresh draw. `cargo test` by hand draws fresh cases each time.
const PROPERTY_SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// Test programs that print nothing for this time are killed. A build, which prints to standard
/// error only, must fit.
const IDLE_MAX: Duration = Duration::from_secs(20 * 60);

/// How many of the steps run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All steps; CI runs these.
    Full,
    /// The steps up to the unit tests, for use between two edits.
    Quick,
}

/// A check: its name, the command that runs it by hand, and the function that runs it here.
struct Step {
    name: &'static str,
    by_hand: &'static str,
    run: fn(&Checkout, &mut Counts, &str) -> Result<()>,
    extents: &'static [Extent],
}

const ALWAYS: &[Extent] = &[Extent::Full, Extent::Quick];
const FULL: &[Extent] = &[Extent::Full];
const QUICK: &[Extent] = &[Extent::Quick];

const STEPS: &[Step] = &[
    Step { name: "format", by_hand: "cargo fmt --all --check", run: command, extents: ALWAYS },
    Step { name: "layers", by_hand: "cargo xtask layers", run: layers, extents: ALWAYS },
    Step { name: "tidy", by_hand: "cargo xtask tidy", run: tidy, extents: ALWAYS },
    Step {
        name: "requirements",
        by_hand: "cargo xtask requirements",
        run: requirements,
        extents: ALWAYS,
    },
    Step {
        name: "lints",
        by_hand: "cargo clippy --workspace --features onepipe-cli/etcd --all-targets \
                  -- -D warnings",
        run: command,
        extents: ALWAYS,
    },
    Step {
        name: "unit tests",
        by_hand: "cargo test --workspace --no-fail-fast --lib --bins",
        run: tests,
        extents: QUICK,
    },
    Step {
        // Unit, property, integration and documentation tests; fuzz corpora replayed.
        name: "tests",
        by_hand: "cargo test --workspace --features onepipe-cli/etcd --no-fail-fast",
        run: tests,
        extents: FULL,
    },
    Step {
        // A separate build: in all others the feature `mistakes` is off.
        name: "mistakes",
        by_hand: "cargo test --package onepipe-sim-scenarios --package onepipe-sim-amcast \
                  --package onepipe-amcast --package onepipe-transaction --package onepipe-kv \
                  --package onepipe-log --package onepipe-block-replica \
                  --package onepipe-memory --package onepipe-table \
                  --package onepipe-verify-memory --features mistakes --test mistakes",
        run: tests,
        extents: FULL,
    },
    Step {
        // Some faults of each soak; the whole one takes an hour.
        name: "soak",
        by_hand: "cargo xtask soak --debug --minutes 3 --times 4 --seed 1",
        run: soak,
        extents: FULL,
    },
    Step { name: "histories", by_hand: "cargo xtask same", run: same, extents: FULL },
    Step { name: "no-std", by_hand: "cargo xtask no-std", run: no_std, extents: FULL },
    Step {
        name: "documentation",
        by_hand: "cargo doc --workspace --no-deps --lib",
        run: documentation,
        extents: FULL,
    },
    Step { name: "licences", by_hand: "cargo xtask licences", run: licences, extents: FULL },
];

/// Whether missing tools are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Install {
    /// Each missing tool is named, then installed.
    Missing,
    /// No tool is installed; steps and tests that need a missing one are named and left out.
    Nothing,
}

/// The checked workspace, and what can be built there.
struct Checkout {
    root: PathBuf,
    /// Whether the feature `etcd` is built and tested.
    has_etcd: bool,
    install: Install,
}

impl Checkout {
    /// The command of a step, without features that cannot be built here.
    fn command(&self, by_hand: &str) -> String {
        if self.has_etcd { by_hand.to_string() } else { by_hand.replace(ETCD, "") }
    }
}

/// The feature that needs protoc and etcd.
const ETCD: &str = " --features onepipe-cli/etcd";

/// Runs all steps of `extent`; stops at the first that fails.
pub fn run(root: &Path, extent: Extent, install: Install) -> Result<()> {
    let has_etcd = match install {
        Install::Missing => tools::install_missing().map(|()| true)?,
        Install::Nothing => tools::report_missing()?,
    };
    let checkout = Checkout { root: root.to_path_buf(), has_etcd, install };
    let steps: Vec<&Step> = STEPS.iter().filter(|step| step.extents.contains(&extent)).collect();
    let mut counts = Counts::default();
    let outcome = run_steps(&checkout, &steps, &mut counts);
    if outcome.is_ok() || counts.failed > 0 {
        counts.print();
    }
    outcome?;
    ensure!(counts.passed > 0, "cargo xtask test: not one test ran");
    Ok(())
}

fn run_steps(checkout: &Checkout, steps: &[&Step], counts: &mut Counts) -> Result<()> {
    let start = Instant::now();
    for (at, step) in steps.iter().enumerate() {
        let by_hand = checkout.command(step.by_hand);
        print_status(&format!("[{}/{}] {}: {by_hand}", at + 1, steps.len(), step.name));
        let began = Instant::now();
        let outcome = (step.run)(checkout, counts, &by_hand);
        let seconds = began.elapsed().as_secs_f64();
        if let Err(error) = outcome {
            let name = step.name;
            print_status(&format!(
                "{name} FAILED after {seconds:.1} s: {error:#}; by hand: {by_hand}"
            ));
            bail!(crate::Reported);
        }
        print_status(&format!("{} ok, {seconds:.1} s", step.name));
    }
    print_status(&format!("all {} steps ok, {:.0} s", steps.len(), start.elapsed().as_secs_f64()));
    Ok(())
}

/// Prints a status line to stdout, like the tests, so that their lines keep their order.
fn print_status(line: &str) {
    let mut out = std::io::stdout().lock();
    // The reader may have closed the pipe; the exit status still reports the result.
    let _ = writeln!(out, "==> {line}").and_then(|()| out.flush());
}

fn layers(checkout: &Checkout, _: &mut Counts, _: &str) -> Result<()> {
    crate::layers::run(&checkout.root)
}

fn tidy(checkout: &Checkout, _: &mut Counts, _: &str) -> Result<()> {
    crate::tidy::run(&checkout.root)
}

fn requirements(checkout: &Checkout, _: &mut Counts, _: &str) -> Result<()> {
    crate::requirements::run(&checkout.root)
}

fn same(checkout: &Checkout, _: &mut Counts, _: &str) -> Result<()> {
    crate::same::run(&checkout.root, false)
}

fn soak(checkout: &Checkout, _: &mut Counts, by_hand: &str) -> Result<()> {
    if !crate::soak::can_run() {
        print_status("soak SKIPPED: it needs network namespaces, which root alone can create");
        return Ok(());
    }
    let options: Vec<&str> = by_hand.split(' ').skip(3).collect();
    crate::soak::run(&checkout.root, &options)
}

fn no_std(checkout: &Checkout, _: &mut Counts, _: &str) -> Result<()> {
    crate::no_std::run(&checkout.root)
}

fn licences(checkout: &Checkout, _: &mut Counts, _: &str) -> Result<()> {
    crate::licences::run(&checkout.root)
}

fn documentation(checkout: &Checkout, _: &mut Counts, by_hand: &str) -> Result<()> {
    run_to_success(parse(checkout, by_hand).env("RUSTDOCFLAGS", "-D warnings"))
}

fn command(checkout: &Checkout, _: &mut Counts, by_hand: &str) -> Result<()> {
    run_to_success(&mut parse(checkout, by_hand))
}

/// Runs tests, forwards their output, and adds up their result lines.
fn tests(checkout: &Checkout, counts: &mut Counts, by_hand: &str) -> Result<()> {
    let mut command = parse(checkout, by_hand);
    if checkout.install == Install::Nothing {
        command.env(tools::NO_INSTALL, "1");
    }
    let (name, seed) = PROPERTY_SEED;
    if std::env::var_os(name).is_none() {
        command.env(name, seed);
    }
    let mut child = command.stdout(Stdio::piped()).spawn().context("running cargo")?;
    let output = child.stdout.take().context("its output is piped")?;
    let before = counts.failed;
    for_each_line(output, IDLE_MAX, |line| match line {
        Some(line) => {
            println!("{line}");
            counts.read(line);
        }
        None => {
            print_status(&format!("nothing was printed for {IDLE_MAX:?}: killing the program"));
            kill_children(child.id());
        }
    })?;
    let status = child.wait()?;
    if !status.success() && counts.failed == before {
        // A program that was killed or did not build prints no result line, so its failure is not
        // counted yet.
        counts.failed += 1;
    }
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Calls `on_line` for each line of `output`, and with `None` whenever none was printed for
/// `idle_max`.
fn for_each_line(
    output: impl Read + Send + 'static,
    idle_max: Duration,
    mut on_line: impl FnMut(Option<&str>),
) -> Result<()> {
    let (lines_tx, lines_rx) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).split(b'\n');
        lines.map(|line| lines_tx.send(line)).take_while(Result::is_ok).for_each(drop);
    });
    loop {
        match lines_rx.recv_timeout(idle_max) {
            Ok(line) => {
                let line = line.context("reading the output of the tests")?;
                on_line(Some(&String::from_utf8_lossy(&line)));
            }
            Err(RecvTimeoutError::Timeout) => on_line(None),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Kills the programs that a process has started; cargo then goes on with the next test program.
fn kill_children(process: u32) {
    let status = Command::new("pkill").args(["-KILL", "-P", &process.to_string()]).status();
    if !status.is_ok_and(|status| status.success()) {
        print_status(&format!("pkill found no child of process {process}"));
    }
}

fn run_to_success(command: &mut Command) -> Result<()> {
    let status = command.status().context("running cargo")?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Splits the command that a step shows into the command that it runs.
fn parse(checkout: &Checkout, by_hand: &str) -> Command {
    let mut words = by_hand.split(' ');
    let mut command = Command::new(words.next().unwrap_or("cargo"));
    command.args(words).current_dir(&checkout.root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(run: fn(&Checkout, &mut Counts, &str) -> Result<()>) -> Step {
        Step { name: "it", by_hand: "cargo no-such-command", run, extents: ALWAYS }
    }

    fn checkout(has_etcd: bool) -> Checkout {
        Checkout { root: PathBuf::from("."), has_etcd, install: Install::Missing }
    }

    #[test]
    fn features_that_cannot_be_built_are_left_out() {
        for step in STEPS {
            assert_eq!(checkout(true).command(step.by_hand), step.by_hand);
            assert!(!checkout(false).command(step.by_hand).contains("etcd"), "{}", step.name);
        }
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let (holds, fails) = (step(|_, _, _| Ok(())), step(|_, _, _| bail!("broken")));
        let never = step(|_, _, _| unreachable!("it comes after a failure"));
        let error = run_steps(&checkout(true), &[&holds, &fails, &never], &mut Counts::default());
        assert!(error.expect_err("broken").is::<crate::Reported>());
    }

    #[test]
    fn idle_programs_are_reported_and_killed() {
        let mut child = Command::new("sh")
            .args(["-c", "echo begins; sleep 600; echo ends"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh exists");
        let output = child.stdout.take().expect("piped");
        let (mut lines, mut killed) = (Vec::new(), 0);
        for_each_line(output, Duration::from_secs(1), |line| match line {
            Some(line) => lines.push(line.to_string()),
            None => {
                killed += 1;
                kill_children(child.id());
            }
        })
        .expect("its output can be read");
        child.wait().expect("it has ended");
        assert_eq!((lines, killed), (vec!["begins".to_string(), "ends".to_string()], 1));
    }

    #[test]
    fn tests_that_do_not_even_start_count_as_a_failure() {
        let mut counts = Counts::default();
        run_steps(&checkout(true), &[&step(tests)], &mut counts).expect_err("no such command");
        assert_eq!((counts.passed, counts.failed), (0, 1));
    }
}
