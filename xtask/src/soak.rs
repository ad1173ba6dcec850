//! `cargo xtask soak`: builds the program and `verify/soak`, and runs the second on the first.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::build;

/// What a soak needs.
const TARGETS: [&[&str]; 2] = [
    &["-p", "onepipe-cli", "-p", "onepipe-verify-soak", "--bins"],
    &["-p", "onepipe", "--example", "lines"],
];

/// Runs a soak with the options of `verify/soak`, like `--minutes 60`. After `--debug`, perhaps
/// with the features of tests, the programs are those that tests have built already.
pub fn run(root: &Path, options: &[&str]) -> Result<()> {
    let (is_debug, features, options) = build::take_debug(options);
    let programs =
        if is_debug { build::debug(root, features)? } else { build::release(root, &TARGETS)? };
    let mut soak = Command::new(programs.join("soak"));
    soak.arg("--program").arg(programs.join("onepipe"));
    soak.arg("--lines").arg(programs.join("examples/lines")).args(options);
    let status = soak.status().context("cannot run the soak")?;
    ensure!(status.success(), "the soak has failed: its seed and its violations stand above");
    Ok(())
}

/// Returns whether this user may create network namespaces, on which the hosts of a soak are.
pub fn can_run() -> bool {
    let name = format!("soak-probe-{}", std::process::id());
    let run = |verb: &str| {
        let status = Command::new("ip").args(["netns", verb, &name]).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    run("add") && run("del")
}
