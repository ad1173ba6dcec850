//! Why bytes are not a frame.

/// A refusal of bytes that came from outside. Never the caller's fault, never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer bytes than the part that is being read needs.
    #[error("truncated {part}: {got} bytes where {need} are needed")]
    Truncated {
        /// What was being read.
        part: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        got: usize,
    },
    /// The version byte is not ours: a foreign packet.
    #[error("version {0:#04x} is not {ours:#04x}", ours = crate::VERSION)]
    Version(u8),
    /// The opcode is not known to this version.
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// The hop check over the header failed: corrupted since the last hop.
    #[error("the header's hop check failed")]
    HopCheck,
    /// The end-to-end check over immutable fields and payload failed.
    #[error("the end-to-end check failed")]
    Integrity,
    /// A field of the payload has a value that no sender writes.
    #[error("{field} is {value}, out of range")]
    Field {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}
