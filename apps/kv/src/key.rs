//! A key of the store.

use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

use crate::codec::{Field, Reader};

/// A key with its hash. Keys are ordered by hash, then by name: most comparisons end at the hash,
/// and a scan of the keys has a position that is a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    hash: u32,
    name: Vec<u8>,
}

impl Key {
    pub(crate) fn new(name: Vec<u8>) -> Self {
        // The low half of a good hash is a good hash.
        Self { hash: xxh3_64(&name) as u32, name }
    }

    /// Returns a key before every key with this hash, and after every key with a lower one.
    pub(crate) fn first_of_hash(hash: u32) -> Self {
        Self { hash, name: Vec::new() }
    }

    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }
}

/// The hash is not encoded: a decoded key always has its own.
impl Field for Key {
    fn put(&self, out: &mut Vec<u8>) {
        self.name.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Field::take(reader).map(Self::new)
    }

    fn keys<'a>(&'a self, keys: &mut Vec<&'a [u8]>) {
        keys.push(&self.name);
    }
}
