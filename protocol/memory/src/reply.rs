//! Replies of owners, and why a batch is refused.

use alloc::vec::Vec;

use onepipe_base::Timestamp;

use crate::codec::{Reader, Writer};
use crate::operation::{OPERATIONS_MAX, Outcome};

pub(crate) const RESULT: u8 = 0xa3;
const EXECUTED: u8 = 0;
const REFUSED: u8 = 1;

/// Why an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The owner has no region of this number.
    #[error("the owner has no such region")]
    UnknownRegion,
    /// Some of the bytes are not in the region.
    #[error("out of bounds: the region has {len} bytes")]
    OutOfBounds {
        /// Length of the region in bytes.
        len: u64,
    },
    /// The process may not do this with the region.
    #[error("no right to do this")]
    NoRight,
    /// The offset of a word is not a multiple of 8.
    #[error("the offset of the word is not a multiple of 8")]
    Misaligned,
    /// The results of the batch are longer than the owner's limit.
    #[error("the results exceed {limit} bytes (reply_len_max)")]
    ResultTooLong {
        /// The limit in bytes.
        limit: u64,
    },
    /// The owner remembers the results of that number of requests that its client has not reported
    /// as completed.
    #[error("{limit} requests have not been reported as completed (results_max)")]
    TooManyRequests {
        /// The limit.
        limit: u64,
    },
    /// The owner remembers that number of bytes of such results.
    #[error("results of {limit} bytes have not been reported as completed")]
    TooManyBytes {
        /// The limit in bytes.
        limit: u64,
    },
    /// The batch writes, and was not sent by the reliable service.
    #[error("a batch that writes has to be sent reliably")]
    NotReliable,
}

/// A batch was refused. None of its operations was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("operation {index} is refused: {reason}")]
pub struct Refusal {
    /// Index of the first operation that is refused.
    pub index: u16,
    /// The reason.
    pub reason: Reason,
}

/// A message of an owner to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Session of the client.
    pub session: u64,
    /// Number of the request.
    pub number: u64,
    /// Timestamp in the order of all requests at which the batch was executed or refused. For a
    /// read that arrived after a request of a later timestamp, that timestamp.
    pub at: Timestamp,
    /// What each operation has found.
    pub result: Result<Vec<Outcome>, Refusal>,
}

impl Reply {
    /// Returns whether a payload is a reply, from its first byte.
    pub fn is_reply(payload: &[u8]) -> bool {
        payload.first() == Some(&RESULT)
    }

    /// Returns the encoded reply.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.u8(RESULT);
        writer.u64(self.session);
        writer.u64(self.number);
        writer.u64(self.at.as_ns());
        match &self.result {
            Ok(outcomes) => {
                writer.u8(EXECUTED);
                writer.u16(outcomes.len() as u16);
                outcomes.iter().for_each(|outcome| outcome.write(&mut writer));
            }
            Err(Refusal { index, reason }) => {
                writer.u8(REFUSED);
                writer.u16(*index);
                let (code, value) = reason.code();
                writer.u8(code);
                writer.u64(value);
            }
        }
        bytes
    }

    /// Parses a reply. Returns `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.u8()? != RESULT {
            return None;
        }
        let (session, number) = (reader.u64()?, reader.u64()?);
        let at = Timestamp::from_ns(reader.u64()?);
        let result = match reader.u8()? {
            EXECUTED => {
                let count = usize::from(reader.u16()?);
                if count > OPERATIONS_MAX {
                    return None;
                }
                let mut outcomes = Vec::with_capacity(count);
                for _ in 0..count {
                    outcomes.push(Outcome::parse(&mut reader)?);
                }
                Ok(outcomes)
            }
            REFUSED => {
                let (index, code, value) = (reader.u16()?, reader.u8()?, reader.u64()?);
                Err(Refusal { index, reason: Reason::of_code(code, value)? })
            }
            _ => return None,
        };
        reader.is_at_end().then_some(Self { session, number, at, result })
    }
}

impl Reason {
    fn code(self) -> (u8, u64) {
        match self {
            Self::UnknownRegion => (1, 0),
            Self::OutOfBounds { len } => (2, len),
            Self::NoRight => (3, 0),
            Self::Misaligned => (4, 0),
            Self::ResultTooLong { limit } => (5, limit),
            Self::NotReliable => (6, 0),
            Self::TooManyRequests { limit } => (7, limit),
            Self::TooManyBytes { limit } => (8, limit),
        }
    }

    fn of_code(code: u8, value: u64) -> Option<Self> {
        let reason = match code {
            1 => Self::UnknownRegion,
            2 => Self::OutOfBounds { len: value },
            3 => Self::NoRight,
            4 => Self::Misaligned,
            5 => Self::ResultTooLong { limit: value },
            6 => Self::NotReliable,
            7 => Self::TooManyRequests { limit: value },
            8 => Self::TooManyBytes { limit: value },
            _ => return None,
        };
        // Each reply has one encoding.
        (reason.code() == (code, value)).then_some(reason)
    }
}
