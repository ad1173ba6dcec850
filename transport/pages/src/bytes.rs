//! An object's bytes, wherever they lie.

use std::ops::Deref;

use onepipe_bulk::Memory;
use onepipe_transport_shm::{Page, Sheet};

/// An object's bytes: in memory of this process, or on a page that processes share.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// Memory of this process.
    Private(Vec<u8>),
    /// A page that others read, too. Nobody writes it.
    Shared(Page),
}

impl Bytes {
    /// As memory of this process: what lies on a page is copied.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Private(bytes) => bytes,
            Self::Shared(page) => page.to_vec(),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Private(bytes) => bytes,
            Self::Shared(page) => page,
        }
    }
}

impl Memory for Bytes {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Private(bytes) => Some(bytes),
            Self::Shared(_) => None,
        }
    }

    fn truncate(&mut self, bytes: usize) {
        match self {
            Self::Private(own) => own.truncate(bytes),
            Self::Shared(page) => page.truncate(bytes),
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Private(bytes)
    }
}

impl From<Page> for Bytes {
    fn from(page: Page) -> Self {
        Self::Shared(page)
    }
}

impl From<Sheet> for Bytes {
    fn from(sheet: Sheet) -> Self {
        Self::Shared(sheet.into_page())
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self::Private(bytes.to_vec())
    }
}

impl From<&str> for Bytes {
    fn from(bytes: &str) -> Self {
        bytes.as_bytes().into()
    }
}

impl<const N: usize> From<&[u8; N]> for Bytes {
    fn from(bytes: &[u8; N]) -> Self {
        bytes[..].into()
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        Self::Private(bytes.into())
    }
}

/// Equal bytes are equal, wherever they lie.
impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Bytes {
    fn eq(&self, other: &T) -> bool {
        self[..] == *other.as_ref()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Eq for Bytes {}

impl std::hash::Hash for Bytes {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}
