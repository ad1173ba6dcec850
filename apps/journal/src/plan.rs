//! Reads a directory and decides what its files hold, without changing them.

use std::path::PathBuf;

use crate::disk::Disk;
use crate::error::OpenError;
use crate::format::{
    HeaderError, Link, SEGMENT_HEADER_LEN, SegmentHeader, SegmentKey, position_in, segment_name,
    snapshot_name,
};
use crate::options::StoreId;
use crate::recovered::{Record, Snapshot};
use crate::scan::{self, End};
use crate::snapshot::{self, UNFINISHED_SUFFIX};

/// What the files of a directory hold, and what is to be done with them.
#[derive(Debug, Default)]
pub struct Plan {
    /// The newest snapshot that is intact.
    pub snapshot: Option<Snapshot>,
    /// Positions of snapshots that are newer and damaged.
    pub damaged_snapshots: Vec<u64>,
    /// Positions of older snapshots, descending.
    pub older_snapshots: Vec<u64>,
    /// Records after the snapshot.
    pub records: Vec<Record>,
    /// Segments that continue the log, ascending.
    pub segments: Vec<PlannedSegment>,
    /// The last record of the log.
    pub last: Link,
    /// Bytes at the end of the last segment that no record says to be durable.
    pub unsynced: Vec<u8>,
    /// The end that a crash has torn.
    pub torn: Option<TornEnd>,
    /// First positions of segments that only hold what the snapshot holds.
    pub obsolete: Vec<u64>,
    /// Names of snapshots that were not finished.
    pub unfinished: Vec<String>,
}

/// A segment of the log.
#[derive(Clone, Copy, Debug)]
pub struct PlannedSegment {
    /// Position of its first record.
    pub first: u64,
    /// The record before its first one.
    pub previous: Link,
    /// Length of its intact part, in bytes.
    pub len: u64,
}

/// The end of the last segment, which is to be cut off.
#[derive(Clone, Copy, Debug)]
pub struct TornEnd {
    /// Position of the first record of the segment.
    pub first: u64,
    /// Offset of the first byte that is cut off.
    pub offset: u64,
    /// Number of bytes that are cut off.
    pub bytes: u64,
}

/// A segment in memory.
struct Loaded {
    header: SegmentHeader,
    bytes: Vec<u8>,
}

impl Plan {
    /// Reads the files of `disk`.
    pub fn read<D: Disk>(disk: &D, store: StoreId) -> Result<Self, OpenError> {
        let reader = Reader { disk, store };
        let mut plan = Self::default();
        let (mut firsts, mut snapshots) = (Vec::new(), Vec::new());
        for name in disk.list().map_err(|source| reader.io("", source))? {
            firsts.extend(position_in(&name, "log-"));
            snapshots.extend(position_in(&name, "snapshot-"));
            let finished_name = name.strip_suffix(UNFINISHED_SUFFIX);
            if finished_name.is_some_and(|name| position_in(name, "snapshot-").is_some()) {
                plan.unfinished.push(name);
            }
        }
        firsts.sort_unstable();
        snapshots.sort_unstable_by(|a, b| b.cmp(a));
        let damaged_count = plan.choose_snapshot(&reader, &snapshots)?;
        plan.older_snapshots = snapshots.split_off(snapshots.len().min(damaged_count + 1));
        let loaded = plan.load(&reader, &firsts)?;
        plan.read_records(&reader, loaded)?;
        plan.check_damaged_snapshots(&reader)?;
        Ok(plan)
    }

    /// Returns the position of the snapshot; 0 if there is none.
    pub fn base(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.position)
    }

    /// Reads the newest intact snapshot. Returns the number of damaged ones before it.
    fn choose_snapshot<D: Disk>(
        &mut self,
        reader: &Reader<'_, D>,
        positions: &[u64],
    ) -> Result<usize, OpenError> {
        for position in positions.iter().copied() {
            let name = snapshot_name(position);
            match snapshot::decode(reader.read(&name)?, reader.store, position) {
                Ok(bytes) => {
                    self.snapshot = Some(Snapshot { position, bytes });
                    break;
                }
                Err(HeaderError::Damaged) => self.damaged_snapshots.push(position),
                Err(error) => return Err(reader.refused(&name, error)),
            }
        }
        Ok(self.damaged_snapshots.len())
    }

    /// Loads the segments that hold records after the snapshot, ascending.
    fn load<D: Disk>(
        &mut self,
        reader: &Reader<'_, D>,
        firsts: &[u64],
    ) -> Result<Vec<Loaded>, OpenError> {
        let mut loaded: Vec<Loaded> = Vec::new();
        for (index, first) in firsts.iter().copied().enumerate().rev() {
            let reaches_back = loaded
                .last()
                .is_some_and(|segment| segment.header.previous.position <= self.base());
            if reaches_back {
                self.obsolete.push(first);
                continue;
            }
            let name = segment_name(first);
            let bytes = reader.read(&name)?;
            match SegmentHeader::decode(&bytes, reader.store, first) {
                Ok(header) => loaded.push(Loaded { header, bytes }),
                Err(HeaderError::Damaged) => {
                    let is_last = index + 1 == firsts.len();
                    self.torn = Some(reader.torn_header(first, &bytes, is_last)?);
                }
                Err(error) => return Err(reader.refused(&name, error)),
            }
        }
        loaded.reverse();
        self.obsolete.reverse();
        Ok(loaded)
    }

    /// Reads the records of the segments, and checks that each continues what precedes it.
    fn read_records<D: Disk>(
        &mut self,
        reader: &Reader<'_, D>,
        loaded: Vec<Loaded>,
    ) -> Result<(), OpenError> {
        let count = loaded.len();
        for (index, Loaded { header, bytes }) in loaded.into_iter().enumerate() {
            let name = segment_name(header.first);
            let (expected, base) = (header.previous, self.base());
            let continues = match index {
                0 => expected.position <= base,
                _ => expected == self.last,
            };
            if !continues {
                let found = if index == 0 { base } else { self.last.position };
                let (path, expected) = (reader.disk.path(&name), expected.position);
                return Err(OpenError::Gap { path, expected, found });
            }
            let key = SegmentKey::new(reader.store, header.first);
            let scan = scan::records(&bytes, &key, header.first, header.previous);
            let is_last = index + 1 == count && self.torn.is_none();
            let mut intact_len = bytes.len();
            match scan.end {
                End::Whole => {}
                End::Torn(offset) if is_last => intact_len = offset,
                End::Torn(offset) | End::Damaged(offset) => {
                    return Err(reader.damaged(&name, offset, bytes.len()));
                }
            }
            // A segment without a record is removed: its name promises one.
            if scan.records.is_empty() {
                if !is_last {
                    return Err(reader.damaged(&name, SEGMENT_HEADER_LEN, bytes.len()));
                }
                intact_len = 0;
            }
            if intact_len < bytes.len() {
                let (offset, cut) = (intact_len as u64, (bytes.len() - intact_len) as u64);
                self.torn = Some(TornEnd { first: header.first, offset, bytes: cut });
            }
            if intact_len > 0 {
                let (first, previous, len) = (header.first, header.previous, intact_len as u64);
                self.segments.push(PlannedSegment { first, previous, len });
                self.last = scan.last;
                let durable_len = scan.records.last().map_or(0, |record| record.durable_len);
                self.unsynced = bytes[durable_len as usize..intact_len].to_vec();
            }
            let after_base = scan.records.iter().filter(|record| record.position > base);
            self.records.extend(after_base.map(|record| Record {
                position: record.position,
                payload: record.payload.to_vec(),
            }));
        }
        Ok(())
    }

    /// Checks that the log holds what the damaged snapshots held.
    fn check_damaged_snapshots<D: Disk>(&self, reader: &Reader<'_, D>) -> Result<(), OpenError> {
        match self.damaged_snapshots.first() {
            Some(newest) if self.last.position < *newest => {
                Err(OpenError::SnapshotDamaged { path: reader.disk.path(&snapshot_name(*newest)) })
            }
            _ => Ok(()),
        }
    }
}

/// Reads files, and makes errors that name them.
struct Reader<'a, D> {
    disk: &'a D,
    store: StoreId,
}

impl<D: Disk> Reader<'_, D> {
    fn path(&self, name: &str) -> PathBuf {
        self.disk.path(name)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, OpenError> {
        self.disk.read(name).map_err(|source| self.io(name, source))
    }

    fn io(&self, name: &str, source: std::io::Error) -> OpenError {
        OpenError::Io { path: self.path(name), source }
    }

    fn damaged(&self, name: &str, offset: usize, len: usize) -> OpenError {
        OpenError::Damaged { path: self.path(name), offset: offset as u64, len: len as u64 }
    }

    fn refused(&self, name: &str, error: HeaderError) -> OpenError {
        let path = self.path(name);
        match error {
            HeaderError::Version(version) => OpenError::Version { path, version },
            HeaderError::Store(found) => {
                OpenError::OtherStore { path, found, expected: self.store }
            }
            HeaderError::Damaged => OpenError::Damaged { path, offset: 0, len: 0 },
        }
    }

    /// Returns what to cut off if a crash explains the damaged header of a segment.
    fn torn_header(&self, first: u64, bytes: &[u8], is_last: bool) -> Result<TornEnd, OpenError> {
        let key = SegmentKey::new(self.store, first);
        let is_torn = is_last && matches!(scan::end(bytes, &key, 0, 0), End::Torn(_));
        if !is_torn {
            return Err(self.damaged(&segment_name(first), 0, bytes.len()));
        }
        Ok(TornEnd { first, offset: 0, bytes: bytes.len() as u64 })
    }
}
