//! What the checks need beside cargo, installed when it is not there. Each is named first.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Something that a step needs.
struct Tool {
    /// What it is called.
    name: &'static str,
    /// Says that it is there.
    probe: &'static [&'static str],
    /// Brings it.
    install: &'static [&'static str],
    /// What it is for.
    purpose: &'static str,
}

/// How a Debian package is installed; its name follows.
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
    },
    Tool {
        name: "cargo clippy",
        probe: &["cargo", "clippy", "--version"],
        install: &["rustup", "component", "add", "clippy"],
        purpose: "checks the lints",
    },
    Tool {
        name: "git",
        probe: &["git", "--version"],
        install: debian!("git"),
        purpose: "lists the files that `tidy` reads (Debian package git)",
    },
    Tool {
        name: "protoc",
        probe: &["protoc", "--version"],
        install: debian!("protobuf-compiler"),
        purpose: "builds the feature `etcd` (Debian package protobuf-compiler)",
    },
    Tool {
        name: "google/protobuf/descriptor.proto",
        probe: &["test", "-e", "/usr/include/google/protobuf/descriptor.proto"],
        install: debian!("libprotobuf-dev"),
        purpose: "is read by protoc (Debian package libprotobuf-dev)",
    },
    Tool {
        name: "etcd",
        probe: &["etcd", "--version"],
        install: debian!("etcd-server"),
        purpose: "is what the feature `etcd` is tested against (Debian package etcd-server)",
    },
    Tool {
        name: "nft",
        probe: &["nft", "--version"],
        install: debian!("nftables"),
        purpose: "makes networks of network namespaces lose datagrams (Debian package nftables)",
    },
    Tool {
        name: "ip",
        probe: &["ip", "-V"],
        install: debian!("iproute2"),
        purpose: "makes network namespaces (Debian package iproute2)",
    },
    Tool {
        name: "chromium",
        probe: &["chromium", "--version"],
        install: debian!("chromium"),
        purpose: "looks at the page of `onepipe figures` (Debian package chromium)",
    },
];

/// Installs what is missing.
pub fn provide() -> Result<()> {
    let mut knows_packages = false;
    for tool in TOOLS.iter().filter(|tool| !is_there(tool.probe)) {
        println!("==> missing: `{}`, which {}", tool.name, tool.purpose);
        if tool.install[0] == "apt-get" && !knows_packages {
            install(&["apt-get", "update", "--quiet"])?;
            knows_packages = true;
        }
        install(tool.install)?;
        let by_hand = tool.install.join(" ");
        ensure!(is_there(tool.probe), "{by_hand} did not bring `{}`", tool.name);
    }
    Ok(())
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
}
