//! Random values by the rules of clauses 2.1.6 and 4.3.2.

use alloc::vec::Vec;

use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256StarStar};

use crate::text::Text;

/// NURand's A for C_LAST (clause 2.1.6).
pub const A_C_LAST: u64 = 255;
/// NURand's A for C_ID (clause 2.1.6).
pub const A_C_ID: u64 = 1_023;
/// NURand's A for OL_I_ID (clause 2.1.6).
pub const A_OL_I_ID: u64 = 8_191;

const ALPHANUMERIC: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const DIGITS: &[u8; 10] = b"0123456789";
const CAPITALS: &[u8; 26] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The syllables of last names (clause 4.3.2.3).
const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

/// Returns a number of `from..=to`, each with the same probability ("random within", clause
/// 4.3.2.5). The bias of the multiplication is below 2^-32 for the ranges used here.
pub fn within(random: &mut impl Rng, from: u64, to: u64) -> u64 {
    debug_assert!(from <= to, "a range has a number");
    let numbers = u128::from(to - from) + 1;
    from + ((u128::from(random.next_u64()) * numbers) >> 64) as u64
}

/// Returns true with a probability of `percent` in 100.
pub fn is_chosen(random: &mut impl Rng, percent: u8) -> bool {
    within(random, 1, 100) <= percent.into()
}

/// Returns a non-uniform random number of `x..=y`: NURand(`a`, `x`, `y`) with the constant `c`
/// (clause 2.1.6).
pub fn nurand(random: &mut impl Rng, (a, c): (u64, u64), (x, y): (u64, u64)) -> u64 {
    (((within(random, 0, a) | within(random, x, y)) + c) % (y - x + 1)) + x
}

/// NURand's run-time constants C (clause 2.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// C for last names, 0 to 255.
    pub c_last: u64,
    /// C for customer ids, 0 to 1,023.
    pub c_id: u64,
    /// C for item ids, 0 to 8,191.
    pub i_id: u64,
}

impl Constants {
    /// Returns the constants for the load of the database of this seed.
    pub fn of_load(seed: u64) -> Self {
        let mut random = keyed(seed, &[Stream::Constants as u64]);
        Self {
            c_last: within(&mut random, 0, A_C_LAST),
            c_id: within(&mut random, 0, A_C_ID),
            i_id: within(&mut random, 0, A_OL_I_ID),
        }
    }

    /// Returns the constants for transactions on the database of this seed. C for last names
    /// differs from that of the load by 65 to 119, but not by 96 or 112 (clause 2.1.6.1).
    pub fn of_run(seed: u64) -> Self {
        let load = Self::of_load(seed);
        let mut random = keyed(seed, &[Stream::Constants as u64, 1]);
        let delta = loop {
            match within(&mut random, 65, 119) {
                96 | 112 => {}
                delta => break delta,
            }
        };
        // Both stay in 0..=255, as 127 + 119 is 246 and 128 - 119 is 9.
        let c_last = match load.c_last {
            ..=127 => load.c_last + delta,
            c_last => c_last - delta,
        };
        Self { c_last, ..load }
    }
}

/// What a stream of random numbers is for; streams of one database are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// NURand's constants.
    Constants,
    /// The table ITEM.
    Items,
    /// The row of WAREHOUSE without its name.
    Warehouse,
    /// The rows of STOCK without S_DIST_xx.
    Stock,
    /// The columns S_DIST_xx.
    DistInfo,
    /// W_NAME and D_NAME.
    Name,
    /// A district with its customers and their history.
    District,
    /// The orders of a district.
    Orders,
}

/// Returns a SplitMix64 generator whose seed is mixed from `seed` and `key`.
pub fn keyed(seed: u64, key: &[u64]) -> SplitMix64 {
    let mix = |seed, part| SplitMix64::seed_from_u64(seed).next_u64() ^ part;
    SplitMix64::seed_from_u64(key.iter().fold(seed, |seed, part| mix(seed, *part)))
}

/// Returns a xoshiro256** generator whose seed is mixed from `seed` and `key`: for long streams.
pub fn stream(seed: u64, key: &[u64]) -> Xoshiro256StarStar {
    Xoshiro256StarStar::seed_from_u64(keyed(seed, key).next_u64())
}

fn string<const N: usize>(
    random: &mut impl Rng,
    characters: &[u8],
    (from, to): (usize, usize),
) -> Text<N> {
    let length = within(random, from as u64, to as u64);
    let mut text = Text::new();
    for _ in 0..length {
        let at = within(random, 0, characters.len() as u64 - 1) as usize;
        text.push(&characters[at..=at]);
    }
    text
}

/// Returns a random a-string of `from..=to` characters (clause 4.3.2.2).
pub fn a_string<const N: usize>(random: &mut impl Rng, from: usize, to: usize) -> Text<N> {
    string(random, ALPHANUMERIC, (from, to))
}

/// Returns a random n-string of `length` digits (clause 4.3.2.2).
pub fn n_string<const N: usize>(random: &mut impl Rng, length: usize) -> Text<N> {
    string(random, DIGITS, (length, length))
}

/// Returns two random capital letters, for the columns `*_STATE`.
pub fn state(random: &mut impl Rng) -> Text<2> {
    string(random, CAPITALS, (2, 2))
}

/// Fills `bytes` with random alphanumeric characters.
pub fn fill(random: &mut impl Rng, bytes: &mut [u8]) {
    for byte in bytes {
        *byte = ALPHANUMERIC[within(random, 0, ALPHANUMERIC.len() as u64 - 1) as usize];
    }
}

/// Returns the last name of a number below 1,000: the syllables of its three digits (clause
/// 4.3.2.3). Different numbers have different names.
pub fn last_name(number: u16) -> Text<16> {
    let mut name = Text::new();
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        name.push(SYLLABLES[usize::from(digit)]);
    }
    name
}

/// Returns a random permutation of `1..=n` (clause 4.3.2.6), by Fisher and Yates.
pub fn permutation(random: &mut impl Rng, n: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (1..=n).collect();
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, within(random, 0, at as u64) as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn last_names_differ_and_fit_their_column() {
        assert_eq!(last_name(371).as_bytes(), b"PRICALLYOUGHT", "the example of clause 4.3.2.3");
        let names: BTreeSet<Text<16>> = (0..1_000).map(last_name).collect();
        assert_eq!(names.len(), 1_000);
        // The longest name has 15 characters, so none was truncated to 16.
        assert_eq!(names.iter().map(|name| name.as_bytes().len()).max(), Some(15));
    }

    #[test]
    fn constants_of_load_and_run_differ_as_required() {
        for seed in 0..1_000 {
            let (load, run) = (Constants::of_load(seed), Constants::of_run(seed));
            let delta = load.c_last.abs_diff(run.c_last);
            assert!((65..=119).contains(&delta) && delta != 96 && delta != 112, "{delta}");
            assert!(run.c_last <= A_C_LAST);
        }
    }

    #[test]
    fn nurand_stays_in_range_and_reaches_both_ends() {
        let mut random = stream(1, &[]);
        let drawn: BTreeSet<u64> =
            (0..20_000).map(|_| nurand(&mut random, (A_C_ID, 77), (1, 30))).collect();
        assert_eq!(drawn, (1..=30).collect());
        let mut numbers = permutation(&mut random, 100);
        assert_ne!(numbers, (1..=100).collect::<Vec<u32>>());
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=100).collect::<Vec<u32>>());
    }
}
