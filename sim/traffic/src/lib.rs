//! Background traffic for the simulated network.
//!
//! `[traffic]` A [`Stack`] is the TCP of one host, as a machine. It opens any number of
//! [flows](FlowId), each a byte stream to another host, finite or endless. It implements what
//! determines the length of queues: slow start, additive increase and multiplicative decrease, fast
//! retransmit, a retransmission timeout, and three kinds of [`CongestionControl`]. Other parts of
//! TCP are missing: there is no handshake, the receive window is fixed
//! ([`TcpConfig::window_bytes_max`]), and the bytes of the stream are counted, not carried.
//!
//! [`SharedNic`] connects a stack, or another [`Guest`], and a machine to one network card.
//! [`background`] and [`Incast`] define traffic patterns. A [`Forwarder`] is a switch that only
//! forwards, a [`Pinger`] sends and answers pings, [`RawTraffic`] sends frames without a protocol,
//! and a [`RateLimited`] process sends and receives as fast as its [`CpuTimes`] allow.
//!
//! # Invariants
//! - What a receiver counts as delivered is a prefix of the stream, each byte once.
//! - At most the congestion window, or one segment, is in flight.
//! - Segments travel in frames as long as those of TCP over IPv4 with timestamps, and are lost and
//!   marked like all other frames; switches spread them by flow.
//! - Like every machine: no clock, no randomness, no floating point; equal inputs give equal
//!   outputs.

#![forbid(unsafe_code)]

mod config;
mod flow;
mod forwarder;
mod ping;
mod rate_limited;
mod raw;
mod receiver;
mod rtt;
mod segment;
mod sender;
mod shared_nic;
mod stack;
mod window;

pub use config::{ConfigError, CongestionControl, TcpConfig};
pub use flow::{FlowSpec, Incast, background};
pub use forwarder::Forwarder;
pub use ping::{Pinger, Pong};
pub use rate_limited::{CpuTimes, RateLimited, Spent};
pub use raw::RawTraffic;
pub use shared_nic::{Either, Guest, SharedNic};
pub use stack::{Event, FlowId, Stack, Stats};
