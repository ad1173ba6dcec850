//! The encoded state, and its digest.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::Timestamp;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::Store;
use super::data::{Data, Entry, Kind, SortedSet};
use crate::codec::{Field, Reader};
use crate::key::Key;
use crate::score::Score;

/// First byte of an encoded state.
const VERSION: u8 = 1;
/// An XXH3 of all bytes before stands at the end.
const CHECKSUM_LEN: usize = 8;

impl Store {
    /// Returns a digest of the timestamps, and of each key with its value, version and expiry.
    pub(super) fn state_digest(&self) -> u64 {
        let mut digest = Xxh3::new();
        let mut bytes = Vec::new();
        self.put_timestamps(&mut bytes);
        digest.update(&bytes);
        for entry in &self.entries {
            bytes.clear();
            put_entry(entry, &mut bytes);
            digest.update(&bytes);
        }
        digest.digest()
    }

    fn put_timestamps(&self, out: &mut Vec<u8>) {
        self.removed.put(out);
        self.written.put(out);
    }

    /// Appends the encoded state.
    pub(super) fn put_image(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(VERSION);
        self.put_timestamps(out);
        (self.entries.len() as u64).put(out);
        self.entries.iter().for_each(|entry| put_entry(entry, out));
        let checksum = xxh3_64(&out[start..]);
        out.extend_from_slice(&checksum.to_be_bytes());
    }

    /// Decodes a state; `None` if the bytes are not one.
    pub(super) fn take_image(bytes: &[u8]) -> Option<Self> {
        let (image, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_LEN)?)?;
        if checksum != xxh3_64(image).to_be_bytes() {
            return None;
        }
        let mut reader = Reader::new(image);
        if reader.byte()? != VERSION {
            return None;
        }
        let mut store = Self {
            removed: Field::take(&mut reader)?,
            written: Field::take(&mut reader)?,
            ..Self::default()
        };
        for _ in 0..reader.count()? {
            let (key, entry) = take_entry(&mut reader)?;
            // No version is later than the last write.
            let is_past = Some(entry.version) <= store.written;
            let is_ordered = store.entries.last_key_value().is_none_or(|(last, _)| *last < key);
            let lasts = entry.expiry.is_none_or(|expiry| expiry > entry.version);
            if !(is_past && is_ordered && lasts) {
                return None;
            }
            if let Some(expiry) = entry.expiry {
                store.expiries.insert((expiry, key.clone()));
            }
            store.entries.insert(key, entry);
        }
        (reader.is_empty() && store.removed <= store.written).then_some(store)
    }
}

fn put_entry((key, entry): (&Key, &Entry), out: &mut Vec<u8>) {
    key.put(out);
    entry.version.put(out);
    entry.expiry.put(out);
    entry.data.put(out);
}

fn take_entry(reader: &mut Reader<'_>) -> Option<(Key, Entry)> {
    let key = Key::take(reader)?;
    let version = Timestamp::take(reader)?;
    let expiry = Field::take(reader)?;
    Some((key, Entry { data: Data::take(reader)?, version, expiry }))
}

impl Field for Data {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => put_as(0, text, out),
            Self::Hash(hash) => put_elements(1, hash.len(), hash.iter(), put_pair, out),
            Self::Set(set) => put_elements(2, set.len(), set.iter(), Field::put, out),
            Self::List(list) => put_elements(3, list.len(), list.iter(), Field::put, out),
            Self::SortedSet(set) => {
                put_elements(4, set.len(), set.scores().iter(), put_pair, out);
            }
        }
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        match reader.byte()? {
            0 => Field::take(reader).map(Self::Text),
            1 => {
                let pairs: Vec<(Vec<u8>, Vec<u8>)> = Field::take(reader)?;
                let is_ordered = pairs.is_sorted_by(|one, other| one.0 < other.0);
                filled(pairs.into_iter().collect::<BTreeMap<_, _>>(), is_ordered)
            }
            2 => {
                let members: Vec<Vec<u8>> = Field::take(reader)?;
                let is_ordered = members.is_sorted_by(|one, other| one < other);
                filled(members.into_iter().collect::<BTreeSet<_>>(), is_ordered)
            }
            3 => filled(super::data::List::from(Vec::take(reader)?), true),
            4 => {
                let pairs: Vec<(Vec<u8>, Score)> = Field::take(reader)?;
                let is_ordered = pairs.is_sorted_by(|one, other| one.0 < other.0);
                let mut set = SortedSet::default();
                for (member, score) in pairs {
                    set.insert(member, score);
                }
                filled(set, is_ordered)
            }
            _ => None,
        }
    }
}

fn put_as(code: u8, field: &impl Field, out: &mut Vec<u8>) {
    out.push(code);
    field.put(out);
}

fn put_pair((one, other): (&impl Field, &impl Field), out: &mut Vec<u8>) {
    one.put(out);
    other.put(out);
}

fn put_elements<T>(
    code: u8,
    count: usize,
    elements: impl Iterator<Item = T>,
    put: impl Fn(T, &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    put_as(code, &(count as u64), out);
    elements.for_each(|element| put(element, out));
}

/// Returns a decoded collection, unless its elements were out of order or it is empty.
fn filled<K: Kind>(collection: K, is_ordered: bool) -> Option<Data> {
    (is_ordered && !collection.is_void()).then(|| collection.into_data())
}
