//! Reads one segment: its records, and whether a crash explains how it ends.

use crate::format::{Link, RecordView, SEGMENT_HEADER_LEN, SegmentKey};
use crate::mistake::{Mistake, makes};

/// The smallest piece that a disk writes as a whole, in bytes.
const SECTOR_LEN: usize = 512;

/// The end of a segment's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The records end with the file.
    Whole,
    /// A crash left an incomplete record at this offset, and nothing durable behind it.
    Torn(usize),
    /// A record at this offset is damaged, though the disk had confirmed it or what follows.
    Damaged(usize),
}

/// The records of a segment.
#[derive(Debug)]
pub struct Scan<'a> {
    /// Records in order, up to the end or to the first one that is not intact.
    pub records: Vec<RecordView<'a>>,
    /// The last record, or the one before the segment.
    pub last: Link,
    /// How the records end.
    pub end: End,
}

/// Reads the records of a segment whose header is intact. `previous` is the record before it.
pub fn records<'a>(bytes: &'a [u8], key: &SegmentKey, first: u64, previous: Link) -> Scan<'a> {
    let (mut records, mut last) = (Vec::new(), previous);
    let mut offset = SEGMENT_HEADER_LEN;
    while offset < bytes.len() {
        let Some(record) = key.decode(bytes, offset).filter(|record| {
            let is_next = match records.is_empty() {
                true => record.position == first,
                false => record.position > last.position,
            };
            is_next && (record.previous == last.checksum || makes(Mistake::Unchained))
        }) else {
            return Scan { records, last, end: end(bytes, key, offset, last.position) };
        };
        last = Link { position: record.position, checksum: record.checksum };
        offset += record.len();
        records.push(record);
    }
    Scan { records, last, end: End::Whole }
}

/// Decides whether a crash explains that there is no valid record at `bad`.
///
/// A crash loses or tears any blocks that were not durable, also before others that reached the
/// disk. So records behind `bad` prove damage only if one of them was written after `bad` was
/// durable, or if no block is missing between `bad` and the next valid record.
pub fn end(bytes: &[u8], key: &SegmentKey, bad: usize, last_position: u64) -> End {
    let mut next_valid = None;
    let mut offset = bad + 1;
    while offset < bytes.len() {
        let record = key.decode(bytes, offset).filter(|record| record.position > last_position);
        let Some(record) = record else {
            offset += 1;
            continue;
        };
        if record.durable_len > bad as u64 {
            return End::Damaged(bad);
        }
        next_valid = next_valid.or(Some(offset));
        offset += record.len();
    }
    match next_valid {
        None => End::Torn(bad),
        // An intact record that does not continue the log stems from an earlier write to the same
        // blocks: the newer write is lost.
        Some(_) if key.decode(bytes, bad).is_some() => End::Torn(bad),
        Some(next) if has_lost_sector(bytes, bad, next) => End::Torn(bad),
        Some(_) => End::Damaged(bad),
    }
}

/// Returns whether `bytes[from..to]` holds a sector, or the end of one, that was never written.
fn has_lost_sector(bytes: &[u8], from: usize, to: usize) -> bool {
    let mut start = from;
    while start < to {
        let sector_end = (start / SECTOR_LEN + 1) * SECTOR_LEN;
        if sector_end <= to && bytes[start..sector_end].iter().all(|byte| *byte == 0) {
            return true;
        }
        start = sector_end;
    }
    false
}
