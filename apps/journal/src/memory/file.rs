//! A file of the disk in memory: what a reader sees, and what survives a crash.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Random;

/// The smallest piece that is lost or survives as a whole, in bytes. Real ones are larger; files of
/// tests are small.
const SECTOR_LEN: usize = 512;

/// The bytes of a file.
#[derive(Debug, Default)]
pub struct FileState {
    /// What a reader sees.
    bytes: Vec<u8>,
    /// What survives a crash.
    durable: Vec<u8>,
    /// What lay in the blocks before the file was last cut.
    stale: Vec<u8>,
    /// Sectors that a failed `sync_data` has lost, and that were not written since.
    lost: BTreeSet<usize>,
}

impl FileState {
    /// Creates a file whose bytes are durable.
    pub fn durable(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), durable: bytes.to_vec(), ..Self::default() }
    }

    /// Returns what a reader sees.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.bytes.len(), "a journal leaves no hole");
        let end = offset + bytes.len();
        self.bytes.resize(end.max(self.bytes.len()), 0);
        self.bytes[offset..end].copy_from_slice(bytes);
        self.lost
            .retain(|sector| (sector + 1) * SECTOR_LEN <= offset || sector * SECTOR_LEN >= end);
    }

    pub fn set_len(&mut self, len: usize) {
        if len > self.bytes.len() {
            self.bytes.resize(len, 0);
        } else if len < self.bytes.len() {
            let beyond = self.stale.len().min(self.bytes.len());
            let tail = self.stale.split_off(beyond);
            self.stale = self.bytes.clone();
            self.stale.extend(tail);
            self.bytes.truncate(len);
            self.lost.retain(|sector| sector * SECTOR_LEN < len);
        }
    }

    /// Makes all bytes durable that no failed call has lost.
    pub fn sync(&mut self) {
        let before = std::mem::replace(&mut self.durable, self.bytes.clone());
        for sector in &self.lost {
            let range = self.range(*sector);
            for at in range {
                self.durable[at] = before.get(at).copied().unwrap_or(0);
            }
        }
    }

    /// Fails to make bytes durable: they are lost, and later calls take them for durable.
    pub fn fail_sync(&mut self) {
        for sector in 0..self.bytes.len().div_ceil(SECTOR_LEN) {
            let range = self.range(sector);
            if self.durable.get(range.clone()) != Some(&self.bytes[range]) {
                self.lost.insert(sector);
            }
        }
    }

    /// Loses or tears what is not durable.
    pub fn crash(&mut self, random: &mut Random, has_stale_blocks: bool) {
        let (short, long) = match self.bytes.len() < self.durable.len() {
            true => (self.bytes.len(), self.durable.len()),
            false => (self.durable.len(), self.bytes.len()),
        };
        let len = match random.below(3) {
            0 => self.durable.len(),
            1 => self.bytes.len(),
            _ => short + random.below((long - short) as u64 + 1) as usize,
        };
        let mut survived = Vec::with_capacity(len);
        for sector in 0..len.div_ceil(SECTOR_LEN) {
            let is_lost = self.lost.contains(&sector) || random.below(3) == 0;
            for at in sector * SECTOR_LEN..((sector + 1) * SECTOR_LEN).min(len) {
                let new = self.bytes.get(at).filter(|_| !is_lost);
                let stale = self.stale.get(at).filter(|_| has_stale_blocks);
                let old = self.durable.get(at).or(stale);
                survived.push(new.or(old).copied().unwrap_or(0));
            }
        }
        *self = Self { durable: survived.clone(), bytes: survived, ..Self::default() };
    }

    fn range(&self, sector: usize) -> Range<usize> {
        sector * SECTOR_LEN..((sector + 1) * SECTOR_LEN).min(self.bytes.len())
    }
}
