//! The directories of a log that is replaced by another one: the log, its replacement and the
//! previous log. A crash at any moment leaves a complete one, and the names say which that is.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use onepipe_journal::{Directory, OpenError};

use super::error::StorageError;

/// Beginning of the name of a directory that is to replace a log.
const REPLACEMENT: &str = "replacement-";
/// Beginning of the name of a log that was replaced, until it is removed.
const PREVIOUS: &str = "previous-";

/// Returns the directory in `store` whose log is to replace that of the replica `name`.
pub fn replacement(store: &Path, name: &str) -> PathBuf {
    store.join(format!("{REPLACEMENT}{name}"))
}

/// Returns the directory in `store` of the log of the replica `name` that was replaced.
pub fn previous(store: &Path, name: &str) -> PathBuf {
    store.join(format!("{PREVIOUS}{name}"))
}

/// Returns the name of the replica to which a directory of a store belongs, if it is one of those
/// that a replacement needs.
pub fn replica_of(name: &str) -> Option<&str> {
    [REPLACEMENT, PREVIOUS].into_iter().find_map(|prefix| name.strip_prefix(prefix))
}

/// Completes a replacement of the log `name` in `store` that a crash has interrupted, or removes
/// what there is of it. To be called before the log is opened.
///
/// A replacement begins while there is a log, and a log gives up its name when the replacement is
/// complete. So a replacement beside a log may be incomplete, and one without a log is complete.
/// The previous log is not needed once there is a log again.
///
/// # Errors
/// [`StorageError::Open`] if the system fails, or if another program writes the replacement;
/// [`StorageError::Missing`] if there is the previous log alone, which no crash leaves.
pub fn finish_replacement(store: &Path, name: &str) -> Result<(), StorageError> {
    let (log, previous) = (store.join(name), previous(store, name));
    let replacement = replacement(store, name);
    if exists(&replacement)? {
        // A program that writes the replacement has its lock.
        let _lock = Directory::open(&replacement)?;
        match exists(&log)? {
            true => fs::remove_dir_all(&replacement).map_err(io(&replacement))?,
            false => rename(store, &replacement, &log).map_err(io(&replacement))?,
        }
    }
    if exists(&previous)? {
        if !exists(&log)? {
            return Err(StorageError::Missing { directory: log, previous });
        }
        // The name of the log may not be durable, if the program ended right after renaming it.
        sync(store).map_err(io(store))?;
        fs::remove_dir_all(&previous).map_err(io(&previous))?;
    }
    Ok(())
}

/// Renames a directory of the store, durably.
pub fn rename(store: &Path, from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync(store)
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns whether there is something at `path`. Unlike [`Path::is_dir`] it does not take a
/// failure of the system for an absence.
fn exists(path: &Path) -> Result<bool, StorageError> {
    path.try_exists().map_err(io(path))
}

fn io(path: &Path) -> impl Fn(io::Error) -> StorageError {
    move |source| StorageError::Open(OpenError::Io { path: path.into(), source })
}
