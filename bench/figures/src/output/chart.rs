//! The chart: our curves as lines with markers, the paper's points as crosses of the same colour,
//! and a legend of both below the axes.

use anyhow::{Result, anyhow};
use plotters::coord::{CoordTranslate, Shift};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{CHARACTER_WIDTH, Scale};

const WIDTH: u32 = 760;
const PLOT_HEIGHT: u32 = 400;
const TITLE_LINE: u32 = 24;
/// Width of a character of the title in pixels, about.
const TITLE_CHARACTER: f64 = 8.6;
const LEGEND_LINE: u32 = 20;
const MARGIN: u32 = 14;
const X_LABELS: u32 = 46;
const Y_LABELS: u32 = 70;
/// Positions in an entry of the legend: the middles of both samples.
const SAMPLE_OURS: i32 = 18;
const SAMPLE_PAPER: i32 = 60;
/// Distance of the name from the middle of the last sample.
const NAME: i32 = 24;
const FONT: &str = "sans-serif";
/// Distinct on white paper; the first seven are Okabe and Ito's, which are safe for colour-blind
/// readers.
pub(super) const COLOURS: [RGBColor; 20] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(136, 34, 85),
    RGBColor(128, 128, 0),
    RGBColor(51, 34, 136),
    RGBColor(120, 120, 120),
    RGBColor(140, 80, 30),
    RGBColor(220, 20, 60),
    RGBColor(20, 90, 40),
    RGBColor(150, 90, 220),
    RGBColor(60, 200, 170),
    RGBColor(255, 127, 80),
    RGBColor(0, 128, 128),
    RGBColor(153, 102, 204),
    RGBColor(184, 134, 11),
];

/// What a chart shows.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    /// Title, above the axes.
    pub title: String,
    /// Label of the x axis and whether it is logarithmic.
    pub x: (&'static str, bool),
    /// Label of the y axis and whether it is logarithmic.
    pub y: (&'static str, bool),
    /// The curves.
    pub curves: Vec<Points>,
}

/// Points of a curve.
#[derive(Clone, Debug)]
pub(super) struct Points {
    /// Name in the legend.
    pub name: String,
    /// Our points.
    pub ours: Vec<(f64, f64)>,
    /// The paper's points, unless an earlier curve shows the same ones.
    pub paper: Vec<(f64, f64)>,
    /// Index of the curve that shows the paper's points for this one.
    pub paper_of: Option<usize>,
}

type Area<'a, C> = DrawingArea<SVGBackend<'a>, C>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Marker of a point.
#[derive(Clone, Copy, Debug)]
enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    /// The paper's.
    Cross,
}

/// How a curve is drawn, on the axes and in the legend.
#[derive(Clone, Copy, Debug)]
struct Style {
    colour: RGBColor,
    marker: Marker,
    line: Line,
}

#[derive(Clone, Copy, Debug)]
enum Line {
    Solid,
    Dashed,
    None,
}

impl Style {
    fn ours(index: usize) -> Self {
        let markers = [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond];
        let line = if index < 8 { Line::Solid } else { Line::Dashed };
        Self {
            colour: COLOURS[index % COLOURS.len()],
            marker: markers[index % markers.len()],
            line,
        }
    }

    fn paper(index: usize) -> Self {
        Self { marker: Marker::Cross, line: Line::None, ..Self::ours(index) }
    }

    /// Draws a marker.
    fn mark<C: CoordTranslate>(self, area: &Area<'_, C>, at: C::From) -> Drawn
    where
        C::From: Clone,
    {
        let filled = self.colour.filled();
        let polygon = |points: &[(i32, i32)]| {
            area.draw(&(EmptyElement::at(at.clone()) + Polygon::new(points.to_vec(), filled)))
        };
        let stroke = |from, to| PathElement::new([from, to], self.colour.stroke_width(2));
        match self.marker {
            Marker::Circle => area.draw(&(EmptyElement::at(at) + Circle::new((0, 0), 4, filled))),
            Marker::Square => polygon(&[(-3, -3), (4, -3), (4, 4), (-3, 4)]),
            Marker::Triangle => polygon(&[(0, -5), (5, 4), (-5, 4)]),
            Marker::Diamond => polygon(&[(0, -5), (5, 0), (0, 5), (-5, 0)]),
            Marker::Cross => {
                let strokes = stroke((-4, -4), (4, 4));
                area.draw(&(EmptyElement::at(at) + strokes + stroke((-4, 4), (4, -4))))
            }
        }
    }

    /// Draws the line through points, if there is one.
    fn connect<C: CoordTranslate>(self, area: &Area<'_, C>, points: Vec<C::From>) -> Drawn
    where
        C::From: Clone,
    {
        let stroke = self.colour.stroke_width(2);
        match self.line {
            Line::Solid => area.draw(&PathElement::new(points, stroke)),
            Line::Dashed => area.draw(&DashedPathElement::new(points, 7, 4, stroke)),
            Line::None => Ok(()),
        }
    }
}

/// Returns the chart as SVG.
pub(super) fn draw(picture: &Picture) -> Result<String> {
    let title = lines(&picture.title, (f64::from(WIDTH - 2 * MARGIN) / TITLE_CHARACTER) as usize);
    let legend = Legend::new(&picture.curves);
    let title_height = title.len() as u32 * TITLE_LINE + MARGIN;
    let size = (WIDTH, title_height + PLOT_HEIGHT + legend.height());
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = (|| {
            area.fill(&WHITE)?;
            let (head, rest) = area.split_vertically(title_height);
            let (plot, foot) = rest.split_vertically(PLOT_HEIGHT);
            for (line, text) in (0..).zip(&title) {
                let at = (MARGIN as i32, (MARGIN + line * TITLE_LINE) as i32);
                head.draw(&Text::new(text.clone(), at, (FONT, 20).into_font()))?;
            }
            on_axes(&plot, picture)?;
            legend.draw(&foot)?;
            area.present()
        })();
        drawn.map_err(|error| anyhow!("{error}"))?;
    }
    Ok(svg)
}

/// The legend: for each curve a sample of our line, a sample of the paper's points, and the name.
struct Legend<'a> {
    entries: Vec<(usize, &'a Points)>,
    /// Whether the paper has points of any curve.
    has_paper: bool,
    /// Number of entries below each other.
    rows: usize,
    column_width: i32,
}

impl<'a> Legend<'a> {
    fn new(curves: &'a [Points]) -> Self {
        let is_shown = |curve: &Points| !curve.ours.is_empty() || !curve.paper.is_empty();
        let entries: Vec<(usize, &Points)> =
            curves.iter().enumerate().filter(|(_, curve)| is_shown(curve)).collect();
        let has_paper = entries.iter().any(|(_, curve)| curve.paper_of.is_some());
        let longest = entries.iter().map(|(_, curve)| curve.name.chars().count()).max();
        let name = ((longest.unwrap_or(0) + 2) as f64 * CHARACTER_WIDTH) as i32;
        let column_width = Self::name_at(has_paper) + name;
        let columns = ((WIDTH - 2 * MARGIN) as i32 / column_width).clamp(1, 3);
        let rows = entries.len().div_ceil(columns as usize).max(1);
        Self { entries, has_paper, rows, column_width }
    }

    fn name_at(has_paper: bool) -> i32 {
        NAME + if has_paper { SAMPLE_PAPER } else { SAMPLE_OURS }
    }

    fn height(&self) -> u32 {
        (self.rows + self.head_rows()) as u32 * LEGEND_LINE + MARGIN
    }

    /// Returns the number of lines for the heads of the columns.
    fn head_rows(&self) -> usize {
        usize::from(self.has_paper)
    }

    fn draw(&self, area: &Area<'_, Shift>) -> Drawn {
        let style = |x| {
            let anchor = Pos::new(x, VPos::Center);
            (FONT, 16).into_font().into_text_style(area).pos(anchor)
        };
        for (index, (curve, points)) in self.entries.iter().enumerate() {
            let x = MARGIN as i32 + (index / self.rows) as i32 * self.column_width;
            let y = |row: usize| (row as u32 * LEGEND_LINE) as i32 + 8;
            if index % self.rows == 0 && self.has_paper {
                for (head, at) in [("ours", SAMPLE_OURS), ("paper", SAMPLE_PAPER)] {
                    area.draw(&Text::new(head, (x + at, y(0)), style(HPos::Center)))?;
                }
            }
            let y = y(self.head_rows() + index % self.rows);
            if !points.ours.is_empty() {
                let ours = Style::ours(*curve);
                let (from, to) = ((x + SAMPLE_OURS - 15, y), (x + SAMPLE_OURS + 15, y));
                ours.connect(area, vec![from, to])?;
                ours.mark(area, (x + SAMPLE_OURS, y))?;
            }
            if let Some(paper) = points.paper_of {
                Style::paper(paper).mark(area, (x + SAMPLE_PAPER, y))?;
            }
            let at = (x + Self::name_at(self.has_paper), y);
            area.draw(&Text::new(points.name.clone(), at, style(HPos::Left)))?;
        }
        Ok(())
    }
}

fn on_axes(area: &Area<'_, Shift>, picture: &Picture) -> Drawn {
    let ours = || picture.curves.iter().flat_map(|curve| &curve.ours);
    let all = || ours().chain(picture.curves.iter().flat_map(|curve| &curve.paper));
    let (width, height) = (WIDTH - Y_LABELS - 3 * MARGIN, PLOT_HEIGHT - X_LABELS - MARGIN);
    let x = Scale::across(all().map(|point| point.0), picture.x.1, f64::from(width));
    let y = Scale::up(all().map(|point| point.1), picture.y.1, f64::from(height));
    // A long label of the y axis is written smaller rather than cut.
    let label_width = picture.y.0.chars().count() as f64 * CHARACTER_WIDTH / 15.0;
    let label_size = f64::from(height) / label_width.max(1.0);
    let mut chart = ChartBuilder::on(area)
        .margin_left(MARGIN)
        .margin_right(2 * MARGIN)
        .margin_bottom(MARGIN)
        .x_label_area_size(X_LABELS)
        .y_label_area_size(Y_LABELS)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.7))
        .x_desc(picture.x.0)
        .y_desc(picture.y.0)
        .label_style((FONT, 16).into_font())
        .axis_desc_style((FONT, label_size.min(17.0)).into_font())
        .draw()?;
    let area = chart.plotting_area();
    for (index, curve) in picture.curves.iter().enumerate() {
        let (paper, ours) = (Style::paper(index), Style::ours(index));
        curve.paper.iter().try_for_each(|point| paper.mark(area, *point))?;
        ours.connect(area, curve.ours.clone())?;
        curve.ours.iter().try_for_each(|point| ours.mark(area, *point))?;
    }
    Ok(())
}

/// Breaks a text into lines of at most `width` characters, where the words permit.
fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_curves_have_the_same_colour() {
        let most = crate::all().iter().map(|experiment| experiment.curves.len()).max();
        assert!(most.is_some_and(|most| most > 6 && most <= COLOURS.len()), "{most:?} curves");
        for (index, one) in COLOURS.iter().enumerate() {
            assert!(!COLOURS[..index].contains(one), "{one:?} occurs twice");
        }
    }

    #[test]
    fn legend_names_the_papers_points_below_the_axes() {
        let points = vec![(2.0, 5.0), (512.0, 4.0)];
        let curve = |name: &str, paper: &[(f64, f64)], paper_of| Points {
            name: name.into(),
            ours: points.clone(),
            paper: paper.to_vec(),
            paper_of,
        };
        let with = [curve("one", &points, Some(0)), curve("two", &[], Some(0))];
        let without = [curve("one", &[], None), curve("two", &[], None)];
        let draw = |curves: &[Points]| {
            let (x, y) = (("processes", true), ("us", false));
            let title = "8a. A title that is long enough for two lines ".repeat(3);
            draw(&Picture { title, x, y, curves: curves.to_vec() }).expect("it can be drawn")
        };
        let (with, without) = (draw(&with), draw(&without));
        assert!(with.contains(">\npaper\n<") && !without.contains(">\npaper\n<"), "{with}");
        // Each curve has two points and a sample; a cross is two strokes.
        assert_eq!((with.matches("<circle").count(), without.matches("<circle").count()), (3, 3));
        let strokes = |svg: &str| svg.matches("<polyline").count();
        assert_eq!(strokes(&with) - strokes(&without), 2 * (2 + 2), "two points, two samples");
        assert!(["one", "two", "512", "processes", "us"].iter().all(|text| with.contains(text)));
    }
}
