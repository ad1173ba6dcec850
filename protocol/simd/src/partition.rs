//! Partition of 64-bit words by two bit-table lookups each.

use super::MaskedCopy;

/// Words processed per step: 512 bits.
const VECTOR_WORDS: usize = 8;

/// One bit for each number below [`BitTable::NUMBERS`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BitTable([u64; BitTable::NUMBERS / 64]);

impl BitTable {
    /// Number of bits: two 512-bit registers.
    pub const NUMBERS: usize = 1024;

    /// The table without a set bit.
    pub const NONE: Self = Self([0; Self::NUMBERS / 64]);
}

/// Capability: instructions that partition words (AVX-512).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKernel(());

/// Tables and constants of a partition.
#[derive(Clone, Copy, Debug)]
pub struct PartitionTables<'a> {
    /// Looked up with bits 63 to 52 of a word, modulo [`BitTable::NUMBERS`].
    pub first: &'a BitTable,
    /// Looked up with bits 51 to 40 of a word, likewise.
    pub second: &'a BitTable,
    /// A word with one of these bits goes to the second output instead of the third.
    pub exempt: u64,
    /// Added to the words of the third output.
    pub step: u64,
}

impl PartitionKernel {
    /// Returns `None` if the processor lacks the instructions, or the operating system does not
    /// save their registers.
    pub fn detect() -> Option<Self> {
        MaskedCopy::detect().map(|_| Self(()))
    }

    /// Sets the bits of the nonzero entries and clears those of the others. Bits above, up to the
    /// next multiple of 64, are cleared; the rest is unchanged.
    ///
    /// # Panics
    /// If there are more than [`BitTable::NUMBERS`] entries.
    #[inline]
    pub fn mark(self, entries: &[u64], marks: &mut BitTable) {
        mark(entries, &mut marks.0[..entries.len().div_ceil(64)]);
    }

    /// Distributes `words` to three outputs, in order: to the first the words with both bits set,
    /// to the third, with [`PartitionTables::step`] added, those with neither bit set that are not
    /// exempt, to the second all others. Returns the number in each; what follows them in an output
    /// is unspecified.
    ///
    /// # Panics
    /// If an output is shorter than the number of words, rounded up to a multiple of eight.
    #[inline]
    pub fn partition(
        self,
        words: &[u64],
        tables: PartitionTables<'_>,
        outputs: [&mut [u64]; 3],
    ) -> [usize; 3] {
        let least = words.len().next_multiple_of(VECTOR_WORDS);
        partition(words, tables, outputs.map(|output| &mut output[..least]))
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod native {
    use core::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_loadu_si512,
        _mm512_maskz_compress_epi64, _mm512_maskz_loadu_epi64, _mm512_or_si512,
        _mm512_permutex2var_epi64, _mm512_rorv_epi64, _mm512_set1_epi64, _mm512_srli_epi64,
        _mm512_storeu_si512, _mm512_test_epi64_mask,
    };

    use super::{BitTable, PartitionTables, VECTOR_WORDS};

    #[inline]
    pub fn mark(entries: &[u64], marks: &mut [u64]) {
        // SAFETY: a `PartitionKernel` exists only if a `MaskedCopy` does, so the processor has
        // AVX-512 F; only its method calls this.
        unsafe { mark_avx512(entries, marks) }
    }

    #[inline]
    pub fn partition(
        words: &[u64],
        tables: PartitionTables<'_>,
        outputs: [&mut [u64]; 3],
    ) -> [usize; 3] {
        // SAFETY: as in `mark`; every processor with AVX-512 F also has POPCNT.
        unsafe { partition_avx512(words, tables, outputs) }
    }

    #[target_feature(enable = "avx512f")]
    fn mark_avx512(entries: &[u64], marks: &mut [u64]) {
        let (whole, rest) = entries.as_chunks::<64>();
        for (entries, mark) in whole.iter().zip(&mut *marks) {
            *mark = mark_word(entries);
        }
        if let (Some(mark), false) = (marks.last_mut(), rest.is_empty()) {
            *mark = mark_word(rest);
        }
    }

    /// Returns the bits of up to 64 entries.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn mark_word(entries: &[u64]) -> u64 {
        entries.chunks(VECTOR_WORDS).enumerate().fold(0, |mark, (at, vector)| {
            let entry = load(vector);
            mark | u64::from(_mm512_test_epi64_mask(entry, entry)) << (VECTOR_WORDS * at)
        })
    }

    #[target_feature(enable = "avx512f,popcnt")]
    fn partition_avx512(
        words: &[u64],
        tables: PartitionTables<'_>,
        outputs: [&mut [u64]; 3],
    ) -> [usize; 3] {
        let [open, other, empty] = outputs;
        let (first, second) = (table(tables.first), table(tables.second));
        let exempt = _mm512_set1_epi64(tables.exempt as i64);
        let step = _mm512_set1_epi64(tables.step as i64);
        let one = _mm512_set1_epi64(1);
        let (mut opens, mut others, mut empties) = (0, 0, 0);
        for vector in words.chunks(VECTOR_WORDS) {
            let all = 0xff >> (VECTOR_WORDS - vector.len());
            let word = load(vector);
            let is_first = look_up(first, _mm512_srli_epi64::<52>(word));
            let is_second = look_up(second, _mm512_srli_epi64::<40>(word));
            let is_first = _mm512_and_si512(is_first, one);
            let is_open = _mm512_test_epi64_mask(is_first, is_second) & all;
            let either = _mm512_or_si512(is_first, _mm512_and_si512(is_second, one));
            let is_other = _mm512_or_si512(either, _mm512_and_si512(word, exempt));
            let is_other = _mm512_test_epi64_mask(is_other, is_other) & all;
            let stepped = _mm512_add_epi64(word, step);
            opens += put(&mut open[opens..], is_open, word);
            others += put(&mut other[others..], is_other & !is_open, word);
            empties += put(&mut empty[empties..], all & !is_other, stepped);
        }
        [opens, others, empties]
    }

    /// Loads up to eight words; the remaining elements are zero.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(words: &[u64]) -> __m512i {
        debug_assert!((1..=VECTOR_WORDS).contains(&words.len()));
        // SAFETY: the mask limits the load to the words of the slice.
        unsafe {
            _mm512_maskz_loadu_epi64(0xff >> (VECTOR_WORDS - words.len()), words.as_ptr().cast())
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn table(marks: &BitTable) -> [__m512i; 2] {
        let (words, _) = marks.0.as_chunks::<VECTOR_WORDS>();
        // SAFETY: each chunk has exactly as many words as are loaded.
        [&words[0], &words[1]].map(|words| unsafe { _mm512_loadu_si512(words.as_ptr().cast()) })
    }

    /// Sets the lowest bit of each element to the table's bit of that number.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn look_up([low, high]: [__m512i; 2], number: __m512i) -> __m512i {
        // The permutation uses four bits of the index, the rotation six.
        let word = _mm512_permutex2var_epi64(low, _mm512_srli_epi64::<6>(number), high);
        _mm512_rorv_epi64(word, number)
    }

    /// Stores the selected elements consecutively, and returns their number.
    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    fn put(output: &mut [u64], vector: u8, word: __m512i) -> usize {
        let output: &mut [u64; VECTOR_WORDS] =
            output.first_chunk_mut().expect("as many as words before");
        // SAFETY: the array has as many words as are stored.
        unsafe {
            let saved = _mm512_maskz_compress_epi64(vector, word);
            _mm512_storeu_si512(output.as_mut_ptr().cast(), saved);
        }
        vector.count_ones() as usize
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
use native::{mark, partition};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use portable::{mark, partition};

/// Portable implementation.
#[cfg(any(test, not(all(target_arch = "x86_64", not(miri)))))]
mod portable {
    use super::{BitTable, PartitionTables};

    pub fn mark(entries: &[u64], marks: &mut [u64]) {
        for (entries, mark) in entries.chunks(64).zip(marks) {
            *mark = 0;
            for (at, entry) in entries.iter().enumerate() {
                *mark |= u64::from(*entry != 0) << at;
            }
        }
    }

    pub fn partition(
        words: &[u64],
        tables: PartitionTables<'_>,
        outputs: [&mut [u64]; 3],
    ) -> [usize; 3] {
        let mut counts = [0; 3];
        for &word in words {
            let is_marked = |marks: &BitTable, at: u64| {
                let number = at as usize % BitTable::NUMBERS;
                marks.0[number / 64] >> (number % 64) & 1 == 1
            };
            let ends = (is_marked(tables.first, word >> 52), is_marked(tables.second, word >> 40));
            let (output_index, step) = match ends {
                (true, true) => (0, 0),
                (false, false) if word & tables.exempt == 0 => (2, tables.step),
                _ => (1, 0),
            };
            outputs[output_index][counts[output_index]] = word.wrapping_add(step);
            counts[output_index] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    extern crate std;

    type PartitionFn = fn(&[u64], PartitionTables<'_>, [&mut [u64]; 3]) -> [usize; 3];

    /// Uses the instructions if available.
    fn own(words: &[u64], tables: PartitionTables<'_>, outputs: [&mut [u64]; 3]) -> [usize; 3] {
        match PartitionKernel::detect() {
            Some(partition) => partition.partition(words, tables, outputs),
            None => portable::partition(words, tables, outputs),
        }
    }

    fn partitioned(
        words: &[u64],
        tables: PartitionTables<'_>,
        partition: PartitionFn,
    ) -> [Vec<u64>; 3] {
        let mut outputs = [[7; 136]; 3];
        let counts = partition(words, tables, outputs.each_mut().map(<[u64; 136]>::as_mut_slice));
        let [one, two, three] = outputs;
        [(one, counts[0]), (two, counts[1]), (three, counts[2])]
            .map(|(output, count)| output[..count].to_vec())
    }

    proptest! {
        #[test]
        fn native_matches_portable(
            words in prop::collection::vec(any::<u64>(), 0..130),
            (first, second) in any::<([u64; 16], [u64; 16])>(),
            step in any::<u64>(),
        ) {
            let (first, second) = (&BitTable(first), &BitTable(second));
            let tables = PartitionTables { first, second, exempt: 3 << 38, step };
            prop_assert_eq!(partitioned(&words, tables, own), partitioned(&words, tables, portable::partition));
        }

        #[test]
        fn marks_nonzero_entries(
            entries in prop::collection::vec(0u64..3, 0..1025),
            marks in any::<[u64; 16]>(),
        ) {
            let (mut own, mut known) = (BitTable(marks), BitTable(marks));
            portable::mark(&entries, &mut known.0[..entries.len().div_ceil(64)]);
            match PartitionKernel::detect() {
                Some(partition) => partition.mark(&entries, &mut own),
                None => own.clone_from(&known),
            }
            prop_assert_eq!(&own, &known);
            for (at, entry) in entries.iter().enumerate() {
                prop_assert_eq!(known.0[at / 64] >> (at % 64) & 1 == 1, *entry > 0);
            }
        }
    }

    #[test]
    fn covers_all_three_outputs() {
        let (mut first, mut second) = (BitTable::NONE, BitTable::NONE);
        (first.0[0], second.0[0]) = (1 << 1, 1 << 2);
        first.0[15] = 1 << 63;
        let word = |src: u64, dst: u64, rest: u64| src << 52 | dst << 40 | rest;
        let words = [
            word(1, 2, 9),
            word(1, 3, 8),
            word(3, 3, 7),
            word(3, 3, 1 << 38),
            word(1023, 2, 6),
            word(1023, 1023, 5),
        ];
        let tables =
            PartitionTables { first: &first, second: &second, exempt: 1 << 38, step: 1 << 32 };
        let known = [
            [words[0], words[4]].to_vec(),
            [words[1], words[3], words[5]].to_vec(),
            [words[2] + (1 << 32)].to_vec(),
        ];
        assert_eq!(partitioned(&words, tables, portable::partition), known);
        assert_eq!(partitioned(&words, tables, own), known);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn short_output_panics() {
        let tables =
            PartitionTables { first: &BitTable::NONE, second: &BitTable::NONE, exempt: 0, step: 0 };
        let outputs = &mut [[0; 8], [0; 8], [0; 8]];
        let outputs = outputs.each_mut().map(<[u64; 8]>::as_mut_slice);
        match PartitionKernel::detect() {
            Some(partition) => partition.partition(&[0; 9], tables, outputs),
            None => panic!("range end index 9 out of range"),
        };
    }
}
