//! Scheduled transfer through a software switch on loopback.

use crate::harness;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use harness::switch;
use onepipe::{
    EmbeddedTransfer, Idle, ObjectError, OpenError, ProcessId, Transfer, TransferBuilder,
    TransferEvent,
};
use onepipe_arbiter::Role;
use onepipe_daemon_arbiter::{ArbiterDaemon, Config as ArbiterConfig};
use onepipe_daemon_switch::{Config, Faults, SoftwareSwitch};

/// Everything here takes milliseconds; this bound only fails hanging tests.
const TIMEOUT: Duration = Duration::from_secs(60);
const SLOT: Duration = Duration::from_micros(50);
const ARBITER: u32 = 20;
const ENDPOINTS: u32 = 4;

/// A switch and perhaps arbiters in a thread of their own; dropping it stops the thread.
struct Running {
    address: SocketAddr,
    arbiters: Vec<u32>,
    stop: Arc<AtomicBool>,
    /// When set, the primary arbiter stops abruptly.
    primary_stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(faults: Faults, has_arbiter: bool) -> Self {
        let arbiters: &[u32] = if has_arbiter { &[ARBITER] } else { &[] };
        Self::with_arbiters(faults, arbiters)
    }

    /// Starts a switch and arbiters; the first arbiter is the primary.
    fn with_arbiters(faults: Faults, arbiters: &[u32]) -> Self {
        let mut config = Config::new("127.0.0.1:0".parse().expect("a valid address"));
        config.faults = faults;
        let mut switch = SoftwareSwitch::new(&config).expect("the loopback is available");
        let address = switch.local_addr();
        let slot_ns = SLOT.as_nanos() as u64;
        let start = |own: &u32| {
            let mut config = ArbiterConfig::new(address, ProcessId(*own), ENDPOINTS, slot_ns);
            let failover = &mut config.machine.failover;
            failover.peers =
                arbiters.iter().filter(|peer| *peer != own).copied().map(ProcessId).collect();
            if *own != arbiters[0] {
                failover.role = Role::Secondary;
            }
            ArbiterDaemon::new(&config).expect("the arbiter opens")
        };
        let mut daemons: Vec<Option<ArbiterDaemon>> =
            arbiters.iter().map(start).map(Some).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let primary_stops = Arc::new(AtomicBool::new(false));
        let (is_stopped, primary_is_stopped) = (Arc::clone(&stop), Arc::clone(&primary_stops));
        let thread = std::thread::spawn(move || {
            while !is_stopped.load(Ordering::Relaxed) {
                switch.turn(|_| {});
                if primary_is_stopped.swap(false, Ordering::Relaxed) {
                    let primary = daemons.iter_mut().find(|daemon| {
                        daemon.as_ref().is_some_and(|daemon| daemon.report().is_primary)
                    });
                    *primary.expect("one arbiter is the primary") = None;
                }
                daemons.iter_mut().flatten().for_each(|daemon| {
                    daemon.turn(|_| {});
                });
                std::thread::yield_now();
            }
        });
        Self { address, arbiters: arbiters.to_vec(), stop, primary_stops, thread: Some(thread) }
    }

    fn end(&self, process: u32) -> TransferBuilder {
        let builder = Transfer::builder().switch(self.address).process(process);
        let arbiters = if self.arbiters.is_empty() { &[ARBITER][..] } else { &self.arbiters };
        builder.endpoints(ENDPOINTS).arbiters(arbiters).slot(SLOT)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("the thread is joined once").join();
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

fn object(bytes: usize, salt: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ salt).collect()
}

#[test]
fn objects_of_any_size_arrive_and_their_futures_resolve() {
    let running = Running::start(Faults::default(), true);
    let (from, to) = (running.end(0).open(), running.end(1).open());
    let (from, to) =
        (from.expect("the system opens a socket"), to.expect("the system opens a socket"));
    let sizes = [0, 1, 1_400, 100_000, 1_000_000];
    let sent =
        sizes.map(|bytes| from.send(ProcessId(1), object(bytes, 7)).expect("there is capacity"));
    let mut come = sizes.map(|_| block_on(to.receive()).expect("admitted"));
    come.sort_by_key(|object| object.number);
    for ((size, came), number) in sizes.into_iter().zip(come).zip(0..) {
        assert_eq!((came.from, came.number), (ProcessId(0), number));
        assert!(came.bytes == object(size, 7), "object {number}");
    }
    for sending in sent {
        assert_eq!(block_on(sending), Ok(()));
    }
    assert!(to.try_recv().is_none());
    assert!(from.close(TIMEOUT) && to.close(TIMEOUT));
}

#[test]
fn lost_pieces_are_retransmitted() {
    let faults = Faults { loss: 0.03, duplication: 0.03, corruption: 0.02, ..Faults::default() };
    let running = Running::start(faults, true);
    let (from, to) = (running.end(3).open(), running.end(2).open());
    let (from, to) =
        (from.expect("the system opens a socket"), to.expect("the system opens a socket"));
    let sending = from.send(ProcessId(2), object(300_000, 1)).expect("there is capacity");
    let came = to.recv_timeout(TIMEOUT).expect("the object is received");
    assert!(came.bytes == object(300_000, 1));
    assert_eq!(sending.wait(TIMEOUT), Some(Ok(())));
}

#[test]
fn one_caller_drives_both_ends() {
    let running = Running::start(Faults::default(), true);
    // Neither end may sleep while the other has work to do.
    let end = |process| {
        running.end(process).idle(Idle::Yield).embedded().expect("the system opens a socket")
    };
    let (mut from, mut to): (EmbeddedTransfer, EmbeddedTransfer) = (end(0), end(3));
    let id = from.send(ProcessId(3), object(50_000, 9)).expect("there is capacity");
    assert_eq!((id.dst, id.number, from.sending()), (ProcessId(3), 0, 1));
    let (mut came, mut is_sent) = (None, false);
    let began = Instant::now();
    while came.is_none() || !is_sent {
        assert!(began.elapsed() < TIMEOUT, "{:?} {:?}", from.endpoint_stats(), to.stats());
        from.poll(|event| is_sent |= matches!(event, TransferEvent::Sent(sent, _) if sent == id));
        let progress = to.poll(|event| {
            if let TransferEvent::Received(from, 0, bytes) = event {
                came = Some((from, bytes));
            }
        });
        to.rest(progress);
    }
    assert!(came == Some((ProcessId(0), object(50_000, 9))));
    assert!(from.endpoint_stats().slots_sent >= 50_000 / 1_472);
}

#[test]
fn full_receiver_refuses_and_the_sender_is_notified() {
    let running = Running::start(Faults::default(), true);
    let from = running.end(0).open().expect("the system opens a socket");
    let to = running.end(1).receive_bytes_max(10_000).open().expect("the system opens a socket");
    let large = from.send(ProcessId(1), object(10_001, 0)).expect("the send queue has capacity");
    assert_eq!(large.wait(TIMEOUT), Some(Err(ObjectError::Refused(ProcessId(1)))));
    // Received objects take capacity until the user takes them.
    let first = from.send(ProcessId(1), object(6_000, 1)).expect("the send queue has capacity");
    assert_eq!(first.wait(TIMEOUT), Some(Ok(())));
    let second = from.send(ProcessId(1), object(6_000, 2)).expect("the send queue has capacity");
    assert_eq!(second.wait(TIMEOUT), Some(Err(ObjectError::Refused(ProcessId(1)))));
    assert!(to.try_recv().is_some_and(|came| came.bytes == object(6_000, 1)));
    let third = from.send(ProcessId(1), object(6_000, 3)).expect("the send queue has capacity");
    assert_eq!(third.wait(TIMEOUT), Some(Ok(())));
}

#[test]
fn unsendable_objects_are_returned_with_an_error() {
    let running = Running::start(Faults::default(), false);
    let from = running.end(0).send_bytes_max(1_000).open().expect("the system opens a socket");
    assert_eq!(from.send(ProcessId(0), vec![1]).err(), Some(ObjectError::Unknown(ProcessId(0))));
    assert_eq!(from.send(ProcessId(4), vec![1]).err(), Some(ObjectError::Unknown(ProcessId(4))));
    let first =
        from.send(ProcessId(1), object(5_000, 0)).expect("a single object is always accepted");
    match from.send(ProcessId(1), vec![7; 10]) {
        Err(ObjectError::Full { queued: 5_000, object }) => assert_eq!(object, [7; 10]),
        other => panic!("{other:?}"),
    }
    // There is no arbiter to grant timeslots.
    assert_eq!(first.wait(Duration::from_millis(20)), None);
    assert!(!from.close(Duration::from_millis(20)));
    assert_eq!(first.outcome(), Some(Err(ObjectError::Closed)));
}

/// Its successor serves fewer processes: the endpoint would be unreachable.
//= spec/ordering.md#R77
#[test]
fn refusal_ends_an_endpoint_and_its_objects() {
    let first = switch::Running::start_with("127.0.0.1:0", |config| config.processes_max = 1_024);
    let end = |process| {
        let builder = Transfer::builder().switch(first.address).process(process);
        builder.endpoints(ENDPOINTS).arbiters(&[ARBITER]).open().expect("the switch is there")
    };
    let (sender, receiver) = (end(2), Arc::new(end(3)));
    let sending = sender.send(ProcessId(1), object(5_000, 0)).expect("there is capacity");
    assert!(sender.refusal().is_none());
    let (result_tx, results) = std::sync::mpsc::channel();
    let [waiting, awaiting] = [(); 2].map(|()| (Arc::clone(&receiver), result_tx.clone()));
    std::thread::spawn(move || waiting.1.send(waiting.0.recv_timeout(TIMEOUT).map(Ok)));
    std::thread::spawn(move || awaiting.1.send(Some(block_on(awaiting.0.receive()))));
    let address = first.address.to_string();
    drop(first);
    let _second = switch::Running::start_with(&address, |config| config.processes_max = 512);
    let outcome = sending.wait(TIMEOUT).expect("the object has an outcome");
    let Err(ObjectError::NotAdmitted(failure)) = outcome else { panic!("{outcome:?}") };
    assert!(failure.to_string().contains("was restarted with processes 512"), "{failure}");
    for _ in 0..2 {
        let received = results.recv_timeout(TIMEOUT / 2).expect("all that wait are woken");
        assert!(matches!(received, None | Some(Err(ObjectError::NotAdmitted(_)))), "{received:?}");
    }
    assert!(matches!(sender.refusal(), Some(OpenError::Join(_))));
    let late = sender.send(ProcessId(1), vec![1]);
    assert!(matches!(late, Err(ObjectError::NotAdmitted(_))), "{late:?}");
    assert!(!sender.close(TIMEOUT), "an object was not delivered");
}

#[test]
fn invalid_settings_are_named() {
    let refused = |builder: TransferBuilder| match builder.open() {
        Err(error) => error.to_string(),
        Ok(_) => panic!("the listener accepts connections"),
    };
    assert!(matches!(Transfer::builder().open(), Err(OpenError::ProcessNeeded)));
    let one = || Transfer::builder().process(1);
    assert_eq!(
        refused(one().switch("nowhere")),
        "\"nowhere\" is not the address of a switch (write for example 10.0.0.1:4410)"
    );
    assert_eq!(refused(one().arbiters(&[])), "arbiters cannot be 0");
    assert_eq!(refused(one().endpoints(1)), "nodes cannot be 1");
    assert_eq!(refused(one().slot(Duration::ZERO)), "slot_ns cannot be 0");
}

#[test]
fn absent_receiver_delays_no_other() {
    let running = Running::start(Faults::default(), true);
    let (from, to) = (running.end(0).open(), running.end(1).open());
    let (from, to) =
        (from.expect("the system opens a socket"), to.expect("the system opens a socket"));
    // Process 2 is absent; at most 64 of these objects can be in flight.
    let in_vain: Vec<_> = (0..100)
        .map(|_| from.send(ProcessId(2), vec![7; 100]).expect("there is capacity"))
        .collect();
    let sent: Vec<_> = (0..100)
        .map(|_| from.send(ProcessId(1), vec![8; 100]).expect("there is capacity"))
        .collect();
    for (number, sending) in sent.iter().enumerate() {
        let came = to.recv_timeout(TIMEOUT / 6).unwrap_or_else(|| panic!("object {number}"));
        assert_eq!(came.bytes, [8; 100]);
        assert_eq!(sending.wait(TIMEOUT), Some(Ok(())));
    }
    assert!(in_vain.iter().all(|sending| sending.outcome().is_none()));
}

#[test]
fn configuration_mismatch_is_reported() {
    let running = Running::start(Faults::default(), true);
    let end = running.end(0).slot(2 * SLOT).open().expect("the system opens a socket");
    let sending = end.send(ProcessId(1), vec![7; 100]).expect("there is capacity");
    let began = Instant::now();
    let params_mismatch = loop {
        assert!(began.elapsed() < TIMEOUT, "{:?}", end.endpoint_stats());
        match end.params_mismatch() {
            Some(params_mismatch) => break params_mismatch,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    assert_eq!(params_mismatch.arbiter, ProcessId(ARBITER));
    assert_eq!(u128::from(params_mismatch.theirs.slot_ns), SLOT.as_nanos());
    assert_eq!(params_mismatch.own.slot_ns, 2 * params_mismatch.theirs.slot_ns);
    assert_eq!(sending.outcome(), None, "a matching arbiter may still respond");
}

#[test]
fn unbounded_waits_are_allowed() {
    let running = Running::start(Faults::default(), true);
    let (from, to) = (running.end(0).open(), running.end(1).open());
    let (from, to) =
        (from.expect("the system opens a socket"), to.expect("the system opens a socket"));
    let sending = from.send(ProcessId(1), object(5_000, 0)).expect("there is capacity");
    assert!(to.recv_timeout(Duration::MAX).is_some_and(|came| came.bytes == object(5_000, 0)));
    assert_eq!(sending.wait(Duration::MAX), Some(Ok(())));
    assert!(from.close(Duration::MAX));
}

#[test]
fn empty_objects_use_capacity() {
    let running = Running::start(Faults::default(), true);
    let from = running.end(0).send_bytes_max(4 * 256).open().expect("the system opens a socket");
    let to = running.end(1).receive_bytes_max(3 * 256).open().expect("the system opens a socket");
    let send = || from.send(ProcessId(1), Vec::new());
    let outcome = || send().expect("the send queue has capacity").wait(TIMEOUT);
    assert_eq!([outcome(), outcome(), outcome()], [const { Some(Ok(())) }; 3]);
    assert_eq!(outcome(), Some(Err(ObjectError::Refused(ProcessId(1)))));
    assert!(to.try_recv().is_some());
    assert_eq!(outcome(), Some(Ok(())));
    // To an absent process, so that none completes.
    let none = || from.send(ProcessId(2), Vec::new());
    let four = [none(), none(), none(), none()]
        .map(|sending| sending.expect("the send queue has capacity"));
    assert!(matches!(none(), Err(ObjectError::Full { queued: 1_024, .. })));
    drop(four);
}

#[test]
fn dropping_a_sending_cancels_it() {
    let running = Running::start(Faults::default(), true);
    let from = running.end(0).send_bytes_max(100_000).open().expect("the system opens a socket");
    let to = running.end(1).open().expect("the system opens a socket");
    // Process 2 is absent: some objects are in flight, others wait.
    let in_vain = || from.send(ProcessId(2), vec![7; 1_000]);
    let mut all: Vec<_> = (0..100).map(|_| in_vain().expect("there is capacity")).collect();
    assert!(matches!(in_vain(), Err(ObjectError::Full { queued: 100_000, .. })));
    assert_eq!(all[99].wait(Duration::from_millis(20)), None);
    let send_when_free = |bytes: usize| {
        let began = Instant::now();
        loop {
            match from.send(ProcessId(1), object(bytes, 3)) {
                Ok(sending) => return sending,
                Err(_) => assert!(began.elapsed() < TIMEOUT, "the send queue never has capacity"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    all.truncate(99);
    all.remove(0).cancel();
    assert_eq!(send_when_free(2_000).wait(TIMEOUT), Some(Ok(())));
    all.clear();
    let whole = send_when_free(100_000);
    assert!(from.close(TIMEOUT), "cancelled objects do not delay closing");
    assert_eq!(whole.outcome(), Some(Ok(())));
    assert_eq!(to.try_recv().map(|came| came.bytes.len()), Some(2_000));
}

#[test]
fn detached_object_completes_and_is_counted() {
    let running = Running::start(Faults::default(), true);
    let (from, to) = (running.end(0).open(), running.end(1).open());
    let (from, to) =
        (from.expect("the system opens a socket"), to.expect("the system opens a socket"));
    from.send(ProcessId(1), object(50_000, 5)).expect("there is capacity").detach();
    assert!(to.recv_timeout(TIMEOUT).is_some_and(|came| came.bytes == object(50_000, 5)));
    let pieces = 50_000 / 1_472;
    // A process publishes its counters after the object has arrived.
    let is_counted = || {
        from.stats().pieces_sent >= pieces
            && to.stats().pieces_received >= pieces
            && to.stats().reports_sent > 0
            && from.endpoint_stats().granted >= pieces
            && to.endpoint_stats().slots_received >= pieces
    };
    let began = Instant::now();
    while !is_counted() {
        assert!(began.elapsed() < TIMEOUT, "{:?} {:?}", from.stats(), to.stats());
        std::thread::yield_now();
    }
}

#[test]
fn object_survives_a_primary_arbiter_failure() {
    let running = Running::with_arbiters(Faults::default(), &[ARBITER, ARBITER + 1]);
    let (from, to) = (running.end(0).open(), running.end(1).open());
    let (from, to) =
        (from.expect("the system opens a socket"), to.expect("the system opens a socket"));
    // 1,400 timeslots: 70 ms.
    let first = from.send(ProcessId(1), object(2_000_000, 1)).expect("there is capacity");
    let began = Instant::now();
    while from.stats().pieces_sent < 300 {
        assert!(began.elapsed() < TIMEOUT, "{:?}", from.stats());
        std::thread::yield_now();
    }
    assert!(to.try_recv().is_none(), "the object is in transit");
    running.primary_stops.store(true, Ordering::Relaxed);
    let came = to.recv_timeout(TIMEOUT).expect("the object is received");
    assert!(came.bytes == object(2_000_000, 1));
    assert_eq!(first.wait(TIMEOUT), Some(Ok(())));
    // An endpoint that opens now only receives from the remaining arbiter.
    let late = running.end(2).open().expect("the system opens a socket");
    let second = late.send(ProcessId(1), object(100_000, 2)).expect("there is capacity");
    assert!(to.recv_timeout(TIMEOUT).is_some_and(|came| came.bytes == object(100_000, 2)));
    assert_eq!(second.wait(TIMEOUT), Some(Ok(())));
}
