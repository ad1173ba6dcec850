//! The controller of a fabric as a daemon, and the stores that its decisions lie in.
//!
//! scattering → send → switch → receive → reorder → deliver goes on without it; `[controller]`
//! stands beside that way, and only recovery from failures waits for it.
//!
//! [`ControllerDaemon`] drives an [`onepipe_controller::Controller`] behind a switch over UDP, or
//! in shared memory. A thread beside it, the *clerk*, owns the store: [`RedbStore`], one file for
//! the replicas of one machine; or, with the feature `etcd`, `EtcdStore`, for replicas on several.
//! Another one answers `GET /status` ([`Report`]) and `GET /metrics`.
//!
//! [`CoordinatorDaemon`] drives an [`onepipe_amcast::Coordinator`], which says who leads groups of
//! agreed multicast, with a clerk and a store of the same kinds.
//!
//! # Invariants
//! - The thread of the machine never waits for the store, nor for who asks for the status.
//! - The machine is told that it is active only once the whole log has been read.
//! - A store that does not answer is waited for; the status says since when, and why.
//! - An epoch is given to one replica once; nothing is written in an epoch that is over.

#![forbid(unsafe_code)]

mod config;
mod coordinator;
mod counters;
mod daemon;
#[cfg(feature = "etcd")]
mod etcd;
mod metrics;
mod node;
mod redb_store;
mod report;
mod store_state;
mod store_worker;

pub use config::{Attachment, Config, StartError};
pub use coordinator::{CoordinatorConfig, CoordinatorDaemon, CoordinatorEvent};
pub use daemon::ControllerDaemon;
#[cfg(feature = "etcd")]
pub use etcd::{EtcdConfig, EtcdError, EtcdStore};
pub use redb_store::{RedbError, RedbStore};
pub use report::{BarrierReport, FailureReport, FrozenReport, MemberReport, Report, StoreReport};

use store_state::StoreState;
