//! The clients that are connected, for `CLIENT LIST` and the limit of their number.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A client that is connected.
#[derive(Debug)]
pub(super) struct Client {
    pub id: u64,
    address: SocketAddr,
    local_address: SocketAddr,
    since: Instant,
    labels: Mutex<Labels>,
}

/// What a client says of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    pub name: Vec<u8>,
    pub library_name: Vec<u8>,
    pub library_version: Vec<u8>,
    pub protocol_version: i64,
    pub last_command: &'static str,
}

impl Client {
    /// Returns the labels, to be read or changed.
    pub(super) fn labels(&self) -> MutexGuard<'_, Labels> {
        self.labels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the line of the client in `CLIENT LIST`.
    pub(super) fn line(&self) -> String {
        let labels = self.labels().clone();
        format!(
            "id={} addr={} laddr={} name={} age={} db=0 cmd={} user=default lib-name={} lib-ver={} \
             resp={}\n",
            self.id,
            self.address,
            self.local_address,
            String::from_utf8_lossy(&labels.name),
            self.since.elapsed().as_secs(),
            labels.last_command,
            String::from_utf8_lossy(&labels.library_name),
            String::from_utf8_lossy(&labels.library_version),
            labels.protocol_version,
        )
    }
}

/// The clients that are connected, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Clients {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    clients: BTreeMap<u64, Arc<Client>>,
}

impl Clients {
    /// Adds a client, unless there are `max`.
    pub(super) fn add(
        &self,
        address: SocketAddr,
        local_address: SocketAddr,
        max: usize,
    ) -> Option<Arc<Client>> {
        let mut state = self.lock();
        if state.clients.len() >= max {
            return None;
        }
        state.last_id += 1;
        let labels = Labels { protocol_version: 2, last_command: "NULL", ..Labels::default() };
        let client = Arc::new(Client {
            id: state.last_id,
            address,
            local_address,
            since: Instant::now(),
            labels: Mutex::new(labels),
        });
        state.clients.insert(client.id, client.clone());
        Some(client)
    }

    pub(super) fn remove(&self, id: u64) {
        self.lock().clients.remove(&id);
    }

    pub(super) fn count(&self) -> usize {
        self.lock().clients.len()
    }

    /// Returns the clients with these numbers, or all.
    pub(super) fn list(&self, ids: Option<&[u64]>) -> Vec<Arc<Client>> {
        let state = self.lock();
        let is_listed = |id: &u64| ids.is_none_or(|ids| ids.contains(id));
        state.clients.values().filter(|client| is_listed(&client.id)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
