//! Builds the test programs of the workspace and runs several of them at a time: `cargo test` runs
//! one after the other, and most of them wait for a timeout, or for one long test, on one core.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{Counts, IDLE_MAX, for_each_line, print_status};

/// Programs that take minutes, mostly waiting; they start before all others.
const LONGEST: &[&str] = &["command", "etcd"];

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name of its target in cargo.
    name: String,
    /// Folder of its package, in which it runs.
    folder: PathBuf,
    executable: PathBuf,
}

/// The fields that are read of a message of `cargo --message-format json`.
#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the test programs that `command`, a `cargo test`, would run.
pub fn build(mut command: Command) -> Result<Vec<Program>> {
    command.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("running cargo")?;
    ensure!(output.status.success(), "the tests cannot be built: {}", output.status);
    Ok(programs(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns the programs that cargo's messages name, the longest first.
fn programs(messages: &str) -> Vec<Program> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let mut programs: Vec<Program> = artifacts
        .filter(|artifact| artifact.profile.test)
        .filter_map(|Artifact { executable, manifest_path, target, .. }| {
            let folder = manifest_path.parent()?.to_path_buf();
            Some(Program { name: target.name, folder, executable: executable? })
        })
        .collect();
    programs.sort_by_key(|program| !LONGEST.contains(&program.name.as_str()));
    programs
}

/// Runs `programs`, `at_once` at a time, and prints the output of each when it has ended. Returns
/// an error that names those that failed.
pub fn run(
    programs: Vec<Program>,
    at_once: usize,
    environment: &[(&str, &str)],
    counts: &mut Counts,
) -> Result<()> {
    let queue = Mutex::new(VecDeque::from(programs));
    let results = Mutex::new((counts, Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics").pop_front();
                    let Some(program) = next else { return };
                    let outcome = run_one(&program, environment);
                    let mut results = results.lock().expect("no worker panics");
                    let (counts, failed) = &mut *results;
                    if !report(&program, outcome, counts) {
                        failed.push(program.name);
                    }
                }
            });
        }
    });
    let (_, failed) = results.into_inner().expect("no worker panics");
    ensure!(failed.is_empty(), "test programs failed: {}", failed.join(", "));
    Ok(())
}

/// What a program printed, how long it ran, and whether it succeeded.
struct Outcome {
    lines: Vec<String>,
    seconds: f64,
    has_succeeded: bool,
}

fn run_one(program: &Program, environment: &[(&str, &str)]) -> Result<Outcome> {
    let start = Instant::now();
    let mut child = Command::new(&program.executable)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .context("it cannot be started")?;
    let output = child.stdout.take().context("its output is piped")?;
    let mut lines = Vec::new();
    for_each_line(output, IDLE_MAX, |line| match line {
        Some(line) => lines.push(line.to_string()),
        None => {
            lines.push(format!("nothing was printed for {IDLE_MAX:?}: the program is killed"));
            // The program may have ended meanwhile.
            let _ = child.kill();
        }
    })?;
    let has_succeeded = child.wait()?.success();
    Ok(Outcome { lines, seconds: start.elapsed().as_secs_f64(), has_succeeded })
}

/// Prints and counts an outcome; returns whether the program succeeded.
fn report(program: &Program, outcome: Result<Outcome>, counts: &mut Counts) -> bool {
    let path = program.executable.display();
    let before = counts.failed;
    let has_succeeded = match outcome {
        Ok(outcome) => {
            print_status(&format!("{} took {:.1} s ({path})", program.name, outcome.seconds));
            for line in &outcome.lines {
                println!("{line}");
                counts.read(line);
            }
            outcome.has_succeeded
        }
        Err(error) => {
            print_status(&format!("{} ({path}): {error:#}", program.name));
            false
        }
    };
    if !has_succeeded && counts.failed == before {
        // A program that was killed prints no result line, so its failure is not counted yet.
        counts.failed += 1;
    }
    has_succeeded
}

/// Returns how many programs run at a time. One: tests that kill or stop processes notice the load
/// of another program, which has as many threads as there are cores.
pub const fn at_once() -> usize {
    1
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shell(name: &str, script: &str, folder: &Path) -> Program {
        let executable = folder.join(name);
        // A child writes the file: one that is open here can be open in a child of another test,
        // and cannot be run then.
        let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod +x "$0""#;
        let status = Command::new("sh").args(["-c", write]).arg(&executable).arg(script).status();
        assert!(status.expect("sh exists").success());
        Program { name: name.to_string(), folder: folder.to_path_buf(), executable }
    }

    #[test]
    fn test_programs_are_read_from_messages_longest_first() {
        let artifact = |name: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml",
                "target":{{"name":"{name}","kind":["test"]}},"profile":{{"test":{test}}},
                "executable":{executable}}}"#
            )
            .replace('\n', "")
        };
        let messages = [
            artifact("frames", true, r#""/t/frames-1""#),
            artifact("onepipe", false, r#""/t/onepipe""#),
            artifact("library", true, "null"),
            r#"{"reason":"build-finished","success":true}"#.to_string(),
            artifact("command", true, r#""/t/command-2""#),
        ];
        let found = programs(&messages.join("\n"));
        let names: Vec<&str> = found.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["command", "frames"]);
        assert_eq!(found[0].folder, Path::new("/p"));
    }

    #[test]
    fn every_program_runs_and_failures_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let result = "test result: ok. 3 passed; 0 failed; 0 ignored; finished in 0.00s";
        let programs = vec![
            shell("holds", &format!("echo '{result}'"), folder.path()),
            shell("is_killed", "kill -KILL $$", folder.path()),
            shell("reads", r#"test "$SEED" = 7 && test -e holds"#, folder.path()),
            Program { executable: folder.path().join("none"), ..shell("none", "", folder.path()) },
        ];
        std::fs::remove_file(folder.path().join("none")).expect("it was written");
        let mut counts = Counts::default();
        let seed = [("SEED", "7")];
        let error = run(programs, 2, &seed, &mut counts).expect_err("two fail").to_string();
        assert!(error.contains("is_killed") && error.contains("none"), "{error}");
        assert!(!error.contains("holds") && !error.contains("reads"), "{error}");
        assert_eq!((counts.passed, counts.failed), (3, 2));
    }

    #[test]
    fn programs_run_beside_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        // Each waits for a file of the other.
        let wait = |own: &str, other: &str| {
            let look = format!("test -e {other}.up && exit; sleep 0.1");
            format!("touch {own}.up; for i in $(seq 600); do {look}; done; exit 1")
        };
        let programs = vec![
            shell("one", &wait("one", "other"), folder.path()),
            shell("other", &wait("other", "one"), folder.path()),
        ];
        run(programs, 2, &[], &mut Counts::default()).expect("both run at a time");
    }
}
