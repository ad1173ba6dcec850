//! Parsing and formatting of quantities: times, probabilities, rates and sizes with units.

use anyhow::{Result, bail};

/// Parses a time like `10ms`, `100us`, `1.5s` or `250ns`. Returns ns.
pub fn time_ns(text: &str) -> Result<u64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" => bail!("{text:?} has no unit: write for example 100us, 10ms or 1.5s"),
        _ => bail!("{unit:?} is not a unit of time: use ns, us, ms or s"),
    };
    let number: f64 = match number.trim().parse() {
        Ok(number) => number,
        Err(_) => bail!("{number:?} is not a number"),
    };
    let ns = number * scale;
    if !(ns.is_finite() && (1.0..=1e15).contains(&ns)) {
        bail!("{text:?} is out of range: 1ns to 1000000s");
    }
    Ok(ns.round() as u64)
}

/// Formats how often a program was off its core, and for how long at most.
pub fn pauses_text(pauses: u64, max_ns: u64) -> String {
    match pauses {
        0 => "none".to_owned(),
        _ => format!("{pauses}, the longest {:.3} s", max_ns as f64 / 1e9),
    }
}

/// Parses the length of a timeslot: the time of a full frame on an endpoint's link. Returns ns.
pub fn timeslot_ns(text: &str) -> Result<u64> {
    match time_ns(text)? {
        // A frame of 1,500 bytes takes 10 ns at 1.2 Tbit/s and 1 s at 12 kbit/s.
        ns @ 10..=1_000_000_000 => Ok(ns),
        _ => bail!(
            "{text:?} is not a timeslot: a full frame takes 10ns to 1s on an endpoint's link, 118us at \
             100 Mbit/s and 1.2us at 10 Gbit/s"
        ),
    }
}

/// Parses a probability like `0.01` or `1%`.
pub fn probability(text: &str) -> Result<f64> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let number: f64 = match number.trim().parse() {
        Ok(number) => number,
        Err(_) => bail!("{text:?} is not a probability: write for example 0.01 or 1%"),
    };
    let probability = number * scale;
    if !(0.0..=1.0).contains(&probability) {
        bail!("{text:?} is not a probability: it must lie between 0 and 1 (or 0% and 100%)");
    }
    Ok(probability)
}

/// Parses a load like `0.5` or `50%`, at least 1 %.
pub fn load(text: &str) -> Result<f64> {
    match probability(text)? {
        load if load >= 0.01 => Ok(load),
        _ => bail!("{text:?} is too low: a load lies between 0.01 and 1"),
    }
}

/// Parses a positive rate like `2000`, `50k` or `1.5M`.
pub fn rate(text: &str) -> Result<f64> {
    let (number, scale) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1e3),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number * scale),
        _ => bail!("{text:?} is not a rate: write for example 2000, 50k or 1.5M"),
    }
}

/// Parses a bit rate like `500k`, `100M` or `1G`. Returns bit/s.
pub fn bits_per_s(text: &str) -> Result<u64> {
    let parsed = match text.strip_suffix('G') {
        Some(number) => number.parse::<f64>().ok().map(|number| number * 1e9),
        None => rate(text).ok(),
    };
    match parsed {
        Some(bits) if (1e3..=1e12).contains(&bits) => Ok(bits as u64),
        _ => bail!("{text:?} is not a bit rate from 1k to 1000G: write for example 100M or 1G"),
    }
}

/// Parses a size like `4096`, `256KiB` or `16MiB`. Returns bytes.
pub fn bytes(text: &str) -> Result<usize> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let unit = units.into_iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
    let (number, scale) = unit.unwrap_or((text, 1));
    match number.parse::<usize>().ok().and_then(|number| number.checked_mul(scale)) {
        Some(bytes) => Ok(bytes),
        None => bail!("{text:?} is not a size: write for example 4096, 256KiB or 16MiB"),
    }
}

/// Parses a positive number of seconds, whole or fractional.
pub fn seconds(text: &str) -> Result<f64> {
    match text.strip_suffix('s').unwrap_or(text).parse::<f64>() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(seconds),
        _ => bail!("{text:?} is not a number of seconds from 0.1 to 1000000"),
    }
}

/// Formats a time with three digits and a unit.
pub fn readable_ns(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{} us", three_digits(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", three_digits(ns / 1e6)),
        _ => format!("{} s", three_digits(ns / 1e9)),
    }
}

/// Formats a count or a rate with three digits and k, M or G.
pub fn readable(number: f64) -> String {
    match number {
        number if number < 1e4 => format!("{number:.0}"),
        number if number < 1e6 => format!("{} k", three_digits(number / 1e3)),
        number if number < 1e9 => format!("{} M", three_digits(number / 1e6)),
        _ => format!("{} G", three_digits(number / 1e9)),
    }
}

fn three_digits(number: f64) -> String {
    match number {
        number if number < 9.995 => format!("{number:.2}"),
        number if number < 99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_times_with_unit_and_range() {
        let read = |text| time_ns(text).map_err(|error| error.to_string());
        assert_eq!(read("10ms"), Ok(10_000_000));
        assert_eq!(read("1.5us"), Ok(1_500));
        assert_eq!(read("3s"), Ok(3_000_000_000));
        assert!(read("10").is_err_and(|error| error.contains("has no unit")));
        assert!(read("10 minutes").is_err_and(|error| error.contains("not a unit of time")));
        for text in ["ms", "-1ms", "0s", "1e300s", "infs", ""] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parses_probabilities_within_range() {
        assert_eq!(probability("0.25").ok(), Some(0.25));
        assert_eq!(probability("50%").ok(), Some(0.5));
        for text in ["1.1", "-0.1", "NaN", "200%", "x", ""] {
            assert!(probability(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rejects_rates_that_are_not_positive() {
        assert_eq!((rate("2k").ok(), rate("1.5M").ok()), (Some(2e3), Some(1.5e6)));
        for text in ["0", "-1", "k", "", "inf", "1G"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parses_bit_rates_and_sizes() {
        let bits = ["1k", "100M", "1.5G", "2000"].map(|text| bits_per_s(text).ok());
        assert_eq!(bits, [Some(1_000), Some(100_000_000), Some(1_500_000_000), Some(2_000)]);
        for text in ["0", "10", "-1M", "G", "1T", "2000G", "1kG", ""] {
            assert!(bits_per_s(text).is_err(), "{text}");
        }
        let read = ["7", "256KiB", "16MiB"].map(|text| bytes(text).ok());
        assert_eq!(read, [Some(7), Some(256 << 10), Some(16 << 20)]);
        for text in ["-1", "KiB", "1.5MiB", "99999999999GiB", "1kB", ""] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formats_numbers_with_units() {
        let times = [7, 1_500, 999_999, 23_400_000, 1_000_000_000].map(readable_ns);
        assert_eq!(times, ["7 ns", "1.50 us", "1000 us", "23.4 ms", "1.00 s"]);
        assert_eq!(
            [0.0, 9_999.0, 12_345.0, 6.1e6].map(readable),
            ["0", "9999", "12.3 k", "6.10 M"]
        );
    }
}
