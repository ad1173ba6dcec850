//! Scores of sorted sets.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use crate::codec::{Field, Reader};

/// A floating-point number (IEEE 754, 64 bits) in a representation whose order as an integer is
/// that of the numbers, so that states can be compared and hashed. Never NaN, and never −0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Score(u64);

const SIGN: u64 = 1 << 63;
/// Whole numbers up to this magnitude are written without an exponent, as Redis does.
const WHOLE_MAX: f64 = 4_503_599_627_370_495.0;

impl Score {
    /// Returns the score; `None` for NaN.
    pub fn new(value: f64) -> Option<Self> {
        if value.is_nan() {
            return None;
        }
        // −0 + 0 is 0.
        let bits = (value + 0.0).to_bits();
        Some(Self(if bits & SIGN == 0 { bits | SIGN } else { !bits }))
    }

    /// Returns the number.
    pub fn value(self) -> f64 {
        f64::from_bits(if self.0 & SIGN == 0 { !self.0 } else { self.0 & !SIGN })
    }

    /// Parses a number as Redis does: decimal, with or without an exponent, or `inf`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        Self::new(core::str::from_utf8(text).ok()?.parse().ok()?)
    }

    /// Parses a number as [`Score::parse`] does. One that is too large for a score, and would be
    /// infinite, or too small, and would be 0, is refused.
    pub(crate) fn parse_in_range(text: &[u8]) -> Option<Self> {
        let score = Self::parse(text)?;
        let mantissa = text.split(|byte| byte.eq_ignore_ascii_case(&b'e')).next()?;
        // Neither infinity nor zero is written with such digits.
        let has_digits = mantissa.iter().any(|byte| (b'1'..=b'9').contains(byte));
        let is_out = has_digits && (score.value().is_infinite() || score.value() == 0.0);
        (!is_out).then_some(score)
    }

    /// Returns the sum; `None` if it is not a number (`inf` and `-inf`).
    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        Self::new(self.value() + other.value())
    }

    /// Returns the lower limit of all scores above this one, for comparisons only: it may be no
    /// number.
    pub(crate) fn just_above(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Writes the shortest digits that parse to the same number, in the format of Redis 7.2.
impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value();
        if value.is_infinite() {
            return f.write_str(if value > 0.0 { "inf" } else { "-inf" });
        }
        if (-WHOLE_MAX..=WHOLE_MAX).contains(&value) && value % 1.0 == 0.0 {
            return write!(f, "{value}");
        }
        // `1.25e-7` are the digits 125 with the exponent −7.
        let scientific = format!("{value:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or_default();
        let count = digits.bytes().filter(u8::is_ascii_digit).count() as i32;
        let last = exponent - count + 1;
        let is_plain = match last {
            0.. => exponent < count + 7,
            _ => last > -7 || exponent.abs() < 4,
        };
        match is_plain {
            true => write!(f, "{value}"),
            false if exponent < 0 => write!(f, "{digits}e{exponent}"),
            false => write!(f, "{digits}e+{exponent}"),
        }
    }
}

impl fmt::Debug for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Field for Score {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let bits = u64::from_be_bytes(reader.bytes(8)?.try_into().ok()?);
        // Only the bits of numbers that `new` returns are an encoding.
        Self::new(Self(bits).value()).filter(|score| score.0 == bits)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn score(text: &str) -> Score {
        Score::parse(text.as_bytes()).expect("a number")
    }

    #[test]
    fn order_is_that_of_the_numbers() {
        let ordered = ["-inf", "-1e300", "-2", "-1.5", "-1e-300", "0", "1e-300", "1", "2", "inf"];
        assert!(ordered.windows(2).all(|pair| score(pair[0]) < score(pair[1])));
        assert_eq!(score("-0"), score("0"));
        assert_eq!(Score::parse(b"nan"), None);
        assert_eq!(score("inf").plus(score("-inf")), None);
    }

    #[test]
    fn text_is_that_of_redis() {
        for (number, text) in [
            ("3", "3"),
            ("-0", "0"),
            ("3.1", "3.1"),
            ("0.1", "0.1"),
            ("1e3", "1000"),
            ("1e20", "1e+20"),
            ("1.5e300", "1.5e+300"),
            ("0.0001", "0.0001"),
            ("1.25e-7", "1.25e-7"),
            ("-1.5", "-1.5"),
            ("+inf", "inf"),
        ] {
            assert_eq!(score(number).to_string(), text);
        }
    }
}
