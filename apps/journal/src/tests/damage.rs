//! Damaged, stale, missing and foreign files.

use super::{STORE, small_segments};
use crate::disk::Disk;
use crate::format::{segment_name, snapshot_name};
use crate::memory::MemoryDisk;
use crate::{Journal, OpenError, Options, Record, Recovered, StoreId};

/// Returns a disk with a journal of records 1 to `count`, each synchronised on its own.
fn filled(count: u64, len: usize, options: Options) -> (MemoryDisk, Vec<Record>) {
    let disk = MemoryDisk::new();
    let (mut journal, _) = Journal::open_on(disk.clone(), options).expect("it opens");
    let records =
        (1..=count).map(|position| Record { position, payload: vec![position as u8; len] });
    let records: Vec<Record> = records.collect();
    for record in &records {
        journal.append(record.position, &record.payload).expect("it ascends");
        journal.sync().expect("the disk works");
    }
    (disk, records)
}

fn open(disk: &MemoryDisk, options: Options) -> Result<Recovered, OpenError> {
    Journal::open_on(disk.clone(), options).map(|(_, recovered)| recovered)
}

fn change(disk: &MemoryDisk, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.read(name).expect("it exists");
    change(&mut bytes);
    disk.put(name, &bytes);
}

#[test]
fn a_flipped_bit_never_makes_a_wrong_record() {
    let (_, records) = filled(6, 70, small_segments());
    let (disk, _) = filled(6, 70, small_segments());
    let names = disk.list().expect("the disk works");
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        let intact = disk.read(&name).expect("it exists");
        for bit in 0..intact.len() * 8 {
            let mut bytes = intact.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (damaged, _) = filled(6, 70, small_segments());
            damaged.put(&name, &bytes);
            let last = records.len() - 1;
            match open(&damaged, small_segments()) {
                // Only the very last record can pass for one that a crash has torn.
                Ok(recovered) => {
                    assert_eq!(recovered.records, records[..last], "bit {bit} of {name}");
                    assert!(recovered.repaired.is_some());
                }
                Err(OpenError::Damaged { .. }) => {}
                Err(error) => panic!("bit {bit} of {name}: {error}"),
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_records_of_one_sync_is_not_a_torn_tail() {
    let options = Options::new(STORE);
    let disk = MemoryDisk::new();
    let (mut journal, _) = Journal::open_on(disk.clone(), options).expect("it opens");
    for position in 1..=4 {
        journal.append(position, &[position as u8; 70]).expect("it ascends");
    }
    journal.sync().expect("the disk works");
    drop(journal);
    let intact = disk.read(&segment_name(1)).expect("it exists");
    for bit in 0..(64 + 3 * 110) * 8 {
        change(&disk, &segment_name(1), |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let error = open(&disk, options).expect_err("records follow that are intact");
        assert!(matches!(error, OpenError::Damaged { .. }), "bit {bit}: {error}");
        disk.put(&segment_name(1), &intact);
    }
}

#[test]
fn a_torn_tail_is_cut_off_and_reported() {
    let options = Options::new(STORE);
    let (disk, records) = filled(3, 70, options);
    let name = segment_name(1);
    let len = disk.read(&name).expect("it exists").len();
    for cut in 1..110 {
        change(&disk, &name, |bytes| bytes.truncate(len - cut));
        let recovered = open(&disk, options).expect("a torn tail");
        assert_eq!(recovered.records, records[..2], "{cut} bytes are missing");
        let repair = recovered.repaired.expect("it says what it did");
        assert_eq!((repair.offset, repair.bytes), (64 + 2 * 110, 110 - cut as u64));
        let (fresh, _) = filled(3, 70, options);
        disk.put(&name, &fresh.read(&name).expect("it exists"));
    }
}

#[test]
fn damage_before_valid_records_is_refused_until_repaired() {
    let (disk, records) = filled(12, 70, small_segments());
    let name = segment_name(6);
    let intact = disk.read(&name).expect("a segment begins with it");
    change(&disk, &name, |bytes| bytes[64 + 110 + 60] ^= 1);
    let damaged = disk.read(&name).expect("it exists");
    let error = open(&disk, small_segments()).expect_err("acknowledged records may be lost");
    assert!(matches!(error, OpenError::Damaged { offset: 174, .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("peer"), "{message}");
    assert_eq!(disk.read(&name).expect("it exists"), damaged, "opening changes nothing");

    let repairs = Journal::repair_on(&disk, STORE).expect("the disk works");
    assert_eq!(repairs.len(), 2, "the later segment and this one: {repairs:?}");
    let copy = repairs[1].copy.clone().expect("a copy");
    let copied = disk.read(copy.to_str().expect("ASCII")).expect("it exists");
    assert!(copied == damaged && copied != intact);
    let recovered = open(&disk, small_segments()).expect("it is repaired");
    assert_eq!(recovered.records, records[..6]);
    assert_eq!(Journal::repair_on(&disk, STORE).expect("the disk works"), []);
}

#[test]
fn records_in_the_wrong_order_are_refused() {
    let options = Options::new(STORE);
    let (disk, _) = filled(4, 70, options);
    change(&disk, &segment_name(1), |bytes| {
        let (second, third) = (64 + 110, 64 + 220);
        let record = bytes[second..third].to_vec();
        bytes.copy_within(third..third + 110, second);
        bytes[third..third + 110].copy_from_slice(&record);
    });
    let error = open(&disk, options).expect_err("a record is not where it was");
    assert!(matches!(error, OpenError::Damaged { offset: 174, .. }), "{error}");
}

#[test]
fn a_missing_segment_is_refused() {
    let (disk, _) = filled(18, 70, small_segments());
    disk.remove(&segment_name(6)).expect("it exists");
    let error = open(&disk, small_segments()).expect_err("records are missing");
    assert!(matches!(error, OpenError::Gap { expected: 10, found: 5, .. }), "{error}");
    Journal::repair_on(&disk, STORE).expect("the disk works");
    assert_eq!(open(&disk, small_segments()).expect("it is repaired").records.len(), 5);
}

#[test]
fn files_of_another_store_are_refused() {
    let other = Options::new(StoreId(*b"another's store."));
    let (disk, _) = filled(2, 70, Options::new(STORE));
    let error = open(&disk, other).expect_err("another store");
    assert!(matches!(error, OpenError::OtherStore { found: STORE, .. }), "{error}");

    let (foreign, _) = filled(2, 70, other);
    let name = segment_name(1);
    let (disk, _) = filled(12, 70, small_segments());
    disk.put(&name, &foreign.read(&name).expect("it exists"));
    let error = open(&disk, small_segments()).expect_err("one stale segment");
    assert!(matches!(error, OpenError::OtherStore { expected: STORE, .. }), "{error}");
}

#[test]
fn a_later_format_version_is_refused() {
    let (disk, _) = filled(1, 70, Options::new(STORE));
    change(&disk, &segment_name(1), |bytes| {
        bytes[8] = 9;
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[..56]);
        bytes[56..64].copy_from_slice(&checksum.to_le_bytes());
    });
    let error = open(&disk, Options::new(STORE)).expect_err("a later version");
    assert!(matches!(error, OpenError::Version { version: 9, .. }), "{error}");
}

#[test]
fn a_damaged_snapshot_falls_back_to_an_older_one() {
    let options = Options { snapshot_count: 2, ..small_segments() };
    let (disk, records) = filled(12, 70, options);
    let (mut journal, _) = Journal::open_on(disk.clone(), options).expect("it opens");
    journal.snapshot(4, b"four").expect("the disk works");
    journal.snapshot(9, b"nine").expect("the disk works");
    drop(journal);
    change(&disk, &snapshot_name(9), |bytes| bytes[49] ^= 1);
    let recovered = open(&disk, options).expect("the log reaches back");
    assert_eq!(recovered.snapshot.expect("the older one").bytes, b"four");
    assert_eq!(recovered.records, records[4..]);
    assert_eq!(recovered.damaged_snapshots.len(), 1);
}

#[test]
fn a_damaged_snapshot_without_its_log_is_refused() {
    let (disk, _) = filled(12, 70, small_segments());
    let (mut journal, _) = Journal::open_on(disk.clone(), small_segments()).expect("it opens");
    journal.snapshot(12, b"twelve").expect("the disk works");
    assert_eq!(disk.list().expect("the disk works"), [snapshot_name(12)]);
    journal.append(13, b"thirteen").expect("it ascends");
    journal.sync().expect("the disk works");
    drop(journal);
    change(&disk, &snapshot_name(12), |bytes| bytes[49] ^= 1);
    open(&disk, small_segments()).expect_err("the log begins after it");
    Journal::repair_on(&disk, STORE).expect("the disk works");
    assert_eq!(open(&disk, small_segments()).expect("it is repaired").records, []);
}

/// With any bit flipped, all records are found but the one that is damaged.
#[test]
fn salvage_finds_all_but_the_damaged_record() {
    let (disk, records) = filled(6, 70, small_segments());
    let intact = Journal::salvage_on(&disk, STORE).expect("the disk works");
    assert!(intact.damage.is_none() && intact.records == records);
    for name in disk.list().expect("the disk works") {
        let bytes = disk.read(&name).expect("it exists");
        for bit in 0..bytes.len() * 8 {
            change(&disk, &name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            let found = Journal::salvage_on(&disk, STORE).expect("the disk works");
            let missing = records.iter().filter(|record| !found.records.contains(record)).count();
            let is_header = bit / 8 < 64;
            assert_eq!(missing, usize::from(!is_header), "bit {bit} of {name}");
            assert_eq!(found.records.len() + missing, records.len(), "nothing is invented");
            // The last record passes for one that a crash has torn.
            let is_last = !found.records.contains(&records[5]);
            assert_eq!(found.damage.is_none(), is_last, "bit {bit} of {name}");
            disk.put(&name, &bytes);
        }
    }
}

#[test]
fn salvage_finds_the_intact_snapshots() {
    let options = Options { snapshot_count: 2, ..small_segments() };
    let disk = MemoryDisk::new();
    let (mut journal, _) = Journal::open_on(disk.clone(), options).expect("it opens");
    for position in 1..=6 {
        journal.append(position, &[1; 70]).expect("it ascends");
        if position % 2 == 0 {
            journal.snapshot(position, &[position as u8; 30]).expect("the disk works");
        }
    }
    change(&disk, &snapshot_name(6), |bytes| bytes[60] ^= 1);
    let found = Journal::salvage_on(&disk, STORE).expect("the disk works");
    assert!(found.damage.is_none(), "the log reaches back: {:?}", found.damage);
    let intact: Vec<u64> = found.snapshots.iter().map(|snapshot| snapshot.position).collect();
    assert_eq!((intact, found.damaged_snapshots), (vec![4], vec![6]));
    assert_eq!(found.snapshots[0].bytes, [4; 30]);
    change(&disk, &snapshot_name(4), |bytes| bytes[60] ^= 1);
    let found = Journal::salvage_on(&disk, STORE).expect("the disk works");
    assert!(matches!(found.damage, Some(OpenError::Gap { .. })), "{:?}", found.damage);
    assert_eq!(found.damaged_snapshots, [4, 6]);
}
