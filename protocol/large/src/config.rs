//! The numbers of an endpoint for payloads of any size.

use alloc::vec::Vec;

use onepipe_bulk::{Link, PIECE_FRONT_OCTETS};
use onepipe_endpoint::Message;

use crate::SendError;
use crate::outgoing::octets_of;

/// Blocks of an object, about: enough for relays to be busy, few enough to cost little each
/// (bulk.md section 4).
const BLOCKS: u64 = 64;
/// No block is smaller, nor larger, but for the last one.
const BLOCK_OCTETS: (u64, u64) = (16 << 10, 1 << 20);

/// How it is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its endpoint. All processes that send each other large payloads have frames of one length.
    pub endpoint: onepipe_endpoint::Config,
    /// A payload of more octets goes by bulk. Default 64 KiB: docs/design/large.md, "From which
    /// size on?".
    pub large_octets: usize,
    /// What the links do with frames. Default: they lose them.
    pub link: Link,
    /// The largest payload, in octets. Default 1 GiB.
    pub object_octets_max: u64,
    /// Octets of scatterings with large payloads that were submitted and have no place in the order
    /// yet. Default 1 GiB.
    pub sent_octets_max: u64,
    /// Octets of large payloads that come, or wait for their place in the order, or for the
    /// application to be through with them. What does not fit waits at its sender. Default 2 GiB.
    pub received_octets_max: u64,
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
            large_octets: 64 << 10,
            link: Link::Lossy,
            object_octets_max: 1 << 30,
            sent_octets_max: 1 << 30,
            received_octets_max: 2 << 30,
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
        if messages.iter().all(|message| message.payload.len() <= self.large_octets) {
            self.endpoint.check_scattering(messages)?;
            return Ok(());
        }
        self.check_large(messages)
    }

    #[cold]
    fn check_large(&self, messages: &[Message<'_>]) -> Result<(), SendError> {
        for (index, message) in messages.iter().enumerate() {
            let (octets, max) = (message.payload.len() as u64, self.object_octets_max);
            if octets > max {
                return Err(SendError::TooLarge { index, octets, max });
            }
        }
        // A descriptor is no longer than any large payload: so it is as with these.
        let as_sent = messages.iter().map(|message| {
            let octets = message.payload.len().min(self.large_octets);
            Message { to: message.to, payload: &message.payload[..octets] }
        });
        self.endpoint.check_scattering(&as_sent.collect::<Vec<_>>())?;
        let (octets, max) = (octets_of(messages), self.sent_octets_max);
        if octets > max { Err(SendError::TooLarge { index: 0, octets, max }) } else { Ok(()) }
    }

    /// Octets of a piece: what a frame holds.
    pub(crate) fn piece_octets(&self) -> u16 {
        let octets = self.endpoint.frame_octets_max.saturating_sub(PIECE_FRONT_OCTETS);
        octets.min(usize::from(u16::MAX)) as u16
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = |holds, field, value| match holds {
            true => Ok(()),
            false => Err(ConfigError::OutOfRange { field, value }),
        };
        // A bulk frame has room for what must be said, and a piece.
        let frame = self.endpoint.frame_octets_max;
        check(frame >= 512, "frame_octets_max", frame as u64)?;
        let large = self.large_octets;
        let fits = large <= self.endpoint.message_octets_max as usize;
        check(fits, "large_octets", large as u64)?;
        check(self.objects_max > 0, "objects_max", self.objects_max as u64)?;
        let object = self.object_octets_max;
        let fits = object <= self.sent_octets_max && object <= self.received_octets_max;
        check(fits, "object_octets_max", object)?;
        check(self.dead_after_ns > 0, "dead_after_ns", self.dead_after_ns)
    }
}

/// Octets of a block of an object of so many.
pub(crate) fn block_octets(octets: u64) -> u32 {
    (octets / BLOCKS).next_power_of_two().clamp(BLOCK_OCTETS.0, BLOCK_OCTETS.1) as u32
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
