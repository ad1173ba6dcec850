//! Joining: what a joiner asks of the node above it, and the answers.

use onepipe_base::{Controllers, ProcessId};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{DecodeError, Versions};

/// Length of the payload of a join request, and of every answer to one: an answer is never longer
/// than its question.
pub const JOIN_LEN: usize = 56;

/// What a joiner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum JoinRole {
    /// A process, an arbiter or an endpoint of scheduled transfer: sends as itself only.
    Process = 1,
    /// A switch or an aggregator: forwards what the processes below it send.
    Switch = 2,
    /// A controller: sends as itself only, and sends what only controllers may.
    Controller = 3,
}

/// The payload of a Join with which a joiner asks for admission. A Join without payload is
/// consumed by the machine of a node that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JoinRequest {
    /// What the joiner is.
    pub role: JoinRole,
    /// The cookie of the challenge that this request answers; 0: none was received yet.
    pub cookie: u64,
    /// Whether the joiner takes [`crate::Members`] frames, and acknowledges them.
    pub wants_members: bool,
    /// The versions of the wire format that the joiner knows.
    pub versions: Versions,
}

/// What all nodes of a fabric must agree on, as the node above states it to a joiner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Process ids lie below this.
    pub processes_max: u32,
    /// The process ids of the controllers, if the fabric has any.
    pub controllers: Option<Controllers>,
    /// The link timeout in ns; 0: never.
    pub link_timeout_ns: u64,
    /// The longest frame that the node above carries, in bytes.
    pub frame_len_max: u32,
    /// Number of the key in use; 0: frames are not authenticated.
    pub key_epoch: u32,
    /// The version of the wire format in which all nodes of the fabric send.
    pub version: u8,
}

/// Why a joiner is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RefuseReason {
    /// The joiner does not know [`Terms::version`] of the wire format.
    Version = 1,
    /// The process id is not below [`Terms::processes_max`].
    OutOfRange = 2,
    /// A live controller has the id.
    Taken = 3,
    /// No port is free.
    Full = 4,
    /// The id is reserved for a controller.
    IsController = 5,
    /// A controller's id is not among [`Terms::controllers`].
    NotController = 6,
    /// The incarnation is further ahead of the clock than clocks differ.
    Incarnation = 7,
}

/// The payload of a JoinAnswer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JoinAnswer {
    /// A frame was received from an address that is not admitted, or under another identity than
    /// was admitted: the sender must send a [`JoinRequest`]. No payload, so that the answer is not
    /// longer than any frame.
    NotAdmitted,
    /// The joiner must repeat its request with this cookie, from the same address.
    Challenge {
        /// Proves that the joiner receives at its address. Never 0.
        cookie: u64,
        /// What it must agree to.
        terms: Terms,
    },
    /// The joiner is admitted.
    Accepted(Terms),
    /// The joiner is not admitted.
    Refused {
        /// Reason of the refusal.
        reason: RefuseReason,
        /// What holds in this fabric.
        terms: Terms,
    },
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RequestLayout {
    cookie: U64,
    role: u8,
    wants_members: u8,
    version_min: u8,
    version_max: u8,
    reserved: [u8; 44],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AnswerLayout {
    cookie: U64,
    kind: u8,
    reason: u8,
    version: u8,
    reserved: [u8; 5],
    processes_max: U32,
    first_controller: U32,
    controllers: U32,
    frame_len_max: U32,
    link_timeout_ns: U64,
    key_epoch: U32,
    reserved_end: [u8; 12],
}

const _: () = assert!(size_of::<RequestLayout>() == JOIN_LEN);
const _: () = assert!(size_of::<AnswerLayout>() == JOIN_LEN);

const CHALLENGE: u8 = 1;
const ACCEPTED: u8 = 2;
const REFUSED: u8 = 3;

impl JoinRequest {
    /// Writes the payload. Returns its length, or `None` if `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let layout = RequestLayout {
            cookie: U64::new(self.cookie),
            role: self.role as u8,
            wants_members: self.wants_members.into(),
            version_min: self.versions.min,
            version_max: self.versions.max,
            reserved: [0; 44],
        };
        buf.get_mut(..JOIN_LEN)?.copy_from_slice(layout.as_bytes());
        Some(JOIN_LEN)
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::Join`] that has one.
    ///
    /// # Errors
    /// If the payload is too short, the role unknown, `wants_members` neither 0 nor 1, or the range
    /// of versions empty.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((layout, _)) = RequestLayout::ref_from_prefix(payload) else {
            let (need, got) = (JOIN_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "join request", need, got });
        };
        let role = match layout.role {
            1 => JoinRole::Process,
            2 => JoinRole::Switch,
            3 => JoinRole::Controller,
            value => return Err(DecodeError::Field { field: "role", value: value.into() }),
        };
        let wants_members = match layout.wants_members {
            0 => false,
            1 => true,
            value => {
                return Err(DecodeError::Field { field: "wants_members", value: value.into() });
            }
        };
        let versions = Versions { min: layout.version_min, max: layout.version_max };
        if versions.min > versions.max {
            return Err(DecodeError::Field { field: "versions", value: versions.max.into() });
        }
        Ok(Self { role, cookie: layout.cookie.get(), wants_members, versions })
    }
}

impl JoinAnswer {
    /// Writes the payload. Returns its length, or `None` if `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let (kind, cookie, reason, terms) = match *self {
            Self::NotAdmitted => return Some(0),
            Self::Challenge { cookie, terms } => (CHALLENGE, cookie, 0, terms),
            Self::Accepted(terms) => (ACCEPTED, 0, 0, terms),
            Self::Refused { reason, terms } => (REFUSED, 0, reason as u8, terms),
        };
        let controllers = terms.controllers.map_or((0, 0), |ids| (ids.first.0, ids.count));
        let layout = AnswerLayout {
            cookie: U64::new(cookie),
            kind,
            reason,
            version: terms.version,
            reserved: [0; 5],
            processes_max: U32::new(terms.processes_max),
            first_controller: U32::new(controllers.0),
            controllers: U32::new(controllers.1),
            frame_len_max: U32::new(terms.frame_len_max),
            link_timeout_ns: U64::new(terms.link_timeout_ns),
            key_epoch: U32::new(terms.key_epoch),
            reserved_end: [0; 12],
        };
        buf.get_mut(..JOIN_LEN)?.copy_from_slice(layout.as_bytes());
        Some(JOIN_LEN)
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::JoinAnswer`].
    ///
    /// # Errors
    /// If the payload is too short, the kind or the reason unknown, or a challenge has no cookie.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        if payload.is_empty() {
            return Ok(Self::NotAdmitted);
        }
        let Ok((layout, _)) = AnswerLayout::ref_from_prefix(payload) else {
            let (need, got) = (JOIN_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "join answer", need, got });
        };
        let first = ProcessId(layout.first_controller.get());
        let terms = Terms {
            processes_max: layout.processes_max.get(),
            controllers: match layout.controllers.get() {
                0 => None,
                count => Some(Controllers { first, count }),
            },
            link_timeout_ns: layout.link_timeout_ns.get(),
            frame_len_max: layout.frame_len_max.get(),
            key_epoch: layout.key_epoch.get(),
            version: layout.version,
        };
        match (layout.kind, layout.cookie.get()) {
            (CHALLENGE, 0) => Err(DecodeError::Field { field: "cookie", value: 0 }),
            (CHALLENGE, cookie) => Ok(Self::Challenge { cookie, terms }),
            (ACCEPTED, _) => Ok(Self::Accepted(terms)),
            (REFUSED, _) => Ok(Self::Refused { reason: parse_reason(layout.reason)?, terms }),
            (kind, _) => Err(DecodeError::Field { field: "kind", value: kind.into() }),
        }
    }
}

fn parse_reason(reason: u8) -> Result<RefuseReason, DecodeError> {
    Ok(match reason {
        1 => RefuseReason::Version,
        2 => RefuseReason::OutOfRange,
        3 => RefuseReason::Taken,
        4 => RefuseReason::Full,
        5 => RefuseReason::IsController,
        6 => RefuseReason::NotController,
        7 => RefuseReason::Incarnation,
        value => return Err(DecodeError::Field { field: "reason", value: value.into() }),
    })
}
