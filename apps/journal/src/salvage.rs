//! Reads what is intact in a directory that may be damaged, and changes nothing.

use crate::disk::Disk;
use crate::error::OpenError;
use crate::format::{SEGMENT_HEADER_LEN, SegmentKey, position_in, segment_name, snapshot_name};
use crate::options::StoreId;
use crate::plan::Plan;
use crate::recovered::{Record, Snapshot};
use crate::snapshot;

/// What is intact in a directory.
#[derive(Debug)]
pub struct Salvaged {
    /// The intact snapshots, by ascending position.
    pub snapshots: Vec<Snapshot>,
    /// Positions of the damaged ones, ascending.
    pub damaged_snapshots: Vec<u64>,
    /// The intact records, by ascending position, those behind the damage too.
    pub records: Vec<Record>,
    /// Why the directory cannot be opened, if it is damaged.
    pub damage: Option<OpenError>,
}

/// Reads all intact records of `store`.
pub fn salvage<D: Disk>(disk: &D, store: StoreId) -> Result<Salvaged, OpenError> {
    let damage = match Plan::read(disk, store) {
        Ok(_) => None,
        Err(
            error @ (OpenError::Damaged { .. }
            | OpenError::SnapshotDamaged { .. }
            | OpenError::Gap { .. }),
        ) => Some(error),
        Err(error) => return Err(error),
    };
    let io = |name: &str| {
        let path = disk.path(name);
        move |source| OpenError::Io { path, source }
    };
    let names = disk.list().map_err(io(""))?;
    let mut firsts: Vec<u64> = names.iter().filter_map(|name| position_in(name, "log-")).collect();
    firsts.sort_unstable();
    let mut records: Vec<Record> = Vec::new();
    for first in firsts {
        let name = segment_name(first);
        let bytes = disk.read(&name).map_err(io(&name))?;
        read_segment(&bytes, &SegmentKey::new(store, first), &mut records);
    }
    let mut positions: Vec<u64> =
        names.iter().filter_map(|name| position_in(name, "snapshot-")).collect();
    positions.sort_unstable();
    let (mut snapshots, mut damaged_snapshots) = (Vec::new(), Vec::new());
    for position in positions {
        let name = snapshot_name(position);
        match snapshot::decode(disk.read(&name).map_err(io(&name))?, store, position) {
            Ok(bytes) => snapshots.push(Snapshot { position, bytes }),
            Err(_) => damaged_snapshots.push(position),
        }
    }
    Ok(Salvaged { snapshots, damaged_snapshots, records, damage })
}

/// Appends the intact records of a segment. Records behind damage must continue each other, as a
/// stale record of an earlier write to the same blocks does not.
fn read_segment(bytes: &[u8], key: &SegmentKey, records: &mut Vec<Record>) {
    let (mut offset, mut previous) = (SEGMENT_HEADER_LEN, None);
    while offset < bytes.len() {
        let last = records.last().map_or(0, |record| record.position);
        let record = key.decode(bytes, offset).filter(|record| {
            let continues = previous.is_none_or(|checksum| checksum == record.previous);
            continues && record.position > last
        });
        match record {
            Some(record) => {
                let (position, payload) = (record.position, record.payload.to_vec());
                records.push(Record { position, payload });
                offset += record.len();
                previous = Some(record.checksum);
            }
            None => {
                offset += 1;
                previous = None;
            }
        }
    }
}
