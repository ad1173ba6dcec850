//! What all connections of a front share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::clients::Clients;
use super::options::FrontOptions;
use crate::backend::Backend;

/// What all connections of a front share: the backend, the options, the list of clients and the
/// counters.
pub struct Service {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) options: FrontOptions,
    /// Hash of the password. Hashes are compared in a time that does not depend on them.
    pub(super) password: Option<blake3::Hash>,
    pub(super) clients: Clients,
    pub(super) counters: Counters,
    pub(super) since: Instant,
    pub(super) local_address: SocketAddr,
}

/// Counters of a front, for `INFO`.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub connections: Counter,
    pub rejected_connections: Counter,
    pub commands: Counter,
    pub transactions: Counter,
    pub failed_transactions: Counter,
    pub input_bytes: Counter,
    pub output_bytes: Counter,
    pub closed_at_output_max: Counter,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Service {
    /// Makes the service that listens at `local_address`.
    pub fn new(
        backend: Arc<dyn Backend>,
        options: FrontOptions,
        local_address: SocketAddr,
    ) -> Arc<Self> {
        Arc::new(Self {
            backend,
            password: options.password.as_ref().map(|password| blake3::hash(password.as_bytes())),
            options,
            clients: Clients::default(),
            counters: Counters::default(),
            since: Instant::now(),
            local_address,
        })
    }
}
