//! Configuration of TCP.

use onepipe_base::{Port, ProcessId};
use onepipe_wire::SHORT_HEADER_LEN;

use crate::segment::SEGMENT_LEN_MAX;

/// The congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CongestionControl {
    /// Halves the window on loss (Reno, RFC 5681).
    Reno,
    /// Treats marks like losses (ECN, RFC 3168).
    RenoEcn,
    /// Reduces the window by the fraction of marked packets, and halves it on loss (DCTCP, RFC
    /// 8257).
    Dctcp,
}

/// Configuration of a host's TCP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TcpConfig {
    /// The process id of the host.
    pub host: ProcessId,
    /// The port of the host's network card.
    pub card: Port,
    /// Congestion control. Default Reno.
    pub congestion_control: CongestionControl,
    /// Payload of a full segment, in bytes. Default 1,448: Ethernet's 1,500 less IPv4 and TCP with
    /// timestamps.
    pub segment_len: u32,
    /// Initial window, in segments. Default 10 (RFC 6928).
    pub initial_segments: u32,
    /// Receive window, in bytes. Default 6 MiB, the default maximum of Linux (`tcp_rmem`).
    pub window_bytes_max: u64,
    /// Minimum retransmission timeout, ns. Default 1 ms: Linux's 200 ms suit wide area networks,
    /// and would stall a flow for longer than most runs take (Vasudevan and others, SIGCOMM 2009).
    pub timeout_ns_min: u64,
    /// A packet is lost when one sent this number of packets later was received; below 64. Default
    /// 3 (RFC 5681: three duplicate acknowledgements; links keep the order). Linux raises it up to
    /// 300 when it detects reordering (`tcp_max_reordering`).
    pub reorder_threshold: u64,
    /// Maximum delay of an acknowledgement, which covers two segments, ns. Default 50 us.
    pub ack_delay_ns: u64,
}

impl TcpConfig {
    /// Returns the defaults.
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

    /// Returns the frame length of a full segment.
    pub const fn frame_len_max(&self) -> usize {
        crate::segment::frame_len(self.segment_len)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let least = SHORT_HEADER_LEN + SEGMENT_LEN_MAX;
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
        zero("reorder_threshold", self.reorder_threshold == 0)?;
        zero("initial_segments", self.initial_segments == 0)?;
        zero("timeout_ns_min", self.timeout_ns_min == 0)
    }
}

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The frame would be too short for the headers, or too long.
    #[error("segment_len = {0}: the frame must hold two headers, and 65,535 bytes at most")]
    Segment(u32),
    /// The window is less than a segment.
    #[error("window_bytes_max = {0} is less than a segment")]
    Window(u64),
    /// Acknowledgements cover 64 packets.
    #[error("reorder_threshold = {0}: must be below 64")]
    ReorderThreshold(u64),
    /// The value must be positive.
    #[error("{0} must be more than 0")]
    Zero(&'static str),
}
