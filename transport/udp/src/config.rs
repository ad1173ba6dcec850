//! How a socket is used.

use std::net::SocketAddr;

/// How much work is left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Offload {
    /// A system call a frame.
    Plain,
    /// Many frames a system call (`sendmmsg`, `recvmmsg`).
    Batch,
    /// Many trains of frames a system call: as `Batch`, with GSO and GRO.
    Segment,
}

/// What a socket is and how much it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The longest frame, in bytes. 256 to 65,000, default 1,472.
    pub frame_len_max: usize,
    /// Where to bind. Default: any address, any port.
    pub bind: Option<SocketAddr>,
    /// The most to use; less where the kernel has less. Default [`Offload::Segment`].
    pub offload: Offload,
    /// The socket buffer asked for in each direction, in bytes; the kernel may grant less. Default
    /// 8 MiB.
    pub socket_buffer_bytes: usize,
    /// Room for frames that were written and not yet handed to the kernel, in bytes. Default
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
