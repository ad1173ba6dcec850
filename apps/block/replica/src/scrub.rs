//! Compares the blocks of replicas.

use std::io;

use onepipe_base::mistake::{Mistake, makes};

use crate::change::BLOCK_LEN;
use crate::file::ImageFile;
use crate::image_reader::ImageReader;
use crate::mark::Mark;

/// What a replica has of consecutive blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Summary {
    /// A position that the replica had applied before it read the blocks.
    pub applied: u64,
    /// The first block.
    pub first: u64,
    /// The mark of each block; `None` if the block or the mark is damaged.
    pub marks: Vec<Option<Mark>>,
}

/// A block that is not the same in all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finding {
    /// The block.
    pub block: u64,
    /// Indices of the replicas from which it can be copied; none if that is not known.
    pub good: Vec<usize>,
    /// Indices of the replicas where it is damaged, or lacks a change.
    pub bad: Vec<usize>,
}

impl<F: ImageFile> ImageReader<F> {
    /// Reads consecutive blocks, and returns what they are.
    ///
    /// # Errors
    /// If the system refuses.
    ///
    /// # Panics
    /// If the blocks go beyond the device.
    pub fn summarize(&self, first: u64, count: u64) -> io::Result<Summary> {
        let applied = self.applied();
        let mut bytes = vec![0; BLOCK_LEN];
        let mut read = |block| {
            let (mark, is_intact) = self.read_marked(block, &mut bytes)?;
            Ok(mark.filter(|_| is_intact))
        };
        let marks = (first..first + count).map(&mut read).collect::<io::Result<_>>()?;
        Ok(Summary { applied, first, marks })
    }
}

impl Summary {
    /// Compares the same blocks of several replicas.
    ///
    /// All replicas apply the same changes. So of two intact blocks the later one is right, and the
    /// other lacks a change, if its replica has applied the position of that change. Of different
    /// blocks with one position those of the majority are right.
    pub fn compare(summaries: &[Summary]) -> Vec<Finding> {
        let Some(first) = summaries.first() else { return Vec::new() };
        assert!(
            summaries
                .iter()
                .all(|one| (one.first, one.marks.len()) == (first.first, first.marks.len())),
            "the same blocks are compared"
        );
        let of_block = |index: usize| {
            let marks: Vec<Option<Mark>> = summaries.iter().map(|one| one.marks[index]).collect();
            let good = good_mark(&marks);
            let is_bad = |(at, mark): &(usize, &Option<Mark>)| match (mark, good) {
                (Some(mark), Ok(good)) => {
                    *mark != good
                        && summaries[*at].applied >= good.position
                        && !makes(Mistake::LostWriteAccepted)
                }
                (Some(_), Err(())) => false,
                (None, _) => true,
            };
            let bad: Vec<usize> =
                marks.iter().enumerate().filter(is_bad).map(|(at, _)| at).collect();
            let is_good = |at: &usize| good.is_ok_and(|good| marks[*at] == Some(good));
            let good_ones: Vec<usize> = (0..marks.len()).filter(is_good).collect();
            let is_finding = !bad.is_empty() || good.is_err();
            let block = first.first + index as u64;
            is_finding.then_some(Finding { block, good: good_ones, bad })
        };
        (0..first.marks.len()).filter_map(of_block).collect()
    }
}

/// Returns the mark of the right block; an error if that is not known.
fn good_mark(marks: &[Option<Mark>]) -> Result<Mark, ()> {
    let intact = || marks.iter().flatten();
    let position = intact().map(|mark| mark.position).max().ok_or(())?;
    let latest = || intact().filter(|mark| mark.position == position);
    let count = |mark: &Mark| latest().filter(|other| *other == mark).count();
    let best = latest().copied().max_by_key(|mark| (count(mark), *mark)).ok_or(())?;
    let is_unique = latest().all(|mark| *mark == best || count(mark) < count(&best));
    if is_unique { Ok(best) } else { Err(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(applied: u64, mark: Option<Mark>) -> Summary {
        Summary { applied, first: 5, marks: vec![mark] }
    }

    fn mark(position: u64, byte: u8) -> Option<Mark> {
        Some(Mark::of(5, position, &[byte; BLOCK_LEN]))
    }

    fn found(summaries: &[Summary]) -> Option<(Vec<usize>, Vec<usize>)> {
        Summary::compare(summaries).pop().map(|finding| (finding.good, finding.bad))
    }

    #[test]
    fn damaged_block_is_copied_from_the_others() {
        let [good, bad] = [mark(3, 1), None].map(|mark| summary(3, mark));
        assert_eq!(found(&[good.clone(), bad.clone(), good.clone()]), Some((vec![0, 2], vec![1])));
        assert_eq!(found(&[good.clone(), good]), None);
        assert_eq!(found(&[bad.clone(), bad]), Some((vec![], vec![0, 1])));
    }

    #[test]
    fn lost_write_is_found_once_it_should_be_applied() {
        let later = summary(4, mark(4, 2));
        let behind = summary(3, mark(3, 1));
        let lost = summary(4, mark(3, 1));
        assert_eq!(found(&[later.clone(), behind]), None);
        assert_eq!(found(&[later, lost]), Some((vec![0], vec![1])));
    }

    #[test]
    fn majority_decides_on_different_blocks_of_one_position() {
        let [one, other] = [1, 2].map(|byte| summary(3, mark(3, byte)));
        let three = [other.clone(), one.clone(), other.clone()];
        assert_eq!(found(&three), Some((vec![0, 2], vec![1])));
        assert_eq!(found(&[one, other]), Some((vec![], vec![])));
    }
}
