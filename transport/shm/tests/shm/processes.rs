//! Real processes, real time, SIGKILL.
//!
//! Every process sends numbered, stamped frames to all others and checks what it receives: numbers
//! of one incarnation rise by one, and no stamp is below what that sender's promise word had
//! promised.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Promises, Timestamp, Transmit, Verdict};
use onepipe_transport_driver::{Config as DriverConfig, DrivenMachine, Driver};
use onepipe_transport_shm::{Config, Shm};

const PROCESSES: usize = 4;
const FRAME_LEN: usize = 24;
/// Set in a child process, as `segment process`.
const ROLE: &str = "ONEPIPE_TEST_ROLE";

/// Sends bursts to all other processes, and checks their frames.
struct TrafficMachine {
    me: u64,
    incarnation: u64,
    /// The next number for each receiver.
    numbers: [u64; PROCESSES],
    /// The remaining receivers of the current burst.
    burst: VecDeque<u16>,
    stamped: Option<Timestamp>,
    due: Mono,
    /// The state of each sender.
    senders: [Sender; PROCESSES],
}

#[derive(Clone, Copy, Default)]
struct Sender {
    incarnation: u64,
    number: Option<u64>,
    promised: Option<Timestamp>,
    frames: u64,
}

impl TrafficMachine {
    fn new(shm: &Shm) -> Self {
        Self {
            me: u64::from(shm.process().0),
            incarnation: u64::from(shm.incarnation().0),
            numbers: [0; PROCESSES],
            burst: VecDeque::new(),
            stamped: None,
            due: Mono::from_ns(0),
            senders: [Sender::default(); PROCESSES],
        }
    }
}

impl Machine for TrafficMachine {
    type Event = ();

    fn handle_frame(&mut self, _: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let word = |at: usize| {
            u64::from_be_bytes(frame[at..at + 8].try_into().expect("the slice has eight bytes"))
        };
        let (incarnation, number, stamp) = (word(0), word(8), Timestamp::from_ns(word(16)));
        let sender = &mut self.senders[port.index()];
        assert!(
            incarnation >= sender.incarnation,
            "a frame of a previous incarnation after one of a later one"
        );
        if incarnation > sender.incarnation {
            (sender.incarnation, sender.number) = (incarnation, None);
        }
        if let Some(last) = sender.number {
            assert_eq!(number, last + 1, "from {port:?}");
        }
        assert!(
            sender.promised.is_none_or(|promised| stamp >= promised),
            "process {} got {stamp:?} from {port:?}, which had promised {:?}",
            self.me,
            sender.promised
        );
        sender.number = Some(number);
        sender.frames += 1;
        Verdict::Consumed
    }

    fn handle_timeout(&mut self, now: Now) {
        self.due = now.mono.after_ns(20_000);
        if self.burst.is_empty() {
            let others = (0..PROCESSES as u16).filter(|to| u64::from(*to) != self.me);
            self.burst.extend(others.clone().chain(others.clone()).chain(others));
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let to = self.burst.pop_front()?;
        let stamp = self.stamped.map_or(now.sync, |last| last.wrapping_add_ns(1).max(now.sync));
        self.stamped = Some(stamp);
        let number = &mut self.numbers[usize::from(to)];
        slot[..8].copy_from_slice(&self.incarnation.to_be_bytes());
        slot[8..16].copy_from_slice(&number.to_be_bytes());
        slot[16..24].copy_from_slice(&stamp.as_ns().to_be_bytes());
        *number += 1;
        Some(Transmit { port: Port(to), bytes: FRAME_LEN })
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Mono> {
        Some(self.due)
    }
}

impl DrivenMachine for TrafficMachine {
    fn handle_promises(&mut self, _: Now, port: Port, promises: Promises) {
        let promised = &mut self.senders[port.index()].promised;
        *promised = (*promised).max(Some(promises.barrier));
    }

    fn promises(&self) -> Option<Promises> {
        self.stamped.map(|last| Promises::both(last.wrapping_add_ns(1)))
    }

    fn wants_transmit(&self) -> bool {
        !self.burst.is_empty()
    }
}

/// Runs a child process: drives until its standard input closes, reporting what it received.
fn run_peer(role: &str) {
    let (name, process) = role.split_once(' ').expect("the parent has set it");
    let process = ProcessId(process.parse().expect("a number"));
    // Live receivers are waited for, however busy this machine is: no number may be missing.
    let config =
        Config { processes_max: PROCESSES as u32, hold_ns: 60_000_000_000, ..Config::default() };
    let shm = Shm::attach(name, Some(process), &config).expect("the id is free");
    let (clock, incarnation) = (shm.clock(), shm.incarnation().0);
    println!("incarnation {incarnation}");
    let machine = TrafficMachine::new(&shm);
    let mut driver = Driver::new(machine, shm, clock, DriverConfig::default());
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, doorbell) = (stop.clone(), driver.doorbell());
    std::thread::spawn(move || {
        // The parent closes the pipe at the end of the test, or when it has failed.
        std::io::stdin().lines().for_each(drop);
        stopped.store(true, Ordering::Release);
        doorbell.ring();
    });
    let mut report_at = Instant::now();
    while !stop.load(Ordering::Acquire) {
        let progress = driver.turn(|_, ()| {});
        driver.rest(progress);
        if Instant::now() >= report_at {
            report_at = Instant::now() + Duration::from_millis(20);
            let frames = driver.machine().senders.map(|sender| sender.frames.to_string());
            let deaths = driver.transport().stats().deaths;
            println!("got {} deaths {deaths}", frames.join(" "));
            std::io::stdout().flush().expect("the parent reads");
        }
    }
    let stats = driver.transport().stats();
    assert_eq!(stats.entries_refused, 0);
    println!("done");
}

struct PeerProcess {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    incarnation: u32,
}

impl PeerProcess {
    fn start(name: &str, process: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test has a path"))
            .args([
                "--exact",
                "processes::processes_die_and_come_back_and_the_others_go_on",
                "--nocapture",
            ])
            .env(ROLE, format!("{name} {process}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test can start itself");
        let lines = BufReader::new(child.stdout.take().expect("the output is piped")).lines();
        let mut peer = Self { child, lines, incarnation: 0 };
        peer.incarnation = peer.find("incarnation ").parse().expect("a number");
        peer
    }

    /// Returns the rest of the next line that contains `word`.
    fn find(&mut self, word: &str) -> String {
        loop {
            let line =
                self.lines.next().expect("the child is alive").expect("the child prints text");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.to_owned();
            }
        }
    }

    /// Returns the next report: frames from each process, and deaths.
    fn report(&mut self) -> ([u64; PROCESSES], u64) {
        let line = self.find("got ");
        let (frames, deaths) = line.split_once(" deaths ").expect("a complete report");
        let mut numbers = frames.split(' ').map(|number| number.parse().expect("a number"));
        (
            std::array::from_fn(|_| numbers.next().expect("one each")),
            deaths.parse().expect("a number"),
        )
    }

    /// Waits until it has received frames from each of `from` since the call.
    fn wait_for_frames_from(&mut self, from: &[usize]) {
        let (before, _) = self.report();
        while !from.iter().all(|from| self.report().0[*from] > before[*from]) {}
    }

    fn stop(mut self) {
        drop(self.child.stdin.take());
        self.find("done");
        // Read the rest of its output, so that it does not break the pipe.
        self.lines.by_ref().for_each(drop);
        assert!(self.child.wait().expect("the process is a child").success());
    }
}

#[test]
fn processes_die_and_come_back_and_the_others_go_on() {
    if let Ok(role) = std::env::var(ROLE) {
        return run_peer(&role);
    }
    let name = format!("test-{}-kill", std::process::id());
    let mut peers: Vec<PeerProcess> =
        (0..PROCESSES).map(|process| PeerProcess::start(&name, process)).collect();
    peers.iter_mut().enumerate().for_each(|(me, peer)| {
        let others: Vec<usize> = (0..PROCESSES).filter(|other| *other != me).collect();
        peer.wait_for_frames_from(&others);
    });

    for round in 0..5 {
        let victim = 1 + round % 3;
        let previous = peers[victim].incarnation;
        peers[victim].child.kill().expect("the process is a child");
        peers[victim].child.wait().expect("the process is a child");
        let others: Vec<usize> = (0..PROCESSES).filter(|other| *other != victim).collect();
        for &me in &others {
            let senders_seen: Vec<usize> =
                others.iter().copied().filter(|other| *other != me).collect();
            peers[me].wait_for_frames_from(&senders_seen);
        }
        // All others detect the death by themselves.
        while peers[0].report().1 <= round as u64 {}
        peers[victim] = PeerProcess::start(&name, victim);
        assert!(peers[victim].incarnation > previous);
        for &me in &others {
            peers[me].wait_for_frames_from(&[victim]);
        }
        peers[victim].wait_for_frames_from(&others);
    }
    peers.into_iter().for_each(PeerProcess::stop);
    let left = std::fs::read_dir("/dev/shm").expect("/dev/shm is available");
    let is_ours = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().contains(&name))
    };
    assert!(!left.into_iter().any(is_ours), "the last to leave removes the segment");
}
