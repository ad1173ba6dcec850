//! Why an image cannot be used, or a block not be read.

use std::io;
use std::path::PathBuf;

/// Why an image cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The system refuses.
    #[error("cannot {action} {}", path.display())]
    System {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The image has another size.
    #[error("the image in {} has {found} blocks, not {wanted}: a device cannot be resized", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its number of blocks.
        found: u64,
        /// The number that was given.
        wanted: u64,
    },
    /// The image is one of another device.
    #[error("{} belongs to another device: choose another directory", .0.display())]
    OtherDevice(PathBuf),
    /// No header is intact.
    #[error(
        "{} is damaged: remove the replica's directory, and it is filled from the other replicas",
        .0.display()
    )]
    Damaged(PathBuf),
}

/// Why blocks cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Blocks are not what was written last. The other replicas have them.
    #[error("{} damaged blocks, the first is block {}", .0.len(), .0.first().unwrap_or(&0))]
    Damaged(Vec<u64>),
    /// The system refuses.
    #[error("cannot read blocks")]
    System(#[from] io::Error),
}
