//! The arbiter's desk apart from its workers, as when these run on cores of their own.

use std::collections::VecDeque;

use onepipe_arbiter::{Allocated, ArbiterConfig, Clerk, Client, Desk, Flow, Hands, Order, Worker};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp, Verdict};
use onepipe_wire::Frame;

use crate::world::{SLOT_NS, arbiter_config, client_config};

const ORIGIN_NS: u64 = 1 << 50;

/// Workers that do at once what they are ordered.
struct Crew {
    workers: Vec<Worker>,
    config: ArbiterConfig,
    flows: Vec<Flow>,
    fresh: Vec<Flow>,
    /// Batches that are allocated and the clerk has not heard of.
    allocated: VecDeque<Allocated>,
}

impl Hands for Crew {
    fn order(&mut self, worker: usize, order: Order) {
        let worker = &mut self.workers[worker];
        assert_eq!(worker.on_orders(&[order]), 1);
        if let Order::Renew { .. } = order {
            worker.on_flows(&self.flows);
            worker.on_fresh(&std::mem::take(&mut self.fresh));
            worker.finish();
            self.flows = worker.onward().to_vec();
            worker.clear_onward();
            let mut allocated = Allocated::new(&self.config.allocator);
            worker.write(&mut allocated);
            self.allocated.push_back(allocated);
        }
    }

    fn admit(&mut self, _: usize, flows: &[Flow]) {
        self.fresh.extend(flows);
    }
}

struct Pipeline {
    desk: Desk,
    clerk: Clerk,
    crew: Crew,
    /// Batches that are allocated and not yet told.
    behind: VecDeque<Allocated>,
    client: Client,
    now_ns: u64,
    sent: u32,
}

impl Pipeline {
    fn new(workers: usize) -> Self {
        let mut config = arbiter_config(0, 4, 1);
        config.allocator.return_batches = 1;
        // Half of it has four batches.
        config.lead_ns = 8 * u64::from(config.allocator.batch_slots) * SLOT_NS;
        let worker = |at| Worker::new(&config, at, workers).expect("right");
        Self {
            clerk: Clerk::new(&config.allocator, workers).expect("right"),
            crew: Crew {
                workers: (0..workers).map(worker).collect(),
                config: config.clone(),
                flows: Worker::first_flows().to_vec(),
                fresh: Vec::new(),
                allocated: VecDeque::new(),
            },
            desk: Desk::new(config).expect("right"),
            behind: VecDeque::new(),
            client: Client::new(client_config(0, 4, 1)).expect("right"),
            now_ns: 0,
            sent: 0,
        }
    }

    fn now(&self) -> Now {
        let sync = Timestamp::from_ns(ORIGIN_NS + self.now_ns);
        Now { mono: Mono::from_ns(self.now_ns), sync }
    }

    /// What the client says is heard.
    fn hear(&mut self) {
        let (now, mut slot) = (self.now(), [0; 1_472]);
        self.client.handle_timeout(now);
        while let Some(transmit) = self.client.poll_transmit(now, &mut slot) {
            let frame = &mut slot[..transmit.bytes];
            let dst = Frame::parse(frame).expect("sealed").header.dst();
            self.sent += u32::from(dst == ProcessId(1));
            if dst == ProcessId(4) {
                let verdict = self.desk.handle_frame(now, Port(0), frame);
                assert!(matches!(verdict, Verdict::Consumed | Verdict::Dropped));
            }
        }
    }

    /// What is commanded is done, and the batches before the last `behind` are told.
    fn work(&mut self, behind: usize) {
        while let Some(command) = self.desk.poll_command() {
            assert_eq!(self.clerk.obey(command, &mut self.crew), None);
            if let Some(mut allocated) = self.crew.allocated.pop_front() {
                self.clerk.on_allocated(&mut allocated, &mut self.crew);
                allocated.spread();
                self.behind.push_back(allocated);
            }
        }
        while self.behind.len() > behind
            && let Some(allocated) = self.behind.pop_front()
        {
            let now = self.now();
            self.desk.on_given(now, allocated.given(), allocated.schedule(), &allocated);
        }
    }

    fn step(&mut self, behind: usize) {
        self.now_ns += 8 * SLOT_NS;
        self.desk.handle_timeout(self.now());
        self.hear();
        self.work(behind);
        let (now, mut slot) = (self.now(), [0; 1_472]);
        while let Some(transmit) = self.desk.poll_transmit(now, &mut slot) {
            let frame = &mut slot[..transmit.bytes];
            if Frame::parse(frame).expect("sealed").header.dst() == ProcessId(0) {
                self.client.handle_frame(now, Port(0), frame);
            }
        }
    }

    fn enqueue(&mut self, count: u32) {
        for _ in 0..count {
            self.client.enqueue(ProcessId(1), &[0; 200]).expect("there is room");
        }
    }
}

/// What was allocated for an endpoint's former life does not come to its next one, which is given
/// what it asks for and no more.
#[test]
fn who_begins_anew_is_given_nothing_that_its_former_life_has_asked_for() {
    for (before, after) in [(40, 0), (40, 3), (40, 50), (4, 1)] {
        for workers in [1, 2, 3] {
            let mut pipeline = Pipeline::new(workers);
            pipeline.enqueue(before);
            while pipeline.behind.iter().all(|batch| batch.given().given == 0) {
                pipeline.step(3);
            }
            let mut config = client_config(0, 4, 1);
            config.incarnation = Incarnation(2);
            pipeline.client = Client::new(config).expect("right");
            pipeline.sent = 0;
            pipeline.enqueue(after);
            (0..8).for_each(|_| pipeline.step(3));
            assert!(pipeline.desk.comm_stats().void > 0, "there was something of its former life");
            (0..2_000).for_each(|_| pipeline.step(0));
            assert_eq!((pipeline.client.backlog(), pipeline.sent), (0, after));
            let (asked, given) = pipeline.client.totals(ProcessId(1));
            assert_eq!((asked, given), pipeline.desk.comm().totals(0, 1), "{before}, {after}");
            assert_eq!((asked, pipeline.desk.waiting()), (given, (0, 0)));
            assert_eq!(u32::from(given), after, "after {before}");
        }
    }
}

/// Workers that are too slow: no more is ordered than they can have under way, what passes
/// meanwhile is skipped and counted, and when they have caught up everybody is served.
#[test]
fn an_arbiter_whose_workers_fall_behind_skips_timeslots_and_goes_on() {
    let mut pipeline = Pipeline::new(2);
    pipeline.enqueue(200);
    (0..400).for_each(|_| pipeline.step(usize::MAX));
    assert_eq!(pipeline.behind.len(), 4, "as many as may be under way");
    assert_eq!(pipeline.desk.stats().batches, 0);
    pipeline.step(2);
    let (late, lag_ns) = (pipeline.desk.stats().late, pipeline.desk.stats().lag_ns);
    assert!(late == 2 && lag_ns > 300 * 8 * SLOT_NS, "{late} batches late by {lag_ns} ns");
    (0..2_000).for_each(|_| pipeline.step(0));
    let stats = pipeline.desk.stats();
    assert!(stats.skipped > 300 * 8 && stats.batches > 900, "{stats:?}");
    assert!((1..10).contains(&stats.held_back), "{stats:?}");
    assert_eq!((pipeline.client.backlog(), pipeline.sent), (0, 200));
    assert_eq!(pipeline.desk.waiting(), (0, 0));
}
