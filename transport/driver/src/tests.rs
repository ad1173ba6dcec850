//! Tests of the driver rules.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use onepipe_base::{Cause, Machine, Mono, Now, Port, Promises, Timestamp, Transmit, Verdict};
use onepipe_transport_clock::Clock;

use crate::{Config, Doorbell, DrivenMachine, Driver, Idle, Progress, Transport, Waker};

/// A step of the loop, in order of occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Clock(u64),
    Expect(bool),
    Frame(u64, u8),
    Timeout(u64),
    Polled(u64),
    Event(u8),
    PromisesRead(u64),
    LinkDown(u16),
    Begin(Option<u64>),
    Sent(u8),
    Forwarded(u8),
    End(Option<u64>),
    Wait(u64),
}

type Log = Rc<RefCell<Vec<Step>>>;

/// Sends every received byte back and emits an event for it.
#[derive(Default)]
struct ReplyMachine {
    log: Log,
    out: VecDeque<u8>,
    events: VecDeque<u8>,
    due_ns: Option<u64>,
    forwards: bool,
    is_awaiting_promises: bool,
}

impl Machine for ReplyMachine {
    type Event = u8;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        self.log.borrow_mut().push(Step::Frame(now.mono.as_ns(), frame[0]));
        if self.forwards {
            frame[0] += 100;
            return Verdict::Forward(Port(0));
        }
        self.out.push_back(frame[0]);
        self.events.push_back(frame[0]);
        Verdict::Consumed
    }

    fn handle_timeout(&mut self, now: Now) {
        self.log.borrow_mut().push(Step::Timeout(now.mono.as_ns()));
        self.due_ns = None;
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.log.borrow_mut().push(Step::Polled(now.mono.as_ns()));
        slot[0] = self.out.pop_front()?;
        Some(Transmit { port: Port(0), bytes: 1 })
    }

    fn poll_event(&mut self) -> Option<u8> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due_ns.map(Mono::from_ns)
    }
}

impl DrivenMachine for ReplyMachine {
    fn handle_promises(&mut self, _: Now, _: Port, promises: Promises) {
        self.log.borrow_mut().push(Step::PromisesRead(promises.barrier.as_ns()));
    }

    fn handle_link_down(&mut self, port: Port, _: Cause) {
        self.log.borrow_mut().push(Step::LinkDown(port.0));
    }

    fn promises(&self) -> Option<Promises> {
        Some(Promises::both(Timestamp::from_ns(7)))
    }

    fn wants_transmit(&self) -> bool {
        !self.out.is_empty()
    }

    fn is_awaiting_promises(&self) -> bool {
        self.is_awaiting_promises
    }
}

/// Delivers `arriving` and has capacity for `capacity` frames per burst.
#[derive(Default)]
struct ScriptedTransport {
    log: Log,
    arriving: VecDeque<u8>,
    promised: Option<u64>,
    link_down: Option<u16>,
    capacity: usize,
    used: usize,
    slot: [u8; 4],
}

struct NoopWaker;

impl Waker for NoopWaker {
    fn ring(&self) {}
}

impl Transport for ScriptedTransport {
    const IS_FIFO: bool = true;
    const POLLS_BY_SYSTEM_CALL: bool = false;
    const PROMISES_WAKE: bool = false;

    fn set_awaiting_promises(&mut self, is_awaiting_promises: bool) {
        if is_awaiting_promises {
            self.log.borrow_mut().push(Step::Expect(true));
        }
    }

    fn receive(&mut self, _: Now, mut on_frame: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize {
        let frames: Vec<u8> = self.arriving.drain(..).collect();
        for frame in &frames {
            let mut bytes = [*frame];
            if let Verdict::Forward(_) = on_frame(Port(0), &mut bytes) {
                self.log.borrow_mut().push(Step::Forwarded(bytes[0]));
            }
        }
        frames.len()
    }

    fn poll_promises(&mut self, _: Now, mut on_promises: impl FnMut(Port, Promises)) {
        if let Some(ns) = self.promised {
            on_promises(Port(0), Promises::both(Timestamp::from_ns(ns)));
        }
    }

    fn poll_links_down(&mut self, mut on_link_down: impl FnMut(Port, Cause)) {
        if let Some(port) = self.link_down.take() {
            on_link_down(Port(port), Cause::Refused);
        }
    }

    fn can_begin_burst(&mut self, _: Now) -> bool {
        self.used = 0;
        self.capacity > 0
    }

    fn begin_burst(&mut self, _: Now, promises: Option<Promises>) {
        let floor = promises.map(|promises| promises.barrier.as_ns());
        self.log.borrow_mut().push(Step::Begin(floor));
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        (self.used < self.capacity).then_some(&mut self.slot[..])
    }

    fn send(&mut self, transmit: Transmit) {
        assert_eq!(transmit.bytes, 1);
        self.used += 1;
        self.log.borrow_mut().push(Step::Sent(self.slot[0]));
    }

    fn end_burst(&mut self, rest: Option<Promises>) {
        let rest = rest.map(|promises| promises.barrier.as_ns());
        self.log.borrow_mut().push(Step::End(rest));
    }

    fn wait(&mut self, timeout_ns: u64) {
        self.log.borrow_mut().push(Step::Wait(timeout_ns));
    }

    fn doorbell(&self) -> Doorbell {
        Doorbell::new(Arc::new(NoopWaker))
    }
}

/// Shows the prepared times, then ever later ones.
struct ScriptedClock {
    log: Log,
    times: VecDeque<u64>,
    last: u64,
}

impl Clock for ScriptedClock {
    fn read(&mut self) -> Now {
        self.last = self.times.pop_front().unwrap_or(self.last + 1_000);
        self.log.borrow_mut().push(Step::Clock(self.last));
        Now { mono: Mono::from_ns(self.last), sync: Timestamp::from_ns(self.last + (1 << 50)) }
    }
}

type ReplyDriver = Driver<ReplyMachine, ScriptedTransport, ScriptedClock>;

fn driver(times: &[u64], idle: Idle) -> (ReplyDriver, Log) {
    driver_with(times, Config { idle, burst_frames_max: 4, ..Config::default() })
}

fn driver_with(times: &[u64], config: Config) -> (ReplyDriver, Log) {
    let log = Log::default();
    let machine = ReplyMachine { log: log.clone(), ..ReplyMachine::default() };
    let transport =
        ScriptedTransport { log: log.clone(), capacity: 8, ..ScriptedTransport::default() };
    let clock = ScriptedClock { log: log.clone(), times: times.iter().copied().collect(), last: 0 };
    (Driver::new(machine, transport, clock, config), log)
}

fn turn(driver: &mut ReplyDriver, log: &Log) -> (Progress, Vec<Step>) {
    log.borrow_mut().clear();
    let progress = driver.turn(|machine, event| machine.log.borrow_mut().push(Step::Event(event)));
    (progress, log.borrow().clone())
}

#[test]
fn turn_receives_then_delivers_then_sends() {
    let (mut driver, log) = driver(&[10, 20], Idle::Spin);
    driver.machine_mut().is_awaiting_promises = true;
    driver.transport_mut().arriving.extend([1, 2]);
    driver.transport_mut().promised = Some(5);
    driver.transport_mut().link_down = Some(3);
    let (progress, steps) = turn(&mut driver, &log);
    use Step::*;
    let expected = [
        Clock(10),
        Expect(true),
        Frame(10, 1),
        Frame(10, 2),
        PromisesRead(5),
        LinkDown(3),
        Event(1),
        Event(2),
        // The transport must know that a burst starts before the clock is read that stamps it.
        Begin(Some(7)),
        Clock(20),
        Polled(20),
        Sent(1),
        Polled(20),
        Sent(2),
        Polled(20),
        End(None),
    ];
    assert_eq!(steps, expected);
    assert_eq!((progress.frames_received, progress.frames_sent, progress.events), (2, 2, 2));
}

#[test]
fn commands_are_sent_before_receiving() {
    let (mut driver, log) = driver(&[10, 20, 30, 40, 50], Idle::Spin);
    turn(&mut driver, &log);
    use Step::*;
    let burst = |now, sent: &[u8]| {
        let mut steps = vec![Begin(Some(7)), Clock(now)];
        steps.extend(sent.iter().flat_map(|byte| [Polled(now), Sent(*byte)]));
        steps.extend([Polled(now), End(None)]);
        steps
    };
    // One clock reading serves one frame sent and the batch received behind it.
    driver.machine_mut().out.push_back(1);
    driver.transport_mut().arriving.push_back(2);
    let (progress, steps) = turn(&mut driver, &log);
    let received = vec![Frame(20, 2), Event(2)];
    assert_eq!(steps, [burst(20, &[1]), received, burst(30, &[2])].concat());
    assert_eq!((progress.frames_received, progress.frames_sent), (1, 2));

    driver.machine_mut().out.extend([3, 4]);
    let (_, steps) = turn(&mut driver, &log);
    assert_eq!(steps, [burst(40, &[3, 4]), vec![Clock(50)]].concat());
}

#[test]
fn d1_clock_that_goes_back_is_held() {
    let (mut driver, log) = driver(&[10, 4], Idle::Spin);
    driver.transport_mut().arriving.push_back(1);
    let (_, steps) = turn(&mut driver, &log);
    assert!(steps.contains(&Step::Clock(4)), "the clock must go back in this test");
    assert!(steps.contains(&Step::Polled(10)) && !steps.contains(&Step::Polled(4)));
    assert_eq!(driver.duty().clock_held, 1);
}

#[test]
fn d2_commands_from_an_event_are_drained_in_the_same_turn() {
    let (mut driver, log) = driver(&[], Idle::Spin);
    driver.transport_mut().arriving.push_back(1);
    log.borrow_mut().clear();
    driver.turn(|machine, event| machine.out.push_back(event + 50));
    assert!(log.borrow().contains(&Step::Sent(51)));
}

#[test]
fn output_is_sent_between_event_bursts() {
    let log = Log::default();
    let machine = ReplyMachine { log: log.clone(), ..ReplyMachine::default() };
    let transport =
        ScriptedTransport { log: log.clone(), capacity: 8, ..ScriptedTransport::default() };
    let clock = ScriptedClock { log: log.clone(), times: [10, 20, 30, 40].into(), last: 0 };
    let config = Config { idle: Idle::Spin, burst_events_max: 2, ..Config::default() };
    let mut driver = Driver::new(machine, transport, clock, config);
    driver.transport_mut().arriving.extend([1, 2, 3, 4, 5]);
    let (progress, steps) = turn(&mut driver, &log);
    let is_output = |step: &&Step| matches!(step, Step::Event(_) | Step::Sent(_));
    let outputs: Vec<&Step> = steps.iter().filter(is_output).collect();
    use Step::*;
    let first: [&Step; 7] =
        [&Event(1), &Event(2), &Sent(1), &Sent(2), &Sent(3), &Sent(4), &Sent(5)];
    assert_eq!(outputs, [&first[..], &[&Event(3), &Event(4), &Event(5)]].concat());
    assert_eq!((progress.events, progress.frames_sent), (5, 5));
}

#[test]
fn d2_blocked_transport_is_retried_without_blocking() {
    let (mut driver, log) = driver(&[], Idle::Backoff { spins: 0, yields: 0 });
    driver.machine_mut().out.extend([1, 2, 3]);
    driver.transport_mut().capacity = 2;
    let (progress, steps) = turn(&mut driver, &log);
    assert_eq!((progress.frames_sent, progress.is_blocked), (2, true));
    assert_eq!(steps.last(), Some(&Step::End(Some(7))), "the remaining output is promised");

    driver.transport_mut().capacity = 0;
    let (progress, steps) = turn(&mut driver, &log);
    assert!(progress.is_idle() && !steps.iter().any(|step| matches!(step, Step::Begin(_))));
    driver.rest(progress);
    assert!(!log.borrow().iter().any(|step| matches!(step, Step::Wait(_))), "it must not block");

    driver.transport_mut().capacity = 8;
    let (_, steps) = turn(&mut driver, &log);
    assert!(steps.contains(&Step::Sent(3)));
    assert_eq!(steps.last(), Some(&Step::End(None)));
}

#[test]
fn cut_burst_is_ended_by_the_next_turn() {
    let (mut driver, log) = driver(&[], Idle::Spin);
    driver.machine_mut().out.extend([1, 2, 3, 4]);
    let (_, steps) = turn(&mut driver, &log);
    assert_eq!(steps.last(), Some(&Step::End(Some(7))));
    assert!(!driver.machine().wants_transmit(), "nothing is left, but the driver cannot know");
    let (_, steps) = turn(&mut driver, &log);
    assert_eq!(steps.last(), Some(&Step::End(None)));
}

#[test]
fn d3_forwarded_frames_keep_their_order() {
    let (mut driver, log) = driver(&[], Idle::Spin);
    driver.machine_mut().forwards = true;
    driver.machine_mut().out.push_back(9);
    driver.transport_mut().arriving.extend([1, 2]);
    let (_, steps) = turn(&mut driver, &log);
    let left = |step: &&Step| matches!(step, Step::Forwarded(_) | Step::Sent(_));
    let left: Vec<&Step> = steps.iter().filter(left).collect();
    assert_eq!(left, [&Step::Forwarded(101), &Step::Forwarded(102), &Step::Sent(9)]);
}

#[test]
fn d5_a_timer_is_late_never_early() {
    let (mut driver, log) = driver(&[999, 1_000], Idle::Spin);
    driver.machine_mut().due_ns = Some(1_000);
    let (progress, steps) = turn(&mut driver, &log);
    assert!(!progress.is_timeout && !steps.contains(&Step::Timeout(999)));
    let (progress, steps) = turn(&mut driver, &log);
    assert!(progress.is_timeout && steps.contains(&Step::Timeout(1_000)));
    assert!(steps.contains(&Step::Begin(Some(7))), "a timeout may have caused output");
}

#[test]
fn backoff_blocks_unless_promises_are_awaited() {
    let (mut driver, log) = driver(&[100; 8], Idle::Backoff { spins: 1, yields: 1 });
    driver.machine_mut().due_ns = Some(450);
    driver.machine_mut().is_awaiting_promises = true;
    for _ in 0..4 {
        let (progress, _) = turn(&mut driver, &log);
        driver.rest(progress);
        assert_eq!(log.borrow().last(), Some(&Step::Expect(true)));
    }
    driver.machine_mut().is_awaiting_promises = false;
    let (progress, _) = turn(&mut driver, &log);
    driver.rest(progress);
    assert_eq!(log.borrow().last(), Some(&Step::Wait(350)));

    driver.transport_mut().arriving.push_back(1);
    let (progress, _) = turn(&mut driver, &log);
    driver.rest(progress);
    let (progress, _) = turn(&mut driver, &log);
    driver.rest(progress);
    assert_eq!(log.borrow().last(), Some(&Step::Clock(100)), "a busy turn starts from spinning");
}

#[test]
fn beacon_does_not_restart_the_spinning() {
    let (mut driver, log) = driver(&[100; 8], Idle::Backoff { spins: 0, yields: 0 });
    driver.machine_mut().due_ns = Some(50);
    driver.machine_mut().out.push_back(1);
    let (progress, _) = turn(&mut driver, &log);
    assert_eq!((progress.frames_sent, progress.is_timeout), (1, true));
    driver.rest(progress);
    assert_eq!(log.borrow().last(), Some(&Step::Wait(100_000_000)));
}

#[test]
fn run_takes_one_last_turn_after_stop_is_set() {
    let (mut driver, _) = driver(&[], Idle::Spin);
    driver.transport_mut().arriving.push_back(3);
    let mut events = Vec::new();
    driver.run(&AtomicBool::new(true), |_, event| events.push(event));
    assert_eq!(events, [3]);
}

//= spec/failure.md#R63
#[test]
fn pause_is_counted_except_for_time_that_was_asked_for() {
    let (ms, idle) = (1_000_000, Idle::Backoff { spins: 0, yields: 0 });
    // The third turn is due after a wait of 100 ms, and begins 400 ms after that.
    let (mut driver, log) = driver(&[0, 200 * ms, 700 * ms, 800 * ms, 1_100 * ms], idle);
    turn(&mut driver, &log);
    turn(&mut driver, &log);
    driver.block_for(u64::MAX);
    assert_eq!(driver.duty().pause_count, 0, "200 ms are no pause");
    turn(&mut driver, &log);
    assert_eq!((driver.duty().pause_count, driver.duty().pause_max_ns), (1, 400 * ms));
    driver.block_for(u64::MAX);
    turn(&mut driver, &log);
    turn(&mut driver, &log);
    assert_eq!((driver.duty().pause_count, driver.duty().pause_max_ns), (2, 400 * ms));
}

#[test]
fn pause_threshold_follows_the_link_timeout() {
    let ms = 1_000_000;
    let threshold = |timeout_ns| Config::default().warning_before(timeout_ns).pause_threshold_ns;
    let timeouts = [0, 100 * ms, 400 * ms, 1_000 * ms, 8_000 * ms];
    assert_eq!(timeouts.map(threshold), [250, 100, 100, 250, 2_000].map(|it| it * ms));
    let config = Config { pause_threshold_ns: 0, ..Config::default() };
    let (mut driver, log) = driver_with(&[0, 60_000 * ms], config);
    turn(&mut driver, &log);
    turn(&mut driver, &log);
    assert_eq!(driver.duty().pause_count, 0, "0: none is counted");
}

#[test]
fn long_turn_is_counted_and_waits_are_excluded() {
    let (mut driver, log) = driver(&[0, 2_000_000, 2_000_100, 9_000_000], Idle::Yield);
    for _ in 0..3 {
        turn(&mut driver, &log);
    }
    driver.rest(Progress::default());
    turn(&mut driver, &log);
    let duty = driver.duty();
    assert_eq!((duty.turn_count, duty.long_turn_count, duty.turn_max_ns), (4, 1, 2_000_000));
}
