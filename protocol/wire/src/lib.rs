//! The octets of every onepipe frame, and what they mean.
//!
//! scattering → send → `[wire]` → switch → `[wire]` → receive → reorder → deliver
//!
//! A frame is the 24-octet ordering header of 1Pipe (three 48-bit timestamps, PSN, opcode, flags),
//! a 28-octet envelope (addresses, length, checks) and a payload. All numbers are big-endian. The
//! octet-by-octet description is `docs/wire-format.md`; golden frames are in `testdata/`.
//!
//! ```
//! use onepipe_base::{Incarnation, ProcessId, Promises, Psn, Timestamp};
//! use onepipe_wire::{Frame, Header, Opcode, seal};
//!
//! let now = Timestamp::from_ns(1 << 50);
//! let mut octets = [0; 128];
//! let header = Header::new(Opcode::Beacon, ProcessId(1), ProcessId(2), Incarnation(7));
//! let length = seal(&mut octets, header.stamped(now, Promises::both(now), Psn::FIRST), 0);
//! let frame = Frame::parse(&octets[..length]).expect("sealed above");
//! assert_eq!(frame.header.promises(now), Promises::both(now));
//! ```
//!
//! # Invariants
//! - Decoding is total: no input panics, every refusal is a [`DecodeError`] (tested by fuzzing).
//! - No copies: a parsed frame borrows from the octets it was parsed from.
//! - Barrier fields may be rewritten by every hop without touching the end-to-end check.

#![no_std]
#![forbid(unsafe_code)]

mod ack;
mod amcast;
mod announce;
mod apart;
mod bulk;
mod connect;
mod data;
mod error;
mod fcp;
mod header;
mod here;
mod integrity;
mod large;
mod opcode;
mod piece;
mod probe;
mod recall;
mod recovery;
mod run;
mod slot;
mod watchdog;
mod wave;

pub use ack::{ACK_WORDS_MAX, Ack, AckView};
pub use amcast::{AMCAST_OCTETS, Amcast, GROUPS_MAX, GroupId, GroupSet, LogicalTime, MessageId};
pub use announce::{
    ANNOUNCE_HEADER_OCTETS, Announce, AnnounceView, LINK_OCTETS, Link, LinkState, Side,
};
pub use apart::{APART_OCTETS, open_apart, seal_apart};
pub use bulk::{
    BULK_FAILURE_OCTETS, BULK_FRONT_OCTETS, BULK_PIECE_HEADER_OCTETS, BULK_WORDS_MAX, BulkAck,
    BulkAckView, BulkFailure, BulkFailures, BulkFront, BulkHave, BulkHaveView, BulkPiece,
    BulkPieceHeader, BulkRefused, BulkState, BulkStateView, BulkWant, Extent,
};
pub use connect::{CONNECT_OCTETS, Connect};
pub use data::{
    FRAGMENT_HEADER_OCTETS, Fragment, FragmentHeader, MESSAGE_HEADER_OCTETS, Message, Messages,
    write_fragment_header, write_message,
};
pub use error::DecodeError;
pub use fcp::{
    FCP_HEADER_OCTETS, Fcp, FcpEarly, FcpForm, FcpGrant, FcpGrants, FcpPart, FcpReset, FcpTerms,
    FcpTotal, FcpTotals, FcpWriter,
};
pub use header::{
    Flags, Frame, HEADER_OCTETS, HOPS_MAX, Header, ORDERING_HEADER_OCTETS, VERSION, glance, peek,
};
pub use here::{HERE_OCTETS, Here};
pub use integrity::{
    is_hop_intact, mark_congestion, rewrite_promises, seal, seal_with_hops, take_hop,
};
pub use large::{
    DESCRIPTOR_OCTETS, INVITATION_OCTETS, LargeMembers, LargeNote, LargeObject, QUOTE_OCTETS,
    WITHDRAWN_OCTETS,
};
pub use opcode::{Opcode, Service};
pub use piece::{
    PIECE_HEADER_OCTETS, PIECES_HEADER_OCTETS, PIECES_WORDS_MAX, Piece, Pieces, PiecesState,
    PiecesWords, TransferPacket,
};
pub use probe::{PROBE_OCTETS, Probe};
pub use recall::{RECALL_OCTETS, Recall, UNDELIVERABLE_OCTETS, Undeliverable};
pub use recovery::{RECOVERY_HEADER_OCTETS, Recovery, RecoveryView};
pub use run::{AMCAST_LENGTH_OCTETS, AmcastPackets, AmcastRun, AmcastRuns};
pub use slot::{
    Drops, Loss, NO_PATH, OWN_WAY, SLOT_HEADER_OCTETS, Slot, SlotPackets, write_packet,
};
pub use watchdog::{WATCHDOG_OCTETS, Watchdog};
pub use wave::{
    ECHO_OCTETS, Echo, FAILURE_OCTETS, Failure, LIFE_OCTETS, RESOLVED_OCTETS, Resolved,
    WAVE_HEADER_OCTETS, Wave, WaveId, WaveKind, WaveView,
};
