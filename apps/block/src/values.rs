//! Numbers of the NBD protocol (its specification, section "Values").

/// First word of a server (section "Newstyle negotiation").
pub const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of a server, and first word of each option (section "Newstyle negotiation").
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of a reply to an option (section "Fixed newstyle negotiation").
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of a request (section "Request message").
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply (section "Simple reply message").
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a chunk (section "Structured reply chunk message").
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Flags of the handshake (sections "Handshake flags" and "Client flags").
pub mod handshake_flag {
    /// The server, or the client, uses the fixed newstyle handshake.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The reply to `EXPORT_NAME` ends without 124 zeroes.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Flags of an export (section "Transmission flags").
pub mod export_flag {
    /// The field is valid; always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The command flag `FUA` is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `TRIM` is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` and its flag `NO_HOLE` are understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The command flag `DF` is understood.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the writes of all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `CACHE` is understood.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The command flag `FAST_ZERO` is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of a client (section "Option types").
pub mod option {
    /// Chooses an export without a way to report an error.
    pub const EXPORT_NAME: u32 = 1;
    /// Ends the session.
    pub const ABORT: u32 = 2;
    /// Lists the exports.
    pub const LIST: u32 = 3;
    /// Describes an export.
    pub const INFO: u32 = 6;
    /// Describes an export and begins the transmission.
    pub const GO: u32 = 7;
    /// Requests structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Lists the metadata contexts of an export.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Selects the metadata contexts of the transmission.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options (section "Option reply types").
pub mod option_reply {
    /// The option is accepted, or its replies are complete.
    pub const ACK: u32 = 1;
    /// The name of an export.
    pub const SERVER: u32 = 2;
    /// A property of an export.
    pub const INFO: u32 = 3;
    /// The name of a metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// The option has wrong data.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// The export is unknown.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// The option is too long.
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Types of properties of an export (section "Option reply types", `NBD_REP_INFO`).
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// A description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Constraints of sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Types of requests (section "Request types").
pub mod request {
    /// Reads the bytes of a range.
    pub const READ: u16 = 0;
    /// Writes the payload.
    pub const WRITE: u16 = 1;
    /// Ends the session.
    pub const DISC: u16 = 2;
    /// Makes all completed writes durable.
    pub const FLUSH: u16 = 3;
    /// Discards data.
    pub const TRIM: u16 = 4;
    /// Announces a later read.
    pub const CACHE: u16 = 5;
    /// Writes zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Queries which blocks are allocated.
    pub const BLOCK_STATUS: u16 = 7;
    /// Resizes the device (an experimental extension).
    pub const RESIZE: u16 = 8;
}

/// Flags of requests (section "Command flags").
pub mod request_flag {
    /// The reply comes after the written data is durable.
    pub const FUA: u16 = 1 << 0;
    /// `WRITE_ZEROES` leaves the blocks allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The reply to `READ` has one chunk of data.
    pub const DF: u16 = 1 << 2;
    /// The reply to `BLOCK_STATUS` has one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// `WRITE_ZEROES` fails unless it is faster than a write.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Flags and types of chunks (sections "Structured reply flags" and "Structured reply types").
pub mod chunk {
    /// Flag of the last chunk of a reply.
    pub const DONE: u16 = 1 << 0;
    /// Nothing; ends a reply.
    pub const NONE: u16 = 0;
    /// Data from an offset on.
    pub const OFFSET_DATA: u16 = 1;
    /// Extents from the request's offset on.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error with a message.
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// The metadata context that says which blocks are allocated (section "`base:allocation` metadata
/// context").
pub mod allocation {
    /// Name of the context.
    pub const NAME: &str = "base:allocation";
    /// The query that lists all contexts of the namespace.
    pub const WILDCARD: &str = "base:";
    /// Number of the context within a session.
    pub const ID: u32 = 1;
    /// State of an extent without storage.
    pub const HOLE: u32 = 1 << 0;
    /// State of an extent that reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// The least maximum of a payload that clients rely on (section "Size constraints").
pub const PAYLOAD_MAX: u32 = 32 << 20;
/// The maximum length of names and messages (section "Conventions").
pub const STRING_MAX: usize = 4_096;
