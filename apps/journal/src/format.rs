//! Bytes of segments. All numbers are little-endian.
//!
//! ```text
//! segment header, 64 bytes          record header, 40 bytes
//!  0  magic "1PIPELOG"               0  mark of the segment, u32
//!  8  format version, u32            4  length of the payload, u32
//! 12  0, u32                         8  checksum of all that follows, u64
//! 16  store id, 16 bytes            16  position, u64
//! 32  first position, u64           24  offset below which the segment was durable, u64
//! 40  previous position, u64        32  checksum of the previous record, u64
//! 48  checksum of that record, u64  40  payload
//! 56  checksum of bytes 0–55, u64
//! ```
//!
//! Each record holds the checksum of the one before, across segments, so a block that is stale or
//! in the wrong order does not pass as a record. The mark and the seed of the checksums come from
//! the store id and the first position, so bytes of another segment do not pass either, nor does a
//! payload that imitates a record.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::options::StoreId;

/// The format version of segments and snapshots.
pub const VERSION: u32 = 1;
/// Length of a segment's header, in bytes.
pub const SEGMENT_HEADER_LEN: usize = 64;
/// Length of a record's header, in bytes.
pub const RECORD_HEADER_LEN: usize = 40;
/// Length of the longest payload, in bytes.
pub const PAYLOAD_MAX: usize = 1 << 30;

const SEGMENT_MAGIC: &[u8; 8] = b"1PIPELOG";
/// The checksum of a record covers what follows it in the header, and the payload.
const CHECKED_FROM: usize = 16;

/// The last record before some point of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Link {
    /// Its position, or that of a snapshot that replaces it; 0 if there is none.
    pub position: u64,
    /// Its checksum; 0 if there is none.
    pub checksum: u64,
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The store whose records these are.
    pub store: StoreId,
    /// Position of the first record.
    pub first: u64,
    /// The record before the first one.
    pub previous: Link,
}

/// Why the header of a file is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The header is incomplete or damaged.
    Damaged,
    /// The header is intact and of another format version.
    Version(u32),
    /// The header is intact and of another store.
    Store(StoreId),
}

impl SegmentHeader {
    /// Returns the bytes of the header.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_LEN] {
        let mut bytes = [0; SEGMENT_HEADER_LEN];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store.0);
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.previous.position.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.previous.checksum.to_le_bytes());
        let checksum = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns the header at the start of `bytes`, if it is that of the segment of `store` whose
    /// first position is `first`.
    pub fn decode(bytes: &[u8], store: StoreId, first: u64) -> Result<Self, HeaderError> {
        let bytes = bytes.get(..SEGMENT_HEADER_LEN).ok_or(HeaderError::Damaged)?;
        check_start(bytes, SEGMENT_MAGIC, u64_at(bytes, 56) == xxh3_64(&bytes[..56]), store)?;
        let previous = Link { position: u64_at(bytes, 40), checksum: u64_at(bytes, 48) };
        let header = Self { store, first: u64_at(bytes, 32), previous };
        // The name of a file is not covered by the checksum.
        let is_placed = header.first == first && previous.position < first;
        if is_placed { Ok(header) } else { Err(HeaderError::Damaged) }
    }
}

/// Checks magic, version and store id, which each kind of file begins with.
pub fn check_start(
    bytes: &[u8],
    magic: &[u8; 8],
    is_intact: bool,
    store: StoreId,
) -> Result<(), HeaderError> {
    if !is_intact || !bytes.starts_with(magic) {
        return Err(HeaderError::Damaged);
    }
    match (u32_at(bytes, 8), StoreId(array_at(bytes, 16))) {
        (VERSION, found) if found == store => Ok(()),
        (VERSION, found) => Err(HeaderError::Store(found)),
        (version, _) => Err(HeaderError::Version(version)),
    }
}

/// What the checksums of one segment depend on.
#[derive(Clone, Copy, Debug)]
pub struct SegmentKey {
    seed: u64,
    mark: [u8; 4],
}

/// A record in the bytes of a segment.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    pub position: u64,
    /// Offset below which the segment was durable when the record was written.
    pub durable_len: u64,
    /// Checksum of the previous record.
    pub previous: u64,
    pub checksum: u64,
    pub payload: &'a [u8],
}

impl RecordView<'_> {
    /// Returns the length of the record with its header, in bytes.
    pub fn len(&self) -> usize {
        RECORD_HEADER_LEN + self.payload.len()
    }
}

impl SegmentKey {
    /// Returns the key of the segment of `store` whose first position is `first`.
    pub fn new(store: StoreId, first: u64) -> Self {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&store.0);
        bytes[16..].copy_from_slice(&first.to_le_bytes());
        // No byte of the mark is 0, so a lost block that begins inside a mark shows.
        let mark = (xxh3_64_with_seed(&bytes, 1) as u32 | 0x0101_0101).to_le_bytes();
        Self { seed: xxh3_64(&bytes), mark }
    }

    /// Appends a record to `out` and returns its checksum.
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        position: u64,
        durable_len: u64,
        previous: u64,
        payload: &[u8],
    ) -> u64 {
        assert!(payload.len() <= PAYLOAD_MAX, "`append` refuses longer payloads");
        let start = out.len();
        out.extend(self.mark);
        out.extend((payload.len() as u32).to_le_bytes());
        out.extend([0; 8]);
        for number in [position, durable_len, previous] {
            out.extend(number.to_le_bytes());
        }
        out.extend(payload);
        let checksum = xxh3_64_with_seed(&out[start + CHECKED_FROM..], self.seed);
        out[start + 8..start + CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
        checksum
    }

    /// Returns the record at `offset` of a segment, if its own bytes are intact.
    pub fn decode<'a>(&self, segment: &'a [u8], offset: usize) -> Option<RecordView<'a>> {
        let bytes = segment.get(offset..)?;
        if bytes.len() < RECORD_HEADER_LEN || !bytes.starts_with(&self.mark) {
            return None;
        }
        let payload_len = u32_at(bytes, 4) as usize;
        let bytes = bytes.get(..RECORD_HEADER_LEN.checked_add(payload_len)?)?;
        let checksum = u64_at(bytes, 8);
        let durable_len = u64_at(bytes, 24);
        if durable_len > offset as u64
            || checksum != xxh3_64_with_seed(&bytes[CHECKED_FROM..], self.seed)
        {
            return None;
        }
        let (position, previous) = (u64_at(bytes, 16), u64_at(bytes, 32));
        let payload = &bytes[RECORD_HEADER_LEN..];
        Some(RecordView { position, durable_len, previous, checksum, payload })
    }
}

/// Name of the segment whose first position is `first`.
pub fn segment_name(first: u64) -> String {
    format!("log-{first:020}")
}

/// Name of the snapshot at `position`.
pub fn snapshot_name(position: u64) -> String {
    format!("snapshot-{position:020}")
}

/// Returns the position in a name that begins with `prefix`.
pub fn position_in(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let is_canonical = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_canonical { digits.parse().ok() } else { None }
}

/// Returns the array at `at`, which the caller knows to lie inside.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// Returns the number at `at`, which the caller knows to lie inside.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}
