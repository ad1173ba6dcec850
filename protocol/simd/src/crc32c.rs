//! CRC-32C (Castagnoli), the checksum of the processors' own instruction.

use core::sync::atomic::{AtomicU8, Ordering};

use crc::{CRC_32_ISCSI, Crc, Table};

/// The portable implementation: 16 bytes a step.
static PORTABLE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Whether the processor has the instruction, once that is known. To ask it costs a microsecond in
/// a virtual machine.
static DETECTED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

/// Returns the CRC-32C of the bytes of `words`, each with the least significant byte first (RFC
/// 3720, appendix B.4: reflected, initial value and final XOR all ones).
#[inline]
pub fn crc32c<const WORDS: usize>(words: [u64; WORDS]) -> u32 {
    match DETECTED.load(Ordering::Relaxed) {
        PRESENT => native::crc32c(words),
        ABSENT => portable(words),
        _ => detect(words),
    }
}

#[cold]
fn detect<const WORDS: usize>(words: [u64; WORDS]) -> u32 {
    let is_present = native::is_supported();
    DETECTED.store(if is_present { PRESENT } else { ABSENT }, Ordering::Relaxed);
    if is_present { native::crc32c(words) } else { portable(words) }
}

fn portable<const WORDS: usize>(words: [u64; WORDS]) -> u32 {
    PORTABLE.checksum(words.map(u64::to_le_bytes).as_flattened())
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod native {
    use core::arch::asm;
    use core::arch::x86_64::__cpuid;

    /// CPUID leaf 1, ECX.
    const SSE4_2: u32 = 1 << 20;

    pub fn is_supported() -> bool {
        __cpuid(0).eax >= 1 && __cpuid(1).ecx & SSE4_2 != 0
    }

    /// Requires [`is_supported`].
    #[inline]
    pub fn crc32c<const WORDS: usize>(words: [u64; WORDS]) -> u32 {
        let mut crc = u64::from(u32::MAX);
        for word in words {
            // SAFETY: the caller has found that the processor has SSE 4.2. The instruction reads
            // and writes these registers and no flags.
            unsafe {
                asm!(
                    "crc32 {crc}, {word}",
                    crc = inlateout(reg) crc,
                    word = in(reg) word,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
        }
        !(crc as u32)
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod native {
    pub const fn is_supported() -> bool {
        false
    }

    pub fn crc32c<const WORDS: usize>(words: [u64; WORDS]) -> u32 {
        super::portable(words)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_bytes(bytes: [u8; 32]) -> u32 {
        let (words, _) = bytes.as_chunks::<8>();
        let words: [_; 4] = words.try_into().expect("32 bytes");
        crc32c(words.map(u64::from_le_bytes))
    }

    /// RFC 3720, appendix B.4.
    #[test]
    fn vectors_of_the_standard() {
        assert_eq!(of_bytes([0; 32]), 0x8a91_36aa);
        assert_eq!(of_bytes([0xff; 32]), 0x62a8_ab43);
        assert_eq!(of_bytes(core::array::from_fn(|i| i as u8)), 0x46dd_794e);
        assert_eq!(of_bytes(core::array::from_fn(|i| 31 - i as u8)), 0x113f_db5c);
    }

    proptest! {
        #[test]
        fn native_matches_portable(words in any::<[u64; 6]>(), short in any::<[u64; 1]>()) {
            prop_assert_eq!(crc32c(words), portable(words));
            prop_assert_eq!(crc32c(short), portable(short));
            prop_assert_eq!(crc32c([]), portable([]));
        }
    }

    #[test]
    fn detection_matches_std() {
        let says =
            cfg!(all(target_arch = "x86_64", not(miri))) && std::is_x86_feature_detected!("sse4.2");
        assert_eq!(native::is_supported(), says);
    }

    extern crate std;
}
