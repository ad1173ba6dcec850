//! Measurements at one receiver.

use hdrhistogram::Histogram;

use crate::control::Control;
use crate::egress::QueuePeak;
use crate::env::SimEnv;
use crate::setup::Setup;

/// When to measure, and at which receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Warm-up time, ns.
    pub warm_up_ns: u64,
    /// Time of measurement, ns.
    pub measure_ns: u64,
    /// Interval between samples of the queue, ns.
    pub sample_ns: u64,
    /// Interval over which throughput is averaged, ns.
    pub interval_ns: u64,
    /// The receiver whose link is measured.
    pub receiver: u32,
}

impl Plan {
    /// Returns the defaults: 100 ms of warm-up, 400 ms of measurement, queue samples every 10 us,
    /// throughput over 10 ms.
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

/// The result of a measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Length of the queue before the receiver, in bytes, at each sample.
    queue: Histogram<u64>,
    /// Round trips of pings, ns.
    pongs: Histogram<u64>,
    /// Completion times of finite flows, ns.
    flows: Histogram<u64>,
    /// By interval: bytes received of each flow.
    pub intervals: Vec<Vec<u64>>,
    /// Length of an interval, ns.
    pub interval_ns: u64,
    /// Segments sent, with retransmissions.
    pub segments_sent: u64,
    /// Segments found to be lost.
    pub segments_lost: u64,
    /// Frames dropped at a full queue.
    pub overflowed: u64,
    /// Maximum backlog before any link between switches, or to an endpoint.
    pub peak: QueuePeak,
    /// Bytes of control packets, with link overhead.
    pub control_bytes: u64,
    /// Control packets that left hosts.
    pub control: Control,
    /// Slot frames sent.
    pub slots_sent: u64,
    /// Sum over all samples of the raw frames offered and not sent.
    waiting: u64,
    samples: u64,
}

impl Measured {
    /// Returns a quantile of the queue length, in bytes.
    pub fn queue_bytes(&self, quantile: f64) -> u64 {
        self.queue.value_at_quantile(quantile)
    }

    /// Returns a quantile of the ping round trip, ns.
    pub fn ping_ns(&self, quantile: f64) -> u64 {
        self.pongs.value_at_quantile(quantile)
    }

    /// Returns the number of ping replies.
    pub fn pings(&self) -> u64 {
        self.pongs.len()
    }

    /// Returns a quantile of the completion time of finite flows, ns.
    pub fn flow_ns(&self, quantile: f64) -> u64 {
        self.flows.value_at_quantile(quantile)
    }

    /// Returns the number of completed flows.
    pub fn flows_done(&self) -> u64 {
        self.flows.len()
    }

    /// Returns the mean waiting time of a raw frame in timeslots, from the mean queue length and
    /// the throughput (Little's law).
    pub fn wait_slots(&self, slot_ns: u64) -> f64 {
        let ns = self.interval_ns * self.intervals.len() as u64;
        let waiting = self.waiting as f64 / self.samples.max(1) as f64;
        waiting * ns as f64 / (slot_ns * self.slots_sent.max(1)) as f64
    }

    /// Returns the total goodput of all flows, bits/s.
    pub fn goodput_bits_per_s(&self) -> f64 {
        let bytes: u64 = self.intervals.iter().flatten().sum();
        let ns = self.interval_ns * self.intervals.len() as u64;
        bytes as f64 * 8e9 / ns as f64
    }
}

/// Runs a setup and measures it.
pub fn measure(setup: &Setup, plan: &Plan) -> Measured {
    let mut env = SimEnv::new(setup);
    env.run_for_ns(plan.warm_up_ns);
    observe(&mut env, plan)
}

/// Measures a simulation after its warm-up.
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
            waiting += env.raw_waiting();
            samples += 1;
        }
        let after = env.received_bytes();
        intervals.push(after.iter().zip(&before).map(|(after, before)| after - before).collect());
        before = after;
    }
    let (sent_now, lost_now) = env.segments();
    let workload = &env.network.application;
    Measured {
        queue,
        pongs: workload.pongs_ns.clone(),
        flows: workload.flows_ns.clone(),
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
