//! `onepipe completions`: shell completion scripts.

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  onepipe completions bash > ~/.local/share/bash-completion/completions/onepipe
  onepipe completions zsh > \"${fpath[1]}/_onepipe\"
  onepipe completions fish > ~/.config/fish/completions/onepipe.fish";

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Shell to print the script for
    shell: Shell,
}

pub fn run(arguments: &Arguments, mut command: clap::Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "onepipe", &mut script);
    stdout().write_all(&script).context("cannot write the script")?;
    Ok(ExitCode::SUCCESS)
}
