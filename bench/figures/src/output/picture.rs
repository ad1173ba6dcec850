//! What the chart of a figure shows.

use super::Figure;
use super::chart::{Picture, Points};
use crate::experiment::{Curve, value_at};
use crate::values::Values;

/// Returns the picture of a figure. Points that several curves are compared with are drawn once, in
/// the colour of the first.
pub(super) fn of(figure: &Figure) -> Picture {
    let experiment = &figure.experiment;
    let is_drawable = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite() && *y > 0.0;
    let points = |index: usize, curve: &Curve| {
        let ours = figure.measured.curves.get(curve.name).into_iter().flatten();
        let value = |(x, values): &(f64, Values)| {
            Some((*x, value_at(experiment.metric, *x, values)?)).filter(is_drawable)
        };
        let shown_by = curve.column.map(|column| {
            let same = experiment.curves.iter().position(|one| one.column == Some(column));
            (same.unwrap_or(index), experiment.reference.points(column))
        });
        let shown_by = shown_by.filter(|(_, points)| !points.is_empty());
        let paper_of = shown_by.as_ref().map(|(first, _)| *first);
        let paper = shown_by.filter(|(first, _)| *first == index).map(|(_, points)| points);
        Points {
            name: curve.name.to_owned(),
            ours: ours.filter_map(value).collect(),
            paper: paper.unwrap_or_default(),
            paper_of,
        }
    };
    let curves = experiment.curves.iter().enumerate();
    Picture {
        title: format!("{}. {}", experiment.id, experiment.title),
        x: (experiment.x.label, experiment.x.is_log),
        y: (experiment.y.label, experiment.y.is_log),
        curves: curves.map(|(index, curve)| points(index, curve)).collect(),
    }
}
