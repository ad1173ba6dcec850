//! Configuration of an endpoint: identity, limits, timers.

use onepipe_base::{Address, Controllers, Incarnation, Instance, ProcessId};
use onepipe_wire::{AckDelay, HEADER_LEN, Service};

use crate::timestamp::NO_PROMISE_AGE_NS;
use crate::{MESSAGE_CHARGE_BYTES, Message, SendError};

/// Bytes by which a reliable frame must be shorter than the limit, so that it fits into a relay
/// frame.
pub(crate) const RELAY_OVERHEAD_BYTES: usize = HEADER_LEN;
/// Upper bound of every duration in a configuration.
const DAY_NS: u64 = 86_400_000_000_000;

/// How an endpoint is attached to the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Links {
    /// One link, port 0, to a switch that aggregates promises.
    Uplink,
    /// Port 0 leads to an aggregator, a switch that may be anywhere; port 1 leads to all other
    /// processes over any network, past the aggregator. Promises in frames on port 1 are ignored,
    /// so only the reliable service is exact (docs/design/overlay.md, "Why is it exact?").
    Overlay,
    /// One link per peer, numbered by the peer's process id; the endpoint aggregates promises
    /// itself (docs/design/ordering.md, "Why are there no beacons on shared memory?").
    Mesh,
}

/// How the messages of the two services are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiveMode {
    /// As two streams, each in its own total order: best effort does not wait for commits.
    Separate,
    /// As one stream that is totally ordered across both services: a message waits until both
    /// barriers have passed it.
    Merged,
}

/// Identity, limits and timers of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Id of this process. Below `processes_max`.
    pub process: ProcessId,
    /// Incarnation of this process. Must exceed that of every previous incarnation with the same
    /// id.
    pub incarnation: Incarnation,
    /// Upper bound (exclusive) of process ids. 1 to 2^20, default 64.
    pub processes_max: u32,
    /// How the endpoint is attached to the fabric. Default [`Links::Uplink`].
    pub links: Links,
    /// Longest frame, header included, in bytes. 256 to 65,000, default 1,472 (Ethernet's 1,500
    /// less IPv4 and UDP).
    pub frame_len_max: usize,
    /// Beacon interval of an idle link, in ns: beacons are sent at multiples of it on the
    /// synchronised clock. 0: no beacons, the driver reads [`crate::Endpoint::promises`] instead.
    /// Default 3,000 (1Pipe section 7.1).
    pub beacon_interval_ns: u64,
    /// Interval of heartbeats with beacons on demand, in ns: at rest the uplink carries a beacon in
    /// each of these, and more only while something is undelivered (docs/design/ordering.md, "When
    /// are beacons sent?"). 0: beacons at the fixed interval [`Config::beacon_interval_ns`], as in
    /// 1Pipe; that is also the mode of a link whose other end has it. Default 0.
    pub heartbeat_interval_ns: u64,
    /// A link that was idle for this long is removed from the barrier, in ns. 0: never. Default
    /// 30,000: ten beacon intervals (1Pipe section 4.2). With beacons on demand, one that did not
    /// answer a solicit for this long; at rest, one that was idle for this long and for ten
    /// heartbeats.
    pub link_timeout_ns: u64,
    /// A frame with a promise further than this ahead of the own clock, in ns, is treated as
    /// misbehaviour and dropped; below 2^46. Default two hours, as for switches: each clock may be
    /// an hour off.
    pub ahead_ns_max: u64,
    /// Size of the send buffer of each service, in bytes. It holds messages that are not sent yet
    /// and, in the reliable service, messages that are not acknowledged; each counts 64 bytes more
    /// than its payload. A process that uses both services may use twice as much. Default 32 MiB.
    pub send_buffer_bytes_max: usize,
    /// Size of the receive buffer of each service, in bytes. It holds received messages until the
    /// application releases them. One half is divided into the windows of the senders, the other
    /// half serves reservations for messages larger than a window. Default 64 MiB.
    pub receive_buffer_bytes_max: usize,
    /// Largest window of one sender, in bytes; its share of the receive buffer may be smaller.
    /// Default 1 MiB.
    pub window_bytes_max: u32,
    /// Longest message, in bytes. At most a quarter of the receive buffer and 1 GiB. Default 16
    /// MiB.
    pub message_len_max: u32,
    /// Limit on the bytes of messages that are stamped as one burst and so may share packets.
    /// Default 64 KiB.
    pub burst_bytes_max: usize,
    /// Initial congestion window, in bytes. Default 64 KiB.
    pub congestion_window_bytes: u32,
    /// Minimum congestion window, in bytes; never less than two frames. Two frames suffice on a
    /// link with a round trip of microseconds, but not where the peers wait for a processor.
    /// Default 0: two frames.
    pub congestion_window_min_bytes: u32,
    /// Number of connections that may have the whole initial and minimum congestion window. With
    /// more, all share the windows of this number, so that they do not fill the buffers of a
    /// software switch before the first acknowledgement. 0: they do not share. Default 0.
    pub congestion_full_windows: u32,
    /// Whether a payload for several receivers is sent once, for the switch to replicate
    /// (docs/design/ordering.md, "How often is a payload sent?"). Only with [`Links::Uplink`].
    /// Default true.
    pub shares_payloads: bool,
    /// A receiver acknowledges after this many packets; above 255, only when their delay ends.
    /// Default 16.
    pub ack_packets: u32,
    /// How long receivers may delay the acknowledgements of this process's packets, so that data
    /// frames carry them, in ns; at most 32,000,000. The lowest value of its senders holds for a
    /// receiver. A retransmission timeout is longer by it. Default 250,000.
    pub ack_delay_ns: u64,
    /// A reservation whose owner was idle for this long is reclaimed when others wait for one, in
    /// ns. Default 100,000,000.
    pub reservation_timeout_ns: u64,
    /// Minimum retransmission timeout, after which an unacknowledged packet is probed, in ns.
    /// Default 200,000.
    pub probe_timeout_min_ns: u64,
    /// The outcome of a message is reported as unknown after this many unanswered probes; more than
    /// 65,534 count as 65,534. Default 8.
    pub probes_max: u32,
    /// For how long the outcomes of best-effort messages are asked for after `probes_max` probes
    /// were not answered, in ns: a receiver that was stopped or cut off for a shorter time loses
    /// none. They are unknown at once if the receiver is known to have failed or left. New messages
    /// to it fail meanwhile. 0: not at all. Default 0.
    pub unknown_after_ns: u64,
    /// For how long a reliable scattering waits for a receiver that does not answer, in ns: one
    /// that never has, or, where no controller reports failures, any. The time in which this
    /// process did not run does not count. 0: for ever. Default 10,000,000,000.
    pub give_up_after_ns: u64,
    /// For how long after the failure of a process reliable scatterings to it wait for its next
    /// incarnation, in ns; later on for a tenth of that. 0: for two Connects. Default 0.
    pub rejoin_wait_ns: u64,
    /// A packet is presumed lost when this many later packets are acknowledged. 0: links may
    /// reorder, so loss is never inferred from order (driver rule D4). Default 3.
    pub reorder_packets: u32,
    /// The controllers that resolve failures for the reliable service. With controllers, no
    /// reliable message is sent before one of them has registered this process: see
    /// [`crate::Endpoint::is_registered`]. Default none: then a reliable scattering whose receiver
    /// dies stays open, and holds the commit barrier, for [`Config::give_up_after_ns`].
    pub controllers: Option<Controllers>,
    /// Whether reliable messages wait for the first commit barrier from the switch even without
    /// controllers (docs/design/failure.md, "When does a joiner commit?"). Needed where switches
    /// do not rewrite the promises in messages. Always the case in an overlay. Default false.
    pub awaits_commits: bool,
    /// Longest interval between announcements of an unchanged set of links to the controllers, in
    /// ns. Default 10,000,000.
    pub announce_interval_ns: u64,
    /// How the messages of the two services are delivered. Default [`ReceiveMode::Separate`].
    pub receive_mode: ReceiveMode,
    /// Whether frames bear checksums, and received ones are verified. Default true. All processes
    /// that this one has a link to must agree. False is possible with [`Links::Mesh`] only
    /// (docs/design/ordering.md, "Why are there no checksums in shared memory?").
    pub has_checksums: bool,
}

impl Config {
    /// Returns the defaults for `process` with `incarnation`.
    pub fn new(process: ProcessId, incarnation: Incarnation) -> Self {
        Self {
            process,
            incarnation,
            processes_max: 64,
            links: Links::Uplink,
            frame_len_max: 1472,
            beacon_interval_ns: 3_000,
            heartbeat_interval_ns: 0,
            link_timeout_ns: 30_000,
            ahead_ns_max: 2 * 3_600_000_000_000,
            send_buffer_bytes_max: 32 << 20,
            receive_buffer_bytes_max: 64 << 20,
            window_bytes_max: 1 << 20,
            message_len_max: 16 << 20,
            burst_bytes_max: 64 << 10,
            congestion_window_bytes: 64 << 10,
            congestion_window_min_bytes: 0,
            congestion_full_windows: 0,
            shares_payloads: true,
            ack_packets: 16,
            ack_delay_ns: 250_000,
            reservation_timeout_ns: 100_000_000,
            probe_timeout_min_ns: 200_000,
            probes_max: 8,
            unknown_after_ns: 0,
            give_up_after_ns: 10_000_000_000,
            rejoin_wait_ns: 0,
            reorder_packets: 3,
            controllers: None,
            awaits_commits: false,
            announce_interval_ns: 10_000_000,
            receive_mode: ReceiveMode::Separate,
            has_checksums: true,
        }
    }

    /// Checks a scattering against the limits, as if the send buffer were empty. Returns the bytes
    /// that it needs in the send buffer.
    ///
    /// # Errors
    /// Every [`SendError`] that waiting cannot resolve: all but `BufferFull`, `Left` and
    /// `Excluded`.
    #[inline]
    pub fn check_scattering(&self, messages: &[Message<'_>]) -> Result<usize, SendError> {
        if messages.is_empty() || messages.len() > usize::from(u16::MAX) {
            return Err(SendError::Count(messages.len()));
        }
        let mut need = 0;
        for (index, message) in messages.iter().enumerate() {
            let len = message.payload.len();
            if len > self.message_len_max as usize {
                let max = self.message_len_max;
                return Err(SendError::MessageTooLarge { index, len, max });
            }
            if message.to.0 >= self.processes_max {
                let (process, max) = (message.to.0, self.processes_max);
                return Err(SendError::UnknownProcess { index, process, max });
            }
            need += len + MESSAGE_CHARGE_BYTES as usize;
        }
        let max = self.send_buffer_bytes_max;
        if need > max { Err(SendError::ScatteringTooLarge { need, max }) } else { Ok(need) }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = |holds: bool, field, value: u64| match holds {
            true => Ok(()),
            false => Err(ConfigError::OutOfRange { field, value }),
        };
        let processes = self.processes_max;
        check((1..=1 << 20).contains(&processes), "processes_max", processes.into())?;
        let process = self.process.0;
        check(process < processes, "process", process.into())?;
        let mesh_fits = self.links != Links::Mesh || processes <= u32::from(u16::MAX);
        check(mesh_fits, "processes_max of a mesh", processes.into())?;
        let is_summed = self.has_checksums || self.links == Links::Mesh;
        check(is_summed, "has_checksums of links to other machines", 0)?;
        let frame = self.frame_len_max;
        check((256..=65_000).contains(&frame), "frame_len_max", frame as u64)?;
        let receive = self.receive_buffer_bytes_max;
        check(receive >= 1 << 20, "receive_buffer_bytes_max", receive as u64)?;
        let message = self.message_len_max;
        check(message as usize <= receive / 4, "message_len_max", message.into())?;
        check(message <= 1 << 30, "message_len_max", message.into())?;
        let send = self.send_buffer_bytes_max;
        let least = message as usize + MESSAGE_CHARGE_BYTES as usize;
        check(send >= least, "send_buffer_bytes_max", send as u64)?;
        let window = self.window_bytes_max;
        check(window >= 4096, "window_bytes_max", window.into())?;
        check(self.ack_packets >= 1, "ack_packets", self.ack_packets.into())?;
        check(self.ack_delay_ns <= AckDelay::NS_MAX, "ack_delay_ns", self.ack_delay_ns)?;
        check(self.probes_max >= 1, "probes_max", self.probes_max.into())?;
        let congestion = self.congestion_window_bytes;
        check(congestion >= 4096, "congestion_window_bytes", congestion.into())?;
        check(self.reorder_packets <= 1 << 16, "reorder_packets", self.reorder_packets.into())?;
        for (field, ns) in [
            ("beacon_interval_ns", self.beacon_interval_ns),
            ("heartbeat_interval_ns", self.heartbeat_interval_ns),
            ("link_timeout_ns", self.link_timeout_ns),
            ("reservation_timeout_ns", self.reservation_timeout_ns),
            ("probe_timeout_min_ns", self.probe_timeout_min_ns),
            ("announce_interval_ns", self.announce_interval_ns),
            ("give_up_after_ns", self.give_up_after_ns),
        ] {
            check(ns <= DAY_NS, field, ns)?;
        }
        check(self.ahead_ns_max < NO_PROMISE_AGE_NS, "ahead_ns_max", self.ahead_ns_max)?;
        let heartbeat_ns = self.heartbeat_interval_ns;
        let is_slower = heartbeat_ns == 0 || heartbeat_ns >= self.beacon_interval_ns;
        let has_both = heartbeat_ns == 0 || self.beacon_interval_ns > 0;
        check(is_slower && has_both, "heartbeat_interval_ns", heartbeat_ns)?;
        if let Some(controllers) = self.controllers {
            let (first, count) = (controllers.first.0, controllers.count);
            let is_inside = first.checked_add(count).is_some_and(|end| end <= processes);
            check(count >= 1 && is_inside, "controllers", first.into())?;
            check(!controllers.contains(self.process), "process of a controller", process.into())?;
        }
        check(self.burst_bytes_max >= 4096, "burst_bytes_max", self.burst_bytes_max as u64)
    }

    /// Returns [`Config::probes_max`] as the number of attempts of a connection, which is counted
    /// in 16 bits and must be able to exceed it.
    #[inline]
    pub(crate) fn attempts_max(&self) -> u16 {
        u16::try_from(self.probes_max).unwrap_or(u16::MAX).min(u16::MAX - 1)
    }

    pub(crate) fn instance(&self) -> Instance {
        Instance { address: Address::Process(self.process), incarnation: self.incarnation }
    }

    /// Returns the longest frame of a service, in bytes: a reliable frame must fit into a relay
    /// frame.
    pub(crate) fn frame_len_max_of(&self, service: Service) -> usize {
        match service {
            Service::Reliable if self.controllers.is_some() => {
                self.frame_len_max - RELAY_OVERHEAD_BYTES
            }
            _ => self.frame_len_max,
        }
    }
}

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is outside its range.
    #[error("{field} = {value} is out of range")]
    OutOfRange {
        /// The field of [`Config`].
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection gives up however many probes are permitted.
    #[test]
    fn attempts_can_exceed_their_limit() {
        let config =
            |probes_max| Config { probes_max, ..Config::new(ProcessId(0), Incarnation(1)) };
        assert_eq!([1, 8, 65_534].map(|probes| config(probes).attempts_max()), [1, 8, 65_534]);
        assert_eq!(
            [65_535, 100_000, u32::MAX].map(|probes| config(probes).attempts_max()),
            [u16::MAX - 1; 3]
        );
    }
}
