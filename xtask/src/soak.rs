//! `cargo xtask soak`: builds the program and `verify/soak`, and runs the second on the first.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// What a soak needs.
const TARGETS: [&[&str]; 2] = [
    &["-p", "onepipe-cli", "-p", "onepipe-verify-soak", "--bins"],
    &["-p", "onepipe", "--example", "lines"],
];

/// Runs a soak with the options of `verify/soak`, like `--minutes 60`. With `--debug` as the first
/// one, the programs are those that tests have built already.
pub fn run(root: &Path, options: &[&str]) -> Result<()> {
    let (profile, options) = match options {
        ["--debug", rest @ ..] => ("debug", rest),
        all => ("release", all),
    };
    for target in TARGETS {
        let mut build = Command::new("cargo");
        build.args(["build", "--quiet"]).args(target).current_dir(root);
        if profile == "release" {
            build.arg("--release");
        }
        let built = build.status().context("cannot run cargo")?;
        ensure!(built.success(), "the programs cannot be built");
    }
    let programs = root.join("target").join(profile);
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
