//! Reads blocks, and finds damaged ones.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::change::BLOCK_LEN;
use crate::error::ReadError;
use crate::file::ImageFile;
use crate::mark::{MARK_LEN, Mark};
use crate::shared::Shared;

/// Reads an image that another thread changes.
///
/// A block that is being written does not fit its mark, as a damaged one does not. So what does not
/// fit is read again while no block is being written.
#[derive(Debug)]
pub struct ImageReader<F> {
    blocks: F,
    marks: F,
    shared: Arc<Shared>,
    count: u64,
}

impl<F: ImageFile> ImageReader<F> {
    pub(crate) fn new(blocks: F, marks: F, shared: Arc<Shared>, count: u64) -> ImageReader<F> {
        ImageReader { blocks, marks, shared, count }
    }

    /// Returns the position up to which all changes are applied: what is read from now on includes
    /// them.
    pub fn applied(&self) -> u64 {
        self.shared.applied.load(Ordering::Acquire)
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        self.count
    }

    /// Reads as many whole blocks as `bytes` has space for, each as of one moment. Returns the
    /// position of the latest change in them, which may not count as applied yet.
    ///
    /// # Errors
    /// If blocks are damaged, or the system refuses.
    ///
    /// # Panics
    /// If the blocks go beyond the device.
    pub fn read(&self, first: u64, bytes: &mut [u8]) -> Result<u64, ReadError> {
        assert!(bytes.len().is_multiple_of(BLOCK_LEN), "whole blocks are read");
        let count = (bytes.len() / BLOCK_LEN) as u64;
        let marks = self.marks(first, count)?;
        self.blocks.read_at(first * BLOCK_LEN as u64, bytes)?;
        let (mut latest, mut damaged) = (0, Vec::new());
        for ((block, bytes), mark) in (first..).zip(bytes.chunks_mut(BLOCK_LEN)).zip(marks) {
            let (mark, fits) = match mark {
                Some(mark) if mark.fits(block, bytes) => (Some(mark), true),
                _ => self.read_marked(block, bytes)?,
            };
            match mark {
                Some(mark) if fits => latest = latest.max(mark.position),
                _ => damaged.push(block),
            }
        }
        if damaged.is_empty() { Ok(latest) } else { Err(ReadError::Damaged(damaged)) }
    }

    /// Reads a block and its mark as of one moment. Returns the mark, unless it is damaged, and
    /// whether the block fits.
    pub(crate) fn read_marked(
        &self,
        block: u64,
        bytes: &mut [u8],
    ) -> io::Result<(Option<Mark>, bool)> {
        match self.read_unpaused(block, bytes)? {
            (mark, true) => Ok((mark, true)),
            _ => {
                let _paused = self.shared.pause_writes();
                self.read_unpaused(block, bytes)
            }
        }
    }

    /// As [`ImageReader::read_marked`], for a caller that lets no block be written meanwhile. For
    /// others a block that is being written does not fit.
    pub(crate) fn read_unpaused(
        &self,
        block: u64,
        bytes: &mut [u8],
    ) -> io::Result<(Option<Mark>, bool)> {
        let mark = self.marks(block, 1)?[0];
        self.blocks.read_at(block * BLOCK_LEN as u64, bytes)?;
        Ok((mark, mark.is_some_and(|mark| mark.fits(block, bytes))))
    }

    /// Returns the marks of consecutive blocks. A damaged one is `None`.
    ///
    /// # Errors
    /// If the system refuses.
    ///
    /// # Panics
    /// If the blocks go beyond the device.
    pub fn marks(&self, first: u64, count: u64) -> io::Result<Vec<Option<Mark>>> {
        let end = first.checked_add(count);
        assert!(end.is_some_and(|end| end <= self.count), "the blocks are within the device");
        let mut bytes = vec![0; count as usize * MARK_LEN];
        self.marks.read_at(first * MARK_LEN as u64, &mut bytes)?;
        Ok(Mark::decode(first, &bytes).collect())
    }
}
