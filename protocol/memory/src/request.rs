//! Messages of clients to owners.

use alloc::vec::Vec;

use crate::codec::{Reader, Writer};
use crate::operation::{OPERATIONS_MAX, Operation};
use crate::reply::RESULT;

const EXECUTE: u8 = 0xa1;
const ASK: u8 = 0xa2;
const EXECUTE_IN_OWNER_ORDER: u8 = 0xa4;

/// The order in which a batch is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// That of all owners: the batch takes effect at its timestamp, after everything below.
    Total,
    /// That of its owner alone: the batch is executed when it is delivered, without waiting for the
    /// commit barrier.
    Owner,
}

/// A message of a client to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Asks for the execution of a batch.
    Execute {
        /// Session of the client: the machine among those that its process has or had.
        session: u64,
        /// Number of the request, which all its batches have.
        number: u64,
        /// All requests of the session below this number have completed.
        finished: u64,
        /// The order in which the batch is executed.
        order: Order,
        /// The batch.
        operations: Vec<Operation<'a>>,
    },
    /// Asks for the result of a batch that was sent reliably.
    Ask {
        /// Session of the client.
        session: u64,
        /// Number of the request.
        number: u64,
    },
}

/// Which request of a client a batch belongs to, and which of its requests have completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Session of the client.
    pub session: u64,
    /// Number of the request in the session.
    pub number: u64,
    /// All requests of the session below this number have completed.
    pub finished: u64,
}

/// Appends a request to execute operations that are encoded already.
pub(crate) fn execute(header: BatchHeader, order: Order, operations: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(25 + operations.len());
    let mut writer = Writer(&mut bytes);
    writer.u8(match order {
        Order::Total => EXECUTE,
        Order::Owner => EXECUTE_IN_OWNER_ORDER,
    });
    writer.u64(header.session);
    writer.u64(header.number);
    writer.u64(header.finished);
    bytes.extend_from_slice(operations);
    bytes
}

/// Returns the encoded operations: their number in 16 bits, then each.
pub(crate) fn encode(operations: &[Operation<'_>]) -> Vec<u8> {
    debug_assert!(operations.len() <= OPERATIONS_MAX, "the client limits them");
    let mut bytes = Vec::new();
    let mut writer = Writer(&mut bytes);
    writer.u16(operations.len() as u16);
    operations.iter().for_each(|operation| operation.write(&mut writer));
    bytes
}

impl<'a> Request<'a> {
    /// Returns whether a payload is a request, from its first byte.
    pub fn is_request(payload: &[u8]) -> bool {
        matches!(payload.first(), Some(&(EXECUTE | EXECUTE_IN_OWNER_ORDER | ASK)))
    }

    /// Returns the encoded request.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Execute { session, number, finished, order, operations } => {
                let header =
                    BatchHeader { session: *session, number: *number, finished: *finished };
                execute(header, *order, &encode(operations))
            }
            Self::Ask { session, number } => {
                let mut bytes = Vec::new();
                let mut writer = Writer(&mut bytes);
                writer.u8(ASK);
                writer.u64(*session);
                writer.u64(*number);
                bytes
            }
        }
    }

    /// Parses a request. Returns `None` if it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let request = match reader.u8()? {
            code @ (EXECUTE | EXECUTE_IN_OWNER_ORDER) => {
                let (session, number) = (reader.u64()?, reader.u64()?);
                let finished = reader.u64()?;
                let count = usize::from(reader.u16()?);
                if count == 0 || count > OPERATIONS_MAX || finished > number {
                    return None;
                }
                let mut operations = Vec::with_capacity(count);
                for _ in 0..count {
                    operations.push(Operation::parse(&mut reader)?);
                }
                let order = if code == EXECUTE { Order::Total } else { Order::Owner };
                Self::Execute { session, number, finished, order, operations }
            }
            ASK => Self::Ask { session: reader.u64()?, number: reader.u64()? },
            _ => return None,
        };
        reader.is_at_end().then_some(request)
    }
}

/// Returns whether a payload is a request or a reply of this crate, from its first byte. A driver
/// that carries other messages, too, needs a mark of its own: a payload of others may begin with
/// the same byte.
pub fn is_memory_message(payload: &[u8]) -> bool {
    Request::is_request(payload) || payload.first() == Some(&RESULT)
}
