//! The numbers of a TCP.

use onepipe_base::{Port, ProcessId};
use onepipe_wire::HEADER_LEN;

use crate::segment::SEGMENT_LEN_MAX;

/// What a sender slows down for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CongestionControl {
    /// Loss alone: half of the window (Reno, RFC 5681).
    Reno,
    /// Loss, and marks as if they were losses (RFC 3168).
    RenoEcn,
    /// Marks by the share of packets that bear one, loss as Reno (DCTCP, RFC 8257).
    Dctcp,
}

/// The numbers of a host's TCP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TcpConfig {
    /// Under which id the host is reached.
    pub host: ProcessId,
    /// The host's network card.
    pub card: Port,
    /// What its senders slow down for. Default [`CongestionControl::Reno`].
    pub congestion_control: CongestionControl,
    /// Bytes of the stream that a full segment carries. Default 1,448: Ethernet's 1,500 less IPv4
    /// and TCP with timestamps.
    pub segment_len: u32,
    /// Segments that a new flow may send before it hears anything. Default 10 (RFC 6928).
    pub initial_segments: u32,
    /// The receiver's window, in bytes. Default 6 MiB, the default maximum of Linux (`tcp_rmem`).
    pub window_bytes_max: u64,
    /// The shortest retransmission timeout, in ns. Default 1 ms: Linux's 200 ms belong to wide
    /// area networks, and starve a flow for longer than most runs take (Vasudevan and others,
    /// SIGCOMM 2009).
    pub timeout_ns_min: u64,
    /// A packet is lost when one that was sent by so many later has come. Default 3 (RFC 5681:
    /// three duplicate acknowledgements; links keep the order). Linux takes more, up to 300, where
    /// it has met disorder (`tcp_max_reordering`). Below 64.
    pub reorder_threshold: u64,
    /// An acknowledgement waits for the second segment, but no longer than this, in ns. Default
    /// 50 us.
    pub ack_delay_ns: u64,
}

impl TcpConfig {
    /// The defaults.
    pub const fn new(host: ProcessId, card: Port) -> Self {
        Self {
            host,
            card,
            congestion_control: CongestionControl::Reno,
            segment_len: 1_448,
            initial_segments: 10,
            window_bytes_max: 6 << 20,
            timeout_ns_min: 1_000_000,
            reorder_threshold: 3,
            ack_delay_ns: 50_000,
        }
    }

    /// Bytes of the frame of a full segment.
    pub const fn frame_len_max(&self) -> usize {
        crate::segment::frame_len(self.segment_len)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let least = HEADER_LEN + SEGMENT_LEN_MAX;
        let bytes = self.frame_len_max();
        if bytes < least || bytes > usize::from(u16::MAX) {
            return Err(ConfigError::Segment(self.segment_len));
        }
        if self.window_bytes_max < u64::from(self.segment_len) {
            return Err(ConfigError::Window(self.window_bytes_max));
        }
        let zero = |name, is_zero| if is_zero { Err(ConfigError::Zero(name)) } else { Ok(()) };
        if self.reorder_threshold >= 64 {
            return Err(ConfigError::ReorderThreshold(self.reorder_threshold));
        }
        zero("later_packets", self.reorder_threshold == 0)?;
        zero("initial_segments", self.initial_segments == 0)?;
        zero("timeout_ns_min", self.timeout_ns_min == 0)
    }
}

/// Why a configuration does not make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Its frame would be too short for a header, or too long.
    #[error("segment_len = {0}: the frame must hold two headers, and 65,535 bytes at most")]
    Segment(u32),
    /// Nothing could be sent.
    #[error("window_bytes_max = {0} is less than a segment")]
    Window(u64),
    /// Acknowledgements tell of 64 packets.
    #[error("later_packets = {0}: less than 64 are possible")]
    ReorderThreshold(u64),
    /// It must be more.
    #[error("{0} must be more than 0")]
    Zero(&'static str),
}
