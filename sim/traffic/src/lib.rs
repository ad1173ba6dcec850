//! Flows that share a simulated network with whatever is measured there.
//!
//! `[traffic]` A [`Stack`] is the TCP of one host, as a machine: as many [flows](FlowId) as it is
//! told to open, each a stream of bytes to another host, as long as it was told or without an
//! end. It has what decides how long queues become: slow start, additive increase and
//! multiplicative decrease, fast retransmit, a retransmission timeout, and three ways to
//! [`CongestionControl`]: to loss, to loss and marks, or as DCTCP does. Nothing else of TCP is there: no
//! handshake, no receive window but [`TcpConfig::window_bytes_max`], and the stream's bytes are
//! counted, not carried.
//!
//! [`SharedNic`] puts a stack, or another [`Guest`], and a machine behind one network card.
//! [`background`] and [`Incast`] say who sends what to whom. A [`Forwarder`] is a switch that
//! forwards and nothing else; a [`Pinger`] asks and answers, and [`RawTraffic`] sends frames that nobody
//! answers.
//!
//! # Invariants
//! - What a receiver counts as delivered is a prefix of the stream, each byte once.
//! - No more than the congestion window is in flight, but for one segment.
//! - Segments travel in frames as long as those of TCP over IPv4 with timestamps, and are lost and
//!   marked by the same links and queues as all other frames; switches spread them by flow.
//! - As of every machine: no clock, no chance, no float; equal inputs, equal outputs.

#![forbid(unsafe_code)]

mod config;
mod flow;
mod forwarder;
mod ping;
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
pub use raw::RawTraffic;
pub use shared_nic::{Either, Guest, SharedNic};
pub use stack::{Event, FlowId, Stack, Stats};
