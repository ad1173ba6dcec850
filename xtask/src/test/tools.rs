//! What the checks need beside cargo, installed when it is not there. Each is named first.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A program that a step calls.
struct Tool {
    /// Says that it is there.
    probe: &'static [&'static str],
    /// Brings it.
    install: &'static [&'static str],
    /// What it is for.
    purpose: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool {
        probe: &["cargo", "fmt", "--version"],
        install: &["rustup", "component", "add", "rustfmt"],
        purpose: "checks the format",
    },
    Tool {
        probe: &["cargo", "clippy", "--version"],
        install: &["rustup", "component", "add", "clippy"],
        purpose: "checks the lints",
    },
    Tool {
        probe: &["git", "--version"],
        install: &["apt-get", "install", "--yes", "--no-install-recommends", "git"],
        purpose: "lists the files that `tidy` reads (Debian package git)",
    },
];

/// Installs what is missing.
pub fn provide() -> Result<()> {
    for tool in TOOLS.iter().filter(|tool| !is_there(tool.probe)) {
        let install = tool.install.join(" ");
        println!(
            "==> missing: `{}`, which {}",
            tool.probe[0..tool.probe.len() - 1].join(" "),
            tool.purpose
        );
        println!("==> installing: {install}");
        let status = Command::new(tool.install[0])
            .args(&tool.install[1..])
            .status()
            .with_context(|| format!("running {install}"))?;
        ensure!(status.success() && is_there(tool.probe), "{install} did not bring it");
    }
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
        assert!(!is_there(&["onepipe-no-such-program", "--version"]));
        assert!(!is_there(&["cargo", "no-such-command"]));
    }
}
