//! How long replicas take to answer, and when a reply counts as lost.

use onepipe_base::{Mono, ResponseTime};

use crate::client::{ClientOptions, DOUBLINGS_MAX};
use crate::kind::Kind;
use crate::open_transaction::OpenTransaction;

/// The response times of writes and of reads: the former wait for all replicas and their disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseTimes {
    writes: ResponseTime,
    reads: ResponseTime,
}

impl ResponseTimes {
    /// Returns how long a reply to the current attempt is awaited, in ns, before replicas are asked
    /// or the read is repeated.
    pub fn timeout_ns(&self, open: &OpenTransaction, options: &ClientOptions) -> u64 {
        let measured_ns = match open.kind {
            Kind::Write => self.writes.timeout_ns(),
            Kind::Read(_) => self.reads.timeout_ns(),
        };
        let timeout_ns = match measured_ns {
            0 => options.timeout_ns,
            measured_ns => measured_ns.max(options.timeout_min_ns),
        };
        timeout_ns << repetitions(open).min(DOUBLINGS_MAX)
    }

    /// Notes that all shards have answered the current attempt.
    pub fn on_response(&mut self, now: Mono, open: &OpenTransaction, options: &ClientOptions) {
        let Some(sent_at) = open.sent_at else { return };
        let sample_ns = now.since_ns(sent_at);
        match open.kind {
            // A reply to a read names its attempt, so the sample is that of the last one.
            Kind::Read(_) => self.reads.on_sample(sample_ns),
            Kind::Write if repetitions(open) == 0 => self.writes.on_sample(sample_ns),
            Kind::Write => {
                let timeout_ns = self.timeout_ns(open, options);
                self.writes.on_repeated_sample(sample_ns, timeout_ns);
            }
        }
    }
}

/// Returns how often a transaction was repeated, or replicas were asked for its outcome.
fn repetitions(open: &OpenTransaction) -> u32 {
    open.failures.saturating_add(open.asked)
}
