//! The points of the papers' figures: tab-separated tables with a header line.

/// A reference table.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    names: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

impl Reference {
    /// Parses a table. Names and values may be quoted.
    pub fn new(text: &'static str) -> Self {
        let cells = |line: &'static str| -> Vec<&'static str> {
            line.split('\t').map(|cell| cell.trim().trim_matches('"')).collect()
        };
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        // data/loss_latency.tsv separates its names by spaces.
        let names = lines.next().map_or_else(Vec::new, |line| match line.contains('\t') {
            true => cells(line),
            false => line.split('"').map(str::trim).filter(|name| !name.is_empty()).collect(),
        });
        Self { names, rows: lines.map(cells).collect() }
    }

    /// Returns the table with other names, the first for x, and with the columns of another table
    /// that has its rows at the same x.
    pub fn joined(self, names: &[&'static str], other: Self) -> Self {
        let row_at = |x: &str| other.rows.iter().find(|row| row.first() == Some(&x));
        let rows = self.rows.into_iter().map(|mut row| {
            let more = row.first().and_then(|x| row_at(x));
            row.extend(more.into_iter().flat_map(|row| &row[1..]));
            row
        });
        Self { names: names.to_vec(), rows: rows.collect() }
    }

    /// Returns the points of a column; x is the first column. A value that is not above zero means
    /// that the paper has no point there.
    pub fn points(&self, column: &str) -> Vec<(f64, f64)> {
        let Some(index) = self.names.iter().position(|name| *name == column) else {
            return Vec::new();
        };
        let point = |row: &Vec<&str>| {
            // A ratio to one counts as its first part: `6:1` is 6.
            let x = row.first()?.trim_end_matches(":1");
            Some((x.parse::<f64>().ok()?, row.get(index)?.parse::<f64>().ok()?))
        };
        self.rows.iter().filter_map(point).filter(|(_, value)| *value > 0.0).collect()
    }

    /// Returns the value of a column at `x`.
    pub fn at(&self, column: &str, x: f64) -> Option<f64> {
        self.points(column).into_iter().find(|point| point.0 == x).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_columns_by_x() {
        let one = Reference::new("n\ta\n1\t10\n2\t20");
        let other = Reference::new("n\ta\n2\t200\n1\t100");
        let both = one.joined(&["n", "few", "many"], other);
        assert_eq!((both.at("few", 2.0), both.at("many", 2.0)), (Some(20.0), Some(200.0)));
        assert_eq!(both.at("many", 1.0), Some(100.0));
        assert_eq!(both.points("a"), []);
    }

    #[test]
    fn parses_both_header_styles() {
        let loss = Reference::new(include_str!("../data/loss_latency.tsv"));
        assert_eq!(loss.at("R-chip", 1e-6), Some(18.18));
        let order = Reference::new(include_str!("../data/total_order.tsv"));
        assert_eq!(order.points("1Pipe/BE").len(), 9);
        assert_eq!(order.at("HostSeq", 16.0), Some(3.328_836_936));
        let recovery = Reference::new(include_str!("../data/failure_recovery.tsv"));
        assert_eq!(recovery.points("Core Switch").len(), 2, "no core below two racks");
        assert_eq!(order.points("nobody"), []);
        let narrow = Reference::new(include_str!("../data/oversubscription_lat.tsv"));
        assert_eq!(narrow.points("BE-host").len(), 6);
        assert_eq!(
            (narrow.at("BE-host", 1.0), narrow.at("R-host", 6.0)),
            (Some(46.31), Some(112.80))
        );
    }
}
