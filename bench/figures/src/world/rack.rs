//! One run on Fastpass's rack of 32.

use anyhow::Result;
use onepipe_sim_arbiter::{Flow, Measured, OfferedLoad, Ping, Plan, Setup, measure};
use onepipe_sim_traffic::{CongestionControl, FlowSpec, Incast};
use serde::{Deserialize, Serialize};

use crate::experiment::Values;

/// The parts of all looks, in per cent, that the paper's tables name (Fastpass section 7.1).
const QUANTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];
/// TCP flows of a sender to a receiver (experiment A).
const FLOWS: usize = 20;
/// Connections when there are most (experiment C).
const CONNECTIONS: u32 = 5;
/// Intervals before shares count, and while they do.
const SHARE_INTERVALS: u64 = 10;
/// Intervals from one connection's coming or going to the next one's: 30 in the paper.
const STAGE_INTERVALS: u64 = 3;
/// One, two, up to five, and down to one again.
const STAGES: u64 = 2 * CONNECTIONS as u64 - 1;

/// Who decides what is sent when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheduler {
    /// TCP, by what is lost.
    Tcp,
    /// TCP, by the share of packets that were marked (DCTCP).
    Dctcp,
    /// An arbiter.
    Arbiter,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bulk {
    /// Experiments A and B: four senders with 20 flows each to one receiver, and a fifth host that
    /// asks the receiver.
    Four,
    /// Experiment C: five connections from different senders to one receiver.
    Five {
        /// Throughput is taken over so many ms.
        interval_ms: u32,
    },
    /// Experiment C as the paper has it: first one, then one more every three intervals (its every
    /// 30) until there are five, then one fewer, who came first.
    ComeAndGo {
        /// Throughput is taken over so many ms.
        interval_ms: u32,
    },
    /// Experiment E: every host offers full frames to all others, in turn by chance.
    Load {
        /// Timeslots with a frame, of a thousand.
        permille: u32,
    },
    /// The same, but each host sends to few others.
    LoadToFew {
        /// Timeslots with a frame, of a thousand.
        permille: u32,
        /// How many others.
        peers: u32,
    },
    /// Experiment H: a service whose answers come from many at a time.
    Incast {
        /// How many answer.
        senders: u32,
    },
}

/// Everything that a run depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rack {
    /// Who decides what is sent when.
    pub scheduler: Scheduler,
    /// What is sent.
    pub bulk: Bulk,
    /// Whatever is left to chance.
    pub seed: u64,
}

impl Rack {
    /// Runs it. Answers for all `goodput_gbps` (what TCP's applications get), `line_percent` (what
    /// that takes of the receiver's link in full frames), `queue_p50_kb` and so on (the queue
    /// before the receiver, in thousands of bytes), `segments_lost`, `resent_percent`, and the
    /// most that was before any link of a switch, `frames_queued_max` and `octets_queued_max`;
    /// beside that
    /// - four senders: `ping_p50_ms` and so on, from question to answer;
    /// - five connections: `deviation_mbps`, the standard deviation of what a sender gets through
    ///   in an interval, from the mean of all who send in that interval; and
    ///   `deviation_all_mbps`, with those intervals in which somebody comes or goes;
    /// - load: `control_percent`, bytes of control packets over those of frames in timeslots, and
    ///   `wait_slots`, how many timeslots a frame waits on average;
    /// - incast: `flow_p50_ms` and so on, from a question to the end of an answer.
    ///
    /// # Errors
    /// When something that must hold was broken.
    pub fn run(&self) -> Result<Values> {
        let (setup, plan) = self.lay_out();
        let measured = measure(&setup, &plan);
        let mut values = of_all(&setup, &measured);
        let mut put = |name: String, value: f64| {
            values.insert(name, value);
        };
        match self.bulk {
            Bulk::Four => {
                for percent in QUANTILES {
                    let ns = measured.ping_ns(percent / 100.0) as f64;
                    put(format!("ping_p{percent}_ms"), ns / 1e6);
                }
            }
            Bulk::Five { .. } | Bulk::ComeAndGo { .. } => {
                let [calm, all] = deviations(&setup, &plan, &measured);
                put("deviation_mbps".to_owned(), calm / 1e6);
                put("deviation_all_mbps".to_owned(), all / 1e6);
            }
            Bulk::Load { .. } | Bulk::LoadToFew { .. } => {
                let sent = measured.slots_sent * setup.full_len();
                let percent = 100.0 * measured.control_bytes as f64 / sent.max(1) as f64;
                put("control_percent".to_owned(), percent);
                put("wait_slots".to_owned(), measured.wait_slots(setup.slot_ns()));
            }
            Bulk::Incast { .. } => {
                for percent in QUANTILES {
                    let ns = measured.flow_ns(percent / 100.0) as f64;
                    put(format!("flow_p{percent}_ms"), ns / 1e6);
                }
            }
        }
        Ok(values)
    }

    fn lay_out(&self) -> (Setup, Plan) {
        let congestion_control = match self.scheduler {
            Scheduler::Tcp => CongestionControl::Reno,
            Scheduler::Dctcp => CongestionControl::Dctcp,
            // It is nothing to slow down for.
            Scheduler::Arbiter => CongestionControl::Reno,
        };
        let setup = Setup { congestion_control, seed: self.seed, ..Setup::rack() };
        let setup = match self.scheduler {
            Scheduler::Arbiter => setup.scheduled(),
            Scheduler::Tcp | Scheduler::Dctcp => setup,
        };
        match self.bulk {
            Bulk::Four => {
                let flows = (1..=4).flat_map(|from| [Flow::endless(from, 0); FLOWS]).collect();
                // The paper asks every 10 ms for 20 minutes.
                let pings = vec![Ping { from: 5, to: 0, every_ns: 250_000 }];
                // Reno takes 90 ms from one loss of a flow to the next.
                let plan = Plan { warm_up_ns: 200_000_000, measure_ns: 600_000_000, ..Plan::of(0) };
                (Setup { flows, pings, ..setup }, plan)
            }
            Bulk::Five { interval_ms } => {
                let flows = (1..=CONNECTIONS).map(|from| Flow::endless(from, 0)).collect();
                let interval_ns = u64::from(interval_ms) * 1_000_000;
                let all_ns = SHARE_INTERVALS * interval_ns;
                let plan =
                    Plan { warm_up_ns: all_ns, measure_ns: all_ns, interval_ns, ..Plan::of(0) };
                (Setup { flows, ..setup }, plan)
            }
            Bulk::ComeAndGo { interval_ms } => {
                let interval_ns = u64::from(interval_ms) * 1_000_000;
                let stage_ns = STAGE_INTERVALS * interval_ns;
                let flow = |nth: u32| {
                    let at_ns = u64::from(nth) * stage_ns;
                    let endless = Flow::endless(1 + nth, 0);
                    let spec = FlowSpec { at_ns, ..endless.spec };
                    Flow { spec, closes_ns: Some(at_ns + u64::from(CONNECTIONS) * stage_ns) }
                };
                let flows = (0..CONNECTIONS).map(flow).collect();
                let measure_ns = STAGES * stage_ns;
                let plan = Plan { warm_up_ns: 0, measure_ns, interval_ns, ..Plan::of(0) };
                (Setup { flows, ..setup }, plan)
            }
            Bulk::Load { permille } => offered(setup, OfferedLoad::to_all(permille)),
            Bulk::LoadToFew { permille, peers } => {
                offered(setup, OfferedLoad { peers, ..OfferedLoad::to_all(permille) })
            }
            Bulk::Incast { senders } => {
                // A megabyte each, ten times, at a fifth of the link with 16 senders.
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

/// Frames without a protocol.
fn offered(setup: Setup, offer: OfferedLoad) -> (Setup, Plan) {
    let (warm_up_ns, measure_ns, interval_ns) = (2_000_000, 5_000_000, 1_000_000);
    let plan = Plan { warm_up_ns, measure_ns, interval_ns, ..Plan::of(0) };
    (Setup { offer: Some(offer), ..setup }, plan)
}

/// The standard deviation of what a sender gets through in an interval, in bits/s, from the mean of
/// those who send from its beginning to its end: over intervals in which nobody comes or goes, and
/// over all. One alone lies nowhere apart.
fn deviations(setup: &Setup, plan: &Plan, measured: &Measured) -> [f64; 2] {
    let seconds = measured.interval_ns as f64 / 1e9;
    let (mut squares, mut counts) = ([0.0; 2], [0_usize; 2]);
    for (nth, bytes) in (0u64..).zip(&measured.intervals) {
        let begins_ns = plan.warm_up_ns + nth * plan.interval_ns;
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
        let is_calm = !setup.flows.iter().any(changes);
        for of in usize::from(!is_calm)..2 {
            squares[of] += rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
            counts[of] += rates.len();
        }
    }
    [0, 1].map(|of| (squares[of] / counts[of].max(1) as f64).sqrt())
}

fn of_all(setup: &Setup, measured: &Measured) -> Values {
    let goodput = measured.goodput_bits_per_s();
    // What these bytes take of the link in full frames.
    let line = goodput * setup.full_len() as f64 / f64::from(setup.segment_len());
    let resent = measured.segments_lost as f64 / measured.segments_sent.max(1) as f64;
    let values = [
        ("goodput_gbps", goodput / 1e9),
        ("line_percent", 100.0 * line / setup.host_link.rate_bits_per_s as f64),
        ("segments_lost", measured.segments_lost as f64),
        ("resent_percent", 100.0 * resent),
        ("frames_queued_max", measured.peak.frames as f64),
        ("octets_queued_max", measured.peak.bytes as f64),
    ];
    let mut values: Values = values.map(|(name, value)| (name.to_owned(), value)).into();
    for percent in QUANTILES {
        let bytes = measured.queue_bytes(percent / 100.0) as f64;
        values.insert(format!("queue_p{percent}_kb"), bytes / 1e3);
    }
    values
}
