//! Transactions on 1Pipe's testbed: a key-value store and TPC-C.

use anyhow::Result;
use onepipe_sim_network::HopKind;
use onepipe_sim_recovery::Calibration;
use onepipe_transaction::{ClientOptions, ReadMode};
use onepipe_verify_transactions::{
    Costs, Figures, KeyMix, OperationMix, Protocol, READ_ONLY, READ_WRITE, Removal, TpccRun,
    ValuesRun, WRITE_ONLY, Zipf,
};
use serde::{Deserialize, Serialize};

use super::threads::Threads;
use crate::values::Values;

/// Most transactions in flight of a client of the store.
const IN_FLIGHT_MAX: u32 = 128;
/// Sizes of TPC-C's tables are divided by this, as each run loads them.
const TPCC_DIVISOR: u32 = 100;
/// Longest times before the second attempt at a transaction with a conflict, in ns, with which
/// locks and OCC are run. With one alone, a rival would look worse than it is at some number of
/// processes.
const BACKOFFS_NS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Number of transactions in flight of each client of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InFlight {
    /// That of the peak rate.
    Peak,
    /// The smallest one with this share of the peak rate, in percent.
    SharePercent(u32),
    /// As many as have this number of operations, at least one.
    Operations(u32),
}

/// A class of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Transactions that only read.
    ReadOnly,
    /// Transactions that only write.
    WriteOnly,
    /// Transactions that read and write.
    ReadWrite,
}

impl Class {
    /// All classes, with their names in [`Values`].
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::ReadOnly, READ_ONLY, "read_only"),
        (Self::WriteOnly, WRITE_ONLY, "write_only"),
        (Self::ReadWrite, READ_WRITE, "read_write"),
    ];
}

/// Parameters of a run of the key-value store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyValue {
    /// The protocol.
    pub protocol: Protocol,
    /// Number of processes; each is a client and stores a part of the keys.
    pub processes: u32,
    /// Whether keys have YCSB's distribution; otherwise all are alike.
    pub is_zipf: bool,
    /// Number of operations of a transaction.
    pub operations: u32,
    /// Which operations write.
    pub mix: OperationMix,
    /// Whether our reads are strictly serializable; otherwise they are snapshots.
    pub is_strict: bool,
    /// Transactions in flight of each client.
    pub in_flight: InFlight,
    /// The threads of a process.
    pub threads: Threads,
    /// Time after which a receiver acknowledges at the latest, in ns.
    pub ack_delay_ns: u64,
    /// The class whose latency is plotted. Runs that differ only in this are one.
    #[serde(skip)]
    pub plotted: Option<Class>,
}

impl KeyValue {
    /// Creates a run of 1Pipe as in figure 14a: 2 operations, half of the transactions only read,
    /// at the peak rate.
    pub fn new(processes: u32, is_zipf: bool) -> Self {
        Self {
            protocol: Protocol::Onepipe,
            processes,
            is_zipf,
            operations: 2,
            mix: OperationMix::Mixed(50),
            is_strict: false,
            in_flight: InFlight::Peak,
            threads: Threads::Two,
            ack_delay_ns: 20_000,
            plotted: None,
        }
    }

    /// Adds `latency_us`, the mean latency of the plotted class, to the values of the run.
    pub(crate) fn plot(&self, values: &mut Values) {
        let plotted = Class::ALL.iter().find(|(class, ..)| Some(*class) == self.plotted);
        let latency = plotted.and_then(|(_, _, name)| values.get(&format!("{name}_us")).copied());
        values.extend(latency.map(|us| ("latency_us".to_owned(), us)));
    }

    /// Runs it. Returns the rate `throughput_mtps` in million transactions per second and process,
    /// `operations_gps` in billions per second in all; of each class of transactions the latency,
    /// such as `read_only_us` (mean) and `read_only_p99_us`; `in_flight`; `peak_mtps`, the highest
    /// rate; and what the transactions used, such as `sending_busiest` and `link_fullest`, with
    /// `link_bound_mtps`, the rate at which the fullest link of a host would be full.
    ///
    /// # Errors
    /// The processes do not fit the testbed.
    pub fn run(&self) -> Result<Values> {
        let read_mode = if self.is_strict { ReadMode::Strict } else { ReadMode::Snapshot };
        // A long transaction takes a time that is proportional to its length.
        let times_us = 200 + 3 * u64::from(self.operations);
        let run = ValuesRun {
            protocol: self.protocol,
            keys: if self.is_zipf { KeyMix::Zipf(Zipf::ycsb()) } else { KeyMix::ALL },
            operations: self.operations as usize,
            mix: self.mix,
            costs: Costs { cpu: self.threads.cpu(), ..Costs::PAPER },
            ack_delay_ns: self.ack_delay_ns,
            terminals: IN_FLIGHT_MAX,
            warm_up_us: times_us,
            measure_us: times_us,
            ..ValuesRun::new(self.processes, read_mode)
        };
        let (in_flight, figures, highest_per_s) = match self.in_flight {
            InFlight::Operations(operations) => {
                let terminals = (operations / self.operations).max(1);
                let figures = ValuesRun { terminals, ..run }.run()?;
                let rate = figures.per_s_and_process;
                (terminals, figures, rate)
            }
            InFlight::Peak => {
                let peak = run.peak(100)?;
                (peak.in_flight, peak.figures, peak.highest_per_s)
            }
            InFlight::SharePercent(percent) => {
                let peak = run.peak(percent)?;
                (peak.in_flight, peak.figures, peak.highest_per_s)
            }
        };
        let mtps = figures.per_s_and_process / 1e6;
        let operations_per_s =
            figures.per_s_and_process * f64::from(self.processes) * f64::from(self.operations);
        let mut values = used(&figures, mtps);
        let mut put = |name: &str, value: f64| values.insert(name.to_owned(), value);
        put("throughput_mtps", mtps);
        put("peak_mtps", highest_per_s / 1e6);
        put("in_flight", in_flight.into());
        put("operations_gps", operations_per_s / 1e9);
        for (_, class, name) in Class::ALL {
            let Some(latency) = figures.latency.get(class) else { continue };
            put(&format!("{name}_us"), latency.mean_us);
            put(&format!("{name}_p99_us"), latency.p99_us);
            put(&format!("{name}_count"), latency.count as f64);
        }
        Ok(values)
    }
}

/// Returns what the transactions of a run used. `mtps` is its rate.
fn used(figures: &Figures, mtps: f64) -> Values {
    let usage = &figures.usage;
    let mut values = Values::new();
    let mut put = |name: &str, value: f64| values.insert(name.to_owned(), value);
    put("requests", usage.requests);
    put("replies", usage.replies);
    put("acks", usage.acks);
    put("others", usage.others);
    put("local", usage.local);
    put("messages_per_frame", usage.messages_per_frame);
    put("repeated", figures.repeated);
    put("failed", figures.failed as f64);
    put("sending_busiest", usage.sending_busiest);
    put("sending_mean", usage.sending_mean);
    put("polling_busiest", usage.polling_busiest);
    put("polling_mean", usage.polling_mean);
    put("link_fullest", usage.link_fullest);
    for kind in HopKind::ALL {
        put(&format!("link_{}_bytes", kind.name()), usage.link_bytes[kind as usize]);
    }
    put("link_bound_mtps", mtps * usage.link_headroom());
    values
}

/// Parameters of a run of TPC-C on 4 warehouses with 3 replicas each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tpcc {
    /// The protocol.
    pub protocol: Protocol,
    /// Number of client processes.
    pub clients: u32,
    /// Transactions in flight of each client.
    pub in_flight: u32,
    /// Shortest time from one of these transactions to its successor, in ns. 0: none.
    pub period_ns: u64,
    /// Time of a client from the end of a transaction to the submission of the next one, in ns.
    #[serde(default)]
    pub client_ns: u64,
    /// Loss rate at receivers, in parts per billion.
    pub loss_ppb: u32,
    /// Minimum probe timeout of the endpoints, in ns.
    pub probe_timeout_ns: u64,
    /// Minimum time after which a client asks for a reply to its transaction, in ns, once it knows
    /// how long replies take; 100 times as long before.
    pub reply_timeout_min_ns: u64,
    /// The threads of a process.
    pub threads: Threads,
    /// Virtual time before the measurement, in us.
    #[serde(default = "tpcc_warm_up_us")]
    pub warm_up_us: u64,
    /// Virtual time of the measurement, in us.
    #[serde(default = "tpcc_measure_us")]
    pub measure_us: u64,
}

const fn tpcc_warm_up_us() -> u64 {
    2_000
}

const fn tpcc_measure_us() -> u64 {
    1_000
}

impl Tpcc {
    /// Creates a run of 1Pipe without loss, with one transaction in flight of each client, and with
    /// the default timers of endpoints and clients.
    pub fn new(clients: u32) -> Self {
        Self {
            protocol: Protocol::Onepipe,
            clients,
            in_flight: 1,
            period_ns: 0,
            client_ns: 0,
            loss_ppb: 0,
            probe_timeout_ns: 200_000,
            reply_timeout_min_ns: ClientOptions::default().timeout_min_ns,
            threads: Threads::Two,
            warm_up_us: tpcc_warm_up_us(),
            measure_us: tpcc_measure_us(),
        }
    }

    /// Runs it. Returns the rate of all clients as `throughput_mtps`, the mean latencies
    /// `new_order_us` and `payment_us`, and what the transactions used, as [`KeyValue::run`].
    ///
    /// Locks and OCC are run with first back-offs of 1, 10, 100 and 1,000 us. The results are those
    /// of the highest rate, with its `backoff_us`.
    ///
    /// # Errors
    /// The processes do not fit the testbed; replicas differ, or a condition of the specification
    /// is violated.
    pub fn run(&self) -> Result<Values> {
        if !matches!(self.protocol, Protocol::TwoPhaseLocking | Protocol::Optimistic) {
            return self.run_once(BACKOFFS_NS[0]);
        }
        let mut best = Values::new();
        for backoff_ns in BACKOFFS_NS {
            let mut values = self.run_once(backoff_ns)?;
            let rate = |values: &Values| values.get("throughput_mtps").copied().unwrap_or(0.0);
            if best.is_empty() || rate(&values) > rate(&best) {
                values.insert("backoff_us".to_owned(), backoff_ns as f64 / 1e3);
                best = values;
            }
        }
        Ok(best)
    }

    fn run_once(&self, backoff_ns: u64) -> Result<Values> {
        let run = TpccRun {
            protocol: self.protocol,
            terminals: self.in_flight,
            period_ns: self.period_ns,
            client_ns: self.client_ns,
            backoff_ns,
            loss_ppb: self.loss_ppb,
            probe_timeout_ns: self.probe_timeout_ns,
            client: ClientOptions {
                is_durable: false,
                timeout_ns: 100 * self.reply_timeout_min_ns,
                timeout_min_ns: self.reply_timeout_min_ns,
                ..ClientOptions::default()
            },
            costs: Costs { cpu: self.threads.cpu(), ..Costs::PAPER },
            warm_up_us: self.warm_up_us,
            measure_us: self.measure_us,
            ..TpccRun::new(self.clients, TPCC_DIVISOR)
        };
        let tpcc = run.run()?;
        anyhow::ensure!(tpcc.violations.is_empty(), "{self:?}: {:?}", tpcc.violations);
        let mtps = tpcc.per_s / 1e6;
        let mut values = used(&tpcc.figures, mtps);
        values.insert("throughput_mtps".to_owned(), mtps);
        for (class, name) in [("new order", "new_order"), ("payment", "payment")] {
            let Some(latency) = tpcc.figures.latency.get(class) else { continue };
            values.insert(format!("{name}_us"), latency.mean_us);
            values.insert(format!("{name}_p50_us"), latency.p50_us);
        }
        Ok(values)
    }
}

/// Parameters of the failure of section 7.3 of 1Pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRemoval {
    /// Whether the controller floods its notices; otherwise it contacts all processes one by one.
    pub is_flooded: bool,
    /// Transactions in flight of each client.
    pub in_flight: u32,
    /// The number of items and customers is divided by this, from 1.
    pub divisor: u32,
    /// Number of trials, each with another replica and at another time.
    pub trials: u32,
}

impl ReplicaRemoval {
    /// Runs the trials. Returns `removed_us`, the time from the cut until all clients have removed
    /// the replica, and `removed_sd_us`, its standard deviation; `removed_first_us`, that of the
    /// first client; `retried_us`, `retried_sd_us` and `retried_max_us`, by which the transactions
    /// in flight to the replica took longer than others; `others_us`, the same of those in flight
    /// to other warehouses; `before_us`, the mean latency before; and `retried`, the number of the
    /// former. After the repair of the link: `caught_up_us` and `caught_up_sd_us`, the time until
    /// the replica serves again, and `image_bytes`, the length of its state.
    ///
    /// # Errors
    /// The testbed is out of range, a transaction has failed, or the replica is not removed or does
    /// not catch up.
    pub fn run(&self) -> Result<Values> {
        let contact_ns = Calibration::paper().contact_ns;
        let (mut removed, mut first, mut before) = (Vec::new(), Vec::new(), Vec::new());
        let (mut retried, mut others) = (Vec::new(), Vec::new());
        let (mut caught_up, mut image_bytes) = (Vec::new(), Vec::new());
        for seed in 1..=self.trials.into() {
            let (is_flooded, terminals, divisor) = (self.is_flooded, self.in_flight, self.divisor);
            let figures = Removal { is_flooded, contact_ns, terminals, divisor, seed }.run()?;
            let violations = &figures.violations;
            anyhow::ensure!(violations.is_empty(), "{self:?}, seed {seed}: {violations:?}");
            removed.push(figures.removed_us);
            first.push(figures.first_us);
            before.push(figures.before_us);
            retried.extend(figures.added_us);
            others.extend(figures.others_added_us);
            caught_up.push(figures.caught_up_us);
            image_bytes.push(figures.image_bytes as f64);
        }
        let values = [
            ("removed_us", mean(&removed)),
            ("removed_sd_us", deviation(&removed)),
            ("removed_first_us", mean(&first)),
            ("retried_us", mean(&retried)),
            ("retried_sd_us", deviation(&retried)),
            ("retried_max_us", retried.iter().copied().fold(0.0, f64::max)),
            ("retried", retried.len() as f64),
            ("others_us", mean(&others)),
            ("before_us", mean(&before)),
            ("caught_up_us", mean(&caught_up)),
            ("caught_up_sd_us", deviation(&caught_up)),
            ("image_bytes", mean(&image_bytes)),
        ];
        Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the standard deviation.
fn deviation(values: &[f64]) -> f64 {
    let mean_value = mean(values);
    let squares: Vec<f64> = values.iter().map(|value| (value - mean_value).powi(2)).collect();
    mean(&squares).sqrt()
}
