//! Configuration of an endpoint for payloads of any size.

use alloc::vec::Vec;

use onepipe_bulk::{Link, PIECE_FRONT_LEN};
use onepipe_endpoint::Message;

use crate::SendError;
use crate::outgoing::bytes_of;

/// Target number of blocks of an object: enough to keep relays busy, few enough for low overhead
/// (docs/design/bulk.md, "What is a step?").
const BLOCKS_TARGET: u64 = 64;
/// Minimum block length in bytes; the last block may be shorter.
const BLOCK_LEN_MIN: u64 = 16 << 10;
const BLOCK_LEN_MAX: u64 = 1 << 20;
const _: () = assert!(BLOCK_LEN_MIN.is_power_of_two() && BLOCK_LEN_MAX.is_power_of_two());
const _: () = assert!(BLOCK_LEN_MIN <= BLOCK_LEN_MAX && BLOCK_LEN_MAX <= u32::MAX as u64);

/// Configuration of a [`crate::LargeEndpoint`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The endpoint. All processes that exchange large payloads must use the same frame length.
    pub endpoint: onepipe_endpoint::Config,
    /// Payloads longer than this, in bytes, are sent by bulk multicast. Default 64 KiB
    /// (docs/design/large.md, "From which size on?").
    pub large_threshold_bytes: usize,
    /// Reliability of the links. Default: lossy.
    pub link: Link,
    /// Maximum length of a payload, in bytes. Default 1 GiB.
    pub object_len_max: u64,
    /// Send buffer: bytes of scatterings with large payloads that are submitted but not ordered
    /// yet. Default 1 GiB.
    pub sent_bytes_max: u64,
    /// Receive buffer: bytes of large payloads that are arriving, waiting for their descriptor, or
    /// delivered but not released. A payload that does not fit waits at its sender. Default 2 GiB.
    pub received_bytes_max: u64,
    /// Maximum number of own payloads in flight. Default 8.
    pub objects_max: usize,
    /// Time without an answer after which a member of a bulk group has failed, in ns. Default 2 s.
    pub dead_after_ns: u64,
}

impl Config {
    /// Returns the default configuration.
    pub fn new(endpoint: onepipe_endpoint::Config) -> Self {
        Self {
            endpoint,
            large_threshold_bytes: 64 << 10,
            link: Link::Lossy,
            object_len_max: 1 << 30,
            sent_bytes_max: 1 << 30,
            received_bytes_max: 2 << 30,
            objects_max: 8,
            dead_after_ns: 2_000_000_000,
        }
    }

    /// Checks a scattering as an endpoint with empty buffers would.
    ///
    /// # Errors
    /// Only errors that persist when the scattering is retried.
    #[inline]
    pub fn check_scattering(&self, messages: &[Message<'_>]) -> Result<(), SendError> {
        if messages.iter().all(|message| message.payload.len() <= self.large_threshold_bytes) {
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
        // The endpoint will carry a descriptor instead of a large payload. A descriptor is shorter
        // than any large payload, so payloads cut to `large_threshold_bytes` stand for the
        // descriptors.
        let as_sent = messages.iter().map(|message| {
            let bytes = message.payload.len().min(self.large_threshold_bytes);
            Message { to: message.to, payload: &message.payload[..bytes] }
        });
        self.endpoint.check_scattering(&as_sent.collect::<Vec<_>>())?;
        let (bytes, max) = (bytes_of(messages), self.sent_bytes_max);
        if bytes > max { Err(SendError::TooLarge { index: 0, bytes, max }) } else { Ok(()) }
    }

    /// Returns the length of a piece: what fits a frame.
    pub(crate) fn piece_len(&self) -> u16 {
        let bytes = self.endpoint.frame_len_max.saturating_sub(PIECE_FRONT_LEN);
        bytes.min(usize::from(u16::MAX)) as u16
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = |holds, field, value| match holds {
            true => Ok(()),
            false => Err(ConfigError::OutOfRange { field, value }),
        };
        // A bulk frame must hold its headers and a piece.
        let frame = self.endpoint.frame_len_max;
        check(frame >= 512, "frame_len_max", frame as u64)?;
        let threshold = self.large_threshold_bytes;
        let fits = threshold <= self.endpoint.message_len_max as usize;
        check(fits, "large_threshold_bytes", threshold as u64)?;
        check(self.objects_max > 0, "objects_max", self.objects_max as u64)?;
        let object = self.object_len_max;
        let fits = object <= self.sent_bytes_max && object <= self.received_bytes_max;
        check(fits, "object_len_max", object)?;
        check(self.dead_after_ns > 0, "dead_after_ns", self.dead_after_ns)
    }
}

/// Returns the block length of an object of `bytes` bytes.
pub(crate) fn block_len(bytes: u64) -> u32 {
    (bytes / BLOCKS_TARGET).next_power_of_two().clamp(BLOCK_LEN_MIN, BLOCK_LEN_MAX) as u32
}

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The configuration of the endpoint is invalid.
    #[error(transparent)]
    Endpoint(#[from] onepipe_endpoint::ConfigError),
    /// A number is outside its range.
    #[error("{field} = {value} is out of range")]
    OutOfRange {
        /// The field of [`Config`].
        field: &'static str,
        /// Its value.
        value: u64,
    },
}
