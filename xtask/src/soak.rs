//! `cargo xtask soak`: builds the program and `verify/soak`, and runs the second on the first.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// What a soak needs.
const TARGETS: [&[&str]; 2] = [
    &["-p", "onepipe-cli", "-p", "onepipe-verify-soak", "--bins"],
    &["-p", "onepipe", "--example", "lines"],
];

/// Runs a soak with the options of `verify/soak`, like `--minutes 60`.
pub fn run(root: &Path, options: &[&str]) -> Result<()> {
    for target in TARGETS {
        let mut build = Command::new("cargo");
        build.args(["build", "--release", "--quiet"]).args(target).current_dir(root);
        let built = build.status().context("cannot run cargo")?;
        ensure!(built.success(), "the programs cannot be built");
    }
    let release = root.join("target/release");
    let mut soak = Command::new(release.join("soak"));
    soak.arg("--program").arg(release.join("onepipe"));
    soak.arg("--lines").arg(release.join("examples/lines")).args(options);
    let status = soak.status().context("cannot run the soak")?;
    ensure!(status.success(), "the soak has failed: its seed and its violations stand above");
    Ok(())
}
