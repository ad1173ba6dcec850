//! Settings of a server.

use std::time::Duration;

use onepipe_block::Config;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Name of the export; clients may leave it out. Default: empty.
    pub export_name: String,
    /// Description of the export for people. Default: empty.
    pub description: String,
    /// Clients at a time; further ones are disconnected. Default 64.
    pub connections_max: usize,
    /// Limits of a connection.
    pub connection: Config,
    /// Time from the beginning of a connection until its client has chosen the export, after which
    /// it is disconnected. Default 30 s.
    pub handshake_timeout: Duration,
    /// Time that requests in flight have to complete when the server stops. Default 10 s.
    pub stop_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            export_name: String::new(),
            description: String::new(),
            connections_max: 64,
            connection: Config::default(),
            handshake_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(10),
        }
    }
}
