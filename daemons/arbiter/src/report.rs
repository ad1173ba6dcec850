//! What an arbiter has done, for people and programs.

use std::fmt;

use onepipe_arbiter::{ControlPlane, Fault};
use onepipe_transport_status::{Metrics, Status};
use serde::{Deserialize, Serialize};

/// Counters and state of an arbiter. All times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Its process id.
    pub process: u32,
    /// Its incarnation.
    pub incarnation: u32,
    /// The switch that it sits behind.
    pub attachment: String,
    /// How long it has been running, in seconds.
    pub uptime_s: f64,
    /// Threads that work: one, or one for communication and the others for timeslots.
    pub threads: usize,
    /// Whether it gives out timeslots.
    pub is_primary: bool,
    /// The highest epoch that it knows of.
    pub epoch: u32,
    /// Times that it has become the primary.
    pub takeovers: u64,
    /// Length of a timeslot.
    pub slot_ns: u64,
    /// How long before it begins a batch is to be given out.
    pub lead_ns: u64,
    /// How long after that the last batch was given out.
    pub lag_ns: u64,
    /// The most that this ever was.
    pub lag_max_ns: u64,
    /// Endpoints that it serves.
    pub endpoints: u32,
    /// Of these, the ones that have said something since it last began anew with them.
    pub endpoints_known: u32,
    /// Endpoints that fell silent while they were owed timeslots, or owed an acknowledgement.
    pub endpoints_timed_out: u64,
    /// Batches given out.
    pub batches: u64,
    /// Of these, the ones that had begun already.
    pub batches_late: u64,
    /// Timeslots that endpoints have asked for.
    pub slots_demanded: u64,
    /// Timeslots given to pairs.
    pub slots_granted: u64,
    /// Of these, the ones that endpoints were told of in time.
    pub slots_advertised: u64,
    /// Timeslots given for which no path was left.
    pub slots_unplaced: u64,
    /// Timeslots that passed unused because the daemon was late.
    pub slots_skipped: u64,
    /// Times that it held back a part of what was wanted because batches were late.
    pub batches_held_back: u64,
    /// Timeslots asked for above what a pair may be owed.
    pub slots_capped: u64,
    /// Timeslots asked for and not taken, because as many pairs or demands wait as may.
    pub slots_refused: u64,
    /// Timeslots that are wanted and not yet given.
    pub slots_waiting: u64,
    /// Pairs that wait for timeslots.
    pub pairs_waiting: u32,
    /// Control packets taken.
    pub packets_received: u64,
    /// Control packets sent.
    pub packets_sent: u64,
    /// Of these, acknowledgements alone.
    pub acks_sent: u64,
    /// Control packets of endpoints that it does not serve: their number is not below `endpoints`.
    pub packets_unknown: u64,
    /// Control packets of endpoints that are set up with another length of a timeslot, or another
    /// number of endpoints.
    pub packets_mismatched: u64,
    /// Control packets that were out of step, stale or nonsense.
    pub packets_bad: u64,
    /// Of these, the ones whose check was wrong.
    pub checks_failed: u64,
    /// Resets begun here, and those of endpoints that were taken over.
    pub resets: u64,
    /// Frames that were none, or not for this arbiter, or came while it was not the primary.
    pub frames_dropped: u64,
    /// Packets that endpoints have reported as lost.
    pub packets_lost: u64,
    /// Times that a link was found to lose packets, and avoided.
    pub faults_found: u64,
    /// Times that one was used again, to see whether it still does.
    pub faults_retried: u64,
    /// What is avoided now.
    pub avoided: Vec<Avoided>,
}

/// What is given to nobody, because it loses packets: see [`Fault`].
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
        /// Which one.
        path: u32,
    },
    /// The upper link of a spine.
    SpineLink {
        /// The spine, counted pod by pod.
        spine: u32,
        /// Which of its upper links.
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
            slots_unplaced: stats.unplaced,
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
            packets_mismatched: comm.terms_mismatch,
            packets_bad: comm.bad + comm.stale + comm.malformed + comm.unknown_destinations,
            checks_failed: comm.bad,
            resets: comm.resets + comm.resets_accepted,
            frames_dropped: stats.dropped,
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
            ("primary", "Whether it gives out timeslots", u64::from(self.is_primary)),
            ("epoch", "The highest epoch that it knows of", self.epoch.into()),
            ("lag_ns", "How long after its time the last batch was given out", self.lag_ns),
            ("lag_max_ns", "The most that this ever was", self.lag_max_ns),
            ("endpoints_known", "Endpoints that are in step", self.endpoints_known.into()),
            ("slots_waiting", "Timeslots wanted and not given", self.slots_waiting),
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
            ("slots_unplaced", self.slots_unplaced),
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
