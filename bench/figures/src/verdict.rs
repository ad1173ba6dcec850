//! Verdicts of claims: whether one holds, and what a difference from the paper means.

use std::fmt::{self, Display, Formatter};
use std::ops::RangeInclusive;

use serde::{Serialize, Serializer};

/// Largest and smallest ratio of our value to the paper's that counts as reproduced: within 25 %.
pub const NEAR: RangeInclusive<f64> = 0.75..=1.25;

/// Returns whether a value lies within 25 % of the paper's.
pub fn is_near(ours: f64, paper: f64) -> bool {
    NEAR.contains(&(ours / paper))
}

/// The direction in which a value of our system improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Latencies, losses, costs.
    Lower,
    /// Throughputs, shares of a link.
    Higher,
}

/// What the verification of a claim shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Our value matches the claim.
    Holds,
    /// Our value lies beyond the tolerance, on the better side.
    Better,
    /// Our value does not match the claim, and two numbers of the paper exclude each other.
    PaperContradictsItself,
    /// Our value does not match the claim: the only outcome that is a debt.
    DoesNotHold,
}

impl Outcome {
    /// All outcomes, in the order in which summaries list them.
    pub const ALL: [Self; 4] =
        [Self::Holds, Self::Better, Self::PaperContradictsItself, Self::DoesNotHold];

    /// Returns the outcome as printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Better => "better",
            Self::PaperContradictsItself => "paper contradicts itself",
            Self::DoesNotHold => "does not hold",
        }
    }

    /// Returns the outcome for a value, or for the lowest and the highest of several, where
    /// `expected` matches the claim.
    pub fn of(values: (f64, f64), expected: &RangeInclusive<f64>, better: Option<Better>) -> Self {
        let (lowest, highest) = values;
        // NaN lies in no range and is not better either.
        let is_above = lowest >= *expected.start();
        let is_below = highest <= *expected.end();
        match (is_above, is_below, better) {
            (true, true, _) => Self::Holds,
            (true, false, Some(Better::Higher)) if !highest.is_nan() => Self::Better,
            (false, true, Some(Better::Lower)) if !lowest.is_nan() => Self::Better,
            _ => Self::DoesNotHold,
        }
    }

    /// Returns [`Outcome::PaperContradictsItself`] in place of [`Outcome::DoesNotHold`] if the
    /// numbers indeed exclude each other.
    #[must_use]
    pub fn or_contradiction(self, contradiction: &Contradiction) -> Self {
        match self {
            Self::DoesNotHold if contradiction.is_real() => Self::PaperContradictsItself,
            outcome => outcome,
        }
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Result of verifying a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What the verification shows.
    pub outcome: Outcome,
    /// Our value.
    pub ours: String,
    /// The paper's value.
    pub paper: String,
    /// The contradiction, if the outcome is [`Outcome::PaperContradictsItself`].
    pub contradiction: Option<Contradiction>,
    /// Whether the value follows from a constant that was taken from the claim itself: then there
    /// is no verdict.
    pub is_calibration: bool,
}

impl Verdict {
    /// Returns a value that follows from a constant taken from the claim itself.
    pub fn calibration(ours: String, paper: String) -> Self {
        Self { is_calibration: true, ..Self::new(true, ours, paper) }
    }

    /// Returns the verdict on a claim that holds or does not.
    pub fn new(holds: bool, ours: String, paper: String) -> Self {
        let outcome = if holds { Outcome::Holds } else { Outcome::DoesNotHold };
        Self { outcome, ours, paper, contradiction: None, is_calibration: false }
    }

    /// Returns the verdict on a value that holds within `expected`, and is better beyond that range
    /// on the side of `better`.
    pub fn in_range(
        value: f64,
        expected: RangeInclusive<f64>,
        better: Better,
        ours: String,
        paper: String,
    ) -> Self {
        let outcome = Outcome::of((value, value), &expected, Some(better));
        Self { outcome, ours, paper, contradiction: None, is_calibration: false }
    }

    /// Returns the verdict on a value that holds within 25 % of the paper's, and is better beyond
    /// that on the side of `better`. `unit` follows both numbers.
    pub fn near(value: f64, paper: f64, better: Better, unit: &str) -> Self {
        let expected = NEAR.start() * paper..=NEAR.end() * paper;
        let text = |value: String| format!("{value} {unit}").trim_end().to_owned();
        let (ours, paper) = (text(format!("{value:.1}")), text(paper.to_string()));
        Self::in_range(value, expected, better, ours, paper)
    }

    /// Names two numbers of the paper that exclude each other: they are the reason if the claim
    /// does not hold ([`Outcome::or_contradiction`]).
    #[must_use]
    pub fn or_contradiction(mut self, contradiction: Contradiction) -> Self {
        let outcome = self.outcome.or_contradiction(&contradiction);
        if outcome != self.outcome {
            self.outcome = outcome;
            self.contradiction = Some(contradiction);
        }
        self
    }
}

/// A number of the paper, with the statement or figure that it comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stated {
    /// The number.
    pub value: f64,
    /// The number with its unit and source: `10 us over five hops (section 7.2)`.
    pub text: &'static str,
}

/// Two numbers of the paper, in the same unit, that exclude each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contradiction {
    /// Two values of one quantity that differ by more than 25 %.
    Differ(Stated, Stated),
    /// A value above a bound that the paper gives as well: a load above its own link rate.
    Exceeds(Stated, Stated),
}

impl Contradiction {
    /// Returns whether the numbers exclude each other: what is only called a contradiction changes
    /// no verdict.
    pub fn is_real(&self) -> bool {
        match self {
            Self::Differ(one, other) => {
                !is_near(one.value, other.value) && !is_near(other.value, one.value)
            }
            Self::Exceeds(value, bound) => value.value > bound.value,
        }
    }
}

impl Display for Contradiction {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differ(one, other) => write!(formatter, "{} against {}", one.text, other.text),
            Self::Exceeds(value, bound) => write!(formatter, "{} above {}", value.text, bound.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_follows_from_the_values() {
        use Better::{Higher, Lower};
        use Outcome::{Better as Ahead, DoesNotHold, Holds};
        let near = |value, better| Verdict::near(value, 10.0, better, "us").outcome;
        for better in [Lower, Higher] {
            assert_eq!([near(7.5, better), near(12.5, better)], [Holds; 2]);
            assert_eq!(near(f64::NAN, better), DoesNotHold);
        }
        assert_eq!([near(7.4, Lower), near(12.6, Lower)], [Ahead, DoesNotHold]);
        assert_eq!([near(7.4, Higher), near(12.6, Higher)], [DoesNotHold, Ahead]);
    }

    #[test]
    fn one_worse_value_of_several_is_not_better() {
        let of = |values, better| Outcome::of(values, &NEAR, better);
        assert_eq!(of((0.5, 1.2), Some(Better::Lower)), Outcome::Better);
        assert_eq!(of((0.5, 1.3), Some(Better::Lower)), Outcome::DoesNotHold);
        assert_eq!(of((0.8, 3.0), Some(Better::Higher)), Outcome::Better);
        assert_eq!(of((0.7, 3.0), Some(Better::Higher)), Outcome::DoesNotHold);
        assert_eq!(of((0.5, 1.2), None), Outcome::DoesNotHold);
        assert_eq!(of((0.8, 1.2), None), Outcome::Holds);
    }

    #[test]
    fn contradiction_must_be_real_and_hides_no_success() {
        let stated = |value, text| Stated { value, text };
        let differ = Contradiction::Differ(stated(10.0, "10 us"), stated(7.0, "7 us"));
        let close = Contradiction::Differ(stated(10.0, "10 us"), stated(9.0, "9 us"));
        let above = Contradiction::Exceeds(stated(114.0, "114 Gbit/s"), stated(100.0, "its link"));
        let below = Contradiction::Exceeds(stated(99.0, "99 Gbit/s"), stated(100.0, "its link"));
        assert_eq!(
            [differ, close, above, below].map(|one| one.is_real()),
            [true, false, true, false]
        );
        let worse = Verdict::near(20.0, 10.0, Better::Lower, "us");
        let excused = worse.clone().or_contradiction(differ);
        assert_eq!(excused.outcome, Outcome::PaperContradictsItself);
        assert_eq!(
            excused.contradiction.map(|one| one.to_string()).as_deref(),
            Some("10 us against 7 us")
        );
        assert_eq!(worse.clone().or_contradiction(close), worse);
        let good = Verdict::near(10.0, 10.0, Better::Lower, "us");
        assert_eq!(good.clone().or_contradiction(above), good);
        let ahead = Verdict::near(5.0, 10.0, Better::Lower, "us");
        assert_eq!(ahead.clone().or_contradiction(above), ahead);
    }
}
