//! The shard of a key: Redis Cluster's slots, divided evenly among the shards.

use crc::{CRC_16_XMODEM, Crc};

/// Number of slots of Redis Cluster.
pub const SLOTS: u16 = 16_384;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Returns the slot of a key. If the key has a hash tag, as in `{user1}.name`, the slot is that of
/// the tag alone, so that an application can put several keys on one shard.
pub fn slot_of(key: &[u8]) -> u16 {
    CRC.checksum(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// Returns the shard of a key, below `shards`.
///
/// # Panics
/// If `shards` is 0 or above [`SLOTS`].
pub fn shard_of(key: &[u8], shards: u16) -> u16 {
    assert!((1..=SLOTS).contains(&shards), "a store has 1 to {SLOTS} shards");
    let shard = u32::from(slot_of(key)) * u32::from(shards) / u32::from(SLOTS);
    u16::try_from(shard).expect("a slot is below SLOTS, so the shard is below the number of shards")
}

/// Returns the bytes between the first `{` and the next `}`, if there are any.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let after = &key[key.iter().position(|&byte| byte == b'{')? + 1..];
    let tag = &after[..after.iter().position(|&byte| byte == b'}')?];
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        // Replies of `CLUSTER KEYSLOT`.
        for (key, slot) in [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("somekey", 11_058),
            ("foo{hash_tag}", 2_515),
            ("{user1000}.following", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn shards_divide_the_slots_evenly() {
        assert_eq!(shard_of(b"foo", 1), 0);
        assert_eq!(shard_of(b"foo", 3), 2);
        assert_eq!(shard_of(b"foo", SLOTS), 12_182);
        assert_eq!(shard_of(b"{a}1", 7), shard_of(b"{a}2", 7));
    }
}
