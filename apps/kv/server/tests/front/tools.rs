//! Programs of Debian that the tests run.

use std::io::Write;
use std::process::{Command, Stdio};

/// Environment variable with which tests that need a missing program skip themselves.
const NO_INSTALL: &str = "ONEPIPE_NO_INSTALL";

/// Returns whether a program can be run.
///
/// # Panics
/// If it cannot, unless tests may skip themselves.
pub fn has(probe: &[&str], package: &str) -> bool {
    let is_there = Command::new(probe[0])
        .args(&probe[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let may_skip = std::env::var_os(NO_INSTALL).is_some();
    assert!(is_there || may_skip, "{probe:?} fails: apt-get install --yes {package}");
    if !is_there {
        eprintln!("SKIPPED: {package} is not installed");
    }
    is_there
}

/// Runs a program with this input. Returns its output.
pub fn run(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was probed");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    stdin.write_all(input.as_bytes()).expect("the program reads its input");
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("the output is text")
}
