//! The reply to a command.

use alloc::string::String;
use alloc::vec::Vec;

use crate::codec::{Field, Reader};
use crate::score::Score;

/// A reply, independent of the version of the RESP protocol. Types that RESP2 does not have are
/// written there as each variant says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// The simple string `OK`.
    Ok,
    /// A simple string.
    Simple(String),
    /// An error; the text begins with its kind, as in `WRONGTYPE Operation …`.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// No value. RESP2 has the null bulk string.
    Null,
    /// No array. RESP2 has the null array, RESP3 the null.
    NullArray,
    /// An array.
    Array(Vec<Value>),
    /// Fields with values. RESP2 has an array in which they alternate.
    Map(Vec<(Value, Value)>),
    /// Members of a set. RESP2 has an array.
    Set(Vec<Value>),
    /// Pairs, such as members with scores. RESP2 has an array in which they alternate, RESP3 an
    /// array of arrays of two.
    Pairs(Vec<(Value, Value)>),
    /// A floating-point number. RESP2 has its text as a bulk string.
    Double(Score),
}

/// Depth up to which a value is decoded. No operation returns a deeper one.
const DEPTH_MAX: u32 = 4;

impl Value {
    /// Returns an array of strings.
    pub(crate) fn bulks<'a>(bytes: impl Iterator<Item = &'a Vec<u8>>) -> Vec<Self> {
        bytes.map(|bytes| Self::Bulk(bytes.clone())).collect()
    }

    /// Returns a string, or null.
    pub(crate) fn bulk_or_null(bytes: Option<&Vec<u8>>) -> Self {
        bytes.map_or(Self::Null, |bytes| Self::Bulk(bytes.clone()))
    }

    /// Returns a number of elements.
    pub(crate) fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn take_at(reader: &mut Reader<'_>, depth: u32) -> Option<Self> {
        let below = depth.checked_sub(1)?;
        Some(match reader.byte()? {
            0 => Self::Ok,
            1 => Self::Simple(text(reader)?),
            2 => Self::Error(text(reader)?),
            3 => Self::Integer(Field::take(reader)?),
            4 => Self::Bulk(Field::take(reader)?),
            5 => Self::Null,
            6 => Self::NullArray,
            7 => Self::Array(values(reader, below)?),
            8 => Self::Map(pairs(reader, below)?),
            9 => Self::Set(values(reader, below)?),
            10 => Self::Pairs(pairs(reader, below)?),
            11 => Self::Double(Field::take(reader)?),
            _ => return None,
        })
    }
}

fn text(reader: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(Field::take(reader)?).ok()
}

fn values(reader: &mut Reader<'_>, depth: u32) -> Option<Vec<Value>> {
    let count = reader.count()?;
    (0..count).map(|_| Value::take_at(reader, depth)).collect()
}

fn pairs(reader: &mut Reader<'_>, depth: u32) -> Option<Vec<(Value, Value)>> {
    let count = reader.count()?;
    let pair = |_| Some((Value::take_at(reader, depth)?, Value::take_at(reader, depth)?));
    (0..count).map(pair).collect()
}

impl Field for Value {
    fn put(&self, out: &mut Vec<u8>) {
        let (code, bytes): (u8, Option<&[u8]>) = match self {
            Self::Ok => (0, None),
            Self::Simple(text) => (1, Some(text.as_bytes())),
            Self::Error(text) => (2, Some(text.as_bytes())),
            Self::Integer(_) => (3, None),
            Self::Bulk(bytes) => (4, Some(bytes)),
            Self::Null => (5, None),
            Self::NullArray => (6, None),
            Self::Array(_) => (7, None),
            Self::Map(_) => (8, None),
            Self::Set(_) => (9, None),
            Self::Pairs(_) => (10, None),
            Self::Double(_) => (11, None),
        };
        out.push(code);
        if let Some(bytes) = bytes {
            (bytes.len() as u64).put(out);
            out.extend_from_slice(bytes);
        }
        match self {
            Self::Integer(integer) => integer.put(out),
            Self::Array(values) | Self::Set(values) => values.put(out),
            Self::Map(pairs) | Self::Pairs(pairs) => pairs.put(out),
            Self::Double(score) => score.put(out),
            _ => {}
        }
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Self::take_at(reader, DEPTH_MAX)
    }
}
