//! Bulk groups of one host: objects in pages that all members share.
//!
//! object → blocks → group → header parts of pieces → `[pages]` → the object's page → group
//!
//! The root's objects lie in a [`PagePool`]. Frames go through rings of shared memory
//! ([`onepipe_transport_shm::Shm`]) and carry the location of object bytes instead of the bytes. A
//! receiver uses the bytes in place, without any copy, or copies them into memory of its own. So
//! nothing is relayed; everything else is [`onepipe_bulk::Group`]'s work as over any link:
//! completeness, digests, failures, closing (docs/design/bulk.md).
//!
//! # Invariants
//! - Pages are read under a claim: their bytes stay unchanged even if the other members count this
//!   one as failed.
//! - The kernel reports the death of a process within a millisecond while any member is awake.
//! - Once all members have connected, no file has a name any more: however members end, nothing is
//!   left behind in `/dev/shm`.

#![forbid(unsafe_code)]

mod copies;
mod driver;
mod join;
mod location;
mod object_bytes;
mod page_index;
#[cfg(test)]
mod tests;

pub use driver::ShmGroupDriver;
pub use join::{JoinError, SharedLinks, join};
pub use location::page_location;
pub use object_bytes::ObjectBytes;
pub use onepipe_transport_shm::{
    AttachError, PAGE_LOCATION_LEN, Page, PageLocation, PageMut, PagePool, PageReader, SegmentLost,
};
pub use page_index::PageIndex;

use onepipe_bulk::{Algorithm, Config, Plain};
use onepipe_wire::{DETACHED_FRONT_LEN, SHORT_HEADER_LEN};

/// Length of the longest frame that a machine may send.
const FRAME_LEN: usize = 512;
const _: () = assert!(
    DETACHED_FRONT_LEN + onepipe_transport_shm::PAGE_LOCATION_LEN <= FRAME_LEN
        && SHORT_HEADER_LEN < 256,
    "the header part of a piece and its page location must fit a frame"
);
/// Blocks for which the root has tokens ahead: all blocks of an object. They cost no memory.
const LOOKAHEAD_BLOCKS: u32 = 1024;

/// Adapts the configuration of a machine that [`ShmGroupDriver`] drives; the rest is the caller's.
pub fn shared_memory_config(config: Config) -> Config {
    Config {
        is_shared: true,
        algorithm: Algorithm::Plain(Plain::Sequential),
        frame_len_max: FRAME_LEN,
        lookahead_blocks: LOOKAHEAD_BLOCKS,
        ..config
    }
}
