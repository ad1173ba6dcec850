//! Runs the events of one part of a network.

use std::hint::black_box;

use onepipe_base::{Machine, Port};
use onepipe_sim_engine::{Instant, NANOSECOND, Random, Trace};

use crate::part::{Event, Part, Shared};
use crate::{Application, LinkId, NodeContext, NodeId, Stats};

/// Limit on consecutive events at one instant; more indicate a machine whose deadline stays in the
/// past. A million nodes may start at once.
const EVENTS_AT_INSTANT_MAX: u32 = 20_000_000;
/// Largest network, in nodes, whose data are not prefetched.
const CACHED_NODES_MAX: usize = 16;

/// Counters and buffers of whoever runs parts, one after the other.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub stats: Stats,
    /// Remaining steps of the run.
    pub steps_left: u64,
    /// Buffer into which machines write their frames.
    pub slot: Vec<u8>,
    /// Alarms that the application has requested and that are not yet scheduled.
    pub alarms: Vec<(Instant, NodeId, u32)>,
}

impl Scratch {
    pub fn new(frame_len_max: usize, steps_left: u64) -> Self {
        let (stats, alarms) = (Stats::default(), Vec::new());
        Self { stats, steps_left, slot: vec![0; frame_len_max], alarms }
    }
}

/// One part of a network with everything that it needs to run.
#[derive(Debug)]
pub(crate) struct Run<'a, M, A> {
    pub part: &'a mut Part<M>,
    pub shared: &'a Shared,
    pub application: &'a mut A,
    pub trace: &'a mut Trace,
    pub scratch: &'a mut Scratch,
}

impl<M: Machine, A: Application<M>> Run<'_, M, A> {
    /// Takes one step. Returns false at the step limit.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        let is_out_of_steps = self.scratch.steps_left == 0;
        self.scratch.steps_left -= u64::from(!is_out_of_steps);
        !is_out_of_steps
    }

    /// Returns virtual time at the nodes of the part.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.part.now
    }

    /// Returns the id of the node at an index of the part.
    #[inline]
    pub(crate) fn id(&self, index: usize) -> NodeId {
        NodeId(self.part.first_node + index as u32)
    }

    /// Returns the index of a node in the part.
    #[inline]
    pub(crate) fn index(&self, node: NodeId) -> usize {
        (node.0 - self.part.first_node) as usize
    }

    /// Returns the index in the part of a link that leaves one of its nodes.
    #[inline]
    pub(crate) fn slot_of(&self, link: u32) -> usize {
        (link - self.part.first_link) as usize
    }

    /// Handles the events of the part up to and including `limit`.
    pub(crate) fn run_until(&mut self, limit: Instant) {
        // The state of a small fabric is in the cache anyway.
        let prefetches = self.shared.nodes > CACHED_NODES_MAX;
        while let Some((instant, event)) = self.part.queue.next_until(limit) {
            if prefetches {
                self.prefetch();
            }
            self.check_progress(instant);
            self.part.now = instant;
            if !self.step() {
                return;
            }
            self.scratch.stats.events += 1;
            self.handle(event);
        }
    }

    #[inline]
    fn handle(&mut self, event: Event) {
        let index = |node: u32| (node - self.part.first_node) as usize;
        match event {
            Event::Arrive { link, frame, epoch } => self.on_arrive(link, frame, epoch),
            Event::Wake { node } => self.on_wake(index(node)),
            Event::Run { node } => self.on_run(index(node)),
            Event::Alarm { node, incarnation, token } => {
                self.on_alarm(index(node), incarnation, token)
            }
            Event::Sent { link, epoch } => self.on_sent(link, epoch),
            Event::CpuArrival { node, frame, port, incarnation } => {
                self.on_cpu_arrival(index(node), Port(port), frame, incarnation);
            }
            Event::ChipArrival { node, frame, port, incarnation } => {
                self.on_chip_arrival(index(node), Port(port), frame, incarnation);
            }
            Event::Fault { index } => self.inject(self.shared.faults[index as usize]),
        }
    }

    /// Prefetches the data of the events of the next few nanoseconds, so that the cache misses
    /// overlap. Taken one after the other they would cost more than the events themselves.
    #[inline]
    fn prefetch(&mut self) {
        let Part { first_node, nodes, queue, pool, .. } = &mut *self.part;
        let Some(events) = queue.take_fresh() else { return };
        let mut loaded = 0;
        for event in events.clone() {
            if let Event::Arrive { frame, .. } = event {
                loaded ^= pool.prefetch_header(*frame);
            }
        }
        for event in events {
            if let Event::Arrive { frame, link, .. } = event {
                let to = self.shared.ends[*link as usize].to;
                let node = &nodes[(to.0 - *first_node) as usize];
                if node.is_host
                    && let Some(machine) = &node.machine
                {
                    loaded ^= pool.prefetch_payload(*frame);
                    loaded ^= self.application.prefetch(to, machine, pool.bytes(*frame));
                }
            }
        }
        black_box(loaded);
    }

    /// Panics if virtual time does not advance: the deadline of some machine stays in the past.
    #[inline]
    fn check_progress(&mut self, instant: Instant) {
        let part = &mut *self.part;
        part.events_at_instant = if instant == part.now { part.events_at_instant + 1 } else { 0 };
        assert!(
            part.events_at_instant < EVENTS_AT_INSTANT_MAX,
            "virtual time does not advance beyond {} ps",
            instant.as_ps()
        );
    }

    /// Calls `command` with the machine of a node and drains the machine. Does nothing if the node
    /// is down.
    pub(crate) fn command(
        &mut self,
        index: usize,
        command: impl FnOnce(NodeContext<'_>, &mut M, &mut A),
    ) {
        let (instant, node) = (self.now(), self.id(index));
        let now = self.part.nodes[index].clock.read(instant);
        let is_current = self.part.nodes[index].is_current(instant);
        let Some(machine) = &mut self.part.nodes[index].machine else { return };
        let (mut busy_ps, mut crash_requested) = (0, false);
        let at = NodeContext {
            instant,
            node,
            now,
            is_current,
            alarms: &mut self.scratch.alarms,
            busy_ps: &mut busy_ps,
            crash_requested: &mut crash_requested,
        };
        command(at, machine, self.application);
        self.apply_requests(index, busy_ps, crash_requested);
        self.drain(index);
    }

    /// Applies the requests that the application made during a call.
    #[inline]
    pub(crate) fn apply_requests(&mut self, index: usize, busy_ps: u64, crash_requested: bool) {
        self.charge_cpu(index, busy_ps);
        if crash_requested {
            self.crash(index);
        }
    }

    /// Builds and starts the machine of a node.
    pub(crate) fn start(&mut self, index: usize) {
        let incarnation = self.part.nodes[index].incarnation;
        let machine = self.application.build(self.id(index), incarnation);
        self.part.nodes[index].machine = Some(machine);
        self.command(index, |at, machine, application| application.on_start(at, machine));
    }

    /// Keeps a CPU busy for another `ps`.
    #[inline]
    pub(crate) fn charge_cpu(&mut self, index: usize, ps: u64) {
        if ps > 0 {
            let node = &mut self.part.nodes[index];
            node.free_at = node.free_at.max(self.part.now).after(ps);
        }
    }

    /// Returns the NIC backlog above which a host is not polled for frames, in ps.
    pub(crate) fn nic_backlog_ps(&self) -> u64 {
        self.shared.config.nic_backlog_ns * NANOSECOND
    }

    /// Returns the random stream of the faults of a link.
    pub(crate) fn fault_random(&self, link: LinkId) -> Random {
        Random::named(self.shared.seed, "link faults", u64::from(link.0))
    }
}
