//! `cargo xtask fuzz`: fuzzes one target of `verify/fuzz`; installs cargo-fuzz if it is missing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Fuzzes `target` for `seconds` on the nightly toolchain. New inputs go to the (ignored) folder
/// `verify/fuzz/found/TARGET`; the committed seeds are read, never written.
pub fn run(root: &Path, target: &str, seconds: u64) -> Result<()> {
    let fuzz = root.join("verify/fuzz");
    let is_installed = Command::new("cargo").args(["fuzz", "--version"]).output()?.status.success();
    if !is_installed {
        println!("fuzz: installing cargo-fuzz {CARGO_FUZZ_VERSION} with cargo install");
        let mut install = Command::new("cargo");
        install.args(["install", "--locked", "cargo-fuzz", "--version", CARGO_FUZZ_VERSION]);
        ensure!(install.status()?.success(), "cargo install cargo-fuzz failed");
    }
    let found = format!("found/{target}");
    let seeds = format!("corpus/{target}");
    std::fs::create_dir_all(fuzz.join(&found)).context("making the folder of new inputs")?;
    // libFuzzer's option of that name does not turn off the search for leaks at the end.
    let without_leaks = LEAKING.contains(&target).then_some(("ASAN_OPTIONS", "detect_leaks=0"));
    let status = Command::new("cargo")
        .args(["+nightly", "fuzz", "run", "--fuzz-dir", ".", target, &found, &seeds, "--"])
        .args([format!("-max_total_time={seconds}"), "-print_final_stats=1".to_string()])
        .envs(without_leaks)
        .current_dir(&fuzz)
        .status()
        .context("running cargo fuzz")?;
    ensure!(status.success(), "fuzz: {target} failed; the input lies in verify/fuzz/artifacts");
    Ok(())
}

/// The version of cargo-fuzz that is installed if none is.
const CARGO_FUZZ_VERSION: &str = "0.13.2";

/// Targets in which a dependency leaks: adya, the names of the anomalies that each check looks for.
const LEAKING: &[&str] = &["history"];
