//! The wire format: encoding and decoding of every frame.
//!
//! scattering → send → `[wire]` → switch → `[wire]` → receive → reorder → deliver
//!
//! A frame is a header and a payload. A header has addresses, length and checks, 38 bytes, and in
//! ordered scattering three 48-bit timestamps. All numbers are big-endian. The normative
//! description is `docs/wire-format.md`; golden frames are in `testdata/`.
//!
//! ```
//! use onepipe_base::{Incarnation, ProcessId, Promises, Psn, Timestamp};
//! use onepipe_wire::{Frame, Header, Opcode, seal};
//!
//! let now = Timestamp::from_ns(1 << 50);
//! let mut bytes = [0; 128];
//! let header = Header::new(Opcode::Beacon, ProcessId(1), ProcessId(2), Incarnation(7));
//! let length = seal(&mut bytes, header.stamped(now, Promises::both(now), Psn::FIRST), 0);
//! let frame = Frame::parse(&bytes[..length]).expect("sealed above");
//! assert_eq!(frame.header.promises(now), Promises::both(now));
//! ```
//!
//! # Invariants
//! - Decoding is total: no input panics, every refusal is a [`DecodeError`] (tested by fuzzing).
//! - Decoding copies the header only: the payload is borrowed from the bytes of the frame.
//! - Hops may rewrite the barrier fields without affecting the end-to-end check.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ack;
mod ack_bundle;
mod address_ad;
mod amcast;
mod announce;
mod bulk;
mod connect;
mod data;
mod detached;
mod error;
mod fcp;
mod flood;
mod frame;
mod header;
mod integrity;
mod join;
mod large;
mod marked;
mod members;
mod opcode;
mod piece;
mod piggyback;
mod probe;
mod recall;
mod receivers;
mod recovery;
mod run;
mod shared_data;
mod slot;
mod tip;
mod version;
mod watchdog;
mod words;

pub use ack::{ACK_WORDS_MAX, Ack, AckView};
pub use ack_bundle::{AckBundle, BUNDLED_ACKS_MAX, BundledAck};
pub use address_ad::{ADDRESS_AD_LEN, AddressAd};
pub use amcast::{AMCAST_LEN, Amcast, GROUPS_MAX, GroupId, GroupSet, LogicalTime, MessageId};
pub use announce::{ANNOUNCE_HEADER_LEN, Announce, AnnounceView, LINK_LEN, Link, LinkState, Side};
pub use bulk::{
    BULK_FAILURE_LEN, BULK_HEADER_LEN, BULK_PIECE_HEADER_LEN, BULK_WORDS_MAX, BulkAck, BulkAckView,
    BulkFailure, BulkFailures, BulkHave, BulkHaveView, BulkHeader, BulkPiece, BulkPieceHeader,
    BulkRefused, BulkState, BulkStateView, BulkWant, Extent,
};
pub use connect::{CONNECT_LEN, Connect};
pub use data::{
    FRAGMENT_HEADER_LEN, Fragment, FragmentHeader, MESSAGE_HEADER_LEN, Message, Messages,
    write_fragment_header, write_message,
};
pub use detached::{DETACHED_FRONT_LEN, open_detached, seal_detached};
pub use error::DecodeError;
pub use fcp::{
    FCP_HEADER_LEN, Fcp, FcpArrival, FcpEncoding, FcpGrant, FcpGrants, FcpParams, FcpPart,
    FcpReset, FcpTotal, FcpTotals, FcpWriter,
};
pub use flood::{
    FAILURE_LEN, FLOOD_ACK_LEN, FLOOD_HEADER_LEN, Failure, Flood, FloodAck, FloodId, FloodKind,
    FloodView, INSTANCE_LEN, RESOLVED_LEN, Resolved,
};
pub use frame::{Frame, parse_header};
pub use header::{
    CHECKS_AT, Flags, HEADER_LEN, HOPS_MAX, Header, OPCODE_AT, ORDERING_HEADER_LEN,
    SHORT_HEADER_LEN, header_len, header_unchecked, opcode_unchecked,
};
pub use integrity::{
    is_hop_intact, mark_congestion, pass_hop, rewrite_promises, seal, seal_unsummed, seal_with_hops,
};
pub use join::{JOIN_LEN, JoinAnswer, JoinRequest, JoinRole, RefuseReason, Terms};
pub use large::{
    DESCRIPTOR_LEN, ESCAPE_HEADER_LEN, INVITATION_LEN, LargeControl, LargeMembers, LargeObject,
    WITHDRAWN_LEN,
};
pub use marked::{MARKED_HEADER_LEN, MarkedMessage};
pub use members::{MEMBERS_ACK_LEN, MEMBERS_PER_FRAME, MEMBERS_UPDATE_LEN, MemberBits, Members};
pub use opcode::{Opcode, Service};
pub use piece::{
    PIECE_ACK_HEADER_LEN, PIECE_ACK_WORDS_MAX, PIECE_HEADER_LEN, Piece, PieceAck, PieceAckState,
    PieceAckWords, TransferPacket,
};
pub use piggyback::{AckDelay, PIGGYBACK_LEN, PiggybackedAck};
pub use probe::{PROBE_LEN, Probe};
pub use recall::{RECALL_LEN, Recall, UNDELIVERABLE_LEN, Undeliverable};
pub use receivers::Receivers;
pub use recovery::{RECOVERY_HEADER_LEN, Recovery, RecoveryView};
pub use run::{AMCAST_LENGTH_BYTES, AmcastPackets, AmcastRun, AmcastRuns};
pub use shared_data::{
    SHARED_DATA_HEADER_LEN, SHARED_DATA_RECEIVER_LEN, SHARED_DATA_RECEIVERS_MAX, SharedReceiver,
    SharedReceivers,
};
pub use slot::{ANY_LINK, Drops, Loss, NO_PATH, SLOT_HEADER_LEN, Slot, SlotPackets, write_packet};
pub use tip::{DECISION_TIP_LEN, DecisionTip};
pub use version::{VERSION, Versions};
pub use watchdog::{WATCHDOG_LEN, Watchdog};
