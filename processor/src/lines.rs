//! Masked copies of blocks of 16-bit words.

/// Sixty-four 16-bit words, aligned to a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(align(64))]
pub struct Line(pub [u16; 64]);

/// Capability: instructions that copy a [`WordBlock`] and overwrite some of its words (AVX-512).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lines(());

impl Lines {
    /// Returns `None` if the processor lacks the instructions, or the operating system does not
    /// save their registers.
    pub fn detect() -> Option<Self> {
        has_them().then_some(Self(()))
    }

    /// Copies block `from` to block `to`, with `value` in the words that are set in the mask.
    ///
    /// # Panics
    /// If either index is out of range.
    #[inline]
    pub fn paint(self, lines: &mut [Line], (from, to): (usize, usize), places: u64, value: u16) {
        paint(lines, (from, to), places, value);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod there {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    use super::Line;

    /// CPUID leaf 1, ECX: `xgetbv` is available.
    const OSXSAVE: u32 = 1 << 27;
    /// XCR0 bits of the registers that the operating system must save: 128, 256 and 512 bits,
    /// masks.
    const KEPT: u32 = 0b1110_0110;
    /// CPUID leaf 7, EBX: AVX-512 F and BW.
    const WORDS: u32 = 1 << 16 | 1 << 30;

    pub fn has_them() -> bool {
        if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
            return false;
        }
        let kept: u32;
        // SAFETY: OSXSAVE implies this instruction. It reads and writes these registers.
        unsafe {
            asm!(
                "xgetbv",
                in("ecx") 0,
                out("eax") kept,
                out("edx") _,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        kept & KEPT == KEPT && __cpuid_count(7, 0).ebx & WORDS == WORDS
    }

    #[inline]
    pub fn paint(lines: &mut [Line], (from, to): (usize, usize), places: u64, value: u16) {
        let from: *const Line = &raw const lines[from];
        let to: *mut Line = &raw mut lines[to];
        // SAFETY: a `MaskedCopy` exists only if the processor has AVX-512 F and BW and its
        // registers are saved; only its method calls this. Reads all 128 bytes at `from` and writes
        // all at `to`; both are blocks of one slice that is mutably borrowed, and may be the same.
        // Registers from zmm16 on need no `vzeroupper`; no flags are written.
        unsafe {
            asm!(
                "kmovq k1, {places}",
                "vmovdqu64 zmm16, [{from}]",
                "vmovdqu64 zmm17, [{from} + 64]",
                "vpbroadcastw zmm16{{k1}}, {value:e}",
                "kshiftrq k1, k1, 32",
                "vpbroadcastw zmm17{{k1}}, {value:e}",
                "vmovdqu64 [{to}], zmm16",
                "vmovdqu64 [{to} + 64], zmm17",
                places = in(reg) places,
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
use there::{has_them, paint};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use plain::{has_them, paint};

/// Portable implementation.
#[cfg(any(test, not(all(target_arch = "x86_64", not(miri)))))]
mod plain {
    use super::Line;

    #[cfg_attr(test, allow(dead_code))]
    pub const fn has_them() -> bool {
        false
    }

    pub fn paint(lines: &mut [Line], (from, to): (usize, usize), places: u64, value: u16) {
        let mut line = lines[from];
        for (at, word) in line.0.iter_mut().enumerate() {
            if places >> at & 1 == 1 {
                *word = value;
            }
        }
        lines[to] = line;
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
        fn the_instructions_do_what_others_say(
            strokes in prop::collection::vec(
                (0usize..4, 0usize..4, any::<u64>(), any::<u64>(), any::<u16>()),
                1..60,
            ),
        ) {
            let mut own: Vec<Line> = (0..4).map(|line| Line([line; 64])).collect();
            let mut known = own.clone();
            for (from, to, one, two, value) in strokes {
                for places in [one, one & two, 0, u64::MAX] {
                    if let Some(lines) = Lines::detect() {
                        lines.paint(&mut own, (from, to), places, value);
                        plain::paint(&mut known, (from, to), places, value);
                        prop_assert_eq!(&own, &known);
                    }
                }
            }
        }
    }

    #[test]
    fn an_operating_system_that_keeps_their_registers_lets_them_be_used() {
        let says = cfg!(all(target_arch = "x86_64", not(miri)))
            && std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw");
        assert_eq!(Lines::detect().is_some(), says);
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_line_that_is_not_there_is_not_written() {
        let mut lines = [Line([0; 64])];
        match Lines::detect() {
            Some(own) => own.paint(&mut lines, (0, 1), 1, 1),
            None => plain::paint(&mut lines, (0, 1), 1, 1),
        }
    }
}
