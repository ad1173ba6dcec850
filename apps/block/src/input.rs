//! Received bytes that are not parsed yet.

use alloc::vec::Vec;

/// A queue of bytes whose front is read in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Input {
    bytes: Vec<u8>,
    /// Number of bytes at the front that were taken.
    taken: usize,
}

impl Input {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Takes exactly `count` bytes, if they have arrived.
    pub fn take(&mut self, count: usize) -> Option<&[u8]> {
        let end = self.taken.checked_add(count)?;
        let taken = self.bytes.get(self.taken..end)?;
        self.taken = end;
        Some(taken)
    }

    /// Takes at most `count` bytes.
    pub fn take_up_to(&mut self, count: usize) -> &[u8] {
        let count = count.min(self.len());
        self.take(count).unwrap_or_default()
    }

    /// Drops all bytes.
    pub fn clear(&mut self) {
        *self = Input::default();
    }
}

/// Reads big-endian numbers from bytes that are complete.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Takes `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes bytes that follow their number in 32 bits.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// Takes 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}
