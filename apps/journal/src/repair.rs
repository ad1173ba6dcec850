//! Cuts a damaged log so that it opens, and retains copies of what it changes.

use std::path::Path;

use crate::disk::{Disk, DiskFile};
use crate::error::OpenError;
use crate::format::{position_in, segment_name};
use crate::options::StoreId;
use crate::plan::Plan;
use crate::recovered::Repair;

/// Cuts the log on `disk` at its first damage until it can be opened.
pub fn repair<D: Disk>(disk: &D, store: StoreId) -> Result<Vec<Repair>, OpenError> {
    let mut repairs = Vec::new();
    // Each turn removes a file, or cuts the segment that is the last one from then on.
    loop {
        match Plan::read(disk, store) {
            Ok(_) => return Ok(repairs),
            Err(OpenError::Damaged { path, offset, .. }) => {
                let first = position_of(&path, "log-");
                repairs.extend(remove_from(disk, first.saturating_add(1))?);
                repairs.push(cut(disk, first, offset)?);
            }
            Err(OpenError::Gap { path, .. }) => {
                repairs.extend(remove_from(disk, position_of(&path, "log-"))?);
            }
            Err(OpenError::SnapshotDamaged { path }) => {
                repairs.push(rename_damaged(disk, &name_of(&path))?);
            }
            Err(error) => return Err(error),
        }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn position_of(path: &Path, prefix: &str) -> u64 {
    position_in(&name_of(path), prefix).expect("the error names a file that the plan has listed")
}

/// Sets aside all segments from position `first` on.
fn remove_from<D: Disk>(disk: &D, first: u64) -> Result<Vec<Repair>, OpenError> {
    let listed = disk.list().map_err(|source| OpenError::Io { path: disk.path(""), source })?;
    let mut later: Vec<u64> = listed
        .iter()
        .filter_map(|name| position_in(name, "log-"))
        .filter(|at| *at >= first)
        .collect();
    later.sort_unstable();
    later.into_iter().map(|first| rename_damaged(disk, &segment_name(first))).collect()
}

/// Copies segment `first`, and cuts it at `offset`.
fn cut<D: Disk>(disk: &D, first: u64, offset: u64) -> Result<Repair, OpenError> {
    let name = segment_name(first);
    // A segment without a record does not continue the log.
    if offset <= crate::format::SEGMENT_HEADER_LEN as u64 {
        return rename_damaged(disk, &name);
    }
    let path = disk.path(&name);
    let copy = free_name(disk, &name)?;
    let cut = || {
        let bytes = disk.read(&name)?;
        let mut file = disk.create(&copy)?;
        file.write_at(0, &bytes)?;
        file.sync_data()?;
        disk.sync_directory()?;
        let mut file = disk.open(&name)?;
        file.set_len(offset)?;
        file.sync_data()?;
        Ok(bytes.len() as u64 - offset)
    };
    match cut() {
        Ok(bytes) => Ok(Repair { path, offset, bytes, copy: Some(disk.path(&copy)) }),
        Err(source) => Err(OpenError::Io { path, source }),
    }
}

/// Renames the file `name` to `damaged-…`.
fn rename_damaged<D: Disk>(disk: &D, name: &str) -> Result<Repair, OpenError> {
    let path = disk.path(name);
    let copy = free_name(disk, name)?;
    let rename = || {
        let bytes = disk.read(name)?.len() as u64;
        disk.rename(name, &copy)?;
        disk.sync_directory()?;
        Ok(bytes)
    };
    match rename() {
        Ok(bytes) => Ok(Repair { path, offset: 0, bytes, copy: Some(disk.path(&copy)) }),
        Err(source) => Err(OpenError::Io { path, source }),
    }
}

/// Returns a name for a copy of `name` that no file has.
fn free_name<D: Disk>(disk: &D, name: &str) -> Result<String, OpenError> {
    let listed = disk.list().map_err(|source| OpenError::Io { path: disk.path(""), source })?;
    let base = format!("damaged-{name}");
    let suffixed = (1..).map(|number| format!("{base}-{number}"));
    let mut names = std::iter::once(base.clone()).chain(suffixed);
    Ok(names.find(|name| !listed.contains(name)).expect("the names do not end"))
}
