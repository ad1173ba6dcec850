//! Messages between the states of replicas, which replicas only carry.

use alloc::vec::Vec;

const STATE_MESSAGE: u8 = 0x31;

/// A message of the state of a replica to that of another one, by best effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateMessage<'a>(pub &'a [u8]);

impl<'a> StateMessage<'a> {
    /// Returns the encoded message.
    pub fn to_bytes(self) -> Vec<u8> {
        [&[STATE_MESSAGE], self.0].concat()
    }

    /// Parses a message. Returns `None` if it is another one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        bytes.strip_prefix(&[STATE_MESSAGE]).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Reply, ReplyKind, Request};
    use crate::start::StartMessage;

    #[test]
    fn is_no_other_message() {
        let bytes = StateMessage(b"text").to_bytes();
        assert_eq!(StateMessage::parse(&bytes), Some(StateMessage(b"text")));
        assert_eq!((ReplyKind::of(&bytes), Reply::parse(&bytes)), (None, None));
        assert_eq!((Request::parse(&bytes), StartMessage::parse(&bytes)), (None, None));
        assert_eq!(StateMessage::parse(&Request::Read(1, 2).to_bytes()), None);
        assert_eq!(StateMessage::parse(&[]), None);
    }
}
