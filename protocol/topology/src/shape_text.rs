//! Shapes as text, as used on the command line.

use core::fmt;
use core::str::FromStr;

use crate::{Shape, ShapeError};

impl FromStr for Shape {
    type Err = ShapeError;

    /// Parses `testbed`, `star:8` (hosts), `leaf-spine:4x2x8` (leaves x spines x hosts per leaf) or
    /// `fat-tree:8` (ports of a switch).
    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let (kind, numbers) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "testbed" if numbers.is_empty() => Ok(Self::testbed()),
            "testbed" => Err(ShapeError::Malformed { expected: "testbed" }),
            "star" => {
                let [hosts] = read(numbers, "star:HOSTS")?;
                Self::star(hosts)
            }
            "leaf-spine" => {
                let expected = "leaf-spine:LEAVESxSPINESxHOSTS_PER_LEAF";
                let [leaves, spines, hosts] = read(numbers, expected)?;
                Self::leaf_spine(leaves, spines, hosts)
            }
            "fat-tree" => {
                let [k] = read(numbers, "fat-tree:PORTS")?;
                Self::fat_tree(k)
            }
            _ => Err(ShapeError::Unknown),
        }
    }
}

/// Parses exactly `N` decimal numbers separated by `x`.
fn read<const N: usize>(text: &str, expected: &'static str) -> Result<[u32; N], ShapeError> {
    let malformed = ShapeError::Malformed { expected };
    let mut words = text.split('x');
    let mut numbers = [0; N];
    for number in &mut numbers {
        let word = words.next().ok_or(malformed)?;
        if !word.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed);
        }
        *number = word.parse().map_err(|_| malformed)?;
    }
    if words.next().is_some() { Err(malformed) } else { Ok(numbers) }
}

impl fmt::Display for Shape {
    /// Writes the text that [`Shape::from_str`] parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::testbed() {
            f.write_str("testbed")
        } else if self.cores > 0 {
            write!(f, "fat-tree:{}", self.pods)
        } else if self.spines > 0 {
            write!(f, "leaf-spine:{}x{}x{}", self.tors, self.spines, self.hosts)
        } else {
            write!(f, "star:{}", self.hosts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn shapes_round_trip_as_text() {
        for text in ["testbed", "star:8", "leaf-spine:4x2x8", "fat-tree:8", "fat-tree:2"] {
            assert_eq!(text.parse::<Shape>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn malformed_text_names_expected_format() {
        let star = ShapeError::Malformed { expected: "star:HOSTS" };
        for text in
            ["star", "star:", "star:x", "star:8x2", "star:-1", "star:+1", "star:99999999999"]
        {
            assert_eq!(text.parse::<Shape>(), Err(star), "{text}");
        }
        for text in ["", "ring:4", "Testbed", " testbed"] {
            assert_eq!(text.parse::<Shape>(), Err(ShapeError::Unknown), "{text}");
        }
        assert!(matches!("testbed:2".parse::<Shape>(), Err(ShapeError::Malformed { .. })));
        assert!(matches!("leaf-spine:4x2".parse::<Shape>(), Err(ShapeError::Malformed { .. })));
    }

    #[test]
    fn refuses_impossible_numbers() {
        assert_eq!("fat-tree:7".parse::<Shape>(), Err(ShapeError::Odd { k: 7 }));
        for text in
            ["star:0", "fat-tree:0", "leaf-spine:0x1x1", "leaf-spine:1x0x1", "leaf-spine:1x1x0"]
        {
            assert!(matches!(text.parse::<Shape>(), Err(ShapeError::Zero { .. })), "{text}");
        }
        let most = u32::MAX;
        for text in [
            alloc::format!("star:{most}"),
            alloc::format!("leaf-spine:{most}x{most}x{most}"),
            alloc::format!("leaf-spine:1x{most}x1"),
            alloc::format!("fat-tree:{}", most - 1),
            "fat-tree:162".to_string(),
        ] {
            assert!(matches!(text.parse::<Shape>(), Err(ShapeError::TooLarge { .. })), "{text}");
        }
    }
}
