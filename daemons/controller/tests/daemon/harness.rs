//! A controller with a thread of its own, and status requests to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onepipe_base::{Controllers, ProcessId};
use onepipe_daemon_controller::{Attachment, Config, ControllerDaemon, RedbStore, Report};
use onepipe_transport_driver::Doorbell;

/// Longer than any test waits; ends a test that would hang.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Limit of process ids.
pub const PROCESSES: u32 = 8;
/// The controllers of all fabrics here: the last two process ids.
pub const CONTROLLERS: Controllers = Controllers { first: ProcessId(6), count: 2 };

/// A running replica. When it is dropped it resigns and ends.
pub struct Replica {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    doorbell: Doorbell,
    thread: Option<JoinHandle<()>>,
}

pub fn config(attachment: Attachment, process: u32) -> Config {
    let mut config = Config::new(attachment, ProcessId(process), CONTROLLERS);
    config.status_listen = Some("127.0.0.1:0".parse().expect("an address"));
    config.campaign_interval = Duration::from_millis(20);
    config
}

impl Replica {
    pub fn start(config: &Config, store: &Path) -> Self {
        let daemon =
            ControllerDaemon::new(config, RedbStore::new(store)).expect("the daemon starts");
        let address = daemon.status_addr().expect("configured");
        let doorbell = daemon.doorbell();
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let ended = daemon.run(&is_stopped, |event| println!("{event:?}"));
            ended.expect("the switch admits the controller, and its store works");
        });
        Self { address, stop, doorbell, thread: Some(thread) }
    }

    /// Returns its status.
    pub fn report(&self) -> Report {
        let (head, body) = get(self.address, "/status");
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        serde_json::from_str(&body).expect("a report")
    }

    /// Polls the status until `holds`.
    pub fn until(&self, what: &str, holds: impl Fn(&Report) -> bool) -> Report {
        let began = Instant::now();
        loop {
            let report = self.report();
            if holds(&report) {
                return report;
            }
            assert!(began.elapsed() < TIMEOUT, "not {what}: {report:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.doorbell.ring();
        let ended = self.thread.take().expect("it runs until here").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the controller has panicked");
    }
}

/// Returns head and body of the response.
pub fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").expect("it listens");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it responds");
    let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
    (head.to_owned(), body.to_owned())
}

/// Whether `name` is a member in `state`.
pub fn is(report: &Report, name: &str, state: &str) -> bool {
    report.members.iter().any(|member| member.name == name && member.state == state)
}
