//! The bytes of an object, in private or in shared memory.

use std::ops::Deref;

use onepipe_bulk::Memory;
use onepipe_transport_shm::{Page, PageMut};

/// The bytes of an object: in memory of this process, or on a page shared between processes.
#[derive(Clone, Debug)]
pub enum ObjectBytes {
    /// Memory of this process.
    Private(Vec<u8>),
    /// A read-only page that other processes read too.
    Shared(Page),
}

impl ObjectBytes {
    /// Converts to memory of this process; copies the bytes of a page.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Private(bytes) => bytes,
            Self::Shared(page) => page.to_vec(),
        }
    }
}

impl Deref for ObjectBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Private(bytes) => bytes,
            Self::Shared(page) => page,
        }
    }
}

impl Memory for ObjectBytes {
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

impl From<Vec<u8>> for ObjectBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Private(bytes)
    }
}

impl From<Page> for ObjectBytes {
    fn from(page: Page) -> Self {
        Self::Shared(page)
    }
}

impl From<PageMut> for ObjectBytes {
    fn from(page_mut: PageMut) -> Self {
        Self::Shared(page_mut.freeze())
    }
}

impl From<&[u8]> for ObjectBytes {
    fn from(bytes: &[u8]) -> Self {
        Self::Private(bytes.to_vec())
    }
}

impl From<&str> for ObjectBytes {
    fn from(bytes: &str) -> Self {
        bytes.as_bytes().into()
    }
}

impl<const N: usize> From<&[u8; N]> for ObjectBytes {
    fn from(bytes: &[u8; N]) -> Self {
        bytes[..].into()
    }
}

impl<const N: usize> From<[u8; N]> for ObjectBytes {
    fn from(bytes: [u8; N]) -> Self {
        Self::Private(bytes.into())
    }
}

/// Compares the bytes, not the location.
impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for ObjectBytes {
    fn eq(&self, other: &T) -> bool {
        self[..] == *other.as_ref()
    }
}

impl AsRef<[u8]> for ObjectBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Eq for ObjectBytes {}

impl std::hash::Hash for ObjectBytes {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}
