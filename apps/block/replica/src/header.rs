//! The header of an image: which device it is of, and up to which position it is durable.
//!
//! Two slots are written in turn, so that a crash tears at most the one that does not count yet.

use std::io;

use onepipe_journal::DiskFile;
use onepipe_transaction::{Reader, Writer};
use xxhash_rust::xxh3::xxh3_64;

/// Distance of the slots in bytes: no disk writes more as one piece.
const SLOT_LEN: usize = 4_096;
/// First bytes of a slot; the last one is the version of the format.
const MAGIC: u64 = u64::from_be_bytes(*b"1pimage\x01");

/// What an image says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Identifies the device.
    pub device: u128,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of the header among those of the image, from 1.
    pub sequence: u64,
    /// All changes up to this position are durable.
    pub applied: u64,
}

impl Header {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.u64(MAGIC);
        writer.u64((self.device >> 64) as u64);
        writer.u64(self.device as u64);
        writer.u64(self.blocks);
        writer.u64(self.sequence);
        writer.u64(self.applied);
        let checksum = xxh3_64(&bytes);
        Writer(&mut bytes).u64(checksum);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Header> {
        let mut reader = Reader(bytes);
        if reader.u64()? != MAGIC {
            return None;
        }
        let device = u128::from(reader.u64()?) << 64 | u128::from(reader.u64()?);
        let (blocks, sequence) = (reader.u64()?, reader.u64()?);
        let header = Header { device, blocks, sequence, applied: reader.u64()? };
        let encoded = header.to_bytes();
        (bytes.get(..encoded.len())? == encoded).then_some(header)
    }

    /// Reads the last header that is intact. Returns `None` if none is.
    pub fn read(file: &impl DiskFile) -> io::Result<Option<Header>> {
        let mut slots = [0; 2 * SLOT_LEN];
        match file.read_at(0, &mut slots) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let headers = slots.chunks(SLOT_LEN).filter_map(Header::parse);
        Ok(headers.max_by_key(|header| header.sequence))
    }

    /// Writes the header to its slot, and waits until it is durable.
    pub fn write(&self, file: &mut impl DiskFile) -> io::Result<()> {
        let slot = self.sequence % 2;
        file.write_at(slot * SLOT_LEN as u64, &self.to_bytes())?;
        file.sync_data()
    }

    /// Makes a file long enough for all headers.
    pub fn reserve(file: &mut impl DiskFile) -> io::Result<()> {
        file.set_len(2 * SLOT_LEN as u64)
    }
}

#[cfg(test)]
mod tests {
    use onepipe_journal::{Disk, MemoryDisk};

    use super::*;

    const HEADER: Header = Header { device: 7 << 70 | 3, blocks: 8, sequence: 1, applied: 5 };

    #[test]
    fn later_header_counts_unless_it_is_damaged() {
        let disk = MemoryDisk::new();
        let mut file = disk.create("header").expect("a disk");
        Header::reserve(&mut file).expect("a disk");
        assert_eq!(Header::read(&file).expect("a disk"), None);
        HEADER.write(&mut file).expect("a disk");
        let later = Header { sequence: 2, applied: 9, ..HEADER };
        later.write(&mut file).expect("a disk");
        assert_eq!(Header::read(&file).expect("a disk"), Some(later));
        for at in 0..later.to_bytes().len() as u64 {
            let mut byte = [0];
            file.read_at(at, &mut byte).expect("a disk");
            file.write_at(at, &[byte[0] ^ 4]).expect("a disk");
            assert_eq!(Header::read(&file).expect("a disk"), Some(HEADER), "byte {at}");
            file.write_at(at, &byte).expect("a disk");
        }
    }
}
