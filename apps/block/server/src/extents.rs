//! Which parts of a file have storage.

use std::fs::File;

use onepipe_block::{Extent, Range};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Number of extents in one reply; a client asks again from where they end.
const EXTENTS_MAX: usize = 1_024;

/// Returns the extents of a file from the beginning of a range on, in order. Storage may come and
/// go meanwhile: each extent was so at some time within the call.
pub fn extents(file: &File, range: Range) -> Result<Vec<Extent>, Errno> {
    let end = range.offset + u64::from(range.length);
    let mut extents = Vec::new();
    let mut at = range.offset;
    while at < end && extents.len() < EXTENTS_MAX {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.clamp(at, end),
            // No data follows.
            Err(Errno::NXIO) => end,
            Err(error) => return Err(error),
        };
        if data > at {
            extents.push(extent(data - at, false));
            at = data;
            continue;
        }
        // A block that has lost its storage since the last call still counts as allocated.
        let hole = seek(file, SeekFrom::Hole(at)).unwrap_or(end).clamp(at + 1, end);
        extents.push(extent(hole - at, true));
        at = hole;
    }
    Ok(extents)
}

fn extent(length: u64, is_allocated: bool) -> Extent {
    let length = u32::try_from(length).expect("an extent lies in the range of a request");
    // A hole of a file reads as zeroes.
    Extent { length, is_allocated, is_zero: !is_allocated }
}
