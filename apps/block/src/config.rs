//! Limits of a connection.

/// Limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Requests that are executed at a time; more wait in the client's socket. Default 128.
    pub requests_max: usize,
    /// Bytes of requests and replies in memory from which on no further request is read. One more
    /// request, of at most the maximum payload, may already have been accepted. Default 64 MiB.
    pub bytes_max: usize,
    /// Options that a client may send before it chooses an export. Default 64.
    pub options_max: u32,
    /// Longest data of an option in bytes; a longer one is refused. Default 16 KiB, four of the
    /// longest names.
    pub option_bytes_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            requests_max: 128,
            bytes_max: 64 << 20,
            options_max: 64,
            option_bytes_max: 16 << 10,
        }
    }
}
