//! UDP as a link, many frames per system call.
//!
//! scattering → send → `[udp]` → switch → `[udp]` → receive → reorder → deliver
//!
//! [`UdpLink`] is a process's one link to its switch, a [`onepipe_transport_driver::Transport`];
//! [`UdpOverlay`] its link to an aggregator and its direct routes to all other processes;
//! [`UdpMesh`] its links to processes whose addresses are known, without promises.
//! [`BatchSocket`] lies under these and under the software switch: one socket, fixed memory, frames
//! gathered into *GSO batches* of equal length that the kernel segments on sending (GSO) and
//! coalesces on receiving (GRO), many batches per system call. Where a kernel lacks these,
//! [`Offload`] falls back by itself. IPv4 and IPv6.
//!
//! # Invariants
//! - Frames for one destination leave in the order in which they were sent.
//! - A frame is never copied between the machine and the kernel; padding is gathered, not written.
//! - No allocation after start: what does not fit is refused (a link) or dropped (a switch), and
//!   counted.
//!
//! UDP may reorder frames; over one path on one machine or one switch it hardly ever does. A frame
//! that is overtaken may lose its messages, which come too late; it never breaks their order.

mod batch_socket;
mod config;
mod error_queue;
mod event_fd;
mod gso;
mod handshake;
mod link;
mod mesh;
mod overlay;
mod peer_table;
mod receive;
mod send;
mod socket;
mod stats;
mod uplink;

pub use batch_socket::{BatchSocket, FrameRange};
pub use config::{Config, Offload};
pub use handshake::{Handshake, JoinFailure, Refusal, explain};
pub use link::UdpLink;
pub use mesh::UdpMesh;
pub use onepipe_join::{Given, JoinerConfig, Mismatch, Roster, TermsChange};
pub use overlay::{LocalProcess, UdpOverlay};
pub use stats::{OverlayStats, Stats};
pub use uplink::send_members;

#[cfg(test)]
mod tests;
