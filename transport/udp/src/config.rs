//! Settings of a socket.

use std::net::SocketAddr;

/// How much batching is left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Offload {
    /// One frame per system call.
    Plain,
    /// Many frames per system call (`sendmmsg`, `recvmmsg`).
    Batch,
    /// As `Batch`, with GSO and GRO: many GSO batches per system call.
    Segment,
}

/// Settings of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Length of the longest frame, in bytes. 256 to 65,000, default 1,472.
    pub frame_len_max: usize,
    /// Local address. Default: any address, any port.
    pub bind: Option<SocketAddr>,
    /// Requested offload; less where the kernel supports less. Default [`Offload::Segment`].
    pub offload: Offload,
    /// Requested size of the socket buffer in each direction, in bytes; the kernel may grant less.
    /// Default 8 MiB.
    pub socket_buffer_bytes: usize,
    /// Capacity for frames that were written and not yet handed to the kernel, in bytes. Default
    /// 256 KiB.
    pub send_queue_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            frame_len_max: 1472,
            bind: None,
            offload: Offload::Segment,
            socket_buffer_bytes: 8 << 20,
            send_queue_bytes: 256 << 10,
        }
    }
}
