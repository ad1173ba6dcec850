//! The retransmission timeout of a connection, without its backoff.

use onepipe_base::ResponseTime;

use crate::Config;

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

    /// Adds a round trip (RFC 6298). If the packet `was_probed`, the acknowledgement may answer
    /// either transmission.
    pub fn on_round_trip(
        &mut self,
        config: &Config,
        ack_delay_ns: u64,
        round_trip_ns: u64,
        was_probed: bool,
    ) {
        if was_probed {
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

#[cfg(test)]
mod tests {
    use super::super::connection::Connection;
    use super::*;
    use onepipe_base::{Incarnation, Mono, ProcessId};
    use onepipe_wire::{AckDelay, Service};

    #[test]
    fn timeout_is_assumed_until_a_round_trip_is_measured() {
        let config = Config::new(ProcessId(1), Incarnation(1));
        let mut connection = Connection::new(ProcessId(2), &config, Service::BestEffort, 1);
        let least_ns = 4 * config.probe_timeout_min_ns;
        assert_eq!(connection.rto_ns(&config), least_ns);
        connection.assume_rto(3 * least_ns);
        assert_eq!(connection.rto_ns(&config), 3 * least_ns);
        connection.assume_rto(1);
        assert_eq!(connection.rto_ns(&config), least_ns);
        connection.assume_rto(3 * least_ns);
        let now = Mono::from_ns(1_000_000_000);
        let measured_ns =
            connection.on_round_trip(&config, now.after_ns(10), now, AckDelay::default());
        assert_eq!((measured_ns, connection.rto_ns(&config)), (measured_ns, measured_ns));
        assert!(measured_ns < least_ns, "{measured_ns}");
    }

    //= spec/ordering.md#R87
    #[test]
    fn round_trip_excludes_the_delay_of_the_acknowledgement() {
        let config =
            Config { probe_timeout_min_ns: 1, ..Config::new(ProcessId(1), Incarnation(1)) };
        let delay = AckDelay(AckDelay::ticks(config.ack_delay_ns));
        let sent = Mono::from_ns(1_000_000_000);
        for service in [Service::BestEffort, Service::Reliable] {
            let mut connection = Connection::new(ProcessId(2), &config, service, 1);
            let acked = sent.after_ns(10_000 + delay.ns());
            (0..50).for_each(|_| _ = connection.on_round_trip(&config, acked, sent, delay));
            // Only acknowledgements of best effort may be delayed.
            let delay_ns = [config.ack_delay_ns, 0][service as usize];
            let rto_ns = connection.rto_ns(&config);
            assert!((10_000..10_200).contains(&(rto_ns - delay_ns)), "{service:?}: {rto_ns}");
        }
    }

    #[test]
    fn round_trips_beyond_the_timeout_lengthen_it() {
        let config = Config::new(ProcessId(1), Incarnation(1));
        let mut connection = Connection::new(ProcessId(2), &config, Service::BestEffort, 1);
        let mut now = Mono::from_ns(1_000_000_000);
        let round_trip_ns = 100 * config.probe_timeout_min_ns;
        for _ in 0..200 {
            let sent = now;
            now = now.after_ns(round_trip_ns);
            // A probe was sent meanwhile if the timeout is shorter.
            connection.attempts = 0;
            connection.attempts = u16::from(connection.rto_ns(&config) < round_trip_ns);
            connection.on_round_trip(&config, now, sent, AckDelay::default());
        }
        connection.attempts = 0;
        let timeout_ns = connection.rto_ns(&config);
        assert!((round_trip_ns..2 * round_trip_ns).contains(&timeout_ns), "{timeout_ns}");
    }
}
