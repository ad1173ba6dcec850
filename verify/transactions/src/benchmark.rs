//! Rates and latencies of transactions, measured in virtual time.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use onepipe_base::ProcessId;
use onepipe_sim_network::HopKind;

use crate::measured::Measured;
use crate::setup::Setup;
use crate::usage::{Sent, Usage};

/// Latencies of one kind of transactions, in us from submission to outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// Number of transactions.
    pub count: u64,
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Transactions per second and process.
    pub per_s_and_process: f64,
    /// Latencies by kind.
    pub latency: BTreeMap<&'static str, Percentiles>,
    /// Attempts beyond the first, per transaction.
    pub repeated: f64,
    /// Transactions that did not take place.
    pub failed: u64,
    /// Frames over links in the whole run.
    pub hops: u64,
    /// What the transactions used.
    pub usage: Usage,
}

/// Counts and latencies of the transactions that end during the measurement.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    is_measuring: bool,
    latency_ns: BTreeMap<&'static str, Histogram<u64>>,
    ended: u64,
    repeated: u64,
    failed: u64,
}

impl Rates {
    /// Begins to measure.
    pub fn begin(&mut self) {
        self.is_measuring = true;
    }

    /// Notes that a transaction of this kind ended: after this number of attempts, or `None` if it
    /// did not take place.
    pub fn ended(&mut self, kind: &'static str, latency_ns: u64, attempts: Option<u32>) {
        if !self.is_measuring {
            return;
        }
        let Some(attempts) = attempts else {
            self.failed += 1;
            return;
        };
        self.ended += 1;
        self.repeated += u64::from(attempts) - 1;
        let new = || Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("sound bounds");
        self.latency_ns.entry(kind).or_insert_with(new).saturating_record(latency_ns.max(1));
    }

    /// Returns the results after `measured_ns` of measurement with `processes` processes.
    pub fn figures(&self, measured_ns: u64, processes: u32, hops: u64) -> Figures {
        let us = |ns: f64| ns / 1_000.0;
        let latency = self.latency_ns.iter().map(|(kind, ns)| {
            let percentiles = Percentiles {
                count: ns.len(),
                mean_us: us(ns.mean()),
                p50_us: us(ns.value_at_quantile(0.5) as f64),
                p99_us: us(ns.value_at_quantile(0.99) as f64),
            };
            (*kind, percentiles)
        });
        let seconds = measured_ns as f64 / 1e9;
        Figures {
            per_s_and_process: self.ended as f64 / seconds / f64::from(processes),
            latency: latency.collect(),
            repeated: self.repeated as f64 / self.ended.max(1) as f64,
            failed: self.failed,
            hops,
            usage: Usage::default(),
        }
    }
}

/// Counters of a cluster at one time.
struct Counters {
    sent: Vec<Sent>,
    link_bytes: Vec<[u64; HopKind::ALL.len()]>,
}

impl Counters {
    fn of(cluster: &impl Measured) -> Self {
        let processes = (0..cluster.setup().processes).map(ProcessId);
        let sent = processes.map(|process| cluster.sent(process)).collect();
        Self { sent, link_bytes: cluster.host_link_bytes() }
    }

    /// Returns what `transactions` have used in `ns` since `earlier`.
    fn usage(&self, earlier: &Self, setup: &Setup, transactions: f64, ns: u64) -> Usage {
        let pairs = self.sent.iter().zip(&earlier.sent);
        let sent: Vec<Sent> = pairs.map(|(now, earlier)| now.since(*earlier)).collect();
        let each = |count: fn(&Sent) -> u64| sent.iter().map(count).sum::<u64>() as f64;
        let sending = |sent: &Sent| sent.cpu.sending_ns as f64 / ns as f64;
        let polling = |sent: &Sent| sent.cpu.polling_ns as f64 / ns as f64;
        let takes_part = |id: &u32| {
            setup.clients.contains(id) || setup.placement.shard_of(ProcessId(*id)).is_some()
        };
        let working = (0..setup.processes).filter(takes_part).count();
        let link = &setup.plan.network.host_link;
        let capacity = link.rate_bits_per_s as f64 / 8e9 * ns as f64;
        let pairs = self.link_bytes.iter().zip(&earlier.link_bytes);
        let bytes = pairs.map(|(now, earlier)| {
            let mut bytes = *now;
            bytes.iter_mut().zip(earlier).for_each(|(now, earlier)| *now -= earlier);
            bytes
        });
        let fullest = bytes.max_by_key(|bytes| bytes.iter().sum::<u64>()).unwrap_or_default();
        Usage {
            requests: each(|sent| sent.requests) / transactions,
            replies: each(|sent| sent.replies) / transactions,
            acks: each(|sent| sent.acks) / transactions,
            others: each(|sent| sent.others) / transactions,
            local: each(|sent| sent.local) / transactions,
            messages_per_frame: each(|sent| sent.requests + sent.replies)
                / each(|sent| sent.frames).max(1.0),
            sending_busiest: sent.iter().map(sending).fold(0.0, f64::max),
            sending_mean: sent.iter().map(sending).sum::<f64>() / working as f64,
            polling_busiest: sent.iter().map(polling).fold(0.0, f64::max),
            polling_mean: sent.iter().map(polling).sum::<f64>() / working as f64,
            link_fullest: fullest.iter().sum::<u64>() as f64 / capacity,
            link_bytes: fullest.map(|bytes| bytes as f64 / transactions),
        }
    }
}

/// Runs a cluster for the warm-up, then for the measurement. Returns the results of the latter.
pub(crate) fn measure<C: Measured>(
    cluster: &mut C,
    (warm_up_ns, measure_ns): (u64, u64),
    rates: impl Fn(&mut C::Load) -> &mut Rates,
) -> Figures {
    cluster.run_ns(warm_up_ns);
    rates(cluster.load_mut()).begin();
    let before = Counters::of(cluster);
    cluster.run_ns(measure_ns);
    let (processes, hops) = (cluster.setup().processes, cluster.hops());
    let rates = rates(cluster.load_mut());
    let (figures, ended) = (rates.figures(measure_ns, processes, hops), rates.ended.max(1) as f64);
    let usage = Counters::of(cluster).usage(&before, cluster.setup(), ended, measure_ns);
    Figures { usage, ..figures }
}
