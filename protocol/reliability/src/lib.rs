//! What the reliable links of all services share.
//!
//! A link retransmits what was lost and limits what is in flight, whatever it carries: messages of
//! an endpoint, frames of bulk objects, proposals of a multicast. [`RttEstimator`] limits what
//! [`onepipe_base::ResponseTime`] estimates, and [`RetransmitTimer`] backs off.
//!
//! # Invariants
//! - No clock and no randomness: equal inputs give equal states.
//! - The highest PSN of a received bitmap was received.
//! - A packet is missing, received or rejected, and leaves the last two states only with the base.
//! - A congestion window is never above its maximum, and grows by what was acknowledged only.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod bit_set;
mod bounded_queue;
mod congestion;
mod index_queue;
mod packet_tracker;
mod received_bitmap;
mod rtt;
mod seq_deque;

pub use bit_set::BitSet;
pub use bounded_queue::BoundedQueue;
pub use congestion::{CongestionWindow, MarkedFraction, Observation};
pub use index_queue::IndexQueue;
pub use packet_tracker::{PacketTracker, PsnState, WINDOW_PACKETS};
pub use received_bitmap::ReceivedBitmap;
pub use rtt::{RetransmitTimer, RttEstimator};
pub use seq_deque::SeqDeque;
