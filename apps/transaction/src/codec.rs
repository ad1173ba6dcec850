//! Integers and byte strings in messages, little endian.

use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};

/// Appends values to a message.
pub struct Writer<'a>(pub &'a mut Vec<u8>);

impl Writer<'_> {
    /// Appends a byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Appends a truth value, as a byte.
    pub(crate) fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Appends an integer of 16 bits.
    pub fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends an integer of 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends an integer of 64 bits.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a timestamp, or `u64::MAX` for `None`: no clock of a fabric gets there.
    pub fn timestamp(&mut self, value: Option<Timestamp>) {
        self.u64(value.map_or(u64::MAX, Timestamp::as_ns));
    }

    /// Appends a position in the total order, which may be `None`.
    pub(crate) fn position(&mut self, value: Option<(Timestamp, ProcessId)>) {
        self.timestamp(value.map(|(at, _)| at));
        self.u32(value.map_or(0, |(_, from)| from.0));
    }

    /// Appends the length, 32 bits, and the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }
}

/// Takes values from the front of a message. Each function returns `None` if the rest of the
/// message is too short.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes a byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// Takes a truth value.
    pub(crate) fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Takes an integer of 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes an integer of 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes an integer of 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a timestamp, which may be `None`.
    pub fn timestamp(&mut self) -> Option<Option<Timestamp>> {
        let ns = self.u64()?;
        Some((ns != u64::MAX).then_some(Timestamp::from_ns(ns)))
    }

    /// Takes a position in the total order, which may be `None`.
    pub(crate) fn position(&mut self) -> Option<Option<(Timestamp, ProcessId)>> {
        let (at, from) = (self.timestamp()?, ProcessId(self.u32()?));
        Some(at.map(|at| (at, from)))
    }

    /// Takes a length of 32 bits, and that number of bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Returns whether the message ends here.
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }
}
