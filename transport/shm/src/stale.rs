//! Removal of segments that crashed processes left behind under names that are not used again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::lock;
use crate::segment::{DIRECTORY, file_prefix};

/// Removes this user's segments and page pools without a live process, whatever their name, and
/// returns their paths. A stale segment is recreated when its name is used again; this function is
/// for names that are not, such as those of tests.
///
/// # Errors
/// If the directory of segments cannot be read. A single segment that cannot be examined is
/// skipped.
pub fn remove_stale_segments() -> io::Result<Vec<PathBuf>> {
    remove_with_prefix(&file_prefix())
}

/// Returns what [`remove_stale_segments`] would remove now.
///
/// # Errors
/// As [`remove_stale_segments`].
pub fn stale_segments() -> io::Result<Vec<PathBuf>> {
    find(&file_prefix(), |path| lock_if_stale(path).map(|stale| stale.is_some()))
}

/// Removes stale segments whose file names begin with `prefix`.
pub(crate) fn remove_with_prefix(prefix: &str) -> io::Result<Vec<PathBuf>> {
    find(prefix, remove_if_stale)
}

fn find(prefix: &str, is_it: impl Fn(&Path) -> io::Result<bool>) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(DIRECTORY)? {
        let entry = entry?;
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        if is_ours && is_it(&entry.path()).unwrap_or(false) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Opens a segment without a live process, with its setup lock held.
fn lock_if_stale(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let file: File = options.open(path)?;
    let is_stale = file.metadata()?.uid() == lock::effective_uid()
        && lock::try_lock_setup(&file)?
        && !lock::has_live_process(&file)?;
    Ok(is_stale.then_some(file))
}

fn remove_if_stale(path: &Path) -> io::Result<bool> {
    let Some(file) = lock_if_stale(path)? else { return Ok(false) };
    // It may have been removed, and another one created, since it was opened.
    let (opened, present) = (file.metadata()?, std::fs::metadata(path)?);
    if (opened.dev(), opened.ino()) != (present.dev(), present.ino()) {
        return Ok(false);
    }
    // A process that waits for the setup lock finds the file removed, and starts over.
    std::fs::remove_file(path)?;
    Ok(true)
}
