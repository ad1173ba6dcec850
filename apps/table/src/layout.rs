//! Where the parts of a shard are in its region.
//!
//! A region begins with the number of nodes that clients have reserved, in 16 bytes, then has the
//! buckets, then the nodes. A bucket has a version and the offset of its first node. A node has the
//! offset of the next one, its key and its value. All words are little endian, and offset 0 is the
//! end of a list.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_memory::{Operation, RegionId};
use xxhash_rust::xxh3::xxh3_64;

/// Offset of the number of reserved nodes.
pub(crate) const RESERVED: u64 = 0;
const BUCKETS: u64 = 16;
const BUCKET_LEN: u64 = 16;
/// Offset of the first node's offset in a bucket.
pub(crate) const HEAD: u64 = 8;
/// Length of what a node has before its value: the offset of the next node, and the key.
pub(crate) const NODE_HEADER_LEN: usize = 16;
const VALUE: u64 = NODE_HEADER_LEN as u64;

/// The shape of every shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Number of shards, at least 1. A shard is the region of this number at its replicas.
    pub shards: u16,
    /// Buckets of a shard, at least 1.
    pub buckets: u32,
    /// Nodes of a shard.
    pub nodes: u32,
    /// Length of every value in bytes.
    pub value_len: u32,
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The shard.
    pub shard: u16,
    /// Offset of the bucket in the shard's region.
    pub bucket: u64,
}

/// A bucket as a client has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bucket {
    pub version: u64,
    /// Offset of the first node, or 0.
    pub head: u64,
}

/// A node as a client has read it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Offset of the next node, or 0.
    pub next: u64,
    pub key: u64,
    pub value: Vec<u8>,
}

fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

impl Bucket {
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self { version: word(bytes, 0)?, head: word(bytes, HEAD as usize)? })
    }
}

impl Node {
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value = bytes.get(VALUE as usize..)?.to_vec();
        Some(Self { next: word(bytes, 0)?, key: word(bytes, 8)?, value })
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(VALUE as usize + self.value.len());
        bytes.extend_from_slice(&self.next.to_le_bytes());
        bytes.extend_from_slice(&self.key.to_le_bytes());
        bytes.extend_from_slice(&self.value);
        bytes
    }
}

impl Layout {
    /// Returns the region of an empty shard.
    pub fn empty_shard(&self) -> Vec<u8> {
        vec![0; self.region_len() as usize]
    }

    /// Returns the length of a shard's region in bytes.
    pub fn region_len(&self) -> u64 {
        self.node(0) + u64::from(self.nodes) * self.node_len()
    }

    /// Inserts keys into the region of an empty shard, before clients use it. Returns the number of
    /// nodes in use.
    ///
    /// # Panics
    /// The shard has fewer nodes, or a value has a wrong length.
    pub fn fill(&self, region: &mut [u8], keys: impl IntoIterator<Item = (u64, Vec<u8>)>) -> u64 {
        let mut count = 0;
        for (key, value) in keys {
            assert!(count < u64::from(self.nodes), "the shard is full");
            assert_eq!(value.len(), self.value_len as usize, "the length of a value");
            let (node, head) = (self.node(count), self.location(key).bucket + HEAD);
            let next = word(region, head as usize).expect("a bucket of the region");
            let content = Node { next, key, value }.to_bytes();
            region[node as usize..][..content.len()].copy_from_slice(&content);
            region[head as usize..][..8].copy_from_slice(&node.to_le_bytes());
            count += 1;
        }
        region[RESERVED as usize..][..8].copy_from_slice(&count.to_le_bytes());
        count
    }

    /// Returns the keys and values of a shard. `None` if the region is damaged: an offset is out of
    /// range, a list is a ring, or a key is in the shard twice.
    pub fn content(&self, region: &[u8]) -> Option<BTreeMap<u64, Vec<u8>>> {
        let mut content = BTreeMap::new();
        for bucket in 0..u64::from(self.buckets) {
            let mut at = word(region, (BUCKETS + bucket * BUCKET_LEN + HEAD) as usize)?;
            while at != 0 {
                let start = usize::try_from(at).ok()?;
                let bytes = region.get(start..)?.get(..self.node_bytes() as usize)?;
                let node = Node::parse(bytes)?;
                if content.insert(node.key, node.value).is_some() {
                    return None;
                }
                at = node.next;
            }
        }
        Some(content)
    }

    /// Returns where a key is.
    pub fn location(&self, key: u64) -> Location {
        let hash = xxh3_64(&key.to_le_bytes());
        // The halves of a hash are independent.
        let shard = ((hash >> 32) % u64::from(self.shards)) as u16;
        let bucket = (hash & u64::from(u32::MAX)) % u64::from(self.buckets);
        Location { shard, bucket: BUCKETS + bucket * BUCKET_LEN }
    }

    /// Returns the offset of the node with this index.
    pub(crate) fn node(&self, index: u64) -> u64 {
        BUCKETS + u64::from(self.buckets) * BUCKET_LEN + index * self.node_len()
    }

    /// Returns the length of a node, without what follows its value up to the next node.
    fn node_bytes(&self) -> u32 {
        VALUE as u32 + self.value_len
    }

    fn node_len(&self) -> u64 {
        u64::from(self.node_bytes()).next_multiple_of(8)
    }

    /// Returns the region of a shard.
    pub fn region(&self, shard: u16) -> RegionId {
        RegionId(shard.into())
    }

    /// Returns the operation that reads a bucket.
    pub(crate) fn read_bucket(&self, at: Location) -> Operation<'static> {
        let len = BUCKET_LEN as u32;
        Operation::Read { region: self.region(at.shard), offset: at.bucket, len }
    }

    /// Returns the operation that reads a node.
    pub(crate) fn read_node(&self, shard: u16, offset: u64) -> Operation<'static> {
        Operation::Read { region: self.region(shard), offset, len: self.node_bytes() }
    }

    /// Returns the offset of the value of the node at an offset.
    pub(crate) fn value_of(&self, node: u64) -> u64 {
        node + VALUE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { shards: 3, buckets: 5, nodes: 7, value_len: 13 };

    #[test]
    fn parts_of_a_shard_do_not_overlap() {
        let last_bucket = BUCKETS + 4 * BUCKET_LEN;
        assert_eq!(LAYOUT.node(0), last_bucket + BUCKET_LEN);
        assert_eq!(LAYOUT.node(1) - LAYOUT.node(0), 32, "nodes begin at words");
        assert_eq!(LAYOUT.region_len(), LAYOUT.node(7));
        for key in 0..200 {
            let Location { shard, bucket } = LAYOUT.location(key);
            assert!(shard < 3 && bucket >= BUCKETS && bucket <= last_bucket);
            assert!((bucket - BUCKETS).is_multiple_of(BUCKET_LEN));
        }
    }

    #[test]
    fn content_is_what_was_filled_in() {
        let layout = Layout { shards: 1, ..LAYOUT };
        let keys = || (10..17).map(|key| (key, vec![key as u8; 13]));
        let mut region = layout.empty_shard();
        assert_eq!(layout.content(&region), Some(BTreeMap::new()));
        assert_eq!(layout.fill(&mut region, keys()), 7);
        assert_eq!(layout.content(&region), Some(keys().collect()));
        // A ring has a key twice.
        let first = layout.node(0) as usize;
        let target = layout.node(0).to_le_bytes();
        region[first..first + 8].copy_from_slice(&target);
        assert_eq!(layout.content(&region), None);
    }

    #[test]
    fn nodes_survive_a_round_trip() {
        let node = Node { next: 80, key: u64::MAX, value: vec![3; 13] };
        assert_eq!(Node::parse(&node.to_bytes()), Some(node));
        assert_eq!(Node::parse(&[0; 15]), None);
        assert_eq!(Bucket::parse(&[0; 15]), None);
    }
}
