//! Masked copies of blocks of 16-bit words.

/// Sixty-four 16-bit words, aligned to a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(align(64))]
pub struct WordBlock(pub [u16; 64]);

/// Capability: instructions that copy a [`WordBlock`] and overwrite some of its words (AVX-512).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaskedCopy(());

impl MaskedCopy {
    /// Returns `None` if the processor lacks the instructions, or the operating system does not
    /// save their registers.
    pub fn detect() -> Option<Self> {
        is_supported().then_some(Self(()))
    }

    /// Copies block `from` to block `to`, with `value` in the words that are set in the mask.
    ///
    /// # Panics
    /// If either index is out of range.
    #[inline]
    pub fn copy_masked(
        self,
        blocks: &mut [WordBlock],
        from: usize,
        to: usize,
        mask: u64,
        value: u16,
    ) {
        copy_masked(blocks, from, to, mask, value);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod native {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    use super::WordBlock;

    /// CPUID leaf 1, ECX: `xgetbv` is available.
    const OSXSAVE: u32 = 1 << 27;
    /// XCR0 bits of the registers that the operating system must save: 128, 256 and 512 bits,
    /// masks.
    const SAVED_STATE: u32 = 0b1110_0110;
    /// CPUID leaf 7, EBX: AVX-512 F and BW.
    const WORDS: u32 = 1 << 16 | 1 << 30;

    pub fn is_supported() -> bool {
        if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
            return false;
        }
        let saved: u32;
        // SAFETY: OSXSAVE implies this instruction. It reads and writes these registers.
        unsafe {
            asm!(
                "xgetbv",
                in("ecx") 0,
                out("eax") saved,
                out("edx") _,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        saved & SAVED_STATE == SAVED_STATE && __cpuid_count(7, 0).ebx & WORDS == WORDS
    }

    #[inline]
    pub fn copy_masked(blocks: &mut [WordBlock], from: usize, to: usize, mask: u64, value: u16) {
        let from: *const WordBlock = &raw const blocks[from];
        let to: *mut WordBlock = &raw mut blocks[to];
        // SAFETY: a `MaskedCopy` exists only if the processor has AVX-512 F and BW and its
        // registers are saved; only its method calls this. Reads all 128 bytes at `from` and writes
        // all at `to`; both are blocks of one slice that is mutably borrowed, and may be the same.
        // Registers from zmm16 on need no `vzeroupper`; no flags are written.
        unsafe {
            asm!(
                "kmovq k1, {mask}",
                "vmovdqu64 zmm16, [{from}]",
                "vmovdqu64 zmm17, [{from} + 64]",
                "vpbroadcastw zmm16{{k1}}, {value:e}",
                "kshiftrq k1, k1, 32",
                "vpbroadcastw zmm17{{k1}}, {value:e}",
                "vmovdqu64 [{to}], zmm16",
                "vmovdqu64 [{to} + 64], zmm17",
                mask = in(reg) mask,
                from = in(reg) from,
                to = in(reg) to,
                value = in(reg) u32::from(value),
                out("zmm16") _,
                out("zmm17") _,
                out("k1") _,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
use native::{copy_masked, is_supported};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use portable::{copy_masked, is_supported};

/// Portable implementation.
#[cfg(any(test, not(all(target_arch = "x86_64", not(miri)))))]
mod portable {
    use super::WordBlock;

    #[cfg_attr(test, allow(dead_code))]
    pub const fn is_supported() -> bool {
        false
    }

    pub fn copy_masked(blocks: &mut [WordBlock], from: usize, to: usize, mask: u64, value: u16) {
        let mut line = blocks[from];
        for (at, word) in line.0.iter_mut().enumerate() {
            if mask >> at & 1 == 1 {
                *word = value;
            }
        }
        blocks[to] = line;
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    extern crate std;

    proptest! {
        #[test]
        fn native_matches_portable(
            copies in prop::collection::vec(
                (0usize..4, 0usize..4, any::<u64>(), any::<u64>(), any::<u16>()),
                1..60,
            ),
        ) {
            let mut own: Vec<WordBlock> = (0..4).map(|line| WordBlock([line; 64])).collect();
            let mut known = own.clone();
            for (from, to, one, two, value) in copies {
                for mask in [one, one & two, 0, u64::MAX] {
                    if let Some(blocks) = MaskedCopy::detect() {
                        blocks.copy_masked(&mut own, from, to, mask, value);
                        portable::copy_masked(&mut known, from, to, mask, value);
                        prop_assert_eq!(&own, &known);
                    }
                }
            }
        }
    }

    #[test]
    fn detection_matches_std() {
        let says = cfg!(all(target_arch = "x86_64", not(miri)))
            && std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw");
        assert_eq!(MaskedCopy::detect().is_some(), says);
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn out_of_range_block_panics() {
        let mut blocks = [WordBlock([0; 64])];
        match MaskedCopy::detect() {
            Some(own) => own.copy_masked(&mut blocks, 0, 1, 1, 1),
            None => portable::copy_masked(&mut blocks, 0, 1, 1, 1),
        }
    }
}
