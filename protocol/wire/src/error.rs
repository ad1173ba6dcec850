//! Decoding errors.

/// Why received bytes were refused. Decoding never panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end before the part that is being read.
    #[error("truncated {part}: {got} of {need} bytes")]
    Truncated {
        /// The part being read.
        part: &'static str,
        /// Bytes that the part needs.
        need: usize,
        /// Bytes that are present.
        got: usize,
    },
    /// Unknown version byte: the packet is of another protocol, or of another version of this one.
    #[error("unknown version {0:#04x}, expected {ours:#04x}", ours = crate::VERSION)]
    Version(u8),
    /// The opcode is not known to this version.
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// The hop tag is made with a key of this epoch, and this node has none.
    #[error("hop tag with a key of epoch {0}, and this node has no key")]
    Key(u8),
    /// The hop tag over the header is wrong: corrupted since the last hop.
    #[error("hop tag of the header is wrong")]
    HopTag,
    /// The end-to-end check over immutable fields and payload failed.
    #[error("end-to-end check failed")]
    Integrity,
    /// A field has a value that no sender writes.
    #[error("{field} out of range: {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}
