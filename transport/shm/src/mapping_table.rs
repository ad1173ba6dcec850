//! The table of mapped files: what the handler of SIGBUS ([`crate::sigbus`]) may replace.
//!
//! The handler runs on the thread whose access has failed, at any instruction, so it can take no
//! lock. It reads the table while other threads change entries: each entry has a tag with the
//! number of times that it was used and a state, and the handler takes base and length only from an
//! entry whose number is the same before and after (a sequence lock). An entry that changes
//! meanwhile is not the one that it looks for: the mapping of the failed access is borrowed by the
//! handler's own thread, so its entry stays.

use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering, fence};

/// Maximum number of mapped files and parts of files of one process: three page pools with all
/// their regions in use, and a thousand more. Beyond it, mapping fails: what is mapped is
/// protected.
pub(crate) const MAPPINGS_MAX: usize = 4096;

/// States of an entry, in the lowest bits of its tag.
const VACANT: u64 = 0;
const CHANGING: u64 = 1;
/// The mapping shows the file.
const INTACT: u64 = 2;
/// A thread is replacing the mapping by zeros.
const REPLACING: u64 = 3;
/// The mapping shows zeros of this process instead of the file.
const LOST: u64 = 4;
/// The kernel has refused to replace the mapping.
const REFUSED: u64 = 5;
const STATE_BITS: u32 = 3;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;

struct Entry {
    /// How many mappings have used the entry, and its state.
    tag: AtomicU64,
    base: AtomicUsize,
    len: AtomicUsize,
    protection: AtomicI32,
}

static ENTRIES: [Entry; MAPPINGS_MAX] = [const { Entry::vacant() }; MAPPINGS_MAX];
/// Entries at and above this index were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The entry of a mapping. Not released by itself: see [`Registration::release`].
#[derive(Debug)]
pub(crate) struct Registration {
    index: usize,
}

/// Enters the mapping at `base` with its length and its protection. `None` if the table is full.
pub(crate) fn register(base: usize, len: usize, protection: libc::c_int) -> Option<Registration> {
    let index = (0..MAPPINGS_MAX).find(|index| ENTRIES[*index].try_claim())?;
    let entry = &ENTRIES[index];
    entry.base.store(base, Ordering::Relaxed);
    entry.len.store(len, Ordering::Relaxed);
    entry.protection.store(protection, Ordering::Relaxed);
    USED.fetch_max(index + 1, Ordering::Release);
    entry.set_state(INTACT);
    Some(Registration { index })
}

impl Registration {
    /// Whether the mapping was replaced by zeros.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        ENTRIES[self.index].tag.load(Ordering::Relaxed) & STATE_MASK >= REPLACING
    }

    /// Removes the entry; the mapping must exist until then, so that its addresses are not those of
    /// another one.
    pub(crate) fn release(&self) {
        ENTRIES[self.index].set_state(VACANT);
    }
}

impl Entry {
    const fn vacant() -> Self {
        Self {
            tag: AtomicU64::new(0),
            base: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            protection: AtomicI32::new(0),
        }
    }

    /// Claims a vacant entry for a new mapping.
    fn try_claim(&self) -> bool {
        let tag = self.tag.load(Ordering::Relaxed);
        let next = ((tag >> STATE_BITS) + 1) << STATE_BITS | CHANGING;
        let is_claimed = tag & STATE_MASK == VACANT
            && self.tag.compare_exchange(tag, next, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        // A handler that reads what is written from here on sees the tag changed.
        fence(Ordering::Release);
        is_claimed
    }

    /// Changes the state, by the owner of the entry.
    fn set_state(&self, state: u64) {
        let number = self.tag.load(Ordering::Relaxed) & !STATE_MASK;
        self.tag.store(number | state, Ordering::Release);
    }

    /// Returns the tag, base and length of the mapping if it contains `address`.
    fn find(&self, address: usize) -> Option<(u64, usize, usize)> {
        let tag = self.tag.load(Ordering::Acquire);
        let (base, len) = (self.base.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_same = self.tag.load(Ordering::Relaxed) >> STATE_BITS == tag >> STATE_BITS;
        let contains = address >= base && address - base < len;
        (tag & STATE_MASK >= INTACT && is_same && contains).then_some((tag, base, len))
    }
}

/// Replaces the mapping that contains `address` by zeros of this process, and marks it as lost.
/// Returns whether the access may be repeated. Async-signal-safe: atomics and one system call.
pub(crate) fn replace(address: usize) -> bool {
    let used = &ENTRIES[..USED.load(Ordering::Acquire)];
    let Some((entry, (tag, base, len))) =
        used.iter().find_map(|entry| Some((entry, entry.find(address)?)))
    else {
        return false;
    };
    let with_state = |state| tag & !STATE_MASK | state;
    let (intact, replacing) = (with_state(INTACT), with_state(REPLACING));
    match entry.tag.compare_exchange(intact, replacing, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let is_replaced = map_zeros(base, len, entry.protection.load(Ordering::Relaxed));
            entry.set_state(if is_replaced { LOST } else { REFUSED });
            is_replaced
        }
        // Another thread replaces it, or has: the access fails until it has done so.
        Err(other) => other & STATE_MASK != REFUSED,
    }
}

/// Maps zeros over a range. Not reserved in advance: most pages of a segment are never touched.
fn map_zeros(base: usize, len: usize, protection: libc::c_int) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the range is that of a mapping of this crate (`register`), which exists as long as
    // the failed access borrows it, and is accessed as memory whose contents other processes may
    // change at any time: by zeros as well.
    let mapped = unsafe {
        libc::mmap(ptr::with_exposed_provenance_mut(base), len, protection, flags, -1, 0)
    };
    mapped != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_registered_addresses_are_found() {
        // No mapping can lie at these addresses, beyond those of user space.
        let base = usize::MAX - (1 << 20);
        let find = |address| ENTRIES.iter().find_map(|entry| entry.find(address));
        let first = register(base, 4096, 0).expect("the table has free entries");
        let second = register(base + 8192, 4096, 0).expect("the table has free entries");
        let bases = |address| find(address).map(|(_, base, _)| base);
        assert_eq!(bases(base - 1), None);
        assert_eq!((bases(base), bases(base + 4095)), (Some(base), Some(base)));
        assert_eq!((bases(base + 4096), bases(base + 8191)), (None, None));
        assert_eq!(bases(base + 8192), Some(base + 8192));
        assert!(!first.is_lost() && !replace(base + 4096));
        first.release();
        assert_eq!(bases(base), None);
        assert!(!replace(base), "a released address is not replaced");
        second.release();
    }

    #[test]
    fn mapping_that_cannot_be_replaced_is_not_retried() {
        // Not aligned to a page: the kernel refuses to map there.
        let base = usize::MAX - (1 << 21) + 1;
        let registration = register(base, 4096, 0).expect("the table has free entries");
        assert!(!replace(base) && registration.is_lost());
        assert!(!replace(base), "the next fault is passed on as well");
        registration.release();
    }
}
