//! The controller of a fabric as a daemon, and the stores of its decisions.
//!
//! Messages pass scattering → send → switch → receive → reorder → deliver without the controller:
//! only recovery from failures waits for it.
//!
//! [`ControllerDaemon`] drives an [`onepipe_controller::Controller`] behind a switch over UDP, or
//! in shared memory. A second thread, the store worker, owns the store: [`RedbStore`], one file for
//! the replicas of one machine; or, with the feature `etcd`, `EtcdStore`, for replicas on several
//! machines. A third thread answers `GET /status` ([`Report`]) and `GET /metrics`.
//!
//! [`CoordinatorDaemon`] drives an [`onepipe_amcast::Coordinator`], which names the leaders of
//! agreed-multicast groups, with a store worker and a store of the same kinds.
//!
//! # Invariants
//! - The thread of the machine never waits for the store, nor for status requests.
//! - The machine is activated only once the whole log has been read.
//! - A store that does not answer is retried; the status reports since when, and why, and each
//!   change of that is an event. A store whose thread has panicked ends the daemon.
//! - An epoch is given to one replica only; nothing is written in an epoch that is over.

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

pub use config::{Attachment, Config, RunError, StartError};
pub use coordinator::{CoordinatorConfig, CoordinatorDaemon, CoordinatorEvent};
pub use daemon::{ControllerDaemon, ControllerEvent};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdConfig, EtcdError, EtcdStore};
pub use redb_store::{RedbError, RedbStore};
pub use report::{BarrierReport, FailureReport, FrozenReport, MemberReport, Report, StoreReport};
