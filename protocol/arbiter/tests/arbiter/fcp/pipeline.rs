//! The control plane with workers on other cores.

use std::collections::VecDeque;

use onepipe_arbiter::{
    AllocatedBatch, ArbiterConfig, Client, ControlPlane, Dispatcher, Flow, Worker, WorkerCommand,
    WorkerQueues,
};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp, Verdict};
use onepipe_wire::Frame;

use super::net::{SLOT_NS, arbiter_config, client_config};

const ORIGIN_NS: u64 = 1 << 50;

/// Workers that execute their commands at once.
struct InlineWorkers {
    workers: Vec<Worker>,
    config: ArbiterConfig,
    flows: Vec<Flow>,
    fresh: Vec<Flow>,
    /// Allocated batches that the dispatcher has not seen.
    allocated: VecDeque<AllocatedBatch>,
}

impl WorkerQueues for InlineWorkers {
    fn command(&mut self, worker: usize, command: WorkerCommand) {
        let worker = &mut self.workers[worker];
        assert_eq!(worker.on_commands(&[command]), 1);
        if let WorkerCommand::Renew { .. } = command {
            worker.on_flows(&self.flows);
            worker.on_fresh(&std::mem::take(&mut self.fresh));
            worker.finish();
            self.flows = worker.forwarded().to_vec();
            worker.clear_forwarded();
            let mut allocated = AllocatedBatch::new(&self.config.allocator);
            worker.write(&mut allocated);
            self.allocated.push_back(allocated);
        }
    }

    fn admit(&mut self, _: usize, flows: &[Flow]) {
        self.fresh.extend(flows);
    }
}

struct Pipeline {
    control_plane: ControlPlane,
    dispatcher: Dispatcher,
    pool: InlineWorkers,
    /// Allocated batches that were not advertised yet.
    unread: VecDeque<AllocatedBatch>,
    client: Client,
    now_ns: u64,
    sent: u32,
}

impl Pipeline {
    fn new(workers: usize) -> Self {
        let mut config = arbiter_config(0, 4, 1);
        config.allocator.renew_after_batches = 1;
        // Half of the lead has four batches.
        config.lead_ns = 8 * u64::from(config.allocator.batch_slots) * SLOT_NS;
        let worker = |at| Worker::new(&config, at, workers).expect("right");
        Self {
            dispatcher: Dispatcher::new(&config.allocator, workers).expect("right"),
            pool: InlineWorkers {
                workers: (0..workers).map(worker).collect(),
                config: config.clone(),
                flows: Worker::initial_flows().to_vec(),
                fresh: Vec::new(),
                allocated: VecDeque::new(),
            },
            control_plane: ControlPlane::new(config).expect("right"),
            unread: VecDeque::new(),
            client: Client::new(client_config(0, 4, 1)).expect("right"),
            now_ns: 0,
            sent: 0,
        }
    }

    fn now(&self) -> Now {
        let sync = Timestamp::from_ns(ORIGIN_NS + self.now_ns);
        Now { mono: Mono::from_ns(self.now_ns), sync }
    }

    /// Delivers the client's packets.
    fn deliver(&mut self) {
        let (now, mut slot) = (self.now(), [0; 1_472]);
        self.client.handle_timeout(now);
        while let Some(transmit) = self.client.poll_transmit(now, &mut slot) {
            let frame = &mut slot[..transmit.bytes];
            let dst = Frame::parse(frame).expect("sealed").header.dst();
            self.sent += u32::from(dst == ProcessId(1));
            if dst == ProcessId(4) {
                let verdict = self.control_plane.handle_frame(now, Port(0), frame);
                assert!(matches!(verdict, Verdict::Consumed | Verdict::Dropped));
            }
        }
    }

    /// Executes all commands, and advertises all batches but the last `unread`.
    fn work(&mut self, unread: usize) {
        while let Some(command) = self.control_plane.poll_command(self.now().mono) {
            assert_eq!(self.dispatcher.execute(command, &mut self.pool), None);
            if let Some(mut allocated) = self.pool.allocated.pop_front() {
                self.dispatcher.on_batch_allocated(&mut allocated, &mut self.pool);
                allocated.build_schedule();
                self.unread.push_back(allocated);
            }
        }
        while self.unread.len() > unread
            && let Some(allocated) = self.unread.pop_front()
        {
            let now = self.now();
            self.control_plane.on_batch_granted(
                now,
                allocated.summary(),
                allocated.schedule(),
                &allocated,
            );
        }
    }

    fn step(&mut self, unread: usize) {
        self.now_ns += 8 * SLOT_NS;
        self.control_plane.handle_timeout(self.now());
        self.deliver();
        self.work(unread);
        let (now, mut slot) = (self.now(), [0; 1_472]);
        while let Some(transmit) = self.control_plane.poll_transmit(now, &mut slot) {
            let frame = &mut slot[..transmit.bytes];
            if Frame::parse(frame).expect("sealed").header.dst() == ProcessId(0) {
                self.client.handle_frame(now, Port(0), frame);
            }
        }
    }

    fn enqueue(&mut self, count: u32) {
        for _ in 0..count {
            self.client.enqueue(ProcessId(1), &[0; 200]).expect("the queue has space");
        }
    }
}

//= spec/arbiter.md#R15
/// Grants to an endpoint before its restart do not reach it afterwards; it gets what it requests
/// and no more.
#[test]
fn restarted_endpoint_gets_no_stale_grants() {
    for (before, after) in [(40, 0), (40, 3), (40, 50), (4, 1)] {
        for workers in [1, 2, 3] {
            let mut pipeline = Pipeline::new(workers);
            pipeline.enqueue(before);
            while pipeline.unread.iter().all(|batch| batch.summary().granted == 0) {
                pipeline.step(3);
            }
            let mut config = client_config(0, 4, 1);
            config.incarnation = Incarnation(2);
            pipeline.client = Client::new(config).expect("right");
            pipeline.sent = 0;
            pipeline.enqueue(after);
            (0..8).for_each(|_| pipeline.step(3));
            assert!(pipeline.control_plane.comm_stats().wasted > 0, "grants of before the restart");
            (0..2_000).for_each(|_| pipeline.step(0));
            assert_eq!((pipeline.client.backlog(), pipeline.sent), (0, after));
            let (requested, granted) = pipeline.client.totals(ProcessId(1));
            assert_eq!(
                (requested, granted),
                pipeline.control_plane.comm().totals(0, 1),
                "{before}, {after}"
            );
            assert_eq!((requested, pipeline.control_plane.waiting()), (granted, (0, 0)));
            assert_eq!(u32::from(granted), after, "after {before}");
        }
    }
}

/// Workers that are too slow: no more batches are started than fit in flight, timeslots that pass
/// meanwhile are skipped and counted, and all demand is served once the workers catch up.
#[test]
fn overloaded_workers_skip_timeslots_and_continue() {
    let mut pipeline = Pipeline::new(2);
    pipeline.enqueue(200);
    (0..400).for_each(|_| pipeline.step(usize::MAX));
    assert_eq!(pipeline.unread.len(), 4, "the maximum in flight");
    assert_eq!(pipeline.control_plane.stats().batches, 0);
    pipeline.step(2);
    let (late, lag_ns) =
        (pipeline.control_plane.stats().late, pipeline.control_plane.stats().lag_ns);
    assert!(late == 2 && lag_ns > 300 * 8 * SLOT_NS, "{late} batches late by {lag_ns} ns");
    (0..2_000).for_each(|_| pipeline.step(0));
    let stats = pipeline.control_plane.stats();
    assert!(stats.skipped > 300 * 8 && stats.batches > 900, "{stats:?}");
    assert!((1..10).contains(&stats.held_back), "{stats:?}");
    assert_eq!((pipeline.client.backlog(), pipeline.sent), (0, 200));
    assert_eq!(pipeline.control_plane.waiting(), (0, 0));
}
