//! What is looked at.

use hdrhistogram::Histogram;

use crate::control::Control;
use crate::egress::QueuePeak;
use crate::env::SimEnv;
use crate::setup::Setup;

/// When to look, and at whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Before anything counts, in ns.
    pub warm_up_ns: u64,
    /// How long it counts, in ns.
    pub measure_ns: u64,
    /// From one look at the queue to the next, in ns.
    pub sample_ns: u64,
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
            sample_ns: 10_000,
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
    pub peak: QueuePeak,
    /// Bytes of control packets, with what each costs on the wire.
    pub control_bytes: u64,
    /// Control packets, as they have left hosts.
    pub control: Control,
    /// Frames in granted timeslots.
    pub slots_sent: u64,
    /// Frames without a protocol that had been offered and not sent, at each look, all together.
    waiting: u64,
    samples: u64,
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
        let waiting = self.waiting as f64 / self.samples.max(1) as f64;
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
    let mut env = SimEnv::new(setup);
    env.run_for_ns(plan.warm_up_ns);
    observe(&mut env, plan)
}

/// Looks at a world that is warm.
pub fn observe(env: &mut SimEnv, plan: &Plan) -> Measured {
    env.begin();
    let (sent, lost) = env.segments();
    let overflowed = env.overflowed();
    let (control_bytes, slots_sent) = (env.control_bytes(), env.slots_sent());
    let link = env.down_link(plan.receiver);
    let mut queue = Histogram::new_with_bounds(1, 1 << 40, 3).expect("the bounds are right");
    let mut intervals = Vec::new();
    let (control, mut waiting, mut samples) = (*env.control(), 0, 0);
    let mut before = env.received_bytes();
    for _ in 0..plan.measure_ns / plan.interval_ns {
        for _ in 0..plan.interval_ns / plan.sample_ns {
            env.run_for_ns(plan.sample_ns);
            queue.saturating_record(env.backlog_bytes(link));
            waiting += env.plain_waiting();
            samples += 1;
        }
        let after = env.received_bytes();
        intervals.push(after.iter().zip(&before).map(|(after, before)| after - before).collect());
        before = after;
    }
    let (sent_now, lost_now) = env.segments();
    let bench = &env.network.application;
    Measured {
        queue,
        pongs: bench.pongs_ns.clone(),
        flows: bench.flows_ns.clone(),
        intervals,
        interval_ns: plan.interval_ns,
        segments_sent: sent_now - sent,
        segments_lost: lost_now - lost,
        overflowed: env.overflowed() - overflowed,
        peak: env.peak(),
        control_bytes: env.control_bytes() - control_bytes,
        control: env.control().since(&control),
        slots_sent: env.slots_sent() - slots_sent,
        waiting,
        samples,
    }
}
