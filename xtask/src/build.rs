//! Builds programs of the workspace and names their folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Builds all programs and examples without optimisation, as tests do: with the same packages and
/// features, so that cargo compiles nothing twice. Returns the folder of the programs.
pub fn debug(root: &Path, features: Option<&str>) -> Result<PathBuf> {
    let features = features.map_or_else(Vec::new, |features| vec!["--features", features]);
    cargo(root, &[&["--workspace", "--bins", "--examples"], &features[..]].concat())?;
    Ok(target(root).join("debug"))
}

/// Builds what each of `targets` selects with optimisation. Returns the folder of the programs.
pub fn release(root: &Path, targets: &[&[&str]]) -> Result<PathBuf> {
    for target in targets {
        cargo(root, &[&["--release"], *target].concat())?;
    }
    Ok(target(root).join("release"))
}

/// Returns the folder to which cargo builds.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Splits off the leading options `--debug` and `--features NAMES`: returns whether the first was
/// there, the names, and the other options.
pub fn take_debug<'a>(options: &'a [&'a str]) -> (bool, Option<&'a str>, &'a [&'a str]) {
    match options {
        ["--debug", "--features", features, rest @ ..] => (true, Some(*features), rest),
        ["--debug", rest @ ..] => (true, None, rest),
        all => (false, None, all),
    }
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet"]).args(arguments).current_dir(root);
    let status = build.status().context("cannot run cargo")?;
    ensure!(status.success(), "the programs cannot be built: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_build_are_split_off() {
        let all = ["--debug", "--features", "etcd", "--seed", "1"];
        assert_eq!(take_debug(&all), (true, Some("etcd"), &["--seed", "1"][..]));
        assert_eq!(take_debug(&["--debug", "--json"]), (true, None, &["--json"][..]));
        assert_eq!(take_debug(&["--json"]), (false, None, &["--json"][..]));
    }
}
