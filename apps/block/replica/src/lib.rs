//! A replica of a block device: its files, what it applies of a log, repair and scrub.
//!
//! log → committed entries → `[changes → blocks and marks → checkpoint]` → reads
//!
//! An [`Image`] holds the blocks of a device in a file, and beside each block a [`Mark`]: the
//! position in the log of the last change, and a checksum. A log holds what an image does not yet
//! have on its disk: [`Checkpointer::run`] makes an image durable up to a position, and after a
//! crash the entries behind it are applied again.
//!
//! ```
//! use onepipe_block_replica::{BLOCK_LEN, Change, Image, ImageOptions};
//! use onepipe_journal::MemoryDisk;
//!
//! let disk = MemoryDisk::new();
//! let options = ImageOptions { device: 1, blocks: 8 };
//! let mut image = Image::open(&disk, options)?;
//! image.apply(1, &Change::Write { first: 2, data: &[7; BLOCK_LEN] })?;
//! let mut block = [0; BLOCK_LEN];
//! image.reader()?.read(2, &mut block)?;
//! assert_eq!(block, [7; BLOCK_LEN]);
//! image.checkpointer()?.run(image.applied())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - Equal logs make equal images, marks included.
//! - A crash loses no change at or below a durable position. What it tears lies behind, and is
//!   applied again.
//! - A damaged block is never read: its mark does not fit. Only an older copy of both passes, as of
//!   a disk that has lost two writes, which [`Summary::compare`] finds by the other replicas.
//!
//! # Absences
//! - No change of a part of a block: after a crash a torn block is written again as a whole.
//! - No network: the caller carries the questions and answers of [`Repairs`] between replicas.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod change;
mod checkpoint;
mod copy;
mod error;
mod file;
mod header;
mod image;
mod image_reader;
mod image_writer;
mod mark;
mod primary_backup;
mod read_gate;
mod repair;
mod scrub;
mod shared;

pub use change::{BLOCK_LEN, CHANGE_OVERHEAD, Change, ChangeError};
pub use checkpoint::Checkpointer;
pub use copy::{Copied, CopiedBlock, Stale};
pub use error::{ImageError, ReadError};
pub use file::ImageFile;
pub use image::{Image, ImageOptions};
pub use image_reader::ImageReader;
pub use image_writer::ImageWriter;
pub use mark::Mark;
pub use primary_backup::{ChainMessage, ChainNode, ChainOutput};
pub use read_gate::{ReadGate, ReadStart};
pub use repair::{
    Answer, Asked, Question, RepairMessage, RepairOptions, RepairOutcome, Repairs, SUMMARIZED_MAX,
    ScrubReport,
};
pub use scrub::{Finding, Summary};
