//! `cargo xtask no-std`: proves that no machine and none of its dependencies can reach an operating
//! system.
//!
//! The machines are compiled against a library folder that holds only `core` and `alloc`, so code
//! that names `std` does not build. Build scripts and derive macros run on the host and are not
//! affected.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// The libraries that a machine may use.
const LIBRARIES: &[&str] = &["core", "alloc", "compiler_builtins"];

/// Returns whether a folder's crate is a machine or a dependency of machines.
fn is_machine(folder: &str) -> bool {
    folder.starts_with("protocol/")
}

/// Compiles every crate below `protocol/` without std.
pub fn run(root: &Path) -> Result<()> {
    prove(root, &crate::build::target(root))
}

fn prove(root: &Path, target: &Path) -> Result<()> {
    let members = workspace::members(root)?;
    let machines: Vec<&str> = members
        .iter()
        .filter(|member| is_machine(&member.folder))
        .map(|member| member.name.as_str())
        .collect();
    ensure!(!machines.is_empty(), "no-std: no crate below protocol/");

    let host = ask_rustc(root, &["-vV"])?
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_string))
        .context("rustc -vV names its host")?;
    let sysroot = library_without_std(root, target, &host)?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["check", "--quiet", "--lib", "--target", &host]);
    for machine in &machines {
        cargo.args(["--package", machine]);
    }
    // The encoded form takes precedence over RUSTFLAGS and may hold spaces.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", format!("--sysroot={}", sysroot.display()));
    cargo.env("CARGO_TARGET_DIR", target);
    let status = cargo.status().context("running cargo check")?;
    ensure!(status.success(), "no-std: something below protocol/ needs std");
    println!("no-std: {} compile without std", machines.join(", "));
    Ok(())
}

/// Creates a sysroot whose library folder holds links to [`LIBRARIES`] only.
fn library_without_std(root: &Path, target: &Path, host: &str) -> Result<PathBuf> {
    let real = PathBuf::from(ask_rustc(root, &["--print", "sysroot"])?.trim());
    let inside = format!("lib/rustlib/{host}/lib");
    let bare = target.join("no-std-sysroot");
    if bare.exists() {
        fs::remove_dir_all(&bare).context("removing the previous library folder")?;
    }
    fs::create_dir_all(bare.join(&inside)).context("making a library folder")?;
    let mut linked = 0;
    for entry in fs::read_dir(real.join(&inside)).context("reading the toolchain's libraries")? {
        let file = entry?.file_name();
        let name = file.to_string_lossy();
        if LIBRARIES.iter().any(|library| name.starts_with(&format!("lib{library}-"))) {
            symlink(real.join(&inside).join(&file), bare.join(&inside).join(&file))?;
            linked += 1;
        }
    }
    ensure!(linked >= LIBRARIES.len(), "no-std: the toolchain has no core and alloc for {host}");
    Ok(bare)
}

fn ask_rustc(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("rustc")
        .args(arguments)
        .current_dir(root)
        .output()
        .context("running rustc")?;
    ensure!(output.status.success(), "rustc {} failed", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two example machines, one of which reads a clock.
    #[test]
    fn a_machine_that_reads_a_clock_does_not_build() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let root = root.path().canonicalize().expect("it is there");
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("inside the root")).expect("make a folder");
            fs::write(path, text).expect("write a file");
        };
        write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"protocol/*\"]\n");
        let manifest = "[package]\nname = \"machine\"\nedition = \"2024\"\n";
        write("protocol/machine/Cargo.toml", manifest);
        write("protocol/machine/src/lib.rs", "#![no_std]\nextern crate alloc;\n");
        prove(&root, &root.join("target")).expect("core and alloc are enough for it");

        let clock = "#![no_std]\nextern crate std;\n\
                     pub fn now() -> std::time::Instant { std::time::Instant::now() }\n";
        write("protocol/machine/src/lib.rs", clock);
        let refused = prove(&root, &root.join("target")).expect_err("std is not there");
        assert!(refused.to_string().contains("needs std"));
    }
}
