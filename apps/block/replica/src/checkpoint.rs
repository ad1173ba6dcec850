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
        if self.has_failed {
            return Err(io::Error::other("an earlier synchronisation has failed"));
        }
        self.has_failed = true;
        let header = Header { applied, sequence: self.header.sequence + 1, ..self.header };
        if !makes(Mistake::AppliedBeforeSync) {
            self.blocks.sync_data()?;
            self.marks.sync_data()?;
        }
        header.write(&mut self.file)?;
        (self.header, self.has_failed) = (header, false);
        Ok(())
    }
}
