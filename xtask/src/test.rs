//! `cargo xtask test`: every check of CI, the cheapest first.

mod counts;
mod programs;
mod tools;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use counts::Counts;
use tools::Features;

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
    /// Whether the later steps run beside this one, which mostly waits. Its result is the last.
    is_beside: bool,
}

const ALWAYS: &[Extent] = &[Extent::Full, Extent::Quick];
const FULL: &[Extent] = &[Extent::Full];
const QUICK: &[Extent] = &[Extent::Quick];

const STEPS: &[Step] = &[
    step("format", "cargo fmt --all --check", command, ALWAYS),
    step("layers", "cargo xtask layers", layers, ALWAYS),
    step("tidy", "cargo xtask tidy", tidy, ALWAYS),
    step("requirements", "cargo xtask requirements", requirements, ALWAYS),
    step(
        "lints",
        "cargo clippy --workspace --features onepipe-cli/etcd,onepipe-cli/xdp --all-targets -- -D warnings",
        command,
        ALWAYS,
    ),
    step("unit tests", "cargo test --workspace --no-fail-fast --lib --bins", tests, QUICK),
    // Unit, property and integration tests; fuzz corpora replayed.
    step(
        "tests",
        "cargo test --workspace --features onepipe-cli/etcd,onepipe-cli/xdp --no-fail-fast",
        tests,
        FULL,
    ),
    step(
        "documentation tests",
        "cargo test --workspace --features onepipe-cli/etcd,onepipe-cli/xdp --no-fail-fast --doc",
        documentation_tests,
        FULL,
    ),
    // Some faults of each soak; the whole one takes an hour. Its programs wait for faults most of
    // the time, so the next steps run beside it.
    Step {
        is_beside: true,
        ..step(
            "soak",
            "cargo xtask soak --debug --features onepipe-cli/etcd,onepipe-cli/xdp --minutes 3 --times 4 --seed 1",
            soak,
            FULL,
        )
    },
    step(
        "histories",
        "cargo xtask same --debug --features onepipe-cli/etcd,onepipe-cli/xdp",
        same,
        FULL,
    ),
    // A separate build: in all others the feature `mistakes` is off. All packages are selected, so
    // that libraries of others are those of the tests.
    step(
        "mistakes",
        "cargo test --workspace --features onepipe-cli/etcd,onepipe-cli/xdp --features mistakes --test mistakes",
        tests,
        FULL,
    ),
    step("no-std", "cargo xtask no-std", no_std, FULL),
    step("documentation", "cargo doc --workspace --no-deps --lib", documentation, FULL),
    step("licences", "cargo xtask licences", licences, FULL),
];

const fn step(
    name: &'static str,
    by_hand: &'static str,
    run: fn(&Checkout, &mut Counts, &str) -> Result<()>,
    extents: &'static [Extent],
) -> Step {
    Step { name, by_hand, run, extents, is_beside: false }
}

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
    features: Features,
    install: Install,
}

impl Checkout {
    /// The command of a step, without features that cannot be built here.
    fn command(&self, by_hand: &str) -> String {
        let Features { etcd, xdp } = self.features;
        let built = [(etcd, "onepipe-cli/etcd"), (xdp, "onepipe-cli/xdp")];
        let built: Vec<&str> =
            built.into_iter().filter(|(is_built, _)| *is_built).map(|(_, name)| name).collect();
        match built.is_empty() {
            true => by_hand.replace(ALL_FEATURES, ""),
            false => by_hand.replace(ALL_FEATURES, &format!(" --features {}", built.join(","))),
        }
    }
}

/// The features that need more than cargo: protoc and etcd, and clang.
const ALL_FEATURES: &str = " --features onepipe-cli/etcd,onepipe-cli/xdp";

/// Runs all steps of `extent`; stops at the first that fails.
pub fn run(root: &Path, extent: Extent, install: Install) -> Result<()> {
    let features = match install {
        Install::Missing => {
            tools::install_missing().map(|()| Features { etcd: true, xdp: true })?
        }
        Install::Nothing => tools::report_missing()?,
    };
    let checkout = Checkout { root: root.to_path_buf(), features, install };
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
    std::thread::scope(|scope| -> Result<()> {
        let mut beside = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let by_hand = checkout.command(step.by_hand);
            print_status(&format!("[{}/{}] {}: {by_hand}", at + 1, steps.len(), step.name));
            if step.is_beside {
                let run = move || {
                    let mut counts = Counts::default();
                    (run_step(checkout, step, &mut counts, &by_hand), counts)
                };
                beside.push(scope.spawn(run));
            } else {
                run_step(checkout, step, counts, &by_hand)?;
            }
        }
        for step in beside {
            let (outcome, of_step) = step.join().expect("a step returns its failure");
            counts.add(of_step);
            outcome?;
        }
        Ok(())
    })?;
    print_status(&format!("all {} steps ok, {:.0} s", steps.len(), start.elapsed().as_secs_f64()));
    Ok(())
}

fn run_step(checkout: &Checkout, step: &Step, counts: &mut Counts, by_hand: &str) -> Result<()> {
    let name = step.name;
    let start = Instant::now();
    let outcome = (step.run)(checkout, counts, by_hand);
    let seconds = start.elapsed().as_secs_f64();
    if let Err(error) = outcome {
        print_status(&format!("{name} FAILED after {seconds:.1} s: {error:#}; by hand: {by_hand}"));
        bail!(crate::Reported);
    }
    print_status(&format!("{name} ok, {seconds:.1} s"));
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

fn same(checkout: &Checkout, _: &mut Counts, by_hand: &str) -> Result<()> {
    let options: Vec<&str> = by_hand.split(' ').skip(3).collect();
    crate::same::run(&checkout.root, &options)
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

/// Runs tests, several programs at a time, and adds up their result lines.
fn tests(checkout: &Checkout, counts: &mut Counts, by_hand: &str) -> Result<()> {
    let built = programs::build(parse(checkout, by_hand));
    if built.is_err() {
        // What does not build prints no result line, so its failure is not counted yet.
        counts.failed += 1;
    }
    let environment: Vec<_> = environment(checkout).collect();
    programs::run(built?, programs::at_once(), &environment, counts)
}

/// Runs the tests in documentation, which cargo alone can build.
fn documentation_tests(checkout: &Checkout, counts: &mut Counts, by_hand: &str) -> Result<()> {
    let mut command = parse(checkout, by_hand);
    let mut child = command
        .envs(environment(checkout))
        .stdout(Stdio::piped())
        .spawn()
        .context("running cargo")?;
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
        counts.failed += 1;
    }
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Returns the environment variables of test programs.
fn environment(checkout: &Checkout) -> impl Iterator<Item = (&'static str, &'static str)> {
    let no_install = (checkout.install == Install::Nothing).then_some((tools::NO_INSTALL, "1"));
    let seed = std::env::var_os(PROPERTY_SEED.0).is_none().then_some(PROPERTY_SEED);
    no_install.into_iter().chain(seed)
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn step(run: fn(&Checkout, &mut Counts, &str) -> Result<()>) -> Step {
        super::step("it", "cargo no-such-command", run, ALWAYS)
    }

    fn checkout(has_all: bool) -> Checkout {
        let features = Features { etcd: has_all, xdp: has_all };
        Checkout { root: PathBuf::from("."), features, install: Install::Missing }
    }

    #[test]
    fn features_that_cannot_be_built_are_left_out() {
        for step in STEPS {
            assert_eq!(checkout(true).command(step.by_hand), step.by_hand);
            assert!(!checkout(false).command(step.by_hand).contains("etcd"), "{}", step.name);
        }
        let with_one = Checkout { features: Features { etcd: false, xdp: true }, ..checkout(true) };
        let command = with_one.command("cargo test --features onepipe-cli/etcd,onepipe-cli/xdp -q");
        assert_eq!(command, "cargo test --features onepipe-cli/xdp -q");
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
    fn later_steps_run_beside_one_that_waits() {
        static LATER: AtomicBool = AtomicBool::new(false);
        let waits = step(|_, counts, _| {
            let start = Instant::now();
            while !LATER.load(Ordering::Relaxed) {
                ensure!(start.elapsed() < Duration::from_secs(60), "no later step has begun");
                std::thread::sleep(Duration::from_millis(5));
            }
            counts.passed = 2;
            Ok(())
        });
        let waits = Step { is_beside: true, ..waits };
        let later = step(|_, counts, _| {
            counts.passed = 1;
            LATER.store(true, Ordering::Relaxed);
            Ok(())
        });
        let mut counts = Counts::default();
        run_steps(&checkout(true), &[&waits, &later], &mut counts).expect("both succeed");
        assert_eq!(counts.passed, 3);
    }

    #[test]
    fn failure_of_a_step_beside_others_fails_the_run() {
        let fails = Step { is_beside: true, ..step(|_, _, _| bail!("broken")) };
        let holds = step(|_, _, _| Ok(()));
        let error = run_steps(&checkout(true), &[&fails, &holds], &mut Counts::default());
        assert!(error.expect_err("broken").is::<crate::Reported>());
    }

    #[test]
    fn tests_that_do_not_even_start_count_as_a_failure() {
        let mut counts = Counts::default();
        run_steps(&checkout(true), &[&step(tests)], &mut counts).expect_err("no such command");
        assert_eq!((counts.passed, counts.failed), (0, 1));
    }
}
