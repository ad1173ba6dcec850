//! The digest of a warehouse.

use xxhash_rust::xxh3::Xxh3;

use crate::codec::Code;
use crate::schema::HistoryRow;
use crate::warehouse::Warehouse;

impl Warehouse {
    /// Returns the XXH3 digest (64 bits) of the encoded tables, without encoding them in memory.
    ///
    /// The order of HISTORY does not matter, as the table has no key and no order (clause 1.3.1).
    /// So replicas of a rival that execute transactions without a common row
    /// ([`crate::RowUse`]) in different orders have equal digests.
    pub(crate) fn compute_digest(&self) -> u64 {
        let mut digest = Xxh3::new();
        self.encode_keyed_tables(&mut digest);
        (self.history.len() as u64).encode(&mut digest);
        let sum = self.history.iter().map(digest_of).fold(0, u64::wrapping_add);
        sum.encode(&mut digest);
        digest.digest()
    }
}

fn digest_of(row: &HistoryRow) -> u64 {
    let mut digest = Xxh3::new();
    row.encode(&mut digest);
    digest.digest()
}
