//! The chart: our curves as lines, the paper's points as crosses of the same colour.

use anyhow::{Result, anyhow};
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::Figure;
use crate::experiment::value_at;

const SIZE: (u32, u32) = (760, 480);
/// Okabe and Ito's palette, which is safe for colour-blind readers.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Points of a curve, ours and the paper's.
struct Points {
    name: &'static str,
    ours: Vec<(f64, f64)>,
    paper: Vec<(f64, f64)>,
}

/// Returns the chart as SVG.
pub(super) fn draw(figure: &Figure) -> Result<String> {
    let experiment = &figure.experiment;
    let points = |curve: &crate::Curve| {
        let ours = figure.measured.curves.get(curve.name).into_iter().flatten();
        let value = |(x, values): &(f64, crate::Values)| {
            let y = value_at(experiment.metric, *x, values)?;
            (y > 0.0).then_some((*x, y))
        };
        let paper = curve.column.map_or_else(Vec::new, |name| experiment.reference.points(name));
        Points { name: curve.name, ours: ours.filter_map(value).collect(), paper }
    };
    let curves: Vec<Points> = experiment.curves.iter().map(points).collect();
    let all: Vec<(f64, f64)> =
        curves.iter().flat_map(|curve| curve.ours.iter().chain(&curve.paper)).copied().collect();
    let range = |coordinate: fn(&(f64, f64)) -> f64| {
        let least = all.iter().map(coordinate).fold(f64::INFINITY, f64::min);
        let most = all.iter().map(coordinate).fold(0.0, f64::max);
        if least < most { (least, most) } else { (0.5 * most.max(1.0), 2.0 * most.max(1.0)) }
    };
    let ((left, right), (low, high)) = (range(|point| point.0), range(|point| point.1));
    let (x_log, x_plain) = ((left * 0.9..right * 1.1).log_scale(), 0.0..right * 1.05);
    let (y_log, y_plain) = ((low * 0.8..high * 1.25).log_scale(), 0.0..high * 1.1);
    match (experiment.x.is_log, experiment.y.is_log) {
        (true, true) => on_axes(figure, &curves, x_log, y_log),
        (true, false) => on_axes(figure, &curves, x_log, y_plain),
        (false, true) => on_axes(figure, &curves, x_plain, y_log),
        (false, false) => on_axes(figure, &curves, x_plain, y_plain),
    }
}

fn on_axes<X, Y>(figure: &Figure, curves: &[Points], x: X, y: Y) -> Result<String>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let failed = |error: &dyn std::fmt::Display| anyhow!("{error}");
    let experiment = &figure.experiment;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)
            .map_err(|error| failed(&error))?;
        let number = |value: &f64| match value.abs() {
            0.0 => "0".to_owned(),
            1.0..100_000.0 => format!("{}", (value * 10.0).round() / 10.0),
            0.01..1.0 => format!("{value:.2}"),
            _ => format!("{value:e}"),
        };
        chart
            .configure_mesh()
            .light_line_style(WHITE.mix(0.0))
            .x_desc(experiment.x.label)
            .y_desc(experiment.y.label)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .draw()
            .map_err(|error| failed(&error))?;
        for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
            let line = LineSeries::new(curve.ours.iter().copied(), colour.stroke_width(2));
            chart
                .draw_series(line)
                .map_err(|error| failed(&error))?
                .label(curve.name)
                .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
            let dots = curve.ours.iter().map(|point| Circle::new(*point, 3, colour.filled()));
            chart.draw_series(dots).map_err(|error| failed(&error))?;
            let crosses =
                curve.paper.iter().map(|point| Cross::new(*point, 4, colour.stroke_width(1)));
            chart.draw_series(crosses).map_err(|error| failed(&error))?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.2))
            .draw()
            .map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(svg)
}
