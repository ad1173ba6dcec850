//! Files over a group: a header object, the bytes in chunks, and a digest.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use onepipe_transport_bulk::ObjectBytes;

use super::Group;
use crate::{GroupEnd, GroupSendError};

/// The first bytes of the header object; the last one is the version.
const MAGIC: [u8; 8] = [b'1', b'p', b'f', b'i', b'l', b'e', 0, 1];
/// Length of the header object: magic, length of the file, first byte sent, chunk length, reserved.
const HEADER_LEN: usize = 32;
/// Default chunk length: an object of many blocks, and a quarter of a receiver's memory.
const CHUNK_LEN: u32 = 16 << 20;

/// The part of a file that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSource {
    /// Length of the whole file in bytes.
    pub bytes: u64,
    /// First byte to send: every receiver has all bytes before it.
    pub from: u64,
    /// Length of each object that the part is sent in, except the last. Default 16 MiB.
    pub chunk_len: u32,
}

impl FileSource {
    /// Selects all of a file.
    pub fn all(bytes: u64) -> Self {
        Self { bytes, from: 0, chunk_len: CHUNK_LEN }
    }
}

/// The result of sending or receiving a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// Length of the whole file in bytes.
    pub bytes: u64,
    /// First byte that was sent.
    pub from: u64,
    /// BLAKE3 digest of the whole file, verified by sender and receiver.
    pub digest: [u8; 32],
}

/// The progress of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileProgress {
    /// Bytes sent, or written here.
    pub done: u64,
    /// Length of the whole file in bytes.
    pub bytes: u64,
}

/// Why a file was not sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be opened or created.
    #[error("cannot open {}", path.display())]
    Open {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("cannot read the file at byte {at}")]
    Read {
        /// Offset of the error.
        at: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be written; the disk may be full.
    #[error("cannot write the file at byte {at}")]
    Write {
        /// Offset of the error.
        at: u64,
        /// The system's error.
        source: io::Error,
    },
    /// A received object does not belong to a file.
    #[error("the root has not sent a file: object {number} has {bytes} bytes")]
    NotAFile {
        /// Number of the object.
        number: u32,
        /// Its length in bytes.
        bytes: usize,
    },
    /// The group was closed before all of the file was received.
    #[error("the group was closed at byte {at} of {bytes}")]
    Truncated {
        /// Bytes received.
        at: u64,
        /// Length of the whole file.
        bytes: u64,
    },
    /// All bytes were received, but the digests differ.
    #[error("the file's BLAKE3 digest is {received}, and {sent} at the sender")]
    Digest {
        /// Digest of the received file.
        received: String,
        /// Digest of the sent file.
        sent: String,
    },
    /// The group has ended.
    #[error(transparent)]
    Ended(#[from] GroupEnd),
    /// The group accepts no object.
    #[error(transparent)]
    Send(#[from] GroupSendError),
}

impl Group {
    /// Sends all of a file to all other members, from the root, in chunks of 16 MiB.
    ///
    /// # Errors
    /// [`FileError`], also if members have failed meanwhile.
    pub fn send_file(&mut self, path: impl AsRef<Path>) -> Result<FileReport, FileError> {
        let path = path.as_ref();
        let open = |source| FileError::Open { path: path.to_path_buf(), source };
        let mut file = File::open(path).map_err(open)?;
        let bytes = file.metadata().map_err(open)?.len();
        self.send_part(&mut file, FileSource::all(bytes), |_| {})
    }

    /// Receives a file that the root sends by [`Group::send_file`], and creates or replaces `path`.
    ///
    /// # Errors
    /// [`FileError`]. What was received of the file is kept.
    pub fn recv_file(&mut self, path: impl AsRef<Path>) -> Result<FileReport, FileError> {
        let path = path.as_ref();
        let options = File::options().read(true).write(true).create(true).truncate(true).open(path);
        let mut file =
            options.map_err(|source| FileError::Open { path: path.to_path_buf(), source })?;
        self.recv_part(&mut file, |_| {})
    }

    /// Sends the part of a file given by [`FileSource`]. Reads the bytes before it, too, for the
    /// digest. Calls `on_progress` after every chunk.
    ///
    /// # Errors
    /// As [`Group::send_file`].
    pub fn send_part(
        &mut self,
        file: &mut impl Read,
        source: FileSource,
        mut on_progress: impl FnMut(FileProgress),
    ) -> Result<FileReport, FileError> {
        let FileSource { bytes, from, chunk_len } = source;
        let from = from.min(bytes);
        let mut hasher = hash_before(file, from)?;
        self.send(file_header(FileSource { from, ..source }))?;
        let mut at = from;
        while at < bytes {
            let chunk = (bytes - at).min(chunk_len.max(1).into());
            let mut read = |buffer: &mut [u8]| {
                file.read_exact(buffer).map_err(|source| FileError::Read { at, source })?;
                hasher.update(buffer);
                Ok::<(), FileError>(())
            };
            let object = match self.alloc_page(chunk as usize) {
                Some(mut page) => read(&mut page).map(|()| ObjectBytes::from(page)),
                None => {
                    let mut memory = self.alloc_buffer(chunk as usize);
                    read(&mut memory).map(|()| memory.into())
                }
            };
            self.send(object?)?;
            at += chunk;
            on_progress(FileProgress { done: at, bytes });
        }
        let digest = *hasher.finalize().as_bytes();
        self.send(digest)?;
        Ok(FileReport { bytes, from, digest })
    }

    /// Receives the part that the root sends by [`Group::send_part`]. The bytes before the part
    /// must exist in `file` and are read for the digest. Calls `on_progress` after every chunk.
    ///
    /// # Errors
    /// As [`Group::recv_file`].
    pub fn recv_part(
        &mut self,
        file: &mut (impl Read + Write + Seek),
        mut on_progress: impl FnMut(FileProgress),
    ) -> Result<FileReport, FileError> {
        let truncated = |at, bytes| move || FileError::Truncated { at, bytes };
        let first = self.recv()?.ok_or_else(truncated(0, 0))?;
        let not_a_file = FileError::NotAFile { number: first.number, bytes: first.bytes.len() };
        let FileSource { bytes, from, .. } = parse_header(&first.bytes).ok_or(not_a_file)?;
        file.seek(SeekFrom::Start(0)).map_err(|source| FileError::Read { at: 0, source })?;
        let mut hasher = hash_before(file, from)?;
        // Seek from reading to writing: not every implementation keeps one position for both.
        file.seek(SeekFrom::Start(from)).map_err(|source| FileError::Write { at: from, source })?;
        let mut at = from;
        while at < bytes {
            let chunk = self.recv()?.ok_or_else(truncated(at, bytes))?;
            let size = chunk.bytes.len();
            if size == 0 || at + size as u64 > bytes {
                return Err(FileError::NotAFile { number: chunk.number, bytes: size });
            }
            file.write_all(&chunk.bytes).map_err(|source| FileError::Write { at, source })?;
            hasher.update(&chunk.bytes);
            at += size as u64;
            self.offer_buffer(chunk.bytes);
            on_progress(FileProgress { done: at, bytes });
        }
        file.flush().map_err(|source| FileError::Write { at, source })?;
        let last = self.recv()?.ok_or_else(truncated(at, bytes))?;
        let not_a_file = FileError::NotAFile { number: last.number, bytes: last.bytes.len() };
        let sent: [u8; 32] = last.bytes[..].try_into().map_err(|_| not_a_file)?;
        let received = hasher.finalize();
        if received.as_bytes() != &sent {
            let sent = blake3::Hash::from_bytes(sent).to_hex().to_string();
            return Err(FileError::Digest { received: received.to_hex().to_string(), sent });
        }
        Ok(FileReport { bytes, from, digest: sent })
    }
}

impl FileReport {
    /// The digest as 64 hexadecimal digits.
    pub fn digest_hex(&self) -> String {
        blake3::Hash::from_bytes(self.digest).to_hex().to_string()
    }
}

/// Hashes the bytes before the part.
fn hash_before(file: &mut impl Read, from: u64) -> Result<blake3::Hasher, FileError> {
    let mut hasher = blake3::Hasher::new();
    let mut memory = vec![0; from.min(1 << 20) as usize];
    let mut at = 0;
    while at < from {
        let bytes = (from - at).min(memory.len() as u64) as usize;
        let buffer = &mut memory[..bytes];
        file.read_exact(buffer).map_err(|source| FileError::Read { at, source })?;
        hasher.update(buffer);
        at += bytes as u64;
    }
    Ok(hasher)
}

fn file_header(source: FileSource) -> Vec<u8> {
    let mut object = Vec::with_capacity(HEADER_LEN);
    object.extend_from_slice(&MAGIC);
    object.extend_from_slice(&source.bytes.to_be_bytes());
    object.extend_from_slice(&source.from.to_be_bytes());
    object.extend_from_slice(&source.chunk_len.to_be_bytes());
    object.extend_from_slice(&[0; 4]);
    object
}

fn parse_header(object: &[u8]) -> Option<FileSource> {
    let object: &[u8; HEADER_LEN] = object.try_into().ok()?;
    let number = |at: usize, bytes: usize| {
        object[at..at + bytes].iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
    };
    let source =
        FileSource { bytes: number(8, 8), from: number(16, 8), chunk_len: number(24, 4) as u32 };
    (object[..8] == MAGIC && source.from <= source.bytes).then_some(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_header_round_trips_and_others_are_rejected() {
        let source = FileSource { bytes: 1 << 40 | 5, from: 77, chunk_len: 1 << 31 };
        let object = file_header(source);
        assert_eq!(parse_header(&object), Some(source));
        for bytes in 0..HEADER_LEN {
            assert_eq!(parse_header(&object[..bytes]), None);
        }
        assert_eq!(parse_header(&file_header(FileSource { from: u64::MAX, ..source })), None);
        let mut other = object;
        other[7] = 2;
        assert_eq!(parse_header(&other), None, "another version");
    }
}
