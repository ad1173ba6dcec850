//! The segment in this process's address space.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use crate::sync::{AtomicU32, AtomicU64};

/// A file mapped shared. Words are only ever touched as atomics, bytes of frames only by the
/// process whose turn it is.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory that any thread may use; everything in it is reached through
// atomics, or through `bytes_mut`, whose caller answers for exclusiveness.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// What a part of a file is mapped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// To be read: what is written to it ends the process.
    Read,
    /// To be read and written.
    Write,
}

impl Mapping {
    /// Maps the first `bytes` of `file`, which must be at least as long.
    pub(crate) fn new(file: &File, bytes: usize) -> io::Result<Self> {
        Self::map(file, 0, bytes, Access::Write, libc::MAP_SHARED)
    }

    /// Maps `bytes` of `file` from `at` on, a multiple of a page, which the file must have; with
    /// all their pages, since all of them are used, and faults cost more one by one.
    pub(crate) fn part(file: &File, at: u64, bytes: usize, access: Access) -> io::Result<Self> {
        Self::map(file, at, bytes, access, libc::MAP_SHARED | libc::MAP_POPULATE)
    }

    fn map(
        file: &File,
        at: u64,
        bytes: usize,
        access: Access,
        flags: libc::c_int,
    ) -> io::Result<Self> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let (to, at) = (ptr::null_mut(), at as libc::off_t);
        // SAFETY: a new mapping at a place of the kernel's choice disturbs no memory in use; the
        // descriptor is open for reading and writing.
        let base = unsafe { libc::mmap(to, bytes, protection, flags, file.as_raw_fd(), at) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// The start of `bytes` bytes at `at`, aligned to `align`.
    ///
    /// # Panics
    /// When they do not lie in the mapping. Offsets come from `Config`, whose numbers were checked
    /// against the size of the file.
    #[inline]
    fn checked_ptr(&self, at: usize, bytes: usize, align: usize) -> NonNull<u8> {
        assert!(at <= self.bytes && bytes <= self.bytes - at && at.is_multiple_of(align));
        // SAFETY: the offset lies within the mapping, which is one object of `self.bytes` bytes.
        unsafe { self.base.add(at) }
    }

    /// The word at `at`.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: in bounds and aligned (checked by `checked_ptr`), mapped as long as `self` lives, valid
        // for any bits, and touched by everybody as an atomic only.
        unsafe { self.checked_ptr(at, 8, 8).cast().as_ref() }
    }

    /// The half word at `at`.
    #[inline]
    pub(crate) fn word32(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as `word`.
        unsafe { self.checked_ptr(at, 4, 4).cast().as_ref() }
    }

    /// `count` words from `at` on.
    #[inline]
    pub(crate) fn words(&self, at: usize, count: usize) -> &[AtomicU64] {
        let first = self.checked_ptr(at, count * 8, 8).cast::<AtomicU64>();
        // SAFETY: as `word`, for `count` words that all lie in the mapping.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
    }

    /// Fetches bytes that will be read soon into the cache, where the processor can.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize, bytes: usize) {
        let first = self.checked_ptr(at, bytes, 1);
        let mut line = 0;
        while line < bytes {
            // SAFETY: the line begins within the bytes, which lie in the mapping.
            prefetch_line(unsafe { first.add(line) });
            line += 64;
        }
    }

    /// How many bytes are mapped.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that nobody writes.
    ///
    /// # Safety
    /// No process writes to them as long as the answer lives.
    #[inline]
    pub(crate) unsafe fn read(&self, at: usize, bytes: usize) -> &[u8] {
        let first = self.checked_ptr(at, bytes, 1);
        // SAFETY: in bounds, mapped as long as `self` lives, valid for any bits; unchanged by the
        // caller's promise.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), bytes) }
    }

    /// The bytes of a frame.
    ///
    /// # Safety
    /// They must be this process's to use, and this call's within the process, as long as the
    /// answer lives: a slot of its own arena that is not in flight, or one that an entry of a ring
    /// to this process names and that has not been given back, or a sheet of its own shelf. They
    /// must be mapped for writing.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "exclusiveness is the caller's promise")]
    pub(crate) unsafe fn bytes_mut(&self, at: usize, bytes: usize) -> &mut [u8] {
        let first = self.checked_ptr(at, bytes, 1);
        // SAFETY: in bounds, mapped as long as `self` lives, valid for any bits; exclusive by the
        // caller's promise.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is what `new` mapped, and nothing borrowed from it can be alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Tells the processor that the line at `line` will be read soon.
#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line(line: NonNull<u8>) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint; it reads and writes nothing and cannot fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch_line(_: NonNull<u8>) {}
