//! The binary encoding of operations, values and states.
//!
//! Every type has exactly one encoding of each value: what can be decoded encodes to the same bytes
//! again. Decoding never panics, and allocates at most in proportion to the bytes that are there.

use alloc::vec::Vec;

use onepipe_base::Timestamp;

/// Bytes that are left to decode.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    /// Decodes a number of elements of which each takes at least one byte.
    pub(crate) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(u64::take(self)?).ok()?;
        (count <= self.rest.len()).then_some(count)
    }
}

/// A type with an encoding.
pub(crate) trait Field: Sized {
    /// Appends the encoding.
    fn put(&self, out: &mut Vec<u8>);

    /// Decodes one value; `None` if the bytes are not an encoding.
    fn take(reader: &mut Reader<'_>) -> Option<Self>;

    /// Appends the keys of the store that the value names.
    fn keys<'a>(&'a self, _keys: &mut Vec<&'a [u8]>) {}
}

/// LEB128: seven bits a byte, the lowest first.
impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = reader.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has one bit of the value.
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                // A number has no zero bytes at its end: the encoding is unique.
                return (byte != 0 || shift == 0).then_some(value);
            }
        }
        None
    }
}

/// Zigzag: numbers near zero are short whatever their sign.
impl Field for i64 {
    fn put(&self, out: &mut Vec<u8>) {
        ((*self << 1) ^ (*self >> 63)).cast_unsigned().put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let bits = u64::take(reader)?;
        Some((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
    }
}

impl Field for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        u64::take(reader)?.try_into().ok()
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        match reader.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Field for Timestamp {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_ns().put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        u64::take(reader).map(Timestamp::from_ns)
    }
}

impl Field for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let len = reader.count()?;
        reader.bytes(len).map(<[u8]>::to_vec)
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|element| element.put(out));
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let count = reader.count()?;
        (0..count).map(|_| T::take(reader)).collect()
    }

    fn keys<'a>(&'a self, keys: &mut Vec<&'a [u8]>) {
        self.iter().for_each(|element| element.keys(keys));
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        match bool::take(reader)? {
            true => T::take(reader).map(Some),
            false => Some(None),
        }
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Some((A::take(reader)?, B::take(reader)?))
    }

    fn keys<'a>(&'a self, keys: &mut Vec<&'a [u8]>) {
        self.0.keys(keys);
        self.1.keys(keys);
    }
}

/// Declares an enum of which each variant is encoded as its code and its fields.
macro_rules! coded {
    ($(#[$attribute:meta])* enum $type:ident {
        $($(#[$doc:meta])* $code:literal => $name:ident $({ $($field:ident: $of:ty),* $(,)? })?,)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum $type {
            $($(#[$doc])* $name $({ $($field: $of),* })?,)*
        }

        impl $type {
            /// Returns the first byte of the encoding.
            #[allow(dead_code)]
            pub(crate) fn code(&self) -> u8 {
                #[allow(unused_variables)]
                match self {
                    $(Self::$name $({ $($field),* })? => $code,)*
                }
            }
        }

        impl $crate::codec::Field for $type {
            fn put(&self, out: &mut alloc::vec::Vec<u8>) {
                match self {
                    $(Self::$name $({ $($field),* })? => {
                        out.push($code);
                        $($($field.put(out);)*)?
                    })*
                }
            }

            fn take(reader: &mut $crate::codec::Reader<'_>) -> Option<Self> {
                Some(match reader.byte()? {
                    $($code => Self::$name $({
                        $($field: $crate::codec::Field::take(reader)?),*
                    })?,)*
                    _ => return None,
                })
            }

            fn keys<'a>(&'a self, keys: &mut alloc::vec::Vec<&'a [u8]>) {
                // An enum whose variants have no fields does not use the argument.
                let _ = &keys;
                match self {
                    $(Self::$name $({ $($field),* })? => {
                        $($($field.keys(keys);)*)?
                    })*
                }
            }
        }
    };
}

pub(crate) use coded;
