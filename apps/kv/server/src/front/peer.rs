//! The client of a connection, as far as its own commands change it.

use std::sync::Arc;

use super::clients::Client;
use super::reply::Protocol;
use super::service::Service;

/// The client of a connection: its protocol, its labels, and whether it has authenticated.
pub(super) struct Peer {
    pub service: Arc<Service>,
    pub client: Arc<Client>,
    pub protocol: Protocol,
    pub is_authenticated: bool,
}

impl Peer {
    pub(super) fn new(service: Arc<Service>, client: Arc<Client>) -> Self {
        let is_authenticated = service.password.is_none();
        Self { service, client, protocol: Protocol::Resp2, is_authenticated }
    }

    pub(super) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.client.labels().protocol_version = protocol.version();
    }

    /// Returns to the state of a new connection.
    pub(super) fn reset(&mut self) {
        self.set_protocol(Protocol::Resp2);
        self.is_authenticated = self.service.password.is_none();
        self.client.labels().name.clear();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.service.clients.remove(self.client.id);
    }
}
