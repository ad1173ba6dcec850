//! Why a session ends.

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum End {
    /// The client has said that it disconnects.
    #[error("the client has disconnected")]
    Disconnected,
    /// The client has closed its connection.
    #[error("the client has closed the connection")]
    InputEnded,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Shutdown,
    /// The client speaks another protocol, or its stream is out of step.
    #[error("the client has sent a wrong magic number")]
    WrongMagic,
    /// The client has set flags that the server does not know.
    #[error("the client has set unknown flags")]
    UnknownClientFlags,
    /// The client has chosen another export by an option that has no reply for errors.
    #[error("the client has chosen an unknown export")]
    UnknownExport,
    /// The client negotiates without an end.
    #[error("the client has sent too many options")]
    TooManyOptions,
}
