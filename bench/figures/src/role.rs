//! What the comparison of a curve with the paper's points shows.

use crate::verdict::{Better, Contradiction, NEAR, Outcome};

/// Whether the comparison of a curve with the paper tests the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// Predicted by the model: the comparison is a test.
    Predicted,
    /// Predicted, and a curve of our system: points beyond the tolerance on the better side are
    /// [`Outcome::Better`].
    Ours(Better),
    /// Predicted, but some of the paper's points contradict its own text or another figure. If all
    /// others hold or are better, a difference is [`Outcome::PaperContradictsItself`].
    Contradicted {
        /// The direction in which a curve of our system improves.
        better: Option<Better>,
        /// The points that are contradicted, and by what.
        points: &'static [ContradictedPoints],
    },
    /// Used for calibration: agrees by construction where it was fitted.
    Calibration,
    /// One point was used for calibration; all others are predicted.
    CalibratedAt {
        /// The x of that point, which is not compared.
        x: f64,
        /// As in [`Role::Contradicted`].
        points: &'static [ContradictedPoints],
    },
    /// Measured on this machine, which differs from the paper's.
    Machine,
    /// Simulated with costs measured on this machine.
    MachineCosts,
}

impl Role {
    /// Returns what the ratios of our values to the paper's show, each with its x; `None` if the
    /// comparison is no test of the model.
    pub(crate) fn outcome(&self, ratios: &[(f64, f64)]) -> Option<Outcome> {
        let better = match self {
            Self::Calibration | Self::Machine | Self::MachineCosts => return None,
            Self::Ours(better) => Some(*better),
            Self::Predicted | Self::CalibratedAt { .. } => None,
            Self::Contradicted { better, .. } => *better,
        };
        let of = |ratios: &mut dyn Iterator<Item = f64>| {
            let extremes = ratios
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), ratio| {
                    (least.min(ratio), most.max(ratio))
                });
            Outcome::of(extremes, &NEAR, better)
        };
        let outcome = of(&mut ratios.iter().map(|(_, ratio)| *ratio));
        let is_contradicted =
            |x: f64| self.points().iter().any(|points| points.has(x) && points.numbers.is_real());
        let mut others = ratios.iter().filter(|(x, _)| !is_contradicted(*x)).peekable();
        let do_others_hold = others.peek().is_none()
            || of(&mut others.map(|(_, ratio)| *ratio)) != Outcome::DoesNotHold;
        match outcome {
            Outcome::DoesNotHold if do_others_hold && !self.points().is_empty() => {
                Some(Outcome::PaperContradictsItself)
            }
            outcome => Some(outcome),
        }
    }

    /// Returns the x of the point that was used for calibration, if it was one of several.
    pub(crate) fn calibrated_at(&self) -> Option<f64> {
        match self {
            Self::CalibratedAt { x, .. } => Some(*x),
            _ => None,
        }
    }

    /// Returns the points that the paper contradicts.
    fn points(&self) -> &'static [ContradictedPoints] {
        match self {
            Self::Contradicted { points, .. } | Self::CalibratedAt { points, .. } => points,
            _ => &[],
        }
    }

    /// Returns what contradicts which points of the paper; nothing if no point is contradicted.
    pub(crate) fn contradictions(&self) -> String {
        let each = self.points().iter().map(|points| {
            let ContradictedPoints { first, last, numbers } = points;
            match first == last {
                true => format!("at {first} {numbers}"),
                false => format!("from {first} to {last} {numbers}"),
            }
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

/// Points of a curve of the paper that contradict its own text or another figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContradictedPoints {
    /// The lowest x.
    pub first: f64,
    /// The highest x.
    pub last: f64,
    /// What contradicts them.
    pub numbers: Contradiction,
}

impl ContradictedPoints {
    /// Whether a point at `x` is among them.
    fn has(&self, x: f64) -> bool {
        (self.first..=self.last).contains(&x)
    }
}
