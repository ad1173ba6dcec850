//! The numbers of an endpoint for payloads of any size.

use alloc::vec::Vec;

use onepipe_bulk::{Link, PIECE_FRONT_LEN};
use onepipe_endpoint::Message;

use crate::SendError;
use crate::outgoing::bytes_of;

/// Blocks of an object, about: enough for relays to be busy, few enough to cost little each
/// (bulk.md section 4).
const BLOCKS: u64 = 64;
/// No block is smaller, nor larger, but for the last one.
const BLOCK_LEN: (u64, u64) = (16 << 10, 1 << 20);

/// How it is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its endpoint. All processes that send each other large payloads have frames of one length.
    pub endpoint: onepipe_endpoint::Config,
    /// A payload of more bytes goes by bulk. Default 64 KiB: docs/design/large.md, "From which
    /// size on?".
    pub large_bytes: usize,
    /// What the links do with frames. Default: they lose them.
    pub link: Link,
    /// The largest payload, in bytes. Default 1 GiB.
    pub object_len_max: u64,
    /// Bytes of scatterings with large payloads that were submitted and have no place in the order
    /// yet. Default 1 GiB.
    pub sent_bytes_max: u64,
    /// Bytes of large payloads that come, or wait for their place in the order, or for the
    /// application to be through with them. What does not fit waits at its sender. Default 2 GiB.
    pub received_bytes_max: u64,
    /// Payloads of ours that are on their way at a time. Default 8.
    pub objects_max: usize,
    /// Members of a bulk group that answer nothing for so long have failed. Default 2 s.
    pub dead_after_ns: u64,
}

impl Config {
    /// The defaults.
    pub fn new(endpoint: onepipe_endpoint::Config) -> Self {
        Self {
            endpoint,
            large_bytes: 64 << 10,
            link: Link::Lossy,
            object_len_max: 1 << 30,
            sent_bytes_max: 1 << 30,
            received_bytes_max: 2 << 30,
            objects_max: 8,
            dead_after_ns: 2_000_000_000,
        }
    }

    /// What a process that has submitted nothing would say of a scattering.
    ///
    /// # Errors
    /// Whatever no waiting mends.
    #[inline]
    pub fn check_scattering(&self, messages: &[Message<'_>]) -> Result<(), SendError> {
        if messages.iter().all(|message| message.payload.len() <= self.large_bytes) {
            self.endpoint.check_scattering(messages)?;
            return Ok(());
        }
        self.check_large(messages)
    }

    #[cold]
    fn check_large(&self, messages: &[Message<'_>]) -> Result<(), SendError> {
        for (index, message) in messages.iter().enumerate() {
            let (bytes, max) = (message.payload.len() as u64, self.object_len_max);
            if bytes > max {
                return Err(SendError::TooLarge { index, bytes, max });
            }
        }
        // A descriptor is no longer than any large payload: so it is as with these.
        let as_sent = messages.iter().map(|message| {
            let bytes = message.payload.len().min(self.large_bytes);
            Message { to: message.to, payload: &message.payload[..bytes] }
        });
        self.endpoint.check_scattering(&as_sent.collect::<Vec<_>>())?;
        let (bytes, max) = (bytes_of(messages), self.sent_bytes_max);
        if bytes > max { Err(SendError::TooLarge { index: 0, bytes, max }) } else { Ok(()) }
    }

    /// Bytes of a piece: what a frame holds.
    pub(crate) fn piece_len(&self) -> u16 {
        let bytes = self.endpoint.frame_len_max.saturating_sub(PIECE_FRONT_LEN);
        bytes.min(usize::from(u16::MAX)) as u16
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = |holds, field, value| match holds {
            true => Ok(()),
            false => Err(ConfigError::OutOfRange { field, value }),
        };
        // A bulk frame has room for what must be said, and a piece.
        let frame = self.endpoint.frame_len_max;
        check(frame >= 512, "frame_len_max", frame as u64)?;
        let large = self.large_bytes;
        let fits = large <= self.endpoint.message_len_max as usize;
        check(fits, "large_bytes", large as u64)?;
        check(self.objects_max > 0, "objects_max", self.objects_max as u64)?;
        let object = self.object_len_max;
        let fits = object <= self.sent_bytes_max && object <= self.received_bytes_max;
        check(fits, "object_len_max", object)?;
        check(self.dead_after_ns > 0, "dead_after_ns", self.dead_after_ns)
    }
}

/// Bytes of a block of an object of so many.
pub(crate) fn block_len(bytes: u64) -> u32 {
    (bytes / BLOCKS).next_power_of_two().clamp(BLOCK_LEN.0, BLOCK_LEN.1) as u32
}

/// Settings that it cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Those of its endpoint.
    #[error(transparent)]
    Endpoint(#[from] onepipe_endpoint::ConfigError),
    /// A number outside its range.
    #[error("{field} = {value} is out of range")]
    OutOfRange {
        /// Which field of [`Config`].
        field: &'static str,
        /// What it was set to.
        value: u64,
    },
}
