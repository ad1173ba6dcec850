//! The segment that records are appended to.

use std::io;

use crate::disk::{Disk, DiskFile};
use crate::format::{Link, SegmentHeader, SegmentKey, segment_name};

/// An open segment. Bytes that are appended wait in memory until [`Active::write`].
#[derive(Debug)]
pub struct Active<F> {
    file: F,
    key: SegmentKey,
    /// Position of the first record.
    pub first: u64,
    /// Bytes to write at `len`.
    buffer: Vec<u8>,
    /// Length of what is written, in bytes.
    len: u64,
    /// Length of what is known to be durable, in bytes.
    synced_len: u64,
    /// Length of what need not be written again after a failure, in bytes, and its last record.
    secured: (u64, Link),
    /// Whether the name of the file is durable.
    is_listed: bool,
    /// The last record that was appended.
    pub last: Link,
}

impl<F: DiskFile> Active<F> {
    /// Creates the segment that begins with position `header.first`.
    pub fn create<D: Disk<File = F>>(disk: &D, header: &SegmentHeader) -> io::Result<Self> {
        Ok(Self {
            file: disk.create(&segment_name(header.first))?,
            key: SegmentKey::new(header.store, header.first),
            first: header.first,
            buffer: header.encode().to_vec(),
            len: 0,
            synced_len: 0,
            secured: (0, header.previous),
            is_listed: false,
            last: header.previous,
        })
    }

    /// Continues a segment of which `len` bytes are durable.
    pub fn open<D: Disk<File = F>>(
        disk: &D,
        key: SegmentKey,
        first: u64,
        len: u64,
        last: Link,
    ) -> io::Result<Self> {
        let file = disk.open(&segment_name(first))?;
        let (buffer, secured) = (Vec::new(), (len, last));
        let is_listed = true;
        Ok(Self { file, key, first, buffer, len, synced_len: len, secured, is_listed, last })
    }

    /// Returns the length of the segment with what waits in memory, in bytes.
    pub fn total_len(&self) -> u64 {
        self.len + self.buffer.len() as u64
    }

    /// Returns the number of bytes that wait in memory.
    pub fn buffered_len(&self) -> usize {
        self.buffer.len()
    }

    /// Appends a record to the bytes that wait.
    pub fn append(&mut self, position: u64, payload: &[u8]) {
        let (durable_len, previous) = (self.synced_len, self.last.checksum);
        let checksum = self.key.encode(&mut self.buffer, position, durable_len, previous, payload);
        self.last = Link { position, checksum };
    }

    /// Writes what waits.
    pub fn write(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.file.write_at(self.len, &self.buffer)?;
            self.len += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Waits until all that was written is durable, and the name of the file.
    pub fn sync<D: Disk>(&mut self, disk: &D, is_listed_anyway: bool) -> io::Result<()> {
        if self.synced_len < self.len {
            self.file.sync_data()?;
        }
        if !self.is_listed && !is_listed_anyway {
            disk.sync_directory()?;
        }
        self.is_listed = true;
        self.synced_len = self.len;
        Ok(())
    }

    /// Declares that what was written need not be written again after a failure.
    pub fn secure(&mut self) {
        self.secured = (self.len, self.last);
    }

    /// Returns the length of what need not be written again, and its last record.
    pub fn secured(&self) -> (u64, Link) {
        self.secured
    }
}
