//! Round trips and timeouts of a connection: when its packets are overdue.

use onepipe_base::Mono;
use onepipe_wire::AckDelay;

use super::ack_summary::AckSummary;
use super::connection::{Connection, State};
use super::retransmit_timeout::BACKOFF_MAX;
use crate::Config;

//= spec/failure.md#R74
/// Number of successive timeouts of the reliable service that do not double the next one: a lost
/// packet holds the commit barrier of all processes. With a tenth of all frames lost, 19 % of all
/// transmissions fail (the packet or its acknowledgement), and three in succession for 0.7 % of the
/// packets.
const UNDOUBLED_TIMEOUTS: u16 = 2;

impl Connection {
    /// Takes an RTT sample from the packets that an acknowledgement with this `delay` resolves, if
    /// there are any. Returns the retransmission timeout in ns, without its doublings.
    #[inline]
    pub fn on_round_trips(
        &mut self,
        config: &Config,
        now: Mono,
        summary: &AckSummary,
        delay: AckDelay,
    ) -> Option<u64> {
        // One sample for each timeout: after a pause all packets in flight are retransmitted.
        let repeated = summary.newest_repeated.filter(|_| self.attempts > 0);
        let first_sent = summary.newest_sent.or(repeated)?;
        let round_trip_ns = now.since_ns(first_sent).saturating_sub(delay.ns());
        let ack_delay_ns = self.ack_delay_ns(config);
        self.timeout.on_round_trip(config, ack_delay_ns, round_trip_ns, self.attempts > 0);
        Some(self.timeout.initial_ns(config, ack_delay_ns))
    }

    //= spec/failure.md#R74
    /// Ends the present series of timeouts, because the peer has acknowledged something.
    ///
    /// Its doublings remain until a packet that was sent once is acknowledged without a timeout. If
    /// the timeout is too short, every packet is retransmitted; if the acknowledgement of such a
    /// packet, or of a duplicate, ended the doublings, the timeout would never recover.
    #[inline]
    pub fn end_timeouts(&mut self, summary: &AckSummary) {
        if summary.newest_sent.is_some() {
            self.backoff = if self.attempts == 0 { 0 } else { self.backoff };
        } else if self.reliable.is_some()
            && (summary.newest_repeated.is_some() || !self.flight.is_empty())
        {
            self.backoff = self.backoff.max(self.attempts.min(BACKOFF_MAX) as u8);
        }
        self.attempts = 0;
    }

    /// Forgets all timeouts: the connection is closed, or a handshake begins or has ended.
    pub fn reset_timeouts(&mut self) {
        (self.attempts, self.backoff) = (0, 0);
    }

    /// Sets the retransmission timeout to assume before the first sample: that of the other
    /// connections, which use the same uplink (RFC 9040).
    pub fn assume_rto(&mut self, rto_ns: u64) {
        self.timeout.assume(rto_ns);
    }

    /// Returns how long an unreachable peer is left alone, in ns.
    pub fn retry_interval_ns(&self, config: &Config) -> u64 {
        self.rto_ns(config) << BACKOFF_MAX
    }

    /// Returns the age in ns from which on an unacknowledged packet is overdue: the retransmission
    /// timeout without the doublings of the present series of timeouts.
    pub fn overdue_after_ns(&self, config: &Config) -> u64 {
        self.timeout.initial_ns(config, self.ack_delay_ns(config)) << self.backoff
    }

    /// Returns the retransmission timeout in ns, with exponential backoff.
    pub fn rto_ns(&self, config: &Config) -> u64 {
        let is_undoubled = self.reliable.is_some() && self.state == State::Open;
        let undoubled = if is_undoubled { UNDOUBLED_TIMEOUTS } else { 0 };
        let doublings = self.attempts.saturating_sub(undoubled).min(BACKOFF_MAX);
        let doublings = doublings + u16::from(self.backoff);
        let initial_ns = self.timeout.initial_ns(config, self.ack_delay_ns(config));
        initial_ns << doublings.min(BACKOFF_MAX)
    }

    /// Returns for how long acknowledgements may be delayed, in ns. Reliable packets are
    /// acknowledged at once.
    fn ack_delay_ns(&self, config: &Config) -> u64 {
        if self.reliable.is_some() { 0 } else { config.ack_delay_ns }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use onepipe_base::{Incarnation, Mono, ProcessId};
    use onepipe_wire::{AckDelay, Service};

    /// Acknowledges a packet that was sent once, at `sent`. Returns the timeout.
    fn acknowledge(connection: &mut Connection, config: &Config, now: Mono, sent: Mono) -> u64 {
        let summary = AckSummary { newest_sent: Some(sent), ..AckSummary::default() };
        let rto_ns = connection.on_round_trips(config, now, &summary, AckDelay::default());
        rto_ns.expect("there is a sample")
    }

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
        let measured_ns = acknowledge(&mut connection, &config, now.after_ns(10), now);
        assert_eq!(connection.rto_ns(&config), measured_ns);
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
            let summary = AckSummary { newest_sent: Some(sent), ..AckSummary::default() };
            (0..50).for_each(|_| _ = connection.on_round_trips(&config, acked, &summary, delay));
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
            acknowledge(&mut connection, &config, now, sent);
        }
        connection.attempts = 0;
        let timeout_ns = connection.rto_ns(&config);
        assert!((round_trip_ns..2 * round_trip_ns).contains(&timeout_ns), "{timeout_ns}");
    }

    //= spec/failure.md#R74
    /// A process whose inbox took longer than the timeout had every packet to it retransmitted. All
    /// acknowledgements then were of retransmitted packets, and each ended the doublings, so its
    /// peers went on until it did nothing but receive duplicates: in the simulator, 128 processes
    /// under full load that lose one frame in a hundred delivered 0.02 % of their messages.
    #[test]
    fn only_a_packet_that_was_sent_once_ends_the_doublings() {
        let config =
            Config { probe_timeout_min_ns: 1, ..Config::new(ProcessId(1), Incarnation(1)) };
        let mut connection = Connection::new(ProcessId(2), &config, Service::Reliable, 1);
        let start = Mono::from_ns(1_000_000_000);
        acknowledge(&mut connection, &config, start.after_ns(10_000), start);
        assert_eq!(connection.rto_ns(&config), connection.overdue_after_ns(&config));
        // A handshake doubles each timeout; packets in flight, from the third on.
        for (state, expected) in
            [(State::Opening, [1, 2, 4, 8, 8, 8, 8, 8]), (State::Open, [1, 1, 1, 2, 4, 8, 8, 8])]
        {
            connection.state = state;
            let timeouts = (0..8).map(|attempts| {
                connection.attempts = attempts;
                connection.rto_ns(&config) / connection.overdue_after_ns(&config)
            });
            assert_eq!(timeouts.collect::<Vec<_>>(), expected);
        }
        connection.attempts = 0;
        let initial_ns = connection.rto_ns(&config);

        let now = start.after_ns(100 * initial_ns);
        let repeated = AckSummary { newest_repeated: Some(start), ..AckSummary::default() };
        for (attempts, doublings) in [(1, 1), (0, 1), (2, 2), (7, 3), (0, 3)] {
            connection.attempts = attempts;
            let sample = connection.on_round_trips(&config, now, &repeated, AckDelay::default());
            assert_eq!(sample.is_some(), attempts > 0, "one sample for each series of timeouts");
            connection.end_timeouts(&repeated);
            assert_eq!((connection.attempts, connection.backoff), (0, doublings));
        }
        connection.attempts = 1;
        (0..3).for_each(|_| {
            connection.on_round_trips(&config, now, &repeated, AckDelay::default());
        });
        assert!(connection.timeout.initial_ns(&config, 0) > initial_ns);
        connection.attempts = 0;
        let once = AckSummary { newest_sent: Some(start), ..AckSummary::default() };
        connection.attempts = 1;
        connection.end_timeouts(&once);
        assert_eq!(connection.backoff, 3, "there was a timeout meanwhile");
        connection.end_timeouts(&AckSummary::default());
        assert_eq!(connection.backoff, 3, "nothing was acknowledged");
        connection.end_timeouts(&once);
        assert_eq!(connection.backoff, 0);
    }
}
