//! What a benchmark that is interrupted must not leave behind.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// A process that was asked to end has so long to end its own children.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(3);

/// Something that outlives this process, if nobody does anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// A folder, with all in it.
    Folder(PathBuf),
    /// A network namespace, and the processes there.
    Namespace(String),
    /// A process that ends its children when it is asked to end (SIGTERM).
    Process(u32),
}

/// What there is now.
static ALL: Mutex<Vec<Resource>> = Mutex::new(Vec::new());

/// Nothing is cleaned away while this is held, and nothing is made behind the last cleaning.
pub(super) fn lock() -> MutexGuard<'static, Vec<Resource>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before it is made.
pub(super) fn register(resource: Resource) {
    lock().push(resource);
}

/// Once it is gone.
pub(super) fn unregister(resource: &Resource) {
    lock().retain(|known| known != resource);
}

/// Ends what `bench bulk` has started and removes what it has made, for whoever ends this process
/// now: nothing more is started.
pub fn cleanup_bulk() {
    let mut all = lock();
    // Processes first: they use the rest, and were started last.
    for resource in all.drain(..).rev() {
        release(&resource);
    }
    // Held for good.
    std::mem::forget(all);
}

/// Does away with it. What is gone already is as good.
pub(super) fn release(resource: &Resource) {
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

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        // Who has gone already is as good.
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
        std::fs::create_dir_all(folder.join("inner")).expect("there is room");
        release(&Resource::Folder(folder.clone()));
        assert!(!folder.exists());

        let mut sleep = Command::new("sleep").arg("1000").spawn().expect("it is there");
        let pid = sleep.id();
        let reaper = std::thread::spawn(move || sleep.wait().expect("a child").code());
        let began = Instant::now();
        release(&Resource::Process(pid));
        assert_eq!(reaper.join().expect("it does not panic"), None, "a signal has ended it");
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
        let mut inside = inside.spawn().expect("ip is there");
        // Until it has entered.
        let entered = Instant::now();
        while entered.elapsed() < Duration::from_secs(20) {
            let pids = Command::new("ip").args(["netns", "pids", &name]).output();
            if !pids.expect("ip is there").stdout.is_empty() {
                break;
            }
        }
        release(&Resource::Namespace(name.clone()));
        assert_eq!(inside.wait().expect("a child").code(), None, "a signal has ended it");
        let left = Command::new("ip").args(["netns", "list"]).output().expect("ip is there");
        assert!(!String::from_utf8_lossy(&left.stdout).contains(&name));
    }
}
