//! Answers the questions of other replicas from an image.

use std::io;

use onepipe_base::mistake::{Mistake, makes};

use crate::file::ImageFile;
use crate::image_reader::ImageReader;
use crate::image_writer::ImageWriter;
use crate::repair::question::{Answer, Question};

/// Limit on the blocks about which one question asks.
pub const SUMMARIZED_MAX: u64 = 256;

impl Question {
    /// Answers the question from the image of this replica. Reads as many blocks as are asked for.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn answer<F: ImageFile>(
        &self,
        reader: &ImageReader<F>,
        writer: &mut ImageWriter<F>,
    ) -> io::Result<Answer> {
        // Before the blocks are read: they include the changes up to this position.
        let applied = reader.applied();
        match self {
            Question::Summarize { first, count, position } => {
                let count = u64::from(*count);
                let end = first.checked_add(count);
                if count > SUMMARIZED_MAX || end.is_none_or(|end| end > reader.blocks()) {
                    return Ok(Answer::Failed);
                }
                if applied < *position && !makes(Mistake::BehindSummarized) {
                    return Ok(Answer::Behind);
                }
                Ok(Answer::Summary(reader.summarize(*first, count)?))
            }
            Question::Copy { block, .. } if *block >= reader.blocks() => Ok(Answer::Failed),
            Question::Copy { block, position } => {
                if applied < *position && !makes(Mistake::BehindCopied) {
                    return Ok(Answer::Behind);
                }
                Ok(Answer::Copy { as_of: applied, copy: reader.copy_of(*block)? })
            }
            Question::Install { as_of, copy } => {
                let copied = writer.install(*as_of, copy)?;
                Ok(Answer::Installed { is_written: copied.written > 0 })
            }
        }
    }
}
