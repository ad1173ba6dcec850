//! Short character columns, stored inside their rows.

use core::cmp::Ordering;
use core::fmt;

/// A string of at most `N` bytes (`N` is at most 255): the specification's "variable text, size N"
/// and "fixed text, size N" (clause 1.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<const N: usize> {
    length: u8,
    /// The bytes after `length` are zero, so that equal strings are equal values.
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    const FITS: () = assert!(N <= u8::MAX as usize, "the length is one byte");

    /// Returns the empty string.
    pub const fn new() -> Self {
        let () = Self::FITS;
        Self { length: 0, bytes: [0; N] }
    }

    /// Returns a string of these bytes; `None` if there are more than `N`.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut text = Self::new();
        text.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        text.length = u8::try_from(bytes.len()).ok()?;
        Some(text)
    }

    /// Appends as many of `bytes` as the column can hold.
    pub fn push(&mut self, bytes: &[u8]) {
        for (free, byte) in self.bytes.iter_mut().skip(self.length.into()).zip(bytes) {
            *free = *byte;
            self.length += 1;
        }
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length.into()).unwrap_or_default()
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Ord for Text<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl<const N: usize> PartialOrd for Text<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_as_strings_and_truncates_pushes() {
        let of = |bytes: &[u8]| Text::<4>::of(bytes).expect("short enough");
        assert!(of(b"B") > of(b"AAAA"));
        assert!(of(b"A") < of(b"AA"));
        assert_eq!(Text::<4>::of(b"12345"), None);
        let mut text = of(b"12");
        text.push(b"345");
        assert_eq!(text.as_bytes(), b"1234");
    }
}
