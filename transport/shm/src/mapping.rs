//! The segment in this process's address space.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use crate::config::PAGE_BYTES;
use crate::mapping_table::{self, MAPPINGS_MAX, Registration};
use crate::sigbus;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A shared file mapping. Words are only accessed as atomics, frame bytes only by the process that
/// owns them at the time. If another process shortens the file, the mapping shows zeros from the
/// next access to a missing page on ([`Mapping::is_lost`]).
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    registration: Registration,
}

// SAFETY: the mapping is plain memory that any thread may use; all access goes through atomics, or
// through `bytes_mut`, whose caller guarantees exclusiveness.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// The access rights of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read only: a write to it kills the process.
    Read,
    /// Read and write.
    Write,
}

impl Mapping {
    /// Maps the first `bytes` bytes of `file`, which must be at least as long.
    pub(crate) fn new(file: &File, bytes: usize) -> io::Result<Self> {
        Self::map(file, 0, bytes, Access::Write, libc::MAP_SHARED)
    }

    /// Maps a part of `file` that starts at a page boundary and exists in the file. Prefaults all
    /// pages, since all are used and single faults cost more.
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
        // Before anything is mapped, so that no access to it can come first.
        sigbus::install()?;
        let (to, at) = (ptr::null_mut(), at as libc::off_t);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no memory in use; the
        // descriptor is open for reading and writing.
        let base = unsafe { libc::mmap(to, bytes, protection, flags, file.as_raw_fd(), at) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = base.expose_provenance();
        let Some(registration) = mapping_table::register(address, bytes, protection) else {
            // SAFETY: this range was just mapped, and no reference to it exists.
            unsafe { libc::munmap(base, bytes) };
            return Err(io::Error::other(format!(
                "this process has {MAPPINGS_MAX} files and parts of files mapped already"
            )));
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes, registration })
    }

    /// Whether the mapping shows zeros instead of the file, because the file was shortened.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.registration.is_lost()
    }

    /// Returns the address of a range of the mapping, aligned to `align`.
    ///
    /// # Panics
    /// If the range is out of bounds or misaligned. Offsets into a segment come from `Config`,
    /// whose fields were checked against the size of the file; the layout of a page pool's header
    /// is fixed.
    #[inline]
    fn checked_ptr(&self, at: usize, bytes: usize, align: usize) -> NonNull<u8> {
        assert!(at <= self.bytes && bytes <= self.bytes - at && at.is_multiple_of(align));
        // SAFETY: the offset lies within the mapping, which is one allocation.
        unsafe { self.base.add(at) }
    }

    /// The 64-bit word at `at`.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: in bounds and aligned (checked by `checked_ptr`), mapped as long as `self`
        // exists, valid for any bits, and accessed by all processes as an atomic only.
        unsafe { self.checked_ptr(at, 8, 8).cast().as_ref() }
    }

    /// The 32-bit word at `at`.
    #[inline]
    pub(crate) fn word32(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as `word`.
        unsafe { self.checked_ptr(at, 4, 4).cast().as_ref() }
    }

    /// `count` 64-bit words from `at` on.
    #[inline]
    pub(crate) fn words(&self, at: usize, count: usize) -> &[AtomicU64] {
        let first = self.checked_ptr(at, count * 8, 8).cast::<AtomicU64>();
        // SAFETY: as `word`, for `count` words that all lie in the mapping.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
    }

    /// Reads from every page of a part, given by offset and length, all of which is allocated: so
    /// the pages stay allocated, and are mapped.
    pub(crate) fn touch(&self, (at, bytes): (usize, usize)) {
        let first = at - at % PAGE_BYTES;
        for page in (first..at + bytes).step_by(PAGE_BYTES) {
            self.word(page).load(Ordering::Relaxed);
        }
    }

    /// Prefetches bytes that will be read soon, where the processor supports it.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize, bytes: usize) {
        let first = self.checked_ptr(at, bytes, 1);
        let mut line = 0;
        while line < bytes {
            // SAFETY: the line begins within the range, which lies in the mapping.
            prefetch_line(unsafe { first.add(line) });
            line += 64;
        }
    }

    /// Prefetches bytes that will be written soon, exclusively for this core, where the processor
    /// supports it.
    #[inline]
    pub(crate) fn prefetch_write(&self, at: usize, bytes: usize) {
        let first = self.checked_ptr(at, bytes, 1);
        let mut line = 0;
        while line < bytes {
            // SAFETY: the line begins within the range, which lies in the mapping.
            prefetch_line_for_write(unsafe { first.add(line) });
            line += 64;
        }
    }

    /// Returns the length of the mapping in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Borrows bytes that no process writes.
    ///
    /// # Safety
    /// No process may write to them during the borrow.
    #[inline]
    pub(crate) unsafe fn read(&self, at: usize, bytes: usize) -> &[u8] {
        let first = self.checked_ptr(at, bytes, 1);
        // SAFETY: in bounds, mapped as long as `self` exists, valid for any bits; not written by
        // the caller's guarantee.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), bytes) }
    }

    /// Borrows the bytes of a frame or of a page.
    ///
    /// # Safety
    /// The bytes must be mapped for writing and exclusively this borrow's: a slot of this
    /// process's own arena that is not in flight, a slot or inline cell named by an unreleased
    /// entry of a ring to this process, or a page that this process has not frozen yet.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "exclusiveness is the caller's guarantee")]
    pub(crate) unsafe fn bytes_mut(&self, at: usize, bytes: usize) -> &mut [u8] {
        let first = self.checked_ptr(at, bytes, 1);
        // SAFETY: in bounds, mapped as long as `self` exists, valid for any bits; exclusive by the
        // caller's guarantee.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The kernel may give the addresses to another mapping as soon as they are free.
        self.registration.release();
        // SAFETY: this range is what `map` mapped, and no borrow of it can be alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Prefetches the cache line at `line`.
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

/// Prefetches the cache line at `line` for writing. Processors that do not have the instruction
/// treat it as a no-op; the intrinsic would fall back to a shared prefetch on all of them.
#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line_for_write(line: NonNull<u8>) {
    // SAFETY: a hint; it changes no memory, no flags, and cannot fault.
    unsafe {
        core::arch::asm!(
            "prefetchw [{}]",
            in(reg) line.as_ptr(),
            options(nostack, preserves_flags, readonly)
        );
    };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch_line_for_write(_: NonNull<u8>) {}
