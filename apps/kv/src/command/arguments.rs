//! The arguments of a command, taken one after the other.

use alloc::vec::Vec;

use super::CommandError;
use crate::integer::parse_integer;
use crate::key::Key;
use crate::operation::{Deadline, EXPIRY_MS_MAX};
use crate::score::Score;

type Result<T> = core::result::Result<T, CommandError>;

/// Arguments after the name of a command.
pub(super) struct Arguments<'a> {
    /// Name of the command, for errors and for the parsed command.
    pub name: &'static str,
    rest: &'a [Vec<u8>],
}

impl<'a> Arguments<'a> {
    pub(super) fn new(name: &'static str, rest: &'a [Vec<u8>]) -> Self {
        Self { name, rest }
    }

    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn next(&mut self) -> Result<&'a Vec<u8>> {
        let (first, rest) = self.rest.split_first().ok_or(CommandError::Arity(self.name))?;
        self.rest = rest;
        Ok(first)
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>> {
        self.next().cloned()
    }

    pub(super) fn key(&mut self) -> Result<Key> {
        self.bytes().map(Key::new)
    }

    pub(super) fn integer(&mut self) -> Result<i64> {
        parse_integer(self.next()?).ok_or(CommandError::NotInteger)
    }

    /// Takes a count, which has an error of its own, as in Redis.
    pub(super) fn count(&mut self) -> Result<u64> {
        let out_of_range = CommandError::Other("value is out of range, must be positive");
        let integer = parse_integer(self.next()?).and_then(|integer| integer.try_into().ok());
        integer.ok_or(out_of_range)
    }

    pub(super) fn score(&mut self) -> Result<Score> {
        Score::parse_in_range(self.next()?).ok_or(CommandError::NotFloat)
    }

    /// Takes an option in upper case; `None` after the last argument.
    pub(super) fn option(&mut self) -> Option<Vec<u8>> {
        self.next().ok().map(|word| word.to_ascii_uppercase())
    }

    /// Takes the integer after an option. If there is none, the syntax is wrong.
    pub(super) fn option_integer(&mut self) -> Result<i64> {
        match self.rest.is_empty() {
            true => Err(CommandError::Syntax),
            false => self.integer(),
        }
    }

    /// Takes the next argument if it is this word.
    pub(super) fn has_word(&mut self, word: &str) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if first.eq_ignore_ascii_case(word.as_bytes()) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes all arguments that are left.
    pub(super) fn all(&mut self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.rest).to_vec()
    }

    /// Takes all arguments that are left, as keys.
    pub(super) fn all_keys(&mut self) -> Vec<Key> {
        self.all().into_iter().map(Key::new).collect()
    }

    /// Takes all arguments that are left, as pairs.
    pub(super) fn all_pairs(&mut self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (pairs, odd) = core::mem::take(&mut self.rest).as_chunks::<2>();
        if pairs.is_empty() || !odd.is_empty() {
            return Err(CommandError::Arity(self.name));
        }
        Ok(pairs.iter().map(|[one, other]| (one.clone(), other.clone())).collect())
    }

    /// Takes a number of keys and the keys.
    pub(super) fn counted_keys(&mut self) -> Result<Vec<Key>> {
        let positive = CommandError::Other("numkeys should be greater than 0");
        let count = parse_integer(self.next()?).filter(|count| *count > 0).ok_or(positive)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let too_many = "Number of keys can't be greater than number of args";
        let (keys, rest) =
            self.rest.split_at_checked(count).ok_or(CommandError::Other(too_many))?;
        self.rest = rest;
        Ok(keys.iter().cloned().map(Key::new).collect())
    }

    /// Checks that no argument is left.
    pub(super) fn end(&self) -> Result<()> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(CommandError::Syntax),
        }
    }

    /// Takes the value of an expiry option (`EX`, `PX`, `EXAT`, `PXAT`); `None` if the option is
    /// another one.
    pub(super) fn expiry(&mut self, option: &[u8]) -> Result<Option<ExpiryOption<'a>>> {
        let (is_relative, ms_per_unit) = match option {
            b"EX" => (true, 1_000),
            b"PX" => (true, 1),
            b"EXAT" => (false, 1_000),
            b"PXAT" => (false, 1),
            _ => return Ok(None),
        };
        let time = self.next().map_err(|_| CommandError::Syntax)?;
        Ok(Some(ExpiryOption { name: self.name, is_relative, ms_per_unit, time }))
    }
}

/// An expiry option. Its time is parsed after all options, as in Redis.
pub(super) struct ExpiryOption<'a> {
    name: &'static str,
    is_relative: bool,
    ms_per_unit: i64,
    time: &'a [u8],
}

impl ExpiryOption<'_> {
    /// Returns whether the other is the same option, with any time.
    pub(super) fn is_again(&self, other: &Self) -> bool {
        (self.is_relative, self.ms_per_unit) == (other.is_relative, other.ms_per_unit)
    }

    pub(super) fn deadline(&self) -> Result<Deadline> {
        let time = parse_integer(self.time).ok_or(CommandError::NotInteger)?;
        let deadline = deadline(time, self.ms_per_unit, self.is_relative).filter(|_| time > 0);
        deadline.ok_or(CommandError::InvalidExpiry(self.name))
    }
}

/// Returns a deadline; `None` if it is too far from the present or from the epoch.
pub(super) fn deadline(time: i64, ms_per_unit: i64, is_relative: bool) -> Option<Deadline> {
    let ms = time.checked_mul(ms_per_unit)?;
    let is_near = (-EXPIRY_MS_MAX..=EXPIRY_MS_MAX).contains(&ms);
    is_near.then_some(match is_relative {
        true => Deadline::After { ms },
        false => Deadline::At { ms },
    })
}
