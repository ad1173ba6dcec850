//! Marked messages: those that the process's node handles, not its application.
//!
//! A marked message begins with seven bytes that are the same for all of them, and a byte that says
//! what follows. An application message that begins with the same seven bytes is escaped, so an
//! application cannot send a message that looks marked.

use crate::DecodeError;

/// The mark: not valid UTF-8, and no small integer in either byte order.
const MARK: [u8; 7] = [0xf1, 0x1b, 0xc7, 0x3e, 0x91, 0xd0, 0x4f];
/// Length of the header of a marked message: the mark, and the kind.
pub const MARKED_HEADER_LEN: usize = 8;

const ESCAPED: u8 = 1;
const MEMORY: u8 = 2;

/// A marked message, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedMessage<'a> {
    /// An application message that begins with the mark.
    Escaped(&'a [u8]),
    /// A request to registered memory, or its reply (docs/design/memory.md).
    Memory(&'a [u8]),
}

impl<'a> MarkedMessage<'a> {
    /// Returns whether a message begins with the mark.
    #[inline]
    pub fn is_marked(message: &[u8]) -> bool {
        message.starts_with(&MARK)
    }

    /// Parses a message. Returns `None` for an ordinary application message.
    ///
    /// # Errors
    /// If it is marked, and truncated or of an unknown kind.
    pub fn parse(message: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        let Some(rest) = message.strip_prefix(&MARK) else { return Ok(None) };
        let (kind, body) = rest.split_first().ok_or(DecodeError::Truncated {
            part: "marked message",
            need: MARKED_HEADER_LEN,
            got: message.len(),
        })?;
        match *kind {
            ESCAPED => Ok(Some(Self::Escaped(body))),
            MEMORY => Ok(Some(Self::Memory(body))),
            kind => Err(DecodeError::Field { field: "kind of marked message", value: kind.into() }),
        }
    }

    /// Writes the message.
    pub fn write(self, mut put: impl FnMut(&[u8])) {
        let (kind, body) = match self {
            Self::Escaped(body) => (ESCAPED, body),
            Self::Memory(body) => (MEMORY, body),
        };
        put(&MARK);
        put(&[kind]);
        put(body);
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use alloc::vec::Vec;

    use super::*;

    fn written(message: MarkedMessage<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.write(|part| bytes.extend_from_slice(part));
        bytes
    }

    #[test]
    fn marked_messages_round_trip() {
        for message in [MarkedMessage::Escaped(b"hello"), MarkedMessage::Memory(b"")] {
            let bytes = written(message);
            assert!(MarkedMessage::is_marked(&bytes));
            assert_eq!(MarkedMessage::parse(&bytes), Ok(Some(message)));
        }
        let bytes = written(MarkedMessage::Memory(&[9]));
        assert_eq!(bytes, [0xf1, 0x1b, 0xc7, 0x3e, 0x91, 0xd0, 0x4f, 2, 9]);
    }

    #[test]
    fn escaped_message_passes_for_no_other_kind() {
        let forged = written(MarkedMessage::Memory(b"forged"));
        let escaped = written(MarkedMessage::Escaped(&forged));
        assert_eq!(MarkedMessage::parse(&escaped), Ok(Some(MarkedMessage::Escaped(&forged))));
    }

    #[test]
    fn refuses_truncated_and_unknown_messages() {
        for message in [&b""[..], b"hello", &MARK[..6]] {
            assert_eq!(MarkedMessage::parse(message), Ok(None));
        }
        assert!(MarkedMessage::parse(&MARK).is_err());
        for kind in [0, 3, 255] {
            let mut bytes = written(MarkedMessage::Memory(b""));
            bytes[7] = kind;
            assert!(MarkedMessage::parse(&bytes).is_err(), "{kind}");
        }
    }
}
