//! Memory that an object lies in.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

/// Memory of an object. Plain memory is a `Vec<u8>`; a world whose members share memory has others.
pub trait Memory: Clone + Debug + Eq + Hash {
    /// What stands in it.
    fn bytes(&self) -> &[u8];

    /// The same, to be written; `None` where it may only be read: then whatever belongs there is
    /// there already ([`crate::Config::is_shared`]).
    fn bytes_mut(&mut self) -> Option<&mut [u8]>;

    /// Forgets what stands behind the first `bytes`.
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
