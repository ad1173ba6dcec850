//! What is looked at.

use hdrhistogram::Histogram;

use crate::control::Control;
use crate::egress::Longest;
use crate::setup::Setup;
use crate::world::World;

/// When to look, and at whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Before anything counts, in ns.
    pub warm_up_ns: u64,
    /// How long it counts, in ns.
    pub measure_ns: u64,
    /// From one look at the queue to the next, in ns.
    pub look_ns: u64,
    /// Throughput is taken over intervals of this, in ns.
    pub interval_ns: u64,
    /// The receiver whose link is looked at.
    pub receiver: u32,
}

impl Plan {
    /// 100 ms, then 400 ms that count; a look every 10 us, throughput over 10 ms.
    pub const fn of(receiver: u32) -> Self {
        Self {
            warm_up_ns: 100_000_000,
            measure_ns: 400_000_000,
            look_ns: 10_000,
            interval_ns: 10_000_000,
            receiver,
        }
    }
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The queue before the receiver, in bytes, at each look.
    queue: Histogram<u64>,
    /// Answers, in ns.
    pongs: Histogram<u64>,
    /// Flows that had an end, in ns.
    flows: Histogram<u64>,
    /// By interval: what came of each flow, in bytes.
    pub intervals: Vec<Vec<u64>>,
    /// The length of an interval, in ns.
    pub interval_ns: u64,
    /// Segments sent while it counted, those sent again included.
    pub segments_sent: u64,
    /// Segments found to be lost.
    pub segments_lost: u64,
    /// Frames that met a full queue.
    pub overflowed: u64,
    /// The most at one time before any link between switches, or to an endpoint.
    pub longest: Longest,
    /// Bytes of control packets, with what each costs on the wire.
    pub control_bytes: u64,
    /// Control packets, as they have left hosts.
    pub control: Control,
    /// Frames in granted timeslots.
    pub slots_sent: u64,
    /// Frames without a protocol that had been offered and not sent, at each look, all together.
    waiting: u64,
    looks: u64,
}

impl Measured {
    /// The length of the queue that this part of all looks did not exceed, in bytes.
    pub fn queue_bytes(&self, quantile: f64) -> u64 {
        self.queue.value_at_quantile(quantile)
    }

    /// The time within which this part of all answers came, in ns.
    pub fn ping_ns(&self, quantile: f64) -> u64 {
        self.pongs.value_at_quantile(quantile)
    }

    /// Answers.
    pub fn pings(&self) -> u64 {
        self.pongs.len()
    }

    /// The time within which this part of all flows that had an end were done, in ns.
    pub fn flow_ns(&self, quantile: f64) -> u64 {
        self.flows.value_at_quantile(quantile)
    }

    /// Flows that had an end and were done.
    pub fn flows_done(&self) -> u64 {
        self.flows.len()
    }

    /// How many timeslots a frame without a protocol waits from when it is offered until it is
    /// sent, on average: by what waits, and how many are sent (Little's law).
    pub fn wait_slots(&self, slot_ns: u64) -> f64 {
        let ns = self.interval_ns * self.intervals.len() as u64;
        let waiting = self.waiting as f64 / self.looks.max(1) as f64;
        waiting * ns as f64 / (slot_ns * self.slots_sent.max(1)) as f64
    }

    /// What all flows brought through, in bits/s.
    pub fn goodput_bits_per_s(&self) -> f64 {
        let bytes: u64 = self.intervals.iter().flatten().sum();
        let ns = self.interval_ns * self.intervals.len() as u64;
        bytes as f64 * 8e9 / ns as f64
    }
}

/// Lives through a setup, and looks.
pub fn measure(setup: &Setup, plan: &Plan) -> Measured {
    let mut world = World::new(setup);
    world.run_for_ns(plan.warm_up_ns);
    observe(&mut world, plan)
}

/// Looks at a world that is warm.
pub fn observe(world: &mut World, plan: &Plan) -> Measured {
    world.begin();
    let (sent, lost) = world.segments();
    let overflowed = world.overflowed();
    let (control_bytes, slots_sent) = (world.control_bytes(), world.slots_sent());
    let link = world.down_link(plan.receiver);
    let mut queue = Histogram::new_with_bounds(1, 1 << 40, 3).expect("the bounds are right");
    let mut intervals = Vec::new();
    let (control, mut waiting, mut looks) = (*world.control(), 0, 0);
    let mut before = world.received_bytes();
    for _ in 0..plan.measure_ns / plan.interval_ns {
        for _ in 0..plan.interval_ns / plan.look_ns {
            world.run_for_ns(plan.look_ns);
            queue.saturating_record(world.backlog_bytes(link));
            waiting += world.plain_waiting();
            looks += 1;
        }
        let after = world.received_bytes();
        intervals.push(after.iter().zip(&before).map(|(after, before)| after - before).collect());
        before = after;
    }
    let (sent_now, lost_now) = world.segments();
    let bench = &world.network.application;
    Measured {
        queue,
        pongs: bench.pongs_ns.clone(),
        flows: bench.flows_ns.clone(),
        intervals,
        interval_ns: plan.interval_ns,
        segments_sent: sent_now - sent,
        segments_lost: lost_now - lost,
        overflowed: world.overflowed() - overflowed,
        longest: world.longest(),
        control_bytes: world.control_bytes() - control_bytes,
        control: world.control().since(&control),
        slots_sent: world.slots_sent() - slots_sent,
        waiting,
        looks,
    }
}
