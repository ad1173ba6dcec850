//! Bit deposit and population count.

/// Capability: the processor has fast `pdep` and `popcnt` instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bits(());

impl Bits {
    /// Returns `None` if the processor lacks the instructions, or implements `pdep` in microcode
    /// (AMD before Zen 3).
    pub fn detect() -> Option<Self> {
        is_supported().then_some(Self(()))
    }

    /// Deposits the lowest bits of `bits` at the set bits of `mask`, lowest first (`pdep`).
    #[inline]
    pub fn deposit(self, bits: u64, mask: u64) -> u64 {
        deposit(bits, mask)
    }

    /// Counts the set bits (`popcnt`).
    #[inline]
    pub fn count(self, word: u64) -> u32 {
        count(word)
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod native {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    /// CPUID leaf 1, ECX.
    const POPCNT: u32 = 1 << 23;
    /// CPUID leaf 7, EBX.
    const BMI2: u32 = 1 << 8;
    /// CPUID leaf 0, EBX: "Auth" of "AuthenticAMD".
    const AMD: u32 = u32::from_le_bytes(*b"Auth");
    /// The family of Zen 3. Earlier ones execute `pdep` in microcode.
    const ZEN_3: u32 = 0x19;

    pub fn is_supported() -> bool {
        let first = __cpuid(0);
        if first.eax < 7 {
            return false;
        }
        let features = __cpuid(1);
        let family = (features.eax >> 8 & 0xf) + (features.eax >> 20 & 0xff);
        let is_slow = first.ebx == AMD && family < ZEN_3;
        features.ecx & POPCNT != 0 && __cpuid_count(7, 0).ebx & BMI2 != 0 && !is_slow
    }

    #[inline]
    pub fn deposit(bits: u64, mask: u64) -> u64 {
        let put: u64;
        // SAFETY: a `Bits` exists only if the processor has BMI2, and only its methods call this.
        // The instruction reads and writes these registers and no flags.
        unsafe {
            asm!(
                "pdep {put}, {bits}, {mask}",
                put = lateout(reg) put,
                bits = in(reg) bits,
                mask = in(reg) mask,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        put
    }

    #[inline]
    pub fn count(word: u64) -> u32 {
        let ones: u64;
        // SAFETY: a `Bits` exists only if the processor has POPCNT, and only its methods call this.
        // The instruction reads and writes these registers and the flags.
        unsafe {
            asm!(
                "popcnt {ones}, {word}",
                ones = lateout(reg) ones,
                word = in(reg) word,
                options(pure, nomem, nostack)
            );
        }
        ones as u32
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
use native::{count, deposit, is_supported};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use portable::{count, deposit, is_supported};

/// Portable implementation.
#[cfg(any(test, not(all(target_arch = "x86_64", not(miri)))))]
mod portable {
    #[cfg_attr(test, allow(dead_code))]
    pub const fn is_supported() -> bool {
        false
    }

    pub fn deposit(mut bits: u64, mut mask: u64) -> u64 {
        let mut put = 0;
        while mask != 0 {
            let lowest = mask & mask.wrapping_neg();
            put |= if bits & 1 == 1 { lowest } else { 0 };
            (bits, mask) = (bits >> 1, mask ^ lowest);
        }
        put
    }

    pub const fn count(word: u64) -> u32 {
        word.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn native_matches_portable(words in any::<[u64; 3]>()) {
            let [one, two, three] = words;
            for mask in [one, one & two, one | two, one & two & three, !0, 0, !0 << (one % 64)] {
                for bits in [two, three, !0 >> (three % 64), 0] {
                    if let Some(own) = Bits::detect() {
                        prop_assert_eq!(own.deposit(bits, mask), portable::deposit(bits, mask));
                        prop_assert_eq!(own.count(mask), portable::count(mask));
                    }
                }
            }
        }
    }

    #[test]
    fn detection_matches_std() {
        let says = cfg!(all(target_arch = "x86_64", not(miri)))
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("popcnt");
        // A processor with slow instructions has them as well, and is not used.
        assert!(says || Bits::detect().is_none());
    }

    extern crate std;
}
