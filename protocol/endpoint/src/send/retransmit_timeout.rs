//! The retransmission timeout that follows from measured round trips.

use onepipe_base::ResponseTime;

use crate::Config;

/// Maximum number of doublings of the retransmission timeout: a peer that was slow, not dead, is
/// found again within eight times the usual timeout.
pub(super) const BACKOFF_MAX: u16 = 3;

/// What is known of a connection's round trips.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct RetransmitTimeout {
    rtt: ResponseTime,
    /// The timeout of other connections, for the time before the first sample.
    assumed_ns: u64,
}

impl RetransmitTimeout {
    #[inline]
    pub fn prefetch(&self) -> u64 {
        self.rtt.mean_ns()
    }

    /// Adds the time from the first transmission of a packet to its acknowledgement (RFC 6298). If
    /// it `is_ambiguous`, because the packet was retransmitted or a probe was sent, it raises a
    /// lower bound of the timeout and nothing else.
    pub fn on_round_trip(
        &mut self,
        config: &Config,
        ack_delay_ns: u64,
        round_trip_ns: u64,
        is_ambiguous: bool,
    ) {
        if is_ambiguous {
            let timeout_ns = self.initial_ns(config, ack_delay_ns);
            self.rtt.on_repeated_sample(round_trip_ns, timeout_ns);
        } else {
            self.rtt.on_sample(round_trip_ns);
        }
    }

    /// Sets the timeout to assume before the first sample.
    pub fn assume(&mut self, ns: u64) {
        self.assumed_ns = ns;
    }

    //= spec/ordering.md#R87
    /// Returns the timeout in ns of packets whose acknowledgements may be delayed by
    /// `ack_delay_ns`.
    pub fn initial_ns(&self, config: &Config, ack_delay_ns: u64) -> u64 {
        let estimate_ns = match self.rtt.mean_ns() {
            0 => self.assumed_ns.max(4 * config.probe_timeout_min_ns),
            _ => self.rtt.timeout_ns() + ack_delay_ns,
        };
        estimate_ns.max(config.probe_timeout_min_ns)
    }
}
