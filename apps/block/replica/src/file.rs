//! What an image needs of a file beside what a journal needs.

use std::fs::File;
use std::io;

use onepipe_journal::{DiskFile, MemoryFile};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Unit in which zeroes are written where the file system cannot make them.
const ZEROES: &[u8] = &[0; 64 << 10];

/// A file whose ranges can become zero.
pub trait ImageFile: DiskFile + Sync {
    /// Makes `len` bytes at `offset` zero, which lie within the file. They may lose their storage.
    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()>;
}

impl ImageFile for File {
    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&*self, flags, offset, len) {
            Err(Errno::OPNOTSUPP) => write_zeroes(self, offset, len),
            other => Ok(other?),
        }
    }
}

impl ImageFile for MemoryFile {
    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()> {
        write_zeroes(self, offset, len)
    }
}

fn write_zeroes(file: &mut impl DiskFile, offset: u64, len: u64) -> io::Result<()> {
    let mut written = 0;
    while written < len {
        let count = (len - written).min(ZEROES.len() as u64);
        file.write_at(offset + written, &ZEROES[..count as usize])?;
        written += count;
    }
    Ok(())
}
