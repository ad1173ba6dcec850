//! Processes of other programs, which die with their benchmark as our own processes do.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use crate::children::{WORKER, die_with_parent};

/// Second argument of a process that becomes another program.
pub(crate) const RIVAL: &str = "rival";

/// Returns a command that runs `program`, whose process dies with this one, however that happens.
pub(crate) fn rival_command(program: &[String]) -> Result<Command> {
    let own = std::env::current_exe().context("finding this program")?;
    let parent_pid = std::process::id().to_string();
    let mut command = Command::new(own);
    command.args([WORKER, RIVAL, &parent_pid, &serde_json::to_string(program)?]);
    Ok(command)
}

/// Becomes another program.
pub(crate) fn work(parent_pid: &str, command: &str) -> Result<()> {
    // The kernel keeps this setting when the process runs another program.
    die_with_parent(parent_pid.parse().context("invalid pid of the parent")?)?;
    let command: Vec<String> =
        serde_json::from_str(command).with_context(|| format!("reading the command {command}"))?;
    let (program, arguments) = command.split_first().context("the command is empty")?;
    Err(anyhow!(Command::new(program).args(arguments).exec())
        .context(format!("starting {program}")))
}
