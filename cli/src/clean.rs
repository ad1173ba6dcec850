//! `onepipe clean`: removes what killed processes have left behind.

use std::fs::{File, OpenOptions};
use std::io::{Write, stdout};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onepipe_transport_shm::{remove_stale_segments, stale_segments};
use rustix::fs::OFlags;
use rustix::process::{Pid, geteuid, test_kill_process};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  onepipe clean --dry-run    list what killed processes have left behind
  onepipe clean              remove that

Removes segments of shared memory that no live process uses, and files of demos and benchmarks that
were killed, if they belong to this user. Stores of controllers stay, and so does
/dev/shm/onepipe-incarnations-UID (16 KB), by which a restarted process gets a higher incarnation.";

/// Remove what killed processes have left behind in shared memory
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Names of files and folders of one run, followed by the id of its process and perhaps an
/// extension.
const RUN_PREFIXES: [&str; 5] =
    ["onepipe-demo-", "onepipe-amcast-", "onepipe-peers-", "onepipe-bulk-", "onepipe-nodes-"];

#[derive(Debug, Serialize)]
struct Outcome {
    is_dry_run: bool,
    paths: Vec<PathBuf>,
}

/// Removes what is stale and prints it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let is_dry_run = arguments.dry_run;
    let segments = if is_dry_run { stale_segments() } else { remove_stale_segments() };
    let mut paths = segments.context("cannot read /dev/shm")?;
    let temp_dir = std::env::temp_dir();
    for folder in [Path::new("/dev/shm"), &temp_dir] {
        for path in files_of_ended_runs(folder)? {
            if !is_dry_run {
                remove(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
            paths.push(path);
        }
    }
    paths.sort();
    let mut out = stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &Outcome { is_dry_run, paths })?;
        writeln!(out).context("cannot print")?;
        return Ok(ExitCode::SUCCESS);
    }
    if paths.is_empty() {
        writeln!(out, "there is nothing to remove").context("cannot print")?;
    }
    let verb = if is_dry_run { "would remove" } else { "removed" };
    for path in paths {
        writeln!(out, "{verb} {}", path.display()).context("cannot print")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns what demos and benchmarks of this user whose process has ended have left in `folder`.
fn files_of_ended_runs(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let has_ended = process_of(name.to_str()?).is_some_and(|pid| !is_running(pid));
        (has_ended && is_unused(&entry.path())).then(|| entry.path())
    });
    Ok(paths.collect())
}

/// Returns the process that a file of a run is named after.
fn process_of(name: &str) -> Option<Pid> {
    let rest = RUN_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    let (digits, extension) = rest.split_once('.').unwrap_or((rest, "redb"));
    let is_file_of_run = extension == "redb" || extension.starts_with("redb.new-");
    Pid::from_raw(digits.parse().ok().filter(|pid| is_file_of_run && *pid > 0)?)
}

/// Returns whether there is a process of this id, whichever user it belongs to.
fn is_running(pid: Pid) -> bool {
    test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

/// Returns whether a file or a folder belongs to this user and no process has locked it: processes
/// of another container may have other ids.
fn is_unused(path: &Path) -> bool {
    let Ok(metadata) = path.symlink_metadata() else { return false };
    if metadata.uid() != geteuid().as_raw() || metadata.is_dir() {
        return metadata.uid() == geteuid().as_raw();
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file: Result<File, _> = OpenOptions::new().read(true).custom_flags(flags).open(path);
    file.is_ok_and(|file| file.try_lock().is_ok())
}

fn remove(path: &Path) -> std::io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_runs_name_a_process() {
        let pid = |name| process_of(name).map(|pid| pid.as_raw_nonzero().get());
        assert_eq!(pid("onepipe-demo-17.redb"), Some(17));
        assert_eq!(pid("onepipe-amcast-17.redb.new-18-ThreadId(2)"), Some(17));
        assert_eq!(pid("onepipe-peers-17"), Some(17));
        let others = [
            "onepipe-demo-17.txt",
            "onepipe-demo-x",
            "onepipe-0-demo-17",
            "onepipe-incarnations-0",
        ];
        assert!(others.iter().all(|name| pid(name).is_none()));
        assert_eq!((pid("onepipe-demo-0"), pid("onepipe-demo--1")), (None, None));
    }
}
