//! Every number that an experiment or an operator might change.

use onepipe_base::{Address, Controllers, Incarnation, Instance, ProcessId};
use onepipe_wire::Service;

use crate::control::RELAY_OVERHEAD_BYTES;
use crate::{MESSAGE_CHARGE_BYTES, Message, SendError};

/// No time of a configuration is longer.
const DAY_NS: u64 = 86_400_000_000_000;

/// How an endpoint hangs on the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Links {
    /// One link, port 0, to a switch that aggregates for everybody.
    Uplink,
    /// Port 0 leads to an aggregator, which is a switch that may sit anywhere; port 1 to all other
    /// processes at once, past it, over any network. What frames on port 1 promise counts nowhere,
    /// so only the reliable service is exact (ordering.md section 6, "overlay").
    Overlay,
    /// A link of its own from every process, port = the peer's process id; the endpoint aggregates
    /// by itself (shared memory: ordering.md section 6).
    Mesh,
}

/// How the messages of the two services are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiveMode {
    /// As two streams, each in its own total order: best effort does not wait for commits.
    Separate,
    /// As one stream that is totally ordered across both: a message waits until both barriers have
    /// passed it (design: ordering.md section 1).
    Merged,
}

/// What an endpoint is and how much it may use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Who it is. Below `processes_max`.
    pub process: ProcessId,
    /// Which life of this process. Higher than that of any former life under the same id.
    pub incarnation: Incarnation,
    /// Process ids of the fabric lie below this. 1 to 2^20, default 64.
    pub processes_max: u32,
    /// How it hangs on the fabric. Default [`Links::Uplink`].
    pub links: Links,
    /// The longest frame, header included, in bytes. 256 to 65,000, default 1,472 (Ethernet's
    /// 1,500 less IPv4 and UDP).
    pub frame_len_max: usize,
    /// An idle link carries a beacon at every multiple of this of the synchronised clock, in ns.
    /// 0: none, the world reads [`crate::Endpoint::promises`] instead. Default 3,000 (1Pipe
    /// section 7.1).
    pub beacon_interval_ns: u64,
    /// A link on which nothing was heard for this long is taken out of the barrier, in ns. 0:
    /// never. Default 30,000: ten beacon intervals (1Pipe section 4.2).
    pub link_timeout_ns: u64,
    /// Submitted and not yet sent, in bytes, with 64 for each message; the reliable service keeps
    /// what is not acknowledged, too. Each of the two services has a buffer of this size of its
    /// own, so a process that uses both may hold twice as much. Default 32 MiB.
    pub send_buffer_bytes_max: usize,
    /// Received and not yet consumed by the application, in bytes. Half of it is shared out as
    /// windows of the senders, half is room for messages larger than a window. Each of the two
    /// services has a buffer of this size of its own. Default 64 MiB.
    pub receive_buffer_bytes_max: usize,
    /// The most that one sender may have outstanding, in bytes; the share of the receive buffer
    /// may be smaller. Default 1 MiB.
    pub window_bytes_max: u32,
    /// The longest message, in bytes. At most a quarter of the receive buffer, and 1 GiB. Default
    /// 16 MiB.
    pub message_len_max: u32,
    /// How many bytes of messages are stamped together at most, and so may share packets. Default
    /// 64 KiB.
    pub burst_bytes_max: usize,
    /// The congestion window to start with, in bytes. Default 64 KiB.
    pub congestion_window_bytes: u32,
    /// The congestion window never falls below this, in bytes, nor below two frames. What is right
    /// depends on the round trip: two frames fill a link of microseconds, not one whose ends wait
    /// for a processor. Default 0: two frames.
    pub congestion_window_min_bytes: u32,
    /// A receiver acknowledges after this many packets, or … Default 16.
    pub ack_packets: u32,
    /// … after this many ns, whichever is first. Default 20,000.
    pub ack_delay_ns: u64,
    /// Room that was granted for a large message is taken back when others need it and its owner
    /// was not heard of for this long, in ns. Default 100,000,000.
    pub reservation_timeout_ns: u64,
    /// The least time before an unacknowledged packet is asked after, in ns. Default 200,000.
    pub probe_timeout_min_ns: u64,
    /// After this many probes without an answer the outcome is reported as unknown. Default 8.
    pub probes_max: u32,
    /// A packet is taken for lost when this many later ones are acknowledged. 0: links may reorder,
    /// never infer loss from order (driver rule D4). Default 3.
    pub reorder_packets: u32,
    /// Who resolves failures for the reliable service. With them, nothing reliable leaves before
    /// one of them has welcomed this process: see [`crate::Endpoint::is_registered`]. Default none:
    /// then a reliable scattering whose receiver dies stays open for ever, and so does the commit
    /// barrier.
    pub controllers: Option<Controllers>,
    /// Whether reliable messages wait until the switch has told a commit, without controllers, too
    /// (failure.md, "When does a newcomer commit?"): needed where the switches on the way leave
    /// messages as they are, and so do not say in them what others were told. In an overlay it is
    /// so anyway. Default false.
    pub awaits_commits: bool,
    /// How often the links are announced to the controllers when nothing has changed, in ns.
    /// Default 10,000,000.
    pub announce_interval_ns: u64,
    /// How the messages of the two services are handed out. Default [`ReceiveMode::Separate`].
    pub receive_mode: ReceiveMode,
}

impl Config {
    /// The defaults for `process` in its life `incarnation`.
    pub fn new(process: ProcessId, incarnation: Incarnation) -> Self {
        Self {
            process,
            incarnation,
            processes_max: 64,
            links: Links::Uplink,
            frame_len_max: 1472,
            beacon_interval_ns: 3_000,
            link_timeout_ns: 30_000,
            send_buffer_bytes_max: 32 << 20,
            receive_buffer_bytes_max: 64 << 20,
            window_bytes_max: 1 << 20,
            message_len_max: 16 << 20,
            burst_bytes_max: 64 << 10,
            congestion_window_bytes: 64 << 10,
            congestion_window_min_bytes: 0,
            ack_packets: 16,
            ack_delay_ns: 20_000,
            reservation_timeout_ns: 100_000_000,
            probe_timeout_min_ns: 200_000,
            probes_max: 8,
            reorder_packets: 3,
            controllers: None,
            awaits_commits: false,
            announce_interval_ns: 10_000_000,
            receive_mode: ReceiveMode::Separate,
        }
    }

    /// What an endpoint with an empty send buffer would say of a scattering. Answers the bytes of
    /// send buffer that it takes.
    ///
    /// # Errors
    /// Whatever no waiting mends: [`SendError`] but for a full buffer and one who has left.
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
        check(self.probes_max >= 1, "probes_max", self.probes_max.into())?;
        let congestion = self.congestion_window_bytes;
        check(congestion >= 4096, "congestion_window_bytes", congestion.into())?;
        check(self.reorder_packets <= 1 << 16, "reorder_packets", self.reorder_packets.into())?;
        for (field, ns) in [
            ("beacon_interval_ns", self.beacon_interval_ns),
            ("link_timeout_ns", self.link_timeout_ns),
            ("ack_delay_ns", self.ack_delay_ns),
            ("reservation_timeout_ns", self.reservation_timeout_ns),
            ("probe_timeout_min_ns", self.probe_timeout_min_ns),
            ("announce_interval_ns", self.announce_interval_ns),
        ] {
            check(ns <= DAY_NS, field, ns)?;
        }
        if let Some(controllers) = self.controllers {
            let (first, count) = (controllers.first.0, controllers.count);
            let is_inside = first.checked_add(count).is_some_and(|end| end <= processes);
            check(count >= 1 && is_inside, "controllers", first.into())?;
            check(!controllers.contains(self.process), "process of a controller", process.into())?;
        }
        check(self.burst_bytes_max >= 4096, "burst_bytes_max", self.burst_bytes_max as u64)
    }

    /// This life of this process.
    pub(crate) fn instance(&self) -> Instance {
        Instance { address: Address::Process(self.process), incarnation: self.incarnation }
    }

    /// The longest frame of a service, in bytes: a reliable one must fit into a relay frame.
    pub(crate) fn frame_len_max_of(&self, service: Service) -> usize {
        match service {
            Service::Reliable if self.controllers.is_some() => {
                self.frame_len_max - RELAY_OVERHEAD_BYTES
            }
            _ => self.frame_len_max,
        }
    }
}

/// A configuration that no endpoint can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number outside its range.
    #[error("{field} = {value} is out of range")]
    OutOfRange {
        /// Which field of [`Config`].
        field: &'static str,
        /// What it was set to.
        value: u64,
    },
}
