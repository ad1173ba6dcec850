//! One run on Fastpass's rack of 32 hosts.

use anyhow::Result;
use onepipe_sim_arbiter::{Arbitration, Flow, Measured, OfferedLoad, Ping, Plan, Setup, measure};
use onepipe_sim_traffic::{CongestionControl, FlowSpec, Incast};
use serde::{Deserialize, Serialize};

use crate::values::Values;

/// Percentiles in the paper's tables (Fastpass section 7.1).
const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];
/// How late hosts with delays send at most, in ns. The paper gives no such number: its median queue
/// of 18 KB takes 14.4 us on a link of 10 Gbit/s (experiment A).
const JITTER_NS_MAX: u64 = 15_000;
/// Number of TCP flows from each sender to the receiver (experiment A).
const FLOWS_PER_SENDER: usize = 20;
/// Largest number of connections (experiment C).
const CONNECTIONS: u32 = 5;
/// Number of intervals of the warm-up, and of the measurement of shares.
const SHARE_INTERVALS: u64 = 10;
/// Number of intervals between connections that start or end: 30 in the paper.
const STAGE_INTERVALS: u64 = 3;
/// Number of stages: one to five connections, and back to one.
const STAGES: u64 = 2 * CONNECTIONS as u64 - 1;

/// What decides when a packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheduler {
    /// TCP, by loss.
    Tcp,
    /// TCP, by the share of marked packets (DCTCP).
    Dctcp,
    /// An arbiter.
    Arbiter,
    /// An arbiter; hosts send up to 15 us late.
    LateArbiter,
    /// An arbiter; hosts send requests half as often.
    SparseArbiter,
}

/// The traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RackTraffic {
    /// Experiments A and B: four senders with 20 flows each to one receiver, and a fifth host that
    /// pings the receiver.
    FourSenders,
    /// Experiment C: five connections from different senders to one receiver.
    FiveSenders {
        /// Averaging interval of throughput in ms.
        interval_ms: u32,
    },
    /// Experiment C as in the paper: first one connection, then one more every three intervals (30
    /// in the paper) up to five, then one fewer each, in the order of their start.
    ComeAndGo {
        /// Averaging interval of throughput in ms.
        interval_ms: u32,
    },
    /// Experiment E: every host offers full frames to all others at random.
    Load {
        /// Timeslots with a frame, in thousandths.
        permille: u32,
    },
    /// As [`RackTraffic::Load`], but each host sends to few others.
    LoadToFew {
        /// Timeslots with a frame, in thousandths.
        permille: u32,
        /// Number of receivers of each host.
        peers: u32,
    },
    /// Experiment H: a service with responses from many hosts at a time.
    Incast {
        /// Number of hosts that respond.
        senders: u32,
    },
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rack {
    /// What decides when a packet is sent.
    pub scheduler: Scheduler,
    /// The traffic.
    pub traffic: RackTraffic,
    /// Seed of the run.
    pub seed: u64,
}

impl Rack {
    /// Runs the traffic. Returns
    /// - `goodput_gbps`, the throughput of TCP's applications, and `line_percent`, the share of the
    ///   receiver's link that this throughput takes in full frames;
    /// - `queue_p50_kb` and so on, the queue before the receiver in thousands of bytes;
    /// - `segments_lost`, and `resent_percent`, their share of the segments sent;
    /// - `frames_queued_max` and `octets_queued_max`, the longest queue before any link of a switch
    ///   in frames and in bytes.
    ///
    /// In addition, returns for
    /// - four senders: `ping_p50_ms` and so on, round-trip times, and `control_percent`, bytes of
    ///   control packets relative to those of frames in timeslots;
    /// - five connections: `deviation_mbps`, the standard deviation of a sender's throughput in an
    ///   interval from the mean of all senders in that interval, without the intervals in which a
    ///   connection starts or ends; and `deviation_all_mbps`, with them;
    /// - load: `control_percent`, and `wait_slots`, how many timeslots a frame waits on average;
    /// - incast: `flow_p50_ms` and so on, the time from a query to the end of a response.
    ///
    /// # Errors
    /// If a guarantee was violated.
    pub fn run(&self) -> Result<Values> {
        let (setup, plan) = self.setup_and_plan();
        let measured = measure(&setup, &plan);
        let mut values = common_values(&setup, &measured);
        let mut put = |name: String, value: f64| {
            values.insert(name, value);
        };
        match self.traffic {
            RackTraffic::FourSenders => {
                for percent in PERCENTILES {
                    let ns = measured.ping_ns(percent / 100.0) as f64;
                    put(format!("ping_p{percent}_ms"), ns / 1e6);
                }
                let sent = measured.slots_sent * setup.full_len();
                put("control_percent".to_owned(), control_percent(&measured, sent));
            }
            RackTraffic::FiveSenders { .. } | RackTraffic::ComeAndGo { .. } => {
                let [steady, all] = deviations(&setup, &plan, &measured);
                put("deviation_mbps".to_owned(), steady / 1e6);
                put("deviation_all_mbps".to_owned(), all / 1e6);
            }
            RackTraffic::Load { .. } | RackTraffic::LoadToFew { .. } => {
                let sent = measured.slots_sent * setup.full_len();
                put("control_percent".to_owned(), control_percent(&measured, sent));
                put("wait_slots".to_owned(), measured.wait_slots(setup.slot_ns()));
            }
            RackTraffic::Incast { .. } => {
                for percent in PERCENTILES {
                    let ns = measured.flow_ns(percent / 100.0) as f64;
                    put(format!("flow_p{percent}_ms"), ns / 1e6);
                }
            }
        }
        Ok(values)
    }

    /// Returns the simulated rack with its traffic, and when it is measured.
    fn setup_and_plan(&self) -> (Setup, Plan) {
        let congestion_control = match self.scheduler {
            Scheduler::Tcp => CongestionControl::Reno,
            Scheduler::Dctcp => CongestionControl::Dctcp,
            // Nothing is lost, so the choice does not matter.
            _ => CongestionControl::Reno,
        };
        let setup = Setup { congestion_control, seed: self.seed, ..Setup::rack() };
        let setup = match self.scheduler {
            Scheduler::Tcp | Scheduler::Dctcp => setup,
            Scheduler::Arbiter => setup.scheduled(),
            Scheduler::LateArbiter => Setup { jitter_ns_max: JITTER_NS_MAX, ..setup.scheduled() },
            Scheduler::SparseArbiter => {
                let setup = setup.scheduled();
                let arbitration = setup.arbitration.map(|arbitration| {
                    let control_interval_slots = 2 * arbitration.control_interval_slots;
                    Arbitration { control_interval_slots, ..arbitration }
                });
                Setup { arbitration, ..setup }
            }
        };
        match self.traffic {
            RackTraffic::FourSenders => {
                let flows =
                    (1..=4).flat_map(|from| [Flow::endless(from, 0); FLOWS_PER_SENDER]).collect();
                // The paper pings every 10 ms for 20 minutes.
                let pings = vec![Ping { from: 5, to: 0, every_ns: 250_000 }];
                // From one loss of a Reno flow to the next it takes 90 ms: measure several.
                let plan = Plan { warm_up_ns: 200_000_000, measure_ns: 600_000_000, ..Plan::of(0) };
                (Setup { flows, pings, ..setup }, plan)
            }
            RackTraffic::FiveSenders { interval_ms } => {
                let flows = (1..=CONNECTIONS).map(|from| Flow::endless(from, 0)).collect();
                let interval_ns = u64::from(interval_ms) * 1_000_000;
                let all_ns = SHARE_INTERVALS * interval_ns;
                let plan =
                    Plan { warm_up_ns: all_ns, measure_ns: all_ns, interval_ns, ..Plan::of(0) };
                (Setup { flows, ..setup }, plan)
            }
            RackTraffic::ComeAndGo { interval_ms } => {
                let interval_ns = u64::from(interval_ms) * 1_000_000;
                let stage_ns = STAGE_INTERVALS * interval_ns;
                let flow = |index: u32| {
                    let at_ns = u64::from(index) * stage_ns;
                    let endless = Flow::endless(1 + index, 0);
                    let spec = FlowSpec { at_ns, ..endless.spec };
                    Flow { spec, closes_ns: Some(at_ns + u64::from(CONNECTIONS) * stage_ns) }
                };
                let flows = (0..CONNECTIONS).map(flow).collect();
                let measure_ns = STAGES * stage_ns;
                let plan = Plan { warm_up_ns: 0, measure_ns, interval_ns, ..Plan::of(0) };
                (Setup { flows, ..setup }, plan)
            }
            RackTraffic::Load { permille } => offered(setup, OfferedLoad::to_all(permille)),
            RackTraffic::LoadToFew { permille, peers } => {
                offered(setup, OfferedLoad { peers, ..OfferedLoad::to_all(permille) })
            }
            RackTraffic::Incast { senders } => {
                // Ten responses of a megabyte from each sender; those of 16 senders take a fifth of
                // the receiver's link.
                let (bytes, every_ns, rounds) = (1 << 20, 70_000_000, 10);
                let incast = Incast { to: 0, senders, bytes, every_ns, rounds };
                let specs = incast.specs(32).into_iter();
                let flows = specs.map(|spec| Flow { spec, closes_ns: None }).collect();
                let measure_ns = every_ns * u64::from(rounds);
                let plan = Plan { warm_up_ns: 0, measure_ns, ..Plan::of(0) };
                (Setup { flows, ..setup }, plan)
            }
        }
    }
}

/// Returns the bytes of control packets relative to `sent`, in percent.
fn control_percent(measured: &Measured, sent: u64) -> f64 {
    100.0 * measured.control_bytes as f64 / sent.max(1) as f64
}

/// Returns a setup with offered frames instead of TCP.
fn offered(setup: Setup, offer: OfferedLoad) -> (Setup, Plan) {
    let (warm_up_ns, measure_ns, interval_ns) = (2_000_000, 5_000_000, 1_000_000);
    let plan = Plan { warm_up_ns, measure_ns, interval_ns, ..Plan::of(0) };
    (Setup { offer: Some(offer), ..setup }, plan)
}

/// Returns the standard deviation, in bits/s, of a sender's throughput in an interval from the mean
/// of all senders that are active for the whole interval: first over the steady intervals, in which
/// no connection starts or ends, then over all. Intervals with a single sender do not count.
fn deviations(setup: &Setup, plan: &Plan, measured: &Measured) -> [f64; 2] {
    let seconds = measured.interval_ns as f64 / 1e9;
    let (mut squares, mut counts) = ([0.0; 2], [0_usize; 2]);
    for (index, bytes) in (0u64..).zip(&measured.intervals) {
        let begins_ns = plan.warm_up_ns + index * plan.interval_ns;
        let ends_ns = begins_ns + plan.interval_ns;
        let during = begins_ns..ends_ns;
        let changes = |flow: &Flow| {
            during.contains(&flow.spec.at_ns)
                || flow.closes_ns.is_some_and(|at| during.contains(&at))
        };
        let sends = |flow: &Flow| {
            flow.spec.at_ns <= begins_ns && flow.closes_ns.is_none_or(|at| ends_ns <= at)
        };
        let of_senders = setup.flows.iter().zip(bytes).filter(|(flow, _)| sends(flow));
        let rates: Vec<f64> = of_senders.map(|(_, bytes)| *bytes as f64 * 8.0 / seconds).collect();
        if rates.len() < 2 {
            continue;
        }
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let is_steady = !setup.flows.iter().any(changes);
        // Index 0 collects the steady intervals, index 1 all.
        for set in usize::from(!is_steady)..2 {
            squares[set] += rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
            counts[set] += rates.len();
        }
    }
    [0, 1].map(|set| (squares[set] / counts[set].max(1) as f64).sqrt())
}

/// Returns the values that do not depend on the kind of traffic.
fn common_values(setup: &Setup, measured: &Measured) -> Values {
    let goodput = measured.goodput_bits_per_s();
    // What these bytes take of the link in full frames, in bits/s.
    let in_full_frames = goodput * setup.full_len() as f64 / f64::from(setup.segment_len());
    let resent = measured.segments_lost as f64 / measured.segments_sent.max(1) as f64;
    let values = [
        ("goodput_gbps", goodput / 1e9),
        ("line_percent", 100.0 * in_full_frames / setup.host_link.rate_bits_per_s as f64),
        ("segments_lost", measured.segments_lost as f64),
        ("resent_percent", 100.0 * resent),
        ("frames_queued_max", measured.peak.frames as f64),
        ("octets_queued_max", measured.peak.bytes as f64),
    ];
    let mut values: Values = values.map(|(name, value)| (name.to_owned(), value)).into();
    for percent in PERCENTILES {
        let bytes = measured.queue_bytes(percent / 100.0) as f64;
        values.insert(format!("queue_p{percent}_kb"), bytes / 1e3);
    }
    values
}
