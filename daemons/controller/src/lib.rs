//! The controller of a fabric as a daemon, and the stores that its decisions lie in.

#![forbid(unsafe_code)]

#[cfg(feature = "etcd")]
mod etcd;
mod redb_store;

#[cfg(feature = "etcd")]
pub use etcd::{EtcdConfig, EtcdError, EtcdStore};
pub use redb_store::{RedbError, RedbStore};
