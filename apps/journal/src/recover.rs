//! Opens a directory: does what the plan says, and makes what it found durable.

use crate::disk::{Disk, DiskFile};
use crate::error::OpenError;
use crate::format::{segment_name, snapshot_name};
use crate::mistake::{Mistake, makes};
use crate::options::Options;
use crate::plan::{Plan, TornEnd};
use crate::recovered::{Recovered, Repair};

/// Does what `plan` says. Afterwards all that it holds is durable.
pub fn apply<D: Disk>(
    disk: &D,
    options: &Options,
    plan: &mut Plan,
) -> Result<Recovered, OpenError> {
    let failed = |name: &str| {
        let path = disk.path(name);
        move |source| OpenError::Io { path, source }
    };
    let repaired = match plan.torn {
        Some(torn) => Some(cut(disk, torn)?),
        None => None,
    };
    let mut damaged_snapshots = Vec::new();
    for name in plan.damaged_snapshots.iter().copied().map(snapshot_name) {
        let renamed = format!("damaged-{name}");
        disk.rename(&name, &renamed).map_err(failed(&name))?;
        damaged_snapshots.push(disk.path(&renamed));
    }
    // A process that crashed may have written records and renamed a snapshot without waiting for
    // the disk. The caller acts on what it gets here, so it must not vanish any more. The end of
    // the log is written again: if an `fdatasync` of that process has failed, the system takes the
    // bytes for written, and another `fdatasync` alone would do nothing.
    if !makes(Mistake::OpenNotSynced) {
        if let Some(last) = plan.segments.last() {
            let name = segment_name(last.first);
            let synced = disk.open(&name).and_then(|mut file| {
                if !makes(Mistake::EndNotRewritten) {
                    file.write_at(last.len - plan.unsynced.len() as u64, &plan.unsynced)?;
                }
                file.sync_data()
            });
            synced.map_err(failed(&name))?;
        }
        disk.sync_directory().map_err(failed(""))?;
    }
    // From here on the snapshot is durable, so what precedes it can go.
    let retained_count = options.snapshot_count.max(1) - 1;
    let retained_count = retained_count.min(plan.older_snapshots.len());
    let surplus = plan.older_snapshots.split_off(retained_count);
    let unneeded = surplus.into_iter().map(snapshot_name).chain(plan.unfinished.drain(..));
    for name in unneeded {
        disk.remove(&name).map_err(failed(&name))?;
    }
    Ok(Recovered {
        snapshot: plan.snapshot.take(),
        records: std::mem::take(&mut plan.records),
        repaired,
        damaged_snapshots,
    })
}

/// Cuts off the torn end of a segment.
fn cut<D: Disk>(disk: &D, torn: TornEnd) -> Result<Repair, OpenError> {
    let name = segment_name(torn.first);
    let path = disk.path(&name);
    let done = if torn.offset == 0 {
        disk.remove(&name)
    } else {
        disk.open(&name).and_then(|mut file| {
            file.set_len(torn.offset)?;
            file.sync_data()
        })
    };
    match done {
        Ok(()) => Ok(Repair { path, offset: torn.offset, bytes: torn.bytes, copy: None }),
        Err(source) => Err(OpenError::Io { path, source }),
    }
}
