//! Properties of opening a journal whose files hold any bytes. Shared with `verify/fuzz`.

use onepipe_journal::{
    Disk, Journal, MemoryDisk, OpenError, Options, Record, Recovered, StoreId, SyncPolicy,
};

const STORE: StoreId = StoreId(*b"any bytes at all");

fn options() -> Options {
    let policy = SyncPolicy::Always;
    Options { segment_bytes: 300, snapshot_count: 2, policy, ..Options::new(STORE) }
}

/// Returns a disk with two snapshots and three segments, and all records of the log.
fn filled() -> (MemoryDisk, Vec<Record>) {
    let disk = MemoryDisk::new();
    let (mut journal, _) = Journal::open_on(disk.clone(), options()).expect("it is empty");
    let mut records = Vec::new();
    for position in (2..=18).step_by(2) {
        let payload = vec![position as u8; 20 + position as usize];
        journal.append(position, &payload).expect("it ascends");
        journal.sync().expect("the disk works");
        records.push(Record { position, payload });
        if position == 4 || position == 8 {
            journal.snapshot(position, &[position as u8; 30]).expect("the disk works");
        }
    }
    (disk, records)
}

/// Opens a journal whose files were changed. The first byte chooses how: it appends the other bytes
/// to a file, replaces a file by them, or changes single bytes of a file.
pub fn check_log(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    let (disk, records) = filled();
    let mut names = disk.list().expect("the disk works");
    names.sort();
    let name = &names[usize::from(mode / 3) % names.len()];
    let mut file = disk.read(name).expect("it was listed");
    match mode % 3 {
        0 => file.extend(bytes),
        1 => file = bytes.to_vec(),
        _ => {
            for edit in bytes.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % file.len();
                file[at] ^= edit[2];
            }
        }
    }
    disk.put(name, &file);
    match Journal::open_on(disk.clone(), options()) {
        Ok((journal, recovered)) => {
            check_recovered(&recovered, &records);
            drop(journal);
            check_reopened(&disk, &recovered);
        }
        Err(OpenError::OtherStore { .. } | OpenError::Version { .. }) => {}
        Err(error) => {
            Journal::repair_on(&disk, STORE).unwrap_or_else(|why| panic!("{error}, then {why}"));
            let (_, recovered) = Journal::open_on(disk.clone(), options()).expect("it is repaired");
            check_recovered(&recovered, &records);
        }
    }
}

/// Checks that nothing was invented.
fn check_recovered(recovered: &Recovered, records: &[Record]) {
    let base = recovered.snapshot.as_ref().map_or(0, |snapshot| snapshot.position);
    if let Some(snapshot) = &recovered.snapshot {
        assert_eq!(snapshot.bytes, [base as u8; 30]);
    }
    let after = records.iter().filter(|record| record.position > base);
    assert!(recovered.records.iter().zip(after.clone()).all(|(found, record)| found == record));
    assert!(recovered.records.len() <= after.count());
}

/// Checks that what was opened once stays, also after a crash, and that the log goes on.
fn check_reopened(disk: &MemoryDisk, before: &Recovered) {
    disk.restart(1);
    let (mut journal, recovered) = Journal::open_on(disk.clone(), options()).expect("it opens");
    assert_eq!(recovered.snapshot, before.snapshot);
    assert_eq!(recovered.records, before.records);
    assert_eq!(recovered.repaired, None);
    let position = journal.last() + 1;
    journal.append(position, b"more").expect("it ascends");
    assert_eq!(journal.sync().expect("the disk works").durable, position);
    drop(journal);
    let (_, recovered) = Journal::open_on(disk.clone(), options()).expect("it opens");
    assert_eq!(recovered.records.last().map(|record| record.position), Some(position));
}
