//! The tools that the checks need beside cargo. A missing one is named, then installed.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// A tool that a step needs.
struct Tool {
    /// Its name.
    name: &'static str,
    /// The command that succeeds if the tool is installed.
    probe: &'static [&'static str],
    /// The command that installs it.
    install: &'static [&'static str],
    /// Its purpose, as a verb phrase.
    purpose: &'static str,
    /// What happens with `--no-install` if the tool is missing.
    if_missing: IfMissing,
}

/// Which of the features that need a tool are built and tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    pub etcd: bool,
    pub xdp: bool,
}

/// What happens with `--no-install` if a tool is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfMissing {
    /// Nothing can be checked.
    Fail,
    /// The feature `etcd` is neither built nor tested.
    SkipEtcd,
    /// The feature `xdp` is neither built nor tested.
    SkipXdp,
    /// Tests that need the tool print `SKIPPED`.
    SkipTests,
}

/// Environment variable that is set for tests with `--no-install`: tests that need a missing tool
/// skip themselves.
pub const NO_INSTALL: &str = "ONEPIPE_NO_INSTALL";

/// The command that installs a Debian package.
macro_rules! debian {
    ($package:literal) => {
        &["apt-get", "install", "--yes", "--no-install-recommends", $package]
    };
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "cargo fmt",
        probe: &["cargo", "fmt", "--version"],
        install: &["rustup", "component", "add", "rustfmt"],
        purpose: "checks the format",
        if_missing: IfMissing::Fail,
    },
    Tool {
        name: "cargo clippy",
        probe: &["cargo", "clippy", "--version"],
        install: &["rustup", "component", "add", "clippy"],
        purpose: "checks the lints",
        if_missing: IfMissing::Fail,
    },
    Tool {
        name: "git",
        probe: &["git", "--version"],
        install: debian!("git"),
        purpose: "lists the files that `tidy` reads (Debian package git)",
        if_missing: IfMissing::Fail,
    },
    Tool {
        name: "protoc",
        probe: &["protoc", "--version"],
        install: debian!("protobuf-compiler"),
        purpose: "builds the feature `etcd` (Debian package protobuf-compiler)",
        if_missing: IfMissing::SkipEtcd,
    },
    Tool {
        name: "google/protobuf/descriptor.proto",
        probe: &["test", "-e", "/usr/include/google/protobuf/descriptor.proto"],
        install: debian!("libprotobuf-dev"),
        purpose: "is read by protoc (Debian package libprotobuf-dev)",
        if_missing: IfMissing::SkipEtcd,
    },
    Tool {
        name: "etcd",
        probe: &["etcd", "--version"],
        install: debian!("etcd-server"),
        purpose: "is what the feature `etcd` is tested against (Debian package etcd-server)",
        if_missing: IfMissing::SkipEtcd,
    },
    Tool {
        name: "clang",
        probe: &["clang", "--version"],
        install: debian!("clang"),
        purpose: "compiles the kernel program of the feature `xdp` (Debian package clang)",
        if_missing: IfMissing::SkipXdp,
    },
    Tool {
        name: "nft",
        probe: &["nft", "--version"],
        install: debian!("nftables"),
        purpose: "makes networks of network namespaces lose datagrams (Debian package nftables)",
        if_missing: IfMissing::SkipTests,
    },
    Tool {
        name: "ip",
        probe: &["ip", "-V"],
        install: debian!("iproute2"),
        purpose: "makes network namespaces (Debian package iproute2)",
        if_missing: IfMissing::SkipTests,
    },
    Tool {
        name: "redis-cli",
        probe: &["redis-cli", "--version"],
        install: debian!("redis-tools"),
        purpose: "uses the key-value store as its users do (Debian package redis-tools)",
        if_missing: IfMissing::SkipTests,
    },
    Tool {
        name: "redis for Python",
        probe: &["/usr/bin/python3", "-c", "import redis"],
        install: debian!("python3-redis"),
        purpose: "uses the key-value store as its users do (Debian package python3-redis)",
        if_missing: IfMissing::SkipTests,
    },
    Tool {
        name: "qemu-img",
        probe: &["qemu-img", "--version"],
        install: debian!("qemu-utils"),
        purpose: "uses the block device as its users do (Debian package qemu-utils)",
        if_missing: IfMissing::SkipTests,
    },
    Tool {
        name: "nbdcopy",
        probe: &["nbdcopy", "--version"],
        install: debian!("libnbd-bin"),
        purpose: "uses the block device as its users do (Debian package libnbd-bin)",
        if_missing: IfMissing::SkipTests,
    },
    Tool {
        name: "nbd-client",
        probe: &["which", "nbd-client"],
        install: debian!("nbd-client"),
        purpose: "uses the block device as its users do (Debian package nbd-client)",
        if_missing: IfMissing::SkipTests,
    },
    Tool {
        name: "fio",
        probe: &["fio", "--enghelp=nbd"],
        install: debian!("fio"),
        purpose: "uses the block device as its users do (Debian package fio)",
        if_missing: IfMissing::SkipTests,
    },
    Tool {
        name: "mkfs.ext4",
        probe: &["which", "mkfs.ext4"],
        install: debian!("e2fsprogs"),
        purpose: "makes and checks a file system (Debian package e2fsprogs)",
        if_missing: IfMissing::SkipTests,
    },
    Tool {
        name: "chromium",
        probe: &["chromium", "--version"],
        install: debian!("chromium"),
        purpose: "looks at the page of `onepipe figures` (Debian package chromium)",
        if_missing: IfMissing::SkipTests,
    },
];

/// Installs the missing tools; names each first.
pub fn install_missing() -> Result<()> {
    let mut has_updated_index = false;
    for tool in missing() {
        println!("==> missing: `{}`, which {}", tool.name, tool.purpose);
        if tool.install[0] == "apt-get" && !has_updated_index {
            install(&["apt-get", "update", "--quiet"])?;
            has_updated_index = true;
        }
        install(tool.install)?;
        let by_hand = tool.install.join(" ");
        ensure!(is_there(tool.probe), "`{}` is still missing after {by_hand}", tool.name);
    }
    Ok(())
}

/// Names the missing tools and what is left out without them. Returns the features that can be
/// built and tested.
pub fn report_missing() -> Result<Features> {
    report(&missing().collect::<Vec<_>>())
}

fn missing() -> impl Iterator<Item = &'static Tool> {
    TOOLS.iter().filter(|tool| !is_there(tool.probe))
}

fn report(missing: &[&Tool]) -> Result<Features> {
    for tool in missing {
        let left_out = match tool.if_missing {
            IfMissing::Fail => bail!(
                "`{}`, which {}, is missing; install it by: {}",
                tool.name,
                tool.purpose,
                tool.install.join(" ")
            ),
            IfMissing::SkipEtcd => "the feature `etcd` is NOT built and NOT tested",
            IfMissing::SkipXdp => "the feature `xdp` is NOT built and NOT tested",
            IfMissing::SkipTests => "tests that need it are SKIPPED",
        };
        println!("==> missing: `{}`, which {}: {left_out}", tool.name, tool.purpose);
    }
    let is_built = |skip| !missing.iter().any(|tool| tool.if_missing == skip);
    Ok(Features { etcd: is_built(IfMissing::SkipEtcd), xdp: is_built(IfMissing::SkipXdp) })
}

fn install(command: &[&str]) -> Result<()> {
    let by_hand = command.join(" ");
    println!("==> installing: {by_hand}");
    let status = Command::new(command[0])
        .args(&command[1..])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .with_context(|| format!("running {by_hand}"))?;
    ensure!(status.success(), "{by_hand}: {status}");
    Ok(())
}

fn is_there(probe: &[&str]) -> bool {
    let mut command = Command::new(probe[0]);
    command.args(&probe[1..]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_seen_to_be_missing() {
        assert!(is_there(&["cargo", "--version"]));
        assert!(install(&["onepipe-no-such-program"]).is_err());
        assert!(install(&["cargo", "no-such-command"]).is_err());
        assert!(!is_there(&["onepipe-no-such-program", "--version"]));
        assert!(!is_there(&["cargo", "no-such-command"]));
    }

    #[test]
    fn without_installing_missing_tools_leave_tests_out() {
        let tool = |name| TOOLS.iter().find(|tool| tool.name == name).expect("it is listed");
        let all = Features { etcd: true, xdp: true };
        assert_eq!(report(&[]).expect("nothing is missing"), all);
        assert_eq!(report(&[tool("chromium"), tool("nft")]).expect("tests skip themselves"), all);
        let without_etcd = Features { etcd: false, ..all };
        assert_eq!(report(&[tool("etcd")]).expect("the feature is left out"), without_etcd);
        let without_xdp = Features { xdp: false, ..all };
        assert_eq!(report(&[tool("clang")]).expect("the feature is left out"), without_xdp);
        let error = report(&[tool("git")]).expect_err("tidy cannot run").to_string();
        assert!(error.contains("install it by: apt-get install"), "{error}");
    }
}
