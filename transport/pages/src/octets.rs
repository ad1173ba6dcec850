//! An object's octets, wherever they lie.

use std::ops::Deref;

use onepipe_bulk::Memory;
use onepipe_transport_shm::{Page, Sheet};

/// An object's octets: in memory of this process, or on a page that processes share.
#[derive(Clone, Debug)]
pub enum Octets {
    /// Memory of this process.
    Private(Vec<u8>),
    /// A page that others read, too. Nobody writes it.
    Shared(Page),
}

impl Octets {
    /// As memory of this process: what lies on a page is copied.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Private(octets) => octets,
            Self::Shared(page) => page.to_vec(),
        }
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Private(octets) => octets,
            Self::Shared(page) => page,
        }
    }
}

impl Memory for Octets {
    fn octets(&self) -> &[u8] {
        self
    }

    fn octets_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Private(octets) => Some(octets),
            Self::Shared(_) => None,
        }
    }

    fn truncate(&mut self, octets: usize) {
        match self {
            Self::Private(own) => own.truncate(octets),
            Self::Shared(page) => page.truncate(octets),
        }
    }
}

impl From<Vec<u8>> for Octets {
    fn from(octets: Vec<u8>) -> Self {
        Self::Private(octets)
    }
}

impl From<Page> for Octets {
    fn from(page: Page) -> Self {
        Self::Shared(page)
    }
}

impl From<Sheet> for Octets {
    fn from(sheet: Sheet) -> Self {
        Self::Shared(sheet.into_page())
    }
}

impl From<&[u8]> for Octets {
    fn from(octets: &[u8]) -> Self {
        Self::Private(octets.to_vec())
    }
}

impl From<&str> for Octets {
    fn from(octets: &str) -> Self {
        octets.as_bytes().into()
    }
}

impl<const N: usize> From<&[u8; N]> for Octets {
    fn from(octets: &[u8; N]) -> Self {
        octets[..].into()
    }
}

impl<const N: usize> From<[u8; N]> for Octets {
    fn from(octets: [u8; N]) -> Self {
        Self::Private(octets.into())
    }
}

/// Equal octets are equal, wherever they lie.
impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Octets {
    fn eq(&self, other: &T) -> bool {
        self[..] == *other.as_ref()
    }
}

impl AsRef<[u8]> for Octets {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Eq for Octets {}

impl std::hash::Hash for Octets {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}
