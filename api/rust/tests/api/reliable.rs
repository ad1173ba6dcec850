//! The reliable service with a controller: a failure is reported to all processes, including the
//! failed one, which may rejoin.

use crate::harness;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Instant;

use harness::{DEADLINE, fabric, meet, message, process, to};
use onepipe::{
    EmbeddedPipe, Event, Outcome, Pipe, ProcessFailed, ProcessId, ReceiveMode, SendError, Service,
};
use onepipe_base::Controllers;
use onepipe_daemon_controller::{
    Attachment, Config as ControllerConfig, ControllerDaemon, RedbStore,
};
use onepipe_daemon_switch::{Config, SoftwareSwitch};

/// Link timeout, long enough for a busy machine.
const LINK_TIMEOUT_NS: u64 = 3_000_000_000;
const CONTROLLERS: Controllers = Controllers { first: ProcessId(7), count: 1 };

#[test]
fn both_services_run_side_by_side() {
    let mut pipes = meet(&fabric("services"), 2);
    let [a, b] = &mut pipes[..] else { unreachable!() };
    let ids =
        (a.scatter(&[to(1, b"plain")]), a.scatter_reliably(&[to(1, b"sure"), to(0, b"mine")]));
    assert_eq!(ids.0, ids.1, "each service has its own ids");
    let mut received = [message(b), message(b)].map(|m| (m.service, m.payload));
    received.sort();
    let expected =
        [(Service::BestEffort, b"plain".to_vec()), (Service::Reliable, b"sure".to_vec())];
    assert_eq!(received, expected);
    assert_eq!(message(a).payload, b"mine");
}

#[test]
fn merged_services_are_one_stream_in_one_order() {
    let name = fabric("merged");
    let join = |id| process(&name, id).receive_mode(ReceiveMode::Merged).join().expect("free");
    let (mut a, mut b) = (join(0), join(1));
    for number in 0..500u32 {
        let payload = number.to_be_bytes();
        let both = [to(0, &payload), to(1, &payload)];
        match number % 3 {
            0 => a.scatter_reliably_wait(&both, DEADLINE),
            _ => a.scatter_wait(&both, DEADLINE),
        }
        .expect("the buffer drains");
    }
    let mut logs = [&mut a, &mut b].map(|pipe| -> Vec<_> {
        (0..500).map(|_| message(pipe)).map(|m| (m.timestamp, m.payload)).collect()
    });
    assert!(logs[0].is_sorted_by_key(|entry| entry.0));
    assert_eq!(logs[0], logs[1]);
    logs[0].sort_by(|one, other| one.1.cmp(&other.1));
    assert!(logs[0].iter().map(|entry| &entry.1[..]).eq((0..500u32).map(|n| n.to_be_bytes())));
}

/// A thread that is stopped when this value is dropped.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(run: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        Self { stop, thread: Some(std::thread::spawn(move || run(&is_stopped))) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("the thread is joined once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "a daemon has panicked");
    }
}

/// Starts a switch and a controller.
fn daemons() -> (SocketAddr, [Running; 2]) {
    let mut config = Config::new("127.0.0.1:0".parse().expect("a valid address"));
    (config.processes_max, config.link_timeout_ns) = (8, LINK_TIMEOUT_NS);
    config.controllers = Some(CONTROLLERS);
    let mut switch = SoftwareSwitch::new(&config).expect("the loopback is available");
    let address = switch.local_addr();
    let switch = Running::start(move |stop| {
        while !stop.load(Ordering::Relaxed) {
            let progress = switch.turn(|_| {});
            switch.rest(progress);
        }
    });
    let config = ControllerConfig::new(Attachment::Switch(address), ProcessId(7), CONTROLLERS);
    let path = std::env::temp_dir().join(format!("{}.redb", fabric("store")));
    let daemon = ControllerDaemon::new(&config, RedbStore::new(path.clone()));
    let daemon = daemon.expect("the daemon starts");
    let controller = Running::start(move |stop| {
        daemon.run(stop, |_| {}).expect("the switch admits it and its store works");
        // The controller may not have written anything yet.
        let _ = std::fs::remove_file(path);
    });
    (address, [controller, switch])
}

fn builder(switch: SocketAddr, id: u32) -> onepipe::Builder {
    let builder = Pipe::builder().process(id).processes(8).udp(switch);
    builder.controllers(7, 1).tune(|config| config.link_timeout_ns = 60_000_000_000)
}

/// Drives a pipe until `done` returns a value for an event.
fn drive<R>(pipe: &mut EmbeddedPipe, mut done: impl FnMut(Event<&[u8]>) -> Option<R>) -> R {
    let began = Instant::now();
    loop {
        let mut found = None;
        let progress = pipe.poll(|event| found = found.take().or_else(|| done(event)));
        if let Some(found) = found {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "the event did not occur in time");
        pipe.rest(progress);
    }
}

#[test]
fn silent_process_fails_for_all_and_may_rejoin() {
    let (switch, _daemons) = daemons();
    let mut a = builder(switch, 0).join().expect("the switch is there");
    let mut b = builder(switch, 1).join().expect("the switch is there");
    let (failures, received) = channel();
    a.on_process_failed(move |failed| failures.send(failed).expect("the test listens"));
    let mut c = builder(switch, 2).embedded().expect("the switch is there");
    a.scatter_reliably(&[to(1, b"to b"), to(2, b"to c")]).expect("there is capacity");
    let first = drive(&mut c, |event| event.message().map(|m| m.payload.to_vec()));
    assert_eq!(first, b"to c");
    assert_eq!(message(&mut b).payload, b"to b");

    // It stops being driven. What it should have received is recalled from b, too.
    a.scatter_reliably(&[to(1, b"half"), to(2, b"never"), to(0, b"half")])
        .expect("there is capacity");
    let failed = received.recv_timeout(DEADLINE).expect("the callback runs");
    assert_eq!(failed.process, ProcessId(2));
    let mut lost = Vec::new();
    while lost.len() < 3 {
        match a.recv_timeout(DEADLINE) {
            Some(Event::SendFailed(report)) => lost.push((report.to.0, report.outcome)),
            Some(Event::ProcessFailed(again)) => assert_eq!(again, failed),
            other => panic!("{other:?}"),
        }
    }
    lost.sort_by_key(|report| report.0);
    assert_eq!(lost, [0, 1, 2].map(|process| (process, Outcome::Lost)));
    let event = b.recv_timeout(DEADLINE);
    assert_eq!(
        event,
        Some(Event::ProcessFailed(failed)),
        "the same failure, and no event before it"
    );
    a.scatter_reliably(&[to(0, b"on"), to(1, b"we go")]).expect("there is capacity");
    assert_eq!(message(&mut b).payload, b"we go");

    // Driven again, it learns of its exclusion, and may not send any more.
    let void_from = drive(&mut c, |event| match event {
        Event::Excluded { void_from } => Some(void_from),
        _ => None,
    });
    assert_eq!(void_from, failed.at, "what the others discard is void here");
    assert!(!c.is_member());
    assert_eq!(c.scatter_reliably(&[to(0, b"hm")]), Err(SendError::Excluded));
    let ProcessFailed { incarnation, .. } = failed;
    let mut c = c.rejoin().expect("rejoins as a new incarnation");
    assert!(c.config().incarnation > incarnation && c.is_member());
    c.scatter_reliably(&[to(0, b"i am back"), to(1, b"i am back")]).expect("there is capacity");
    let came = |event: Event| event.message().is_some_and(|m| m.payload == b"i am back");
    let began = Instant::now();
    for pipe in [&mut a, &mut b] {
        loop {
            c.turn();
            if pipe.try_recv().is_some_and(came) {
                break;
            }
            assert!(began.elapsed() < DEADLINE, "messages of the new incarnation are not received");
        }
    }
}
