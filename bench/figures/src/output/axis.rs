//! An axis of a chart: linear or logarithmic, with ticks at given values.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;

/// Width of a character of a label in pixels, about.
pub(super) const CHARACTER_WIDTH: f64 = 6.8;
/// Least distance of two labels in pixels.
const LABEL_GAP: f64 = 6.0;
/// Height of a label in pixels.
const LABEL_HEIGHT: f64 = 14.0;
/// Largest number of ticks that are chosen for an axis without values of its own.
const TICKS_MAX: usize = 8;

/// Direction of an axis: labels collide by their widths or by their heights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Direction {
    /// The x axis.
    Across,
    /// The y axis.
    Up,
}

/// An axis with its ticks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    is_log: bool,
    low: f64,
    high: f64,
    /// Values with their labels, ascending. A label that would overlap is empty.
    ticks: Vec<(f64, String)>,
}

impl Scale {
    /// Returns the x axis for `values`, with a tick at each.
    pub(super) fn across(values: impl Iterator<Item = f64>, is_log: bool, pixels: f64) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let mut scale = Self::around(&values, is_log);
        scale.label(values, Direction::Across, pixels);
        scale
    }

    /// Returns the y axis for `values`, with ticks at round values.
    pub(super) fn up(values: impl Iterator<Item = f64>, is_log: bool, pixels: f64) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let mut scale = Self::around(&values, is_log);
        // A linear axis begins at zero, or the eye takes small differences for large ones.
        match values.first() {
            Some(least) if !is_log && *least >= 0.0 => scale.low = 0.0,
            _ if !is_log => scale.high = scale.high.max(0.0),
            _ => {}
        }
        let ticks = if is_log { scale.log_ticks() } else { scale.linear_ticks() };
        scale.label(ticks, Direction::Up, pixels);
        scale
    }

    /// Returns the scale that shows ascending values with a margin. On a logarithmic scale values
    /// that are not above zero lie at its start.
    fn around(values: &[f64], is_log: bool) -> Self {
        let positive = || values.iter().copied().filter(|value| !is_log || *value > 0.0);
        let has_zero = is_log && values.first().is_some_and(|value| *value <= 0.0);
        let (least, most) =
            (positive().next().unwrap_or(1.0), positive().next_back().unwrap_or(1.0));
        let (low, high) = match (is_log, least < most) {
            (true, true) => {
                let margin = (most / least).powf(0.04);
                let zero = if has_zero { 10.0 } else { 1.0 };
                (least / margin / zero, most * margin)
            }
            (true, false) => (least / 2.0, most * 2.0),
            (false, true) => (least - 0.04 * (most - least), most + 0.04 * (most - least)),
            (false, false) => {
                (least - 0.5 * least.abs().max(1.0), most + 0.5 * most.abs().max(1.0))
            }
        };
        Self { is_log, low, high, ticks: Vec::new() }
    }

    /// Returns round values on a linear scale.
    fn linear_ticks(&self) -> Vec<f64> {
        RangedCoordf64::from(self.range()).key_points(TICKS_MAX)
    }

    /// Returns powers of ten, with 2 and 5 times each if they are few.
    fn log_ticks(&self) -> Vec<f64> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let of = |factors: &'static [f64]| -> Vec<f64> {
            let all = decades
                .clone()
                .flat_map(|decade| factors.iter().map(move |factor| format!("{factor}e{decade}")));
            // Parsing gives the nearest value: 3e-1 is 0.3, while 3.0 * 10^-1 is not.
            let all = all.filter_map(|text| text.parse().ok());
            all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
        };
        let few = of(&[1.0]);
        let more = of(&[1.0, 2.0, 5.0]);
        match (few.len(), more.len()) {
            (5.., _) => few,
            (_, 3..) => more,
            _ => self.linear_ticks(),
        }
    }

    /// Sets the ticks. Those whose labels would overlap the one before have none.
    fn label(&mut self, ticks: Vec<f64>, direction: Direction, pixels: f64) {
        let most = ticks.last().copied().unwrap_or(0.0);
        let is_binary = most >= 131_072.0 && ticks.iter().all(|tick| tick % 1024.0 == 0.0);
        let mut free_from = f64::NEG_INFINITY;
        for tick in ticks {
            let label = number(tick, is_binary);
            let extent = match direction {
                Direction::Across => label.len() as f64 * CHARACTER_WIDTH + LABEL_GAP,
                Direction::Up => LABEL_HEIGHT,
            };
            let center = self.share(tick) * pixels;
            let fits = center - extent / 2.0 >= free_from;
            if fits {
                free_from = center + extent / 2.0;
            }
            self.ticks.push((tick, if fits { label } else { String::new() }));
        }
    }

    /// Returns the position of a value as a share of the axis.
    fn share(&self, value: f64) -> f64 {
        let position = |value: f64| if self.is_log { value.ln() } else { value };
        let (low, high) = (position(self.low), position(self.high));
        (position(value.clamp(self.low, self.high)) - low) / (high - low)
    }
}

/// Returns a number as a label.
fn number(value: f64, is_binary: bool) -> String {
    let size = value.abs();
    match is_binary {
        true if size >= 1_048_576.0 => format!("{} Mi", value / 1_048_576.0),
        true => format!("{} Ki", value / 1024.0),
        false if size == 0.0 => "0".into(),
        false if !(1e-3..1e6).contains(&size) => format!("{value:e}"),
        // Rounding errors of ticks lie far beyond the sixth decimal.
        false => format!("{}", (value * 1e6).round() / 1e6),
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, pixels: (i32, i32)) -> i32 {
        let (start, end) = (f64::from(pixels.0), f64::from(pixels.1));
        (start + self.share(*value) * (end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Fine lines between the ticks are not drawn.
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks.iter().map(|(tick, _)| *tick).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(tick, _)| tick == value);
        tick.map_or_else(String::new, |(_, label)| label.clone())
    }
}

#[cfg(test)]
mod tests {
    use plotters::coord::ranged1d::BoldPoints;

    use super::*;

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn logarithmic_axis_has_ticks_at_its_points() {
        let xs = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
        let scale = Scale::across(xs.into_iter(), true, 600.0);
        assert_eq!(labels(&scale), ["2", "4", "8", "16", "32", "64", "128", "256", "512"]);
        let bytes = Scale::across([1024.0, 65_536.0, 1_048_576.0].into_iter(), true, 600.0);
        assert_eq!(labels(&bytes), ["1 Ki", "64 Ki", "1 Mi"]);
    }

    #[test]
    fn labels_never_overlap_and_ticks_stay() {
        let xs = [0.0, 1.0, 5.0, 25.0, 125.0];
        let scale = Scale::across(xs.into_iter(), false, 600.0);
        assert_eq!(labels(&scale), ["0", "", "5", "25", "125"]);
        assert_eq!(scale.key_points(BoldPoints(10)), xs);
    }

    #[test]
    fn zero_lies_before_all_others_on_a_logarithmic_axis() {
        let scale = Scale::across([0.0, 1e-6, 1e-3].into_iter(), true, 600.0);
        assert_eq!(labels(&scale), ["0", "1e-6", "0.001"]);
        let at = |value| scale.map(&value, (0, 600));
        assert!(at(0.0) == 0 && at(1e-6) > 100 && at(1e-3) < 600, "{scale:?}");
        // Decades have equal lengths, up to the rounding to pixels.
        assert!(((at(1e-3) - at(1e-4)) - (at(1e-5) - at(1e-6))).abs() <= 1, "{scale:?}");
    }

    #[test]
    fn y_axes_have_round_ticks() {
        let linear = Scale::up([0.7, 5.3].into_iter(), false, 300.0);
        assert_eq!((labels(&linear)[..2].to_vec(), linear.low), (vec!["0", "1"], 0.0));
        let decades = Scale::up([3e-2, 4e4].into_iter(), true, 300.0);
        assert_eq!(labels(&decades), ["0.1", "1", "10", "100", "1000", "10000"]);
        let narrow = Scale::up([3.0, 40.0].into_iter(), true, 300.0);
        assert_eq!(labels(&narrow), ["5", "10", "20"]);
        let same = Scale::up([5.0, 5.0].into_iter(), true, 300.0);
        assert!(labels(&same).len() >= 2, "{same:?}");
    }
}
