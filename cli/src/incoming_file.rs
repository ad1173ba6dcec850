//! A file that is being received: written under another name in its folder, and renamed when it is
//! complete.
//!
//! Its folder is opened once, and all names are relative to it. No symbolic link is followed below
//! the folder, and no file is replaced unless that is wanted, whatever others do in the folder at
//! the same time.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Maximum length of a file beside the partial file, in bytes.
const NOTE_LEN_MAX: u64 = 1 << 16;

#[derive(Debug)]
pub struct IncomingFile {
    pub file: File,
    /// Path of the complete file.
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
    part_name: OsString,
    /// Whether it replaces an existing file.
    replaces: bool,
}

impl IncomingFile {
    /// Opens the partial file of `path`, whose name is that of `path` and `suffix`; creates it if
    /// there is none, for this user alone.
    ///
    /// # Errors
    /// If `path` exists and is not to be replaced, or is no regular file; if the partial file is
    /// not a regular file of this user; errors of the system.
    pub fn open(path: PathBuf, suffix: &str, replaces: bool) -> Result<Self> {
        let name = path.file_name().context("the path has no file name")?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, parent, flags, Mode::empty());
        let folder = folder.with_context(|| format!("cannot open {}", parent.display()))?;
        match rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) if !replaces => bail!("{} already exists (--force replaces it)", path.display()),
            Ok(existing) if FileType::from_raw_mode(existing.st_mode) == FileType::Directory => {
                bail!("{} is a directory: choose another name for the file", path.display())
            }
            _ => {}
        }
        let part_name = beside(&name, suffix);
        let part = path.with_file_name(&part_name);
        let file = open_beside(&folder, &part_name, OFlags::RDWR | OFlags::CREATE);
        let file = file.with_context(|| format!("cannot open {}", part.display()))?;
        Ok(Self { file, path, folder, name, part_name, replaces })
    }

    /// Returns the path of the partial file.
    pub fn part_path(&self) -> PathBuf {
        self.path.with_file_name(&self.part_name)
    }

    /// Reads a file beside the complete one. `None` if it does not exist or is not as it should be.
    pub fn read_beside(&self, suffix: &str) -> Option<Vec<u8>> {
        let file = open_beside(&self.folder, &beside(&self.name, suffix), OFlags::RDONLY).ok()?;
        let mut bytes = Vec::new();
        file.take(NOTE_LEN_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Writes a file beside the complete one.
    ///
    /// # Errors
    /// Errors of the system, with the path.
    pub fn write_beside(&self, suffix: &str, bytes: &[u8]) -> Result<()> {
        let name = beside(&self.name, suffix);
        let write = || {
            let mut file = open_beside(&self.folder, &name, OFlags::WRONLY | OFlags::CREATE)?;
            file.set_len(0)?;
            file.write_all(bytes)
        };
        let path = self.path.with_file_name(&name);
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes a file beside the complete one, if there is one.
    pub fn remove_beside(&self, suffix: &str) {
        let _ = rustix::fs::unlinkat(&self.folder, beside(&self.name, suffix), AtFlags::empty());
    }

    /// Has the complete file written to its disk, and gives it its name.
    ///
    /// # Errors
    /// If a file of that name has appeared and is not to be replaced; errors of the system.
    pub fn finish(&self) -> Result<()> {
        let part = self.part_path();
        self.file.sync_all().with_context(|| format!("cannot write {}", part.display()))?;
        match self.rename() {
            Err(Errno::EXIST) => {
                bail!("{} already exists (--force replaces it)", self.path.display())
            }
            renamed => renamed.with_context(|| format!("cannot rename to {}", self.path.display())),
        }
    }

    fn rename(&self) -> rustix::io::Result<()> {
        let (folder, part, name) = (&self.folder, &self.part_name, &self.name);
        if self.replaces {
            return rustix::fs::renameat(folder, part, folder, name);
        }
        match rustix::fs::renameat_with(folder, part, folder, name, RenameFlags::NOREPLACE) {
            // The file system has no such rename.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(folder, part, folder, name, AtFlags::empty())?;
                rustix::fs::unlinkat(folder, part, AtFlags::empty())
            }
            renamed => renamed,
        }
    }
}

/// Returns the name of a file beside `name`.
fn beside(name: &OsStr, suffix: &str) -> OsString {
    let mut beside = name.to_owned();
    beside.push(suffix);
    beside
}

/// Opens a regular file of this user; does not follow a link, nor wait for the other end of a pipe.
fn open_beside(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> Result<File, io::Error> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
    let file = File::from(file);
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.uid() == geteuid().as_raw() && metadata.nlink() == 1 {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file of this user"))
}

/// Refuses a file that is longer than its receiver wants.
///
/// # Errors
/// With both numbers.
pub fn check_bytes(bytes: u64, bytes_max: Option<u64>) -> Result<()> {
    if let Some(bytes_max) = bytes_max {
        ensure!(
            bytes <= bytes_max,
            "the file has {bytes} bytes or more, this receiver takes {bytes_max} (--max-bytes)"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").expect("write");
        let path = folder.path().join("file");
        symlink(&victim, folder.path().join("file.part")).expect("a link");
        symlink(&victim, folder.path().join("file.note")).expect("a link");
        let refused = IncomingFile::open(path.clone(), ".part", true).expect_err("a link");
        assert!(format!("{refused:#}").contains("cannot open "), "{refused:#}");
        fs::remove_file(folder.path().join("file.part")).expect("the link");
        // A hard link is another name of a file that others use.
        fs::hard_link(&victim, folder.path().join("file.part")).expect("a link");
        assert!(IncomingFile::open(path.clone(), ".part", true).is_err());
        fs::remove_file(folder.path().join("file.part")).expect("the link");

        let incoming = IncomingFile::open(path, ".part", false).expect("no file of that name");
        assert!(incoming.write_beside(".note", b"x").is_err());
        assert_eq!(incoming.read_beside(".note"), None);
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "precious");
    }

    #[test]
    fn complete_file_replaces_none_unless_wanted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let open = |replaces| IncomingFile::open(path.clone(), ".part", replaces);
        let mut incoming = open(false).expect("no file of that name");
        incoming.file.write_all(b"received").expect("write");
        fs::write(&path, "appeared meanwhile").expect("write");
        let refused = incoming.finish().expect_err("it exists").to_string();
        assert!(refused.ends_with("file already exists (--force replaces it)"), "{refused}");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "appeared meanwhile");
        assert!(open(false).is_err());
        open(true).expect("replaced").finish().expect("replaced");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "received");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn moved_folder_is_still_the_folder() {
        let parent = tempfile::tempdir().expect("a folder");
        let (folder, moved) = (parent.path().join("in"), parent.path().join("moved"));
        fs::create_dir(&folder).expect("a folder");
        let incoming = IncomingFile::open(folder.join("file"), ".part", false).expect("new");
        fs::rename(&folder, &moved).expect("moved");
        let elsewhere = tempfile::tempdir().expect("a folder");
        symlink(elsewhere.path(), &folder).expect("a link");
        incoming.finish().expect("its folder is open");
        assert!(moved.join("file").exists() && !elsewhere.path().join("file").exists());
    }

    #[test]
    fn length_has_a_limit() {
        assert!(check_bytes(u64::MAX, None).is_ok() && check_bytes(5, Some(5)).is_ok());
        let refused = check_bytes(6, Some(5)).expect_err("too long").to_string();
        assert!(refused.contains("takes 5 (--max-bytes)"), "{refused}");
    }
}
