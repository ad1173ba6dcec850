//! Memory of objects.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

/// Memory of an object: a `Vec<u8>`, or shared memory.
pub trait Memory: Clone + Debug + Eq + Hash {
    /// Returns the content.
    fn bytes(&self) -> &[u8];

    /// Returns the content for writing, or `None` if the memory is read-only because its content is
    /// there already ([`crate::Config::is_shared`]).
    fn bytes_mut(&mut self) -> Option<&mut [u8]>;

    /// Drops everything behind the first `bytes` bytes.
    fn truncate(&mut self, bytes: usize);
}

impl Memory for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(self)
    }

    fn truncate(&mut self, bytes: usize) {
        Self::truncate(self, bytes);
    }
}
