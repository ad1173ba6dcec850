//! The digest of a warehouse.

use xxhash_rust::xxh3::Xxh3;

use crate::warehouse::Warehouse;

impl Warehouse {
    /// Returns the XXH3 digest (64 bits) of the encoded tables, without encoding them in memory.
    pub(crate) fn compute_digest(&self) -> u64 {
        let mut digest = Xxh3::new();
        self.encode_tables(&mut digest);
        digest.digest()
    }
}
