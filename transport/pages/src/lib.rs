//! Bulk groups of one host: objects in pages that all members share.
//!
//! object → blocks → group → fronts of pieces → `[pages]` → the page where the object lies → group
//!
//! The root's objects lie on a [`PagePool`]. Frames go through rings of shared memory
//! ([`onepipe_transport_shm::Shm`]) and carry no bytes of objects, only where these lie. A
//! receiver uses them there, without any copy, or copies them into memory of its own. So there is
//! nothing to relay, and everything else is [`onepipe_bulk::Group`]'s as over any link: what is
//! whole, which digest is right, who has failed, what closing means (docs/design/bulk.md).
//!
//! # Invariants
//! - Pages are read under a claim: their bytes stay as they are, whoever counts us as failed.
//! - Whoever dies is noticed by the kernel's word, within a millisecond where anybody is awake.
//! - When all have met, nothing has a name any more: however members end, nothing is left.

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
    AttachError, PAGE_LOCATION_LEN, Page, PageLocation, PageMut, PagePool, PageReader,
};
pub use page_index::PageIndex;

use onepipe_bulk::{Algorithm, Config, Plain};
use onepipe_wire::{DETACHED_FRONT_LEN, HEADER_LEN};

/// Bytes of the longest frame: what a machine must be able to say fits.
const FRAME_LEN: usize = 512;
const _: () = assert!(
    DETACHED_FRONT_LEN + onepipe_transport_shm::PAGE_LOCATION_LEN <= FRAME_LEN && HEADER_LEN < 256,
    "the front of a piece and its place fit a frame"
);
/// Blocks for which the root has tokens ahead: all of an object's. They cost no memory.
const LOOKAHEAD_BLOCKS: u32 = 1024;

/// What the configuration of a machine must say that [`ShmGroupDriver`] drives: its rest is the caller's.
pub fn shared_memory_config(config: Config) -> Config {
    Config {
        is_shared: true,
        algorithm: Algorithm::Plain(Plain::Sequential),
        frame_len_max: FRAME_LEN,
        lookahead_blocks: LOOKAHEAD_BLOCKS,
        ..config
    }
}
