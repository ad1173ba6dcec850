//! Writes blocks with their marks.

use std::io;
use std::sync::Arc;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_transaction::Reader;

use crate::change::{BLOCK_LEN, Change};
use crate::copy::{BlockCopy, Copied};
use crate::file::ImageFile;
use crate::image_reader::ImageReader;
use crate::mark::{MARK_LEN, Mark};
use crate::shared::Shared;

/// Number of marks that are written at once.
const MARKS_AT_ONCE: usize = 4_096;

/// Installs copies of blocks in an image that another thread changes: repairs.
#[derive(Debug)]
pub struct ImageWriter<F> {
    blocks: F,
    marks: F,
    reader: ImageReader<F>,
    shared: Arc<Shared>,
}

impl<F: ImageFile> ImageWriter<F> {
    pub(crate) fn new(
        (blocks, marks): (F, F),
        reader: ImageReader<F>,
        shared: Arc<Shared>,
    ) -> ImageWriter<F> {
        ImageWriter { blocks, marks, reader, shared }
    }

    /// Writes copies of blocks, unless this replica has them as of a later position. `as_of` is a
    /// position that the other replica had applied before it made the copies.
    ///
    /// # Errors If the bytes are no copies of blocks ([`io::ErrorKind::InvalidData`]), or the
    /// system refuses.
    pub fn install(&mut self, as_of: u64, bytes: &[u8]) -> io::Result<Copied> {
        let (mut rest, mut copied) = (Reader(bytes), Copied::default());
        let shared = Arc::clone(&self.shared);
        while !rest.is_at_end() {
            let copy = BlockCopy::parse(&mut rest, self.reader.blocks());
            let copy = copy.ok_or(io::ErrorKind::InvalidData)?;
            // Nothing changes the block between the decision and the write.
            let _paused = shared.pause_writes();
            if self.is_outdated(as_of, &copy)? {
                copied.outdated += 1;
            } else if copy.is_damaged() {
                // A mark that fits nothing: the block is read nowhere until it is repaired.
                let mark = Mark { checksum: !copy.mark.checksum, ..copy.mark };
                self.overwrite(copy.block, mark, None)?;
                copied.damaged += 1;
            } else {
                self.overwrite(copy.block, copy.mark, copy.bytes)?;
                copied.written += 1;
            }
        }
        Ok(copied)
    }

    /// Returns whether this replica's block is not to be replaced by a copy.
    fn is_outdated(&self, as_of: u64, copy: &BlockCopy<'_>) -> io::Result<bool> {
        let mut content = vec![0; BLOCK_LEN];
        let (own, is_intact) = self.reader.read_unpaused(copy.block, &mut content)?;
        if is_intact && let Some(own) = own {
            let position = copy.mark.position;
            return Ok(match copy.is_damaged() {
                true => own.position >= position,
                false => own.position > position && !makes(Mistake::OlderInstalled),
            });
        }
        // The own block is damaged. It may have changed since the copy was made.
        let has_changed = own.is_none_or(|own| own.position > as_of);
        Ok(as_of < self.reader.applied() && has_changed)
    }

    /// Applies a change. The caller lets no other block be written meanwhile.
    pub(crate) fn apply(&mut self, position: u64, change: &Change<'_>) -> io::Result<()> {
        let (first, count) = change.range();
        let offset = first * BLOCK_LEN as u64;
        match change {
            Change::Write { data, .. } => {
                self.blocks.write_at(offset, data)?;
                let blocks = data.chunks(BLOCK_LEN).zip(first..);
                self.write_marks(first, blocks.map(|(bytes, at)| Mark::of(at, position, bytes)))
            }
            Change::Zero { .. } => {
                self.blocks.zero(offset, count * BLOCK_LEN as u64)?;
                if makes(Mistake::TrimWithoutMark) {
                    return Ok(());
                }
                let blocks = first..first + count;
                self.write_marks(first, blocks.map(|at| Mark::of_zeroes(at, position)))
            }
        }
    }

    /// Writes the marks of consecutive blocks.
    fn write_marks(&mut self, first: u64, marks: impl Iterator<Item = Mark>) -> io::Result<()> {
        let mut marks = marks.zip(first..).peekable();
        while let Some((_, from)) = marks.peek() {
            let offset = from * MARK_LEN as u64;
            let at_once = marks.by_ref().take(MARKS_AT_ONCE);
            let bytes: Vec<u8> = at_once.flat_map(|(mark, at)| mark.to_bytes(at)).collect();
            self.marks.write_at(offset, &bytes)?;
        }
        Ok(())
    }

    fn overwrite(&mut self, block: u64, mark: Mark, bytes: Option<&[u8]>) -> io::Result<()> {
        let offset = block * BLOCK_LEN as u64;
        match bytes {
            Some(bytes) => self.blocks.write_at(offset, bytes)?,
            None => self.blocks.zero(offset, BLOCK_LEN as u64)?,
        }
        self.write_marks(block, std::iter::once(mark))
    }
}
