//! A process that was declared failed while it was stopped: of what it is notified, and of what the
//! others are. Each process is one of the operating system, behind a switch with a controller.

#[path = "api/harness/mod.rs"]
mod harness;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use harness::switch::Running;
use harness::{DEADLINE, to};
use onepipe::{Event, Outcome, Pipe, ProcessId, Timestamp};
use onepipe_base::Controllers;
use onepipe_daemon_controller::{
    Attachment, Config as ControllerConfig, ControllerDaemon, RedbStore,
};

/// Set in a child process: its process id, and the address of the switch.
const ROLE: &str = "ONEPIPE_TEST_EXCLUDED";
/// Longer than a live process is off its core.
const LINK_TIMEOUT_NS: u64 = 5_000_000_000;
const CONTROLLERS: Controllers = Controllers { first: ProcessId(7), count: 1 };
const STOPPED: u32 = 1;
const SURVIVOR: u32 = 2;

/// A daemon that is stopped when this value is dropped.
struct Daemon {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Daemon {
    fn controller(switch: &Running) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let attachment = Attachment::Switch(switch.address);
        let mut config = ControllerConfig::new(attachment, CONTROLLERS.first, CONTROLLERS);
        // The controller adopts the link timeout of the switch.
        config.wait = DEADLINE;
        let store = RedbStore::new(folder.path().join("store"));
        let daemon = ControllerDaemon::new(&config, store).expect("the daemon starts");
        let stop = std::sync::Arc::default();
        let is_stopped = std::sync::Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            daemon.run(&is_stopped, |_| {}).expect("the switch admits it and its store works");
        });
        Self { stop, thread: Some(thread), _folder: folder }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let ended = self.thread.take().expect("it is joined once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the controller has panicked");
    }
}

/// A process of its own, which prints a line for each event.
struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(test: &str, id: u32, switch: &Running) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test has a path"))
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, format!("{id} {}", switch.address))
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test can start itself");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([name, &id]).status();
        assert!(status.expect("kill is installed").success());
    }

    /// Returns what follows `key` in the next line that has it. The harness of the test ends a
    /// child that waits for too long.
    fn next(&mut self, key: &str) -> String {
        loop {
            let mut line = String::new();
            let len = self.lines.read_line(&mut line).expect("text");
            assert_ne!(len, 0, "the process has ended before {key:?}");
            if let Some((_, rest)) = line.split_once(key) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process has ended already if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ns(at: Timestamp) -> String {
    at.as_ns().to_string()
}

/// Runs a child process: prints its events until it is excluded, or killed.
fn print_events(role: &str) {
    let (id, switch) = role.split_once(' ').expect("an id and an address");
    let builder = Pipe::builder().process(id.parse().expect("a number")).processes(8).udp(switch);
    let builder = builder.wait(DEADLINE);
    let mut pipe = builder.join().expect("the switch is there");
    pipe.scatter_reliably(&[to(0, b"here")]).expect("there is capacity");
    while let Ok(event) = pipe.recv() {
        match event {
            Event::Message(message) => {
                println!("message {}", String::from_utf8_lossy(&message.payload));
            }
            Event::ProcessFailed(failed) => {
                println!("failed {} {}", failed.process.0, ns(failed.at))
            }
            Event::Excluded { void_from } => return println!("excluded {}", ns(void_from)),
            _ => {}
        }
    }
}

//= spec/failure.md#R25
#[test]
fn stopped_process_learns_from_when_it_is_void() {
    if let Ok(role) = std::env::var(ROLE) {
        return print_events(&role);
    }
    let switch = Running::start_with("127.0.0.1:0", |config| {
        config.link_timeout_ns = LINK_TIMEOUT_NS;
        config.controllers = Some(CONTROLLERS);
    });
    let _controller = Daemon::controller(&switch);
    let zero = Pipe::builder().process(0).processes(8).udp(switch.address);
    let mut zero = zero.wait(DEADLINE).join().expect("the switch is there");
    let start = |id| Process::start("stopped_process_learns_from_when_it_is_void", id, &switch);
    let (mut stopped, mut survivor) = (start(STOPPED), start(SURVIVOR));
    for _ in [&stopped, &survivor] {
        let event = std::iter::from_fn(|| zero.recv_timeout(DEADLINE));
        let message = event.into_iter().find_map(Event::message).expect("both have joined");
        assert_eq!(message.payload, b"here");
    }
    zero.scatter_reliably(&[to(STOPPED, b"to all"), to(SURVIVOR, b"to all")]).expect("capacity");
    assert_eq!([&mut stopped, &mut survivor].map(|child| child.next("message ")), ["to all"; 2]);

    stopped.signal("-STOP");
    zero.scatter_reliably(&[to(STOPPED, b"half"), to(SURVIVOR, b"half")]).expect("capacity");
    let (mut failed, mut lost) = (None, Vec::new());
    while failed.is_none() || lost.len() < 2 {
        match zero.recv_timeout(DEADLINE) {
            Some(Event::ProcessFailed(event)) => failed = Some(event),
            Some(Event::SendFailed(report)) => lost.push((report.to.0, report.outcome)),
            // On a busy machine the switch is silent for a while.
            Some(Event::LinkLost(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    lost.sort_by_key(|report| report.0);
    assert_eq!(lost, [STOPPED, SURVIVOR].map(|process| (process, Outcome::Lost)));
    let failed = failed.expect("it was received");
    assert_eq!(failed.process, ProcessId(STOPPED));
    // The survivor reports the same, and has not delivered its half.
    assert_eq!(survivor.next("failed "), format!("{STOPPED} {}", ns(failed.at)));
    zero.scatter_reliably(&[to(SURVIVOR, b"we go on")]).expect("there is capacity");
    assert_eq!(survivor.next("message "), "we go on");

    stopped.signal("-CONT");
    assert_eq!(stopped.next("excluded "), ns(failed.at), "what the others discard is void here");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stopped.lines, &mut rest).expect("text");
    assert!(!rest.contains("message "), "{rest}");
}
