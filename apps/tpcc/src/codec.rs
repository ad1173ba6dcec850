//! The encoding of rows, transactions and results: big-endian, without padding. No function here
//! panics on any input.

use alloc::vec::Vec;

use onepipe_base::Timestamp;
use xxhash_rust::xxh3::Xxh3;

use crate::text::Text;

/// A destination of encoded bytes: a buffer, or a digest.
pub trait Sink {
    /// Appends `bytes`.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Sink for Xxh3 {
    fn put(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

/// A value with an encoding.
pub trait Code: Sized {
    /// Appends the encoding.
    fn encode(&self, sink: &mut impl Sink);

    /// Takes a value off the front of `bytes`; `None` if they do not begin with one.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;

    /// Returns the value that `bytes` encode as a whole; `None` if bytes are left over.
    fn parse(mut bytes: &[u8]) -> Option<Self> {
        let value = Self::decode(&mut bytes)?;
        bytes.is_empty().then_some(value)
    }
}

/// Implements [`Code`] for a struct, field by field in the order that is listed.
macro_rules! code {
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::codec::Code for $name {
            fn encode(&self, sink: &mut impl $crate::codec::Sink) {
                let Self { $($field),+ } = self;
                $($crate::codec::Code::encode($field, sink);)+
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                $(let $field = $crate::codec::Code::decode(bytes)?;)+
                Some(Self { $($field),+ })
            }
        }
    };
}
pub(crate) use code;

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(length)?;
    *bytes = tail;
    Some(head)
}

macro_rules! code_integers {
    ($($type:ty),+) => {
        $(impl Code for $type {
            fn encode(&self, sink: &mut impl Sink) {
                sink.put(&self.to_be_bytes());
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                take(bytes, size_of::<Self>())?.try_into().ok().map(Self::from_be_bytes)
            }
        })+
    };
}
code_integers!(u8, u16, u32, u64, i16, i64);

impl Code for bool {
    fn encode(&self, sink: &mut impl Sink) {
        u8::from(*self).encode(sink);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match u8::decode(bytes)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Code for Timestamp {
    fn encode(&self, sink: &mut impl Sink) {
        self.as_ns().encode(sink);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        u64::decode(bytes).map(Self::from_ns)
    }
}

impl<const N: usize> Code for [u8; N] {
    fn encode(&self, sink: &mut impl Sink) {
        sink.put(self);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes, N)?.try_into().ok()
    }
}

impl<const N: usize> Code for Text<N> {
    fn encode(&self, sink: &mut impl Sink) {
        let text = self.as_bytes();
        // A `Text` holds at most 255 bytes.
        (text.len() as u8).encode(sink);
        sink.put(text);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let length = u8::decode(bytes)?;
        Self::of(take(bytes, length.into())?)
    }
}

impl<T: Code> Code for Option<T> {
    fn encode(&self, sink: &mut impl Sink) {
        self.is_some().encode(sink);
        if let Some(value) = self {
            value.encode(sink);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match bool::decode(bytes)? {
            true => T::decode(bytes).map(Some),
            false => Some(None),
        }
    }
}

/// Appends the number of values in 32 bits, and the values.
pub fn encode_all<T: Code>(values: &[T], sink: &mut impl Sink) {
    // No table has 2^32 rows: the ids of its rows have 32 bits.
    (values.len() as u32).encode(sink);
    values.iter().for_each(|value| value.encode(sink));
}

/// Takes at most `max` values off the front of `bytes`; `None` if there are more.
pub fn decode_all<T: Code>(bytes: &mut &[u8], max: usize) -> Option<Vec<T>> {
    let length = usize::try_from(u32::decode(bytes)?).ok()?;
    // Each value has at least one byte: a false length cannot reserve memory.
    if length > max.min(bytes.len()) {
        return None;
    }
    (0..length).map(|_| T::decode(bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_beyond_the_bytes_are_refused() {
        assert_eq!(decode_all::<u8>(&mut &[255, 255, 255, 255, 1][..], usize::MAX), None);
        assert_eq!(decode_all::<u8>(&mut &[0, 0, 0, 2, 1, 2][..], 1), None);
        assert_eq!(decode_all::<u8>(&mut &[0, 0, 0, 2, 1, 2][..], 2), Some(alloc::vec![1, 2]));
        assert_eq!(Text::<3>::parse(&[4, 1, 2, 3, 4]), None);
        assert_eq!(bool::parse(&[2]), None);
        assert_eq!(u16::parse(&[1, 2, 3]), None);
    }
}
