//! Cleans up external resources of an interrupted benchmark.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Time for a process to end its own children after SIGTERM.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(3);

/// A resource that would outlive this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// A directory with its contents.
    Folder(PathBuf),
    /// A network namespace with its processes.
    Namespace(String),
    /// A network device; there may be none.
    Device(String),
    /// A process that ends its children on SIGTERM.
    Process(u32),
}

/// All resources that exist now.
static RESOURCES: Mutex<Vec<Resource>> = Mutex::new(Vec::new());

/// Locks the registry. While the guard is held, no cleanup starts; once the last cleanup holds it,
/// no resource can be registered any more.
pub(crate) fn lock() -> MutexGuard<'static, Vec<Resource>> {
    RESOURCES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a resource; call it before creating the resource.
pub(crate) fn register(resource: Resource) {
    lock().push(resource);
}

/// Unregisters a resource that is gone.
pub(crate) fn unregister(resource: &Resource) {
    lock().retain(|known| known != resource);
}

/// Ends the registered processes and removes all resources; for a process that is about to exit, as
/// no resource can be registered afterwards.
pub(crate) fn cleanup_resources() {
    let mut all = lock();
    // Processes first, in reverse order of creation: they use the other resources.
    for resource in all.drain(..).rev() {
        release(&resource);
    }
    // The lock is never released.
    std::mem::forget(all);
}

/// Releases a resource; one that is gone already is not an error.
pub(crate) fn release(resource: &Resource) {
    match resource {
        Resource::Folder(path) => _ = std::fs::remove_dir_all(path),
        Resource::Namespace(name) => {
            let pids = Command::new("ip").args(["netns", "pids", name]).output();
            let pids = pids.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            for pid in pids.unwrap_or_default().lines().filter_map(|pid| pid.trim().parse().ok()) {
                signal(pid, Signal::KILL);
            }
            let mut delete = Command::new("ip");
            let _ = delete.args(["netns", "delete", name]).stderr(Stdio::null()).status();
        }
        Resource::Device(name) => {
            let mut delete = Command::new("ip");
            let _ = delete.args(["link", "delete", name]).stderr(Stdio::null()).status();
        }
        Resource::Process(pid) => {
            signal(*pid, Signal::TERM);
            let until = Instant::now() + TERMINATE_TIMEOUT;
            while is_running(*pid) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            signal(*pid, Signal::KILL);
        }
    }
}

/// Runs a command, unless a cleanup has begun.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let what = || format!("{program} {}", arguments.join(" "));
    let _guard = lock();
    let output =
        Command::new(program).args(arguments).stdin(Stdio::null()).output().with_context(what)?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", what(), message.trim());
    Ok(())
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        // The process may have exited already.
        let _ = kill_process(pid, signal);
    }
}

fn is_running(pid: u32) -> bool {
    Pid::from_raw(pid as i32).is_some_and(|pid| test_kill_process(pid).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_processes_folders_and_namespaces() {
        let folder = std::env::temp_dir().join(format!("onepipe-left-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("inner")).expect("directory is created");
        release(&Resource::Folder(folder.clone()));
        assert!(!folder.exists());

        let mut sleep = Command::new("sleep").arg("1000").spawn().expect("it exists");
        let pid = sleep.id();
        let reaper = std::thread::spawn(move || sleep.wait().expect("own child").code());
        let began = Instant::now();
        release(&Resource::Process(pid));
        assert_eq!(reaper.join().expect("no panic"), None, "a signal has ended it");
        assert!(began.elapsed() < TERMINATE_TIMEOUT, "it was asked, and not waited for");

        if !rustix::process::geteuid().is_root() {
            return;
        }
        let name = format!("onepipe-left-{}", std::process::id());
        let netns = |arguments: &[&str]| Command::new("ip").arg("netns").args(arguments).status();
        if !netns(&["add", &name]).is_ok_and(|status| status.success()) {
            return;
        }
        let mut inside = Command::new("ip");
        let inside = inside.args(["netns", "exec", &name, "sleep", "1000"]);
        let mut inside = inside.spawn().expect("ip is installed");
        // Wait until the process has entered the namespace.
        let entered = Instant::now();
        while entered.elapsed() < Duration::from_secs(20) {
            let pids = Command::new("ip").args(["netns", "pids", &name]).output();
            if !pids.expect("ip is installed").stdout.is_empty() {
                break;
            }
        }
        release(&Resource::Namespace(name.clone()));
        assert_eq!(inside.wait().expect("own child").code(), None, "a signal has ended it");
        let left = Command::new("ip").args(["netns", "list"]).output().expect("ip is installed");
        assert!(!String::from_utf8_lossy(&left.stdout).contains(&name));
    }
}
