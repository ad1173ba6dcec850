//! Partition of 64-bit words by two bit-table lookups each.

use super::Lines;

/// Words processed per step: 512 bits.
const LANES: usize = 8;

/// One bit for each number below [`BitTable::NUMBERS`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marks([u64; Marks::NUMBERS / 64]);

impl Marks {
    /// Number of bits: two 512-bit registers.
    pub const NUMBERS: usize = 1024;

    /// The table without a set bit.
    pub const NONE: Self = Self([0; Self::NUMBERS / 64]);
}

/// Capability: instructions that partition words (AVX-512).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sieve(());

/// Tables and constants of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Mesh<'a> {
    /// Looked up with bits 63 to 52 of a word, modulo [`BitTable::NUMBERS`].
    pub first: &'a Marks,
    /// Looked up with bits 51 to 40 of a word, likewise.
    pub second: &'a Marks,
    /// A word with one of these bits goes to the second output instead of the third.
    pub exempt: u64,
    /// Added to the words of the third output.
    pub step: u64,
}

impl Sieve {
    /// Returns `None` if the processor lacks the instructions, or the operating system does not
    /// save their registers.
    pub fn detect() -> Option<Self> {
        Lines::detect().map(|_| Self(()))
    }

    /// Sets the bits of the nonzero entries and clears those of the others. Bits above, up to the
    /// next multiple of 64, are cleared; the rest is unchanged.
    ///
    /// # Panics
    /// If there are more than [`BitTable::NUMBERS`] entries.
    #[inline]
    pub fn mark(self, entries: &[u64], marks: &mut Marks) {
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
    pub fn sift(self, words: &[u64], mesh: Mesh<'_>, rooms: [&mut [u64]; 3]) -> [usize; 3] {
        let least = words.len().next_multiple_of(LANES);
        sift(words, mesh, rooms.map(|room| &mut room[..least]))
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod there {
    use core::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_loadu_si512,
        _mm512_maskz_compress_epi64, _mm512_maskz_loadu_epi64, _mm512_or_si512,
        _mm512_permutex2var_epi64, _mm512_rorv_epi64, _mm512_set1_epi64, _mm512_srli_epi64,
        _mm512_storeu_si512, _mm512_test_epi64_mask,
    };

    use super::{LANES, Marks, Mesh};

    #[inline]
    pub fn mark(entries: &[u64], marks: &mut [u64]) {
        // SAFETY: a `PartitionKernel` exists only if a `MaskedCopy` does, so the processor has
        // AVX-512 F; only its method calls this.
        unsafe { mark_there(entries, marks) }
    }

    #[inline]
    pub fn sift(words: &[u64], mesh: Mesh<'_>, rooms: [&mut [u64]; 3]) -> [usize; 3] {
        // SAFETY: as in `mark`; every processor with AVX-512 F also has POPCNT.
        unsafe { sift_there(words, mesh, rooms) }
    }

    #[target_feature(enable = "avx512f")]
    fn mark_there(entries: &[u64], marks: &mut [u64]) {
        let (whole, rest) = entries.as_chunks::<64>();
        for (entries, mark) in whole.iter().zip(&mut *marks) {
            *mark = mark_64(entries);
        }
        if let (Some(mark), false) = (marks.last_mut(), rest.is_empty()) {
            *mark = mark_64(rest);
        }
    }

    /// Returns the bits of up to 64 entries.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn mark_64(entries: &[u64]) -> u64 {
        entries.chunks(LANES).enumerate().fold(0, |mark, (at, lanes)| {
            let entry = load(lanes);
            mark | u64::from(_mm512_test_epi64_mask(entry, entry)) << (LANES * at)
        })
    }

    #[target_feature(enable = "avx512f,popcnt")]
    fn sift_there(words: &[u64], mesh: Mesh<'_>, rooms: [&mut [u64]; 3]) -> [usize; 3] {
        let [open, other, empty] = rooms;
        let (first, second) = (table(mesh.first), table(mesh.second));
        let exempt = _mm512_set1_epi64(mesh.exempt as i64);
        let step = _mm512_set1_epi64(mesh.step as i64);
        let one = _mm512_set1_epi64(1);
        let (mut opens, mut others, mut empties) = (0, 0, 0);
        for lanes in words.chunks(LANES) {
            let all = 0xff >> (LANES - lanes.len());
            let word = load(lanes);
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
        debug_assert!((1..=LANES).contains(&words.len()));
        // SAFETY: the mask limits the load to the words of the slice.
        unsafe { _mm512_maskz_loadu_epi64(0xff >> (LANES - words.len()), words.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn table(marks: &Marks) -> [__m512i; 2] {
        let (words, _) = marks.0.as_chunks::<LANES>();
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
    fn put(room: &mut [u64], lanes: u8, word: __m512i) -> usize {
        let room: &mut [u64; LANES] = room.first_chunk_mut().expect("as many as words before");
        // SAFETY: the array has as many words as are stored.
        unsafe {
            let kept = _mm512_maskz_compress_epi64(lanes, word);
            _mm512_storeu_si512(room.as_mut_ptr().cast(), kept);
        }
        lanes.count_ones() as usize
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
use there::{mark, sift};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use plain::{mark, sift};

/// Portable implementation.
#[cfg(any(test, not(all(target_arch = "x86_64", not(miri)))))]
mod plain {
    use super::{Marks, Mesh};

    pub fn mark(entries: &[u64], marks: &mut [u64]) {
        for (entries, mark) in entries.chunks(64).zip(marks) {
            *mark = 0;
            for (at, entry) in entries.iter().enumerate() {
                *mark |= u64::from(*entry != 0) << at;
            }
        }
    }

    pub fn sift(words: &[u64], mesh: Mesh<'_>, rooms: [&mut [u64]; 3]) -> [usize; 3] {
        let mut counts = [0; 3];
        for &word in words {
            let is_marked = |marks: &Marks, at: u64| {
                let number = at as usize % Marks::NUMBERS;
                marks.0[number / 64] >> (number % 64) & 1 == 1
            };
            let ends = (is_marked(mesh.first, word >> 52), is_marked(mesh.second, word >> 40));
            let (place, step) = match ends {
                (true, true) => (0, 0),
                (false, false) if word & mesh.exempt == 0 => (2, mesh.step),
                _ => (1, 0),
            };
            rooms[place][counts[place]] = word.wrapping_add(step);
            counts[place] += 1;
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

    type Sift = fn(&[u64], Mesh<'_>, [&mut [u64]; 3]) -> [usize; 3];

    /// Uses the instructions if available.
    fn own(words: &[u64], mesh: Mesh<'_>, rooms: [&mut [u64]; 3]) -> [usize; 3] {
        match Sieve::detect() {
            Some(sieve) => sieve.sift(words, mesh, rooms),
            None => plain::sift(words, mesh, rooms),
        }
    }

    fn sifted(words: &[u64], mesh: Mesh<'_>, sift: Sift) -> [Vec<u64>; 3] {
        let mut rooms = [[7; 136]; 3];
        let counts = sift(words, mesh, rooms.each_mut().map(<[u64; 136]>::as_mut_slice));
        let [one, two, three] = rooms;
        [(one, counts[0]), (two, counts[1]), (three, counts[2])]
            .map(|(room, count)| room[..count].to_vec())
    }

    proptest! {
        #[test]
        fn the_instructions_do_what_others_say(
            words in prop::collection::vec(any::<u64>(), 0..130),
            (first, second) in any::<([u64; 16], [u64; 16])>(),
            step in any::<u64>(),
        ) {
            let (first, second) = (&Marks(first), &Marks(second));
            let mesh = Mesh { first, second, exempt: 3 << 38, step };
            prop_assert_eq!(sifted(&words, mesh, own), sifted(&words, mesh, plain::sift));
        }

        #[test]
        fn what_is_not_zero_is_marked(
            entries in prop::collection::vec(0u64..3, 0..1025),
            marks in any::<[u64; 16]>(),
        ) {
            let (mut own, mut known) = (Marks(marks), Marks(marks));
            plain::mark(&entries, &mut known.0[..entries.len().div_ceil(64)]);
            match Sieve::detect() {
                Some(sieve) => sieve.mark(&entries, &mut own),
                None => own.clone_from(&known),
            }
            prop_assert_eq!(&own, &known);
            for (at, entry) in entries.iter().enumerate() {
                prop_assert_eq!(known.0[at / 64] >> (at % 64) & 1 == 1, *entry > 0);
            }
        }
    }

    #[test]
    fn each_of_the_three_ways_is_taken() {
        let (mut first, mut second) = (Marks::NONE, Marks::NONE);
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
        let mesh = Mesh { first: &first, second: &second, exempt: 1 << 38, step: 1 << 32 };
        let known = [
            [words[0], words[4]].to_vec(),
            [words[1], words[3], words[5]].to_vec(),
            [words[2] + (1 << 32)].to_vec(),
        ];
        assert_eq!(sifted(&words, mesh, plain::sift), known);
        assert_eq!(sifted(&words, mesh, own), known);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_room_that_is_too_small_is_not_written() {
        let mesh = Mesh { first: &Marks::NONE, second: &Marks::NONE, exempt: 0, step: 0 };
        let rooms = &mut [[0; 8], [0; 8], [0; 8]];
        let rooms = rooms.each_mut().map(<[u64; 8]>::as_mut_slice);
        match Sieve::detect() {
            Some(sieve) => sieve.sift(&[0; 9], mesh, rooms),
            None => panic!("range end index 9 out of range"),
        };
    }
}
