//! Makes an image durable.

use std::io;

use onepipe_base::mistake::{Mistake, makes};

use crate::file::ImageFile;
use crate::header::Header;

/// Makes an image durable while another thread changes it.
#[derive(Debug)]
pub struct Checkpointer<F> {
    blocks: F,
    marks: F,
    file: F,
    header: Header,
    has_failed: bool,
}

impl<F: ImageFile> Checkpointer<F> {
    pub(crate) fn new(blocks: F, marks: F, file: F, header: Header) -> Checkpointer<F> {
        Checkpointer { blocks, marks, file, header, has_failed: false }
    }

    /// Returns the position up to which the image is durable.
    pub fn durable(&self) -> u64 {
        self.header.applied
    }

    /// Writes blocks that were changed to the disk, so that less is left for [`Checkpointer::run`].
    ///
    /// # Errors
    /// As [`Checkpointer::run`].
    pub fn write_out(&mut self) -> io::Result<()> {
        self.synchronize(|one| one.blocks.sync_data())
    }

    /// Makes the image durable up to a position that was applied before.
    ///
    /// # Errors If the disk fails. After a failed synchronisation the system drops what it could
    /// not write, and the next one succeeds. So all later calls fail, too: the image is to be
    /// opened again, and the changes behind the durable position to be applied again.
    ///
    /// # Panics
    /// If the position is lower than the durable one.
    pub fn run(&mut self, applied: u64) -> io::Result<()> {
        assert!(applied >= self.header.applied, "a durable position never falls");
        let header = Header { applied, sequence: self.header.sequence + 1, ..self.header };
        self.synchronize(|one| {
            if !makes(Mistake::AppliedBeforeSync) {
                one.blocks.sync_data()?;
                one.marks.sync_data()?;
            }
            header.write(&mut one.file)
        })?;
        self.header = header;
        Ok(())
    }

    /// Runs a step that synchronises files, unless one has failed before.
    fn synchronize(&mut self, step: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier synchronisation has failed"));
        }
        let synchronized = step(self);
        self.has_failed = synchronized.is_err();
        synchronized
    }
}
