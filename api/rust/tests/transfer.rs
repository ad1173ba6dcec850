//! Objects in granted timeslots, through a software switch on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use onepipe::{
    EmbeddedTransfer, Idle, ObjectError, OpenError, ProcessId, Transfer, TransferBuilder,
    TransferEvent,
};
use onepipe_daemon_arbiter::{ArbiterDaemon, Config as ArbiterConfig};
use onepipe_daemon_switch::{Config, Faults, SoftwareSwitch};

/// Everything here takes milliseconds; what takes this long never comes.
const PATIENCE: Duration = Duration::from_secs(60);
const SLOT: Duration = Duration::from_micros(50);
const ARBITER: u32 = 20;
const ENDPOINTS: u32 = 4;

/// A switch and perhaps an arbiter, with a thread of their own, as long as this lives.
struct Running {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(faults: Faults, has_arbiter: bool) -> Self {
        let mut config = Config::new("127.0.0.1:0".parse().expect("an address"));
        config.faults = faults;
        let mut switch = SoftwareSwitch::new(&config).expect("loopback is there");
        let address = switch.local_addr();
        let slot_ns = SLOT.as_nanos() as u64;
        let config = ArbiterConfig::new(address, ProcessId(ARBITER), ENDPOINTS, slot_ns);
        let arbiter = has_arbiter.then(|| ArbiterDaemon::new(&config).expect("an arbiter"));
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut arbiter = arbiter;
            while !is_stopped.load(Ordering::Relaxed) {
                switch.turn(|_| {});
                if let Some(arbiter) = &mut arbiter {
                    arbiter.turn(|_| {});
                }
                std::thread::yield_now();
            }
        });
        Self { address, stop, thread: Some(thread) }
    }

    fn end(&self, process: u32) -> TransferBuilder {
        let builder = Transfer::builder().switch(self.address).process(process);
        builder.endpoints(ENDPOINTS).arbiters(&[ARBITER]).slot(SLOT)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("it runs until here").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the switch has panicked");
    }
}

/// An executor of one future.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = Box::pin(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn object(octets: usize, salt: u8) -> Vec<u8> {
    (0..octets).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ salt).collect()
}

#[test]
fn objects_of_any_size_arrive_whole_and_their_futures_tell() {
    let running = Running::start(Faults::default(), true);
    let (from, to) = (running.end(0).open(), running.end(1).open());
    let (from, to) = (from.expect("a socket"), to.expect("a socket"));
    let sizes = [0, 1, 1_400, 100_000, 1_000_000];
    let sent = sizes.map(|octets| from.send(ProcessId(1), object(octets, 7)).expect("room"));
    let mut come = sizes.map(|_| block_on(to.receive()));
    come.sort_by_key(|object| object.number);
    for ((size, came), number) in sizes.into_iter().zip(come).zip(0..) {
        assert_eq!((came.from, came.number), (ProcessId(0), number));
        assert!(came.octets == object(size, 7), "object {number}");
    }
    for sending in sent {
        assert_eq!(block_on(sending), Ok(()));
    }
    assert!(to.try_recv().is_none());
    assert!(from.close(PATIENCE) && to.close(PATIENCE));
}

#[test]
fn what_a_bad_network_loses_is_sent_again() {
    let faults = Faults { loss: 0.03, duplication: 0.03, corruption: 0.02, ..Faults::default() };
    let running = Running::start(faults, true);
    let (from, to) = (running.end(3).open(), running.end(2).open());
    let (from, to) = (from.expect("a socket"), to.expect("a socket"));
    let sending = from.send(ProcessId(2), object(300_000, 1)).expect("room");
    let came = to.recv_timeout(PATIENCE).expect("it comes");
    assert!(came.octets == object(300_000, 1));
    assert_eq!(sending.wait(PATIENCE), Some(Ok(())));
}

#[test]
fn a_caller_may_drive_both_ends() {
    let running = Running::start(Faults::default(), true);
    // Neither may sleep while the other has something to do.
    let end = |process| running.end(process).idle(Idle::Yield).embedded().expect("a socket");
    let (mut from, mut to): (EmbeddedTransfer, EmbeddedTransfer) = (end(0), end(3));
    let id = from.send(ProcessId(3), object(50_000, 9)).expect("room");
    assert_eq!((id.dst, id.number, from.sending()), (ProcessId(3), 0, 1));
    let (mut came, mut is_sent) = (None, false);
    let began = std::time::Instant::now();
    while came.is_none() || !is_sent {
        assert!(began.elapsed() < PATIENCE, "{:?} {:?}", from.endpoint_stats(), to.stats());
        from.poll(|event| is_sent |= matches!(event, TransferEvent::Sent(sent, _) if sent == id));
        let progress = to.poll(|event| {
            if let TransferEvent::Received(from, 0, octets) = event {
                came = Some((from, octets));
            }
        });
        to.rest(progress);
    }
    assert!(came == Some((ProcessId(0), object(50_000, 9))));
    assert!(from.endpoint_stats().slots_sent >= 50_000 / 1_472);
}

#[test]
fn who_has_no_room_refuses_and_the_sender_is_told() {
    let running = Running::start(Faults::default(), true);
    let from = running.end(0).open().expect("a socket");
    let to = running.end(1).receive_octets_max(10_000).open().expect("a socket");
    let large = from.send(ProcessId(1), object(10_001, 0)).expect("room here");
    assert_eq!(large.wait(PATIENCE), Some(Err(ObjectError::Refused(ProcessId(1)))));
    // What has come and was not asked for takes room, too.
    let first = from.send(ProcessId(1), object(6_000, 1)).expect("room here");
    assert_eq!(first.wait(PATIENCE), Some(Ok(())));
    let second = from.send(ProcessId(1), object(6_000, 2)).expect("room here");
    assert_eq!(second.wait(PATIENCE), Some(Err(ObjectError::Refused(ProcessId(1)))));
    assert!(to.try_recv().is_some_and(|came| came.octets == object(6_000, 1)));
    let third = from.send(ProcessId(1), object(6_000, 3)).expect("room here");
    assert_eq!(third.wait(PATIENCE), Some(Ok(())));
}

#[test]
fn what_cannot_be_sent_is_handed_back_or_named() {
    let running = Running::start(Faults::default(), false);
    let from = running.end(0).send_octets_max(1_000).open().expect("a socket");
    assert_eq!(from.send(ProcessId(0), vec![1]).err(), Some(ObjectError::Unknown(ProcessId(0))));
    assert_eq!(from.send(ProcessId(4), vec![1]).err(), Some(ObjectError::Unknown(ProcessId(4))));
    let first = from.send(ProcessId(1), object(5_000, 0)).expect("one may always wait");
    match from.send(ProcessId(1), vec![7; 10]) {
        Err(ObjectError::Full { waiting: 5_000, object }) => assert_eq!(object, [7; 10]),
        other => panic!("{other:?}"),
    }
    // Nobody gives out timeslots.
    assert_eq!(first.wait(Duration::from_millis(20)), None);
    assert!(!from.close(Duration::from_millis(20)));
    assert_eq!(first.outcome(), Some(Err(ObjectError::Closed)));
}

#[test]
fn what_makes_no_sense_is_named() {
    let refused = |builder: TransferBuilder| match builder.open() {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it is open"),
    };
    assert!(matches!(Transfer::builder().open(), Err(OpenError::ProcessNeeded)));
    let one = || Transfer::builder().process(1);
    assert_eq!(refused(one().switch("nowhere")), "\"nowhere\" is no address of a switch");
    assert_eq!(refused(one().arbiters(&[])), "arbiters cannot be 0");
    assert_eq!(refused(one().endpoints(1)), "nodes cannot be 1");
    assert_eq!(refused(one().slot(Duration::ZERO)), "slot_ns cannot be 0");
}
