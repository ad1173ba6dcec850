//! A digest of numbers.

use xxhash_rust::xxh3::xxh3_64;

/// Collects numbers; their order counts.
#[derive(Debug, Default)]
pub struct Digest {
    bytes: Vec<u8>,
}

impl Digest {
    /// Appends a number.
    pub fn add(&mut self, number: u64) {
        self.bytes.extend(number.to_be_bytes());
    }

    /// Returns the digest of everything that was appended.
    pub fn finish(&self) -> u64 {
        xxh3_64(&self.bytes)
    }
}

/// Returns the digest of `numbers`.
pub fn of(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let mut digest = Digest::default();
    numbers.into_iter().for_each(|number| digest.add(number));
    digest.finish()
}
