//! `cargo xtask soak`: builds the program and `verify/soak`, and runs the second on the first.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Packages that a soak needs, and their binaries.
const PACKAGES: [&str; 2] = ["onepipe-cli", "onepipe-verify-soak"];

/// Runs a soak with the options of `verify/soak`, like `--minutes 60`.
pub fn run(root: &Path, options: &[&str]) -> Result<()> {
    let packages = PACKAGES.iter().flat_map(|package| ["-p", package]);
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet"]).args(packages).current_dir(root);
    let built = build.status().context("cannot run cargo")?;
    ensure!(built.success(), "the program cannot be built");
    let release = root.join("target/release");
    let mut soak = Command::new(release.join("soak"));
    soak.arg("--program").arg(release.join("onepipe")).args(options);
    let status = soak.status().context("cannot run the soak")?;
    ensure!(status.success(), "the soak has failed: its seed and its violations stand above");
    Ok(())
}
