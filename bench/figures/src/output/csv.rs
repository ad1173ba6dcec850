//! The points as CSV (RFC 4180): `curve,x,ours,paper` and all other measured values.

use anyhow::{Context, Result};
use csv::Writer;

use super::Figure;
use crate::experiment::value_at;

/// Returns the file. A point that is missing is an empty cell.
pub(super) fn rows(figure: &Figure) -> Result<String> {
    let experiment = &figure.experiment;
    let mut names: Vec<&str> = Vec::new();
    for (_, values) in figure.measured.curves.values().flatten() {
        names.extend(values.keys().map(String::as_str));
    }
    names.sort_unstable();
    names.dedup();
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(["curve", "x", "ours", "paper"].iter().chain(&names))?;
    for curve in &experiment.curves {
        for (x, values) in figure.measured.curves.get(curve.name).into_iter().flatten() {
            let number =
                |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
            let ours = value_at(experiment.metric, *x, values);
            let paper = curve.column.and_then(|column| experiment.reference.at(column, *x));
            let rest = names.iter().map(|name| number(values.get(*name).copied()));
            let first = [curve.name.to_owned(), x.to_string(), number(ours), number(paper)];
            writer.write_record(first.into_iter().chain(rest))?;
        }
    }
    let bytes = writer.into_inner().context("flushing to memory")?;
    String::from_utf8(bytes).context("names and numbers are UTF-8")
}

#[cfg(test)]
mod tests {
    use csv::Reader;

    use super::rows;
    use crate::experiment::Measured;
    use crate::{Figure, Values, all};

    #[test]
    fn reader_returns_names_with_commas_and_quotes() {
        let mut experiment = all().into_iter().find(|one| one.id == "9a").expect("it exists");
        let names = ["best effort, by hosts", "a \"quoted\" name", "line\nbreak", "plain"];
        for (curve, name) in experiment.curves.iter_mut().zip(names) {
            curve.name = name;
        }
        let metric = experiment.metric;
        let values = |ours| Values::from([(metric.to_owned(), ours), ("a, b".into(), -0.5)]);
        let curves = names.map(|name| (name, vec![(8.0, values(1e-7)), (16.0, values(2.25))]));
        let measured = Measured { metric, curves: curves.into() };
        let text = rows(&Figure { experiment, measured, errors: vec![] }).expect("it is written");

        let mut reader = Reader::from_reader(text.as_bytes());
        let header: Vec<&str> = reader.headers().expect("there is a header").iter().collect();
        assert_eq!(header, ["curve", "x", "ours", "paper", "a, b", metric]);
        // The reader refuses rows of unequal length.
        let read: Result<Vec<csv::StringRecord>, _> = reader.records().collect();
        let read = read.expect("every row has as many cells as the header");
        assert_eq!(read.len(), 2 * names.len());
        for (pair, name) in read.chunks(2).zip(names) {
            assert!(pair.iter().all(|row| &row[0] == name), "{pair:?}");
            let number = |row: usize, cell: usize| pair[row][cell].parse::<f64>();
            assert_eq!((number(0, 1), number(0, 2)), (Ok(8.0), Ok(1e-7)));
            assert_eq!((number(1, 2), number(1, 4), number(1, 5)), (Ok(2.25), Ok(-0.5), Ok(2.25)));
        }
    }
}
