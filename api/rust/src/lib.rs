//! One big pipe for programs: messages to many processes, in one order for all.

#![forbid(unsafe_code)]

mod builder;
mod departure;
mod embedded;
mod engine;
mod error;
mod event;
mod idle;
mod node;
mod peers;
mod stats;
mod threaded;

pub use builder::Builder;
pub use embedded::EmbeddedPipe;
pub use error::{JoinError, LeaveError, ReceiveError};
pub use event::{Event, Link, Received};
pub use idle::Idle;
pub use onepipe_base::{Incarnation, ProcessId, ScatteringId, Timestamp};
pub use onepipe_endpoint::{
    Config, ConfigError, Links, MESSAGE_CHARGE_OCTETS, Message, Outcome, SendError, SendFailed,
    Stats as EndpointStats,
};
pub use onepipe_transport_driver::{Duty, Progress};
pub use onepipe_transport_shm::{
    AttachError, Config as SharedMemoryConfig, Stats as SharedMemoryStats,
};
pub use onepipe_transport_udp::{Config as UdpConfig, Stats as UdpStats};
pub use stats::{FabricStats, Stats};
pub use threaded::Pipe;
