//! The status report of an arbiter, for people and programs.

use std::fmt;

use onepipe_arbiter::{ControlPlane, Fault};
use onepipe_transport_status::{Metrics, Status};
use serde::{Deserialize, Serialize};

/// State and counters of an arbiter. All times are in nanoseconds unless named otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Process id.
    pub process: u32,
    /// Incarnation of the arbiter; a restart has a higher one.
    pub incarnation: u32,
    /// The switch that the arbiter is attached to.
    pub attachment: String,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// Number of threads: one, or one for communication and the others for allocation.
    pub threads: usize,
    /// Whether this arbiter grants timeslots.
    pub is_primary: bool,
    /// The highest epoch claimed or received.
    pub epoch: u32,
    /// Times that this arbiter became the primary.
    pub takeovers: u64,
    /// Length of a timeslot.
    pub slot_ns: u64,
    /// Time between the due time of a batch and its first timeslot.
    pub lead_ns: u64,
    /// Delay of the last batch after its due time.
    pub lag_ns: u64,
    /// Maximum of that delay.
    pub lag_max_ns: u64,
    /// Number of endpoints.
    pub endpoints: u32,
    /// Endpoints that were in step since their last reset.
    pub endpoints_known: u32,
    /// Endpoints given up after the idle timeout with pending timeslots or acknowledgements.
    pub endpoints_timed_out: u64,
    /// Batches allocated.
    pub batches: u64,
    /// Batches that were allocated after they had begun.
    pub batches_late: u64,
    /// Timeslots requested.
    pub slots_demanded: u64,
    /// Timeslots granted.
    pub slots_granted: u64,
    /// Granted timeslots that were advertised in time.
    pub slots_advertised: u64,
    /// Granted timeslots without a path.
    pub slots_without_path: u64,
    /// Timeslots skipped because the daemon was late.
    pub slots_skipped: u64,
    /// Times that new flows were held back because of an overload.
    pub batches_held_back: u64,
    /// Requested timeslots above the maximum of a pair.
    pub slots_capped: u64,
    /// Requested timeslots rejected because the maximum number of pairs or demands was waiting.
    pub slots_refused: u64,
    /// Timeslots requested and not granted.
    pub slots_waiting: u64,
    /// Pairs that wait for timeslots.
    pub pairs_waiting: u32,
    /// Control packets accepted.
    pub packets_received: u64,
    /// Control packets sent.
    pub packets_sent: u64,
    /// Control packets sent that carry only an acknowledgement.
    pub acks_sent: u64,
    /// Control packets of endpoints that do not exist, as their number is not below `endpoints`.
    pub packets_unknown: u64,
    /// Control packets of endpoints that are configured with another timeslot length or number of
    /// endpoints.
    pub packets_mismatched: u64,
    /// Control packets that were out of step, outdated or invalid.
    pub packets_bad: u64,
    /// Control packets with a wrong check.
    pub checks_failed: u64,
    /// Resets sent, and resets of endpoints accepted.
    pub resets: u64,
    /// Frames that are invalid, not for this arbiter, or for a primary while it was a secondary.
    pub frames_dropped: u64,
    /// Those of them that claim for another process than an arbiter, or numbers that cannot be.
    pub claims_refused: u64,
    /// Times that the arbiter was off its core.
    #[serde(default)]
    pub pauses: u64,
    /// Longest of them.
    #[serde(default)]
    pub pause_max_ns: u64,
    /// Lost packets reported by endpoints.
    pub packets_lost: u64,
    /// Times that a link or path was found to lose packets, and avoided.
    pub faults_found: u64,
    /// Times that an avoided link or path was used again, to test whether it still loses packets.
    pub faults_retried: u64,
    /// Links and paths avoided now.
    pub avoided: Vec<Avoided>,
}

/// A link or path that is avoided because it loses packets: see [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Avoided {
    /// The link between a rack and a path.
    Link {
        /// The rack.
        rack: u32,
        /// The path.
        path: u32,
    },
    /// A path as a whole.
    Path {
        /// The path.
        path: u32,
    },
    /// The upper link of a spine.
    SpineLink {
        /// The spine, counted pod by pod.
        spine: u32,
        /// The upper link.
        link: u32,
    },
}

impl From<Fault> for Avoided {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Link { rack, path } => Self::Link { rack, path },
            Fault::Path(path) => Self::Path { path },
            Fault::SpineLink { spine, link } => Self::SpineLink { spine, link },
        }
    }
}

impl fmt::Display for Avoided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Link { rack, path } => Fault::Link { rack, path },
            Self::Path { path } => Fault::Path(path),
            Self::SpineLink { spine, link } => Fault::SpineLink { spine, link },
        }
        .fmt(f)
    }
}

impl Report {
    pub(crate) fn new(arbiter: &ControlPlane) -> Self {
        let (config, stats, comm) = (arbiter.config(), arbiter.stats(), arbiter.comm_stats());
        let (slots_waiting, pairs_waiting) = arbiter.waiting();
        Self {
            process: config.comm.process.0,
            incarnation: config.comm.incarnation.0,
            attachment: String::new(),
            uptime_s: 0.0,
            threads: 1,
            is_primary: arbiter.is_primary(),
            epoch: arbiter.epoch(),
            takeovers: stats.takeovers,
            slot_ns: config.slot_ns,
            lead_ns: config.lead_ns,
            lag_ns: stats.lag_ns,
            lag_max_ns: stats.lag_max_ns,
            endpoints: config.comm.nodes,
            endpoints_known: arbiter.comm().known(),
            endpoints_timed_out: comm.timed_out,
            batches: stats.batches,
            batches_late: stats.late,
            slots_demanded: comm.demanded,
            slots_granted: stats.granted,
            slots_advertised: comm.advertised,
            slots_without_path: stats.without_path,
            slots_skipped: stats.skipped,
            batches_held_back: stats.held_back,
            slots_capped: comm.capped,
            slots_refused: comm.refused,
            slots_waiting,
            pairs_waiting,
            packets_received: comm.received,
            packets_sent: comm.sent,
            acks_sent: comm.sent_acks,
            packets_unknown: comm.unknown_sources,
            packets_mismatched: comm.params_mismatch,
            packets_bad: comm.bad + comm.stale + comm.malformed + comm.unknown_destinations,
            checks_failed: comm.bad,
            resets: comm.resets + comm.resets_accepted,
            frames_dropped: stats.dropped,
            claims_refused: stats.claims_refused,
            pauses: 0,
            pause_max_ns: 0,
            packets_lost: stats.lost,
            faults_found: stats.faults,
            faults_retried: stats.retries,
            avoided: arbiter.avoided().map(Avoided::from).collect(),
        }
    }
}

impl Status for Report {
    const PREFIX: &'static str = "onepipe_arbiter";

    fn write(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let gauges = [
            (
                "primary",
                "1 if this arbiter is the primary and grants timeslots",
                u64::from(self.is_primary),
            ),
            ("epoch", "Highest epoch claimed or received", self.epoch.into()),
            ("lag_ns", "Delay of the last batch after its due time", self.lag_ns),
            ("lag_max_ns", "Maximum of lag_ns since the start", self.lag_max_ns),
            ("pause_max_ns", "Longest time off the core since the start", self.pause_max_ns),
            ("endpoints_known", "Endpoints that are in step", self.endpoints_known.into()),
            ("slots_waiting", "Timeslots requested and not granted", self.slots_waiting),
            ("pairs_waiting", "Pairs that wait for timeslots", self.pairs_waiting.into()),
            ("avoided", "Links and paths that are avoided", self.avoided.len() as u64),
        ];
        for (name, help, value) in gauges {
            metrics.gauge(name, help, value as i64)?;
        }
        for (name, value) in [
            ("takeovers", self.takeovers),
            ("endpoints_timed_out", self.endpoints_timed_out),
            ("batches", self.batches),
            ("batches_late", self.batches_late),
            ("slots_demanded", self.slots_demanded),
            ("slots_granted", self.slots_granted),
            ("slots_advertised", self.slots_advertised),
            ("slots_without_path", self.slots_without_path),
            ("slots_skipped", self.slots_skipped),
            ("batches_held_back", self.batches_held_back),
            ("slots_capped", self.slots_capped),
            ("slots_refused", self.slots_refused),
            ("packets_received", self.packets_received),
            ("packets_sent", self.packets_sent),
            ("acks_sent", self.acks_sent),
            ("packets_unknown", self.packets_unknown),
            ("packets_mismatched", self.packets_mismatched),
            ("packets_bad", self.packets_bad),
            ("checks_failed", self.checks_failed),
            ("resets", self.resets),
            ("frames_dropped", self.frames_dropped),
            ("claims_refused", self.claims_refused),
            ("pauses", self.pauses),
            ("packets_lost", self.packets_lost),
            ("faults_found", self.faults_found),
            ("faults_retried", self.faults_retried),
        ] {
            metrics.counter(name, value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use onepipe_transport_status::encode_metrics;

    use super::*;

    #[test]
    fn metrics_contain_state_and_counters() {
        let report =
            Report { is_primary: true, lag_ns: 7_000, slots_advertised: 5, ..Report::default() };
        let text = encode_metrics(report).expect("text has room");
        for line in [
            "onepipe_arbiter_primary 1",
            "onepipe_arbiter_lag_ns 7000",
            "onepipe_arbiter_slots_advertised_total 5",
            "onepipe_arbiter_resets_total 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
