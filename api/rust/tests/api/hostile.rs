//! Frames that cannot be, sent from sockets to running processes and members.

use crate::harness;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use harness::switch::Running;
use harness::{DEADLINE, message, to};
use onepipe::{
    Amcast, AmcastOptions, AmcastReplica, Event, GroupId, Loopback, Pipe, ProcessId, Role,
};
use onepipe_base::{Cause, Controllers, Incarnation, Promises, Psn, Timestamp};
use onepipe_daemon_controller::{
    Attachment, Config as ControllerConfig, ControllerDaemon, RedbStore,
};
use onepipe_daemon_member::MemberDaemon;
use onepipe_wire::{
    Amcast as AmcastBody, Failure, Flood, FloodId, Frame, HEADER_LEN, Header, Opcode,
    rewrite_promises, seal,
};

const HOUR_NS: u64 = 3_600_000_000_000;
const CONTROLLERS: Controllers = Controllers { first: ProcessId(7), count: 1 };

/// Makes a frame of an attacker out of a beacon of the switch.
type Attack = fn(&[u8]) -> Vec<u8>;

/// A thread that is stopped when this value is dropped.
struct Stopped {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stopped {
    fn start(run: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        Self { stop, thread: Some(std::thread::spawn(move || run(&is_stopped))) }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("it is joined once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "a thread has panicked");
    }
}

/// Relays the datagrams between a process and its switch, and adds what a switch that misbehaves
/// would send: one frame before each of its beacons.
struct Relay {
    address: SocketAddr,
    is_attacking: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    _thread: Stopped,
}

impl Relay {
    fn start(switch: SocketAddr, attack: Attack) -> Self {
        let socket = || UdpSocket::bind("127.0.0.1:0").expect("the loopback is there");
        let (front, back) = (socket(), socket());
        back.connect(switch).expect("the switch is there");
        back.set_nonblocking(true).expect("the system allows it");
        front.set_nonblocking(true).expect("the system allows it");
        let address = front.local_addr().expect("it is bound");
        let (is_attacking, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (attacks, count) = (Arc::clone(&is_attacking), Arc::clone(&sent));
        let thread = Stopped::start(move |stop| {
            let (mut bytes, mut process) = (vec![0; 1 << 16], None);
            while !stop.load(Ordering::Relaxed) {
                let mut is_idle = true;
                while let Ok((len, from)) = front.recv_from(&mut bytes) {
                    (process, is_idle) = (Some(from), false);
                    // A datagram may be lost, as in any network.
                    let _ = back.send(&bytes[..len]);
                }
                while let (Ok(len), Some(process)) = (back.recv(&mut bytes), process) {
                    is_idle = false;
                    let datagram = &bytes[..len];
                    let is_beacon =
                        Frame::parse(datagram).is_ok_and(|frame| frame.opcode == Opcode::Beacon);
                    if is_beacon && attacks.load(Ordering::Relaxed) {
                        let attack = attack(datagram);
                        if front.send_to(&attack, process).is_ok() {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    let _ = front.send_to(datagram, process);
                }
                if is_idle {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Self { address, is_attacking, sent, _thread: thread }
    }

    /// Sends the attack several times.
    fn attack(&self) {
        self.is_attacking.store(true, Ordering::Relaxed);
        let began = Instant::now();
        while self.sent.load(Ordering::Relaxed) < 5 {
            assert!(began.elapsed() < DEADLINE, "the switch sends no beacons");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.is_attacking.store(false, Ordering::Relaxed);
    }
}

fn join(id: u32, switch: SocketAddr) -> Pipe {
    let builder = Pipe::builder().process(id).processes(8).udp(switch);
    builder.wait(DEADLINE).join().expect("the switch is there")
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp::from_ns(since.expect("the clock is right").as_nanos() as u64)
}

/// Both send to both, and deliver in one order.
fn exchange(pipes: &mut [Pipe; 2], text: &[u8]) {
    for pipe in pipes.iter_mut() {
        pipe.scatter_reliably(&[to(0, text), to(1, text)]).expect("there is capacity");
    }
    let received = |pipe: &mut Pipe| {
        [(); 2].map(|()| message(pipe)).map(|it| (it.timestamp, it.from, it.payload))
    };
    let [zero, one] = pipes.each_mut().map(received);
    assert_eq!(zero, one);
    assert!(zero.iter().all(|(.., payload)| payload == text), "{zero:?}");
    assert!(zero[1].0.since_ns(now()) < HOUR_NS, "a timestamp comes from the future");
}

/// Promises that all timestamps of the next three hours have passed.
fn three_hours_ahead(beacon: &[u8]) -> Vec<u8> {
    let mut bytes = beacon.to_vec();
    let header = Frame::parse(beacon).expect("it is a beacon").header;
    let Promises { barrier, commit } = header.promises(now());
    let [barrier, commit] = [barrier, commit].map(|at| at.wrapping_add_ns(3 * HOUR_NS));
    rewrite_promises(&mut bytes, Promises { barrier, commit });
    bytes
}

//= spec/ordering.md#R81
#[test]
fn barriers_far_ahead_do_not_reach_a_running_process() {
    let switch = Running::start("127.0.0.1:0");
    let relay = Relay::start(switch.address, three_hours_ahead);
    let mut pipes = [join(0, relay.address), join(1, switch.address)];
    exchange(&mut pipes, b"before");
    relay.attack();
    exchange(&mut pipes, b"behind");
    let began = Instant::now();
    while pipes[0].stats().endpoint.promises_ahead < 5 {
        assert!(began.elapsed() < DEADLINE, "{:?}", pipes[0].stats().endpoint);
    }
}

/// Notifies of the failure of process 6, in the last epoch.
fn notice_of_the_last_epoch(beacon: &[u8]) -> Vec<u8> {
    let beacon = Frame::parse(beacon).expect("it is a beacon").header;
    let sender = beacon.sender().expect("the switch");
    let promises = beacon.promises(now());
    let header = Header::hop_only(Opcode::Flood, sender, beacon.peer(), promises);
    let mut bytes = vec![0; 512];
    let id = FloodId { epoch: u32::MAX, sequence: 0 };
    let (first, incarnation) = (ProcessId(6), Incarnation(1));
    let failure = Failure { first, count: 1, incarnation, at: now(), cause: Cause::Unknown };
    let payload = &mut bytes[HEADER_LEN..];
    let (_, len) =
        Flood { id }.write_notice(payload, [failure].into_iter()).expect("there is space");
    let len = seal(&mut bytes, header, len);
    bytes.truncate(len);
    bytes
}

/// Waits until `pipe` knows that `process` has left.
fn learns_of_leave(pipe: &mut Pipe, process: u32) {
    loop {
        match pipe.recv_timeout(DEADLINE) {
            Some(Event::ProcessLeft(left)) if left.process == ProcessId(process) => return,
            None => panic!("process {process} has left, and nothing is notified"),
            Some(Event::ProcessFailed(failed)) => panic!("{failed:?}"),
            Some(_) => {}
        }
    }
}

//= spec/ordering.md#R69
#[test]
fn notices_with_the_last_epoch_do_not_stop_a_running_process() {
    let switch =
        Running::start_with("127.0.0.1:0", |config| config.controllers = Some(CONTROLLERS));
    let folder = tempfile::tempdir().expect("a folder");
    let attachment = Attachment::Switch(switch.address);
    let config = ControllerConfig::new(attachment, CONTROLLERS.first, CONTROLLERS);
    let daemon = ControllerDaemon::new(&config, RedbStore::new(folder.path().join("store")));
    let daemon = daemon.expect("the daemon starts");
    let _controller = Stopped::start(move |stop| {
        daemon.run(stop, |_| {}).expect("the switch admits it and its store works");
    });
    let relay = Relay::start(switch.address, notice_of_the_last_epoch);
    let mut pipes = [join(0, relay.address), join(1, switch.address)];
    let leaving = [join(2, switch.address), join(3, switch.address)];
    exchange(&mut pipes, b"before");
    for (process, mut pipe) in (2..).zip(leaving) {
        pipe.leave().expect("nothing is open");
        pipes.iter_mut().for_each(|pipe| learns_of_leave(pipe, process));
        // The process believes any first epoch: it knows one now.
        relay.attack();
    }
    exchange(&mut pipes, b"behind");
}

/// The third member of the group misbehaves.
//= spec/amcast.md#R37
#[test]
fn epochs_beyond_any_election_do_not_stop_running_members() {
    let layout = Loopback { groups: 1, members: 3, replicas: 1, clients: 1, coordinators: 0 };
    let directory = layout.directory().expect("there are free ports");
    let addresses = directory.of(Role::Member(GroupId(0)));
    let attacker = UdpSocket::bind(addresses[2]).expect("the port is free");
    let running: Vec<Stopped> = addresses[..2]
        .iter()
        .map(|at| {
            let options = AmcastOptions::default();
            let mut member = MemberDaemon::new(&directory, *at, &options).expect("it opens");
            Stopped::start(move |stop| {
                while !stop.load(Ordering::Relaxed) {
                    let progress = member.turn(|_| {});
                    member.rest(progress);
                }
            })
        })
        .collect();
    let replica = directory.of(Role::Replica(GroupId(0)))[0];
    let mut replica = AmcastReplica::open(&directory, replica).expect("the replica opens");
    let client = directory.of(Role::Client)[0];
    let mut client = Amcast::open(&directory, client).expect("the client opens");
    let mut deliver = |text: &[u8]| {
        client.amcast(&[0], text).expect("there is capacity");
        let (began, mut delivered) = (Instant::now(), Vec::new());
        while delivered.is_empty() {
            assert!(began.elapsed() < DEADLINE, "{text:?} is not delivered");
            client.poll(|_| {});
            let wait = Duration::from_millis(10);
            replica.wait(wait, |bytes, _, _| delivered.push(bytes.to_vec())).expect("not behind");
        }
        assert_eq!(delivered, [text]);
    };
    deliver(b"before");
    let process = |at| directory.at(at).expect("it is listed").0;
    for opcode in [Opcode::NewLeader, Opcode::Gap, Opcode::AmcastAck] {
        for member in &addresses[..2] {
            let mut bytes = vec![0; 512];
            let body = AmcastBody::new(GroupId(0), u32::MAX);
            let len = body.write(&mut bytes[HEADER_LEN..]).expect("there is space");
            let header =
                Header::new(opcode, process(addresses[2]), process(*member), Incarnation(1));
            let len =
                seal(&mut bytes, header.stamped(now(), Promises::both(now()), Psn::FIRST), len);
            attacker.send_to(&bytes[..len], member).expect("the member is there");
        }
    }
    for _ in 0..10 {
        deliver(b"behind");
    }
    drop(running);
}
