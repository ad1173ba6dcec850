//! Decimal numbers of `INCRBYFLOAT`.
//!
//! Redis adds in the processor's `long double` and writes 17 digits after the point. Fixed-point
//! numbers with 17 such digits give the same text on every processor, and the text of Redis except
//! where Redis has an error of rounding (`5.6 + 5000` is 5005.60000000000000009 there).

use alloc::format;
use alloc::string::String;

/// Number of digits after the point.
const DIGITS: i32 = 17;
const ONE: i128 = 10_i128.pow(DIGITS as u32);
/// A number whose exponent has a greater magnitude is refused.
const EXPONENT_MAX: u32 = 1_000;

/// A number between about −10^21 and 10^21, in units of 10^-17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal(i128);

impl Decimal {
    pub(crate) const ZERO: Self = Self(0);

    /// Parses `-12.5` or `1.25e3`. Digits after the 17th behind the point are cut off.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(text).ok()?;
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        if exponent.unsigned_abs() > EXPONENT_MAX {
            return None;
        }
        let unsigned = number.strip_prefix(['-', '+']).unwrap_or(number);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        // The first digit counts 10^(len - 1 + exponent).
        let mut power = i32::try_from(whole.len()).ok()?.checked_add(exponent + DIGITS)?;
        let mut sum: i128 = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            let digit = char::from(digit).to_digit(10)?;
            power -= 1;
            if power >= 0 && digit > 0 {
                let unit = 10_i128.checked_pow(power.unsigned_abs())?;
                sum = sum.checked_add(i128::from(digit).checked_mul(unit)?)?;
            }
        }
        Some(Self(if number.starts_with('-') { -sum } else { sum }))
    }

    /// Returns the sum; `None` if it is out of range.
    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Returns the text, without zeros at the end.
    pub(crate) fn text(self) -> String {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.0.unsigned_abs();
        let (whole, fraction) = (magnitude / ONE.unsigned_abs(), magnitude % ONE.unsigned_abs());
        let text = format!("{sign}{whole}.{fraction:017}");
        text.trim_end_matches('0').trim_end_matches('.').into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_and_written() {
        for (text, written) in [
            ("0", "0"),
            ("10.50", "10.5"),
            ("-3", "-3"),
            ("+.5", "0.5"),
            ("5.0e3", "5000"),
            ("1e-17", "0.00000000000000001"),
            ("1e-18", "0"),
            ("-0.0", "0"),
            ("1e21", "1000000000000000000000"),
        ] {
            assert_eq!(
                Decimal::parse(text.as_bytes()).map(Decimal::text).as_deref(),
                Some(written)
            );
        }
        for text in ["", ".", "-", "1e", "1e22", "nan", "inf", "1 ", "1.2.3", "1e99999"] {
            assert_eq!(Decimal::parse(text.as_bytes()), None, "{text}");
        }
        for exponent in [i32::MIN, -1_001, 1_001, i32::MAX] {
            assert_eq!(Decimal::parse(format!("1e{exponent}").as_bytes()), None, "{exponent}");
        }
    }

    #[test]
    fn sums_are_exact() {
        let decimal = |text: &str| Decimal::parse(text.as_bytes()).expect("a number");
        let sum = |one, other| decimal(one).plus(decimal(other)).map(Decimal::text);
        assert_eq!(sum("0.1", "0.2").as_deref(), Some("0.3"));
        assert_eq!(sum("10.6", "-5").as_deref(), Some("5.6"));
        assert_eq!(sum("1.7e21", "1.7e21"), None);
    }
}
