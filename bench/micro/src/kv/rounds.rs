//! Figures of several rounds, and their medians.

use crate::Hardware;

use super::report::{KvLoad, KvReport, KvSide};

/// What one side did under one load in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trial {
    pub rate: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// CPU time of each request, in us.
    pub cpu_us: f64,
}

/// The trials of one side under one load.
struct Row {
    load: String,
    side: String,
    yardstick: Option<String>,
    trials: Vec<Trial>,
    refused: Option<String>,
}

/// Collects the trials of all rounds.
#[derive(Default)]
pub(crate) struct Rounds {
    /// In the order of first measurement.
    rows: Vec<Row>,
}

impl Rounds {
    /// Adds what a side did, or the reply with which it refuses the load. `yardstick` is the side
    /// with which this one is compared.
    pub(crate) fn add(
        &mut self,
        load: &str,
        (side, yardstick): (&str, Option<&str>),
        outcome: Result<Trial, String>,
    ) {
        let is_row = |row: &Row| row.load == load && row.side == side;
        let at = self.rows.iter().position(is_row).unwrap_or_else(|| {
            self.rows.push(Row {
                load: load.into(),
                side: side.into(),
                yardstick: yardstick.map(Into::into),
                trials: Vec::new(),
                refused: None,
            });
            self.rows.len() - 1
        });
        match outcome {
            Ok(trial) => self.rows[at].trials.push(trial),
            Err(refused) => self.rows[at].refused = Some(refused),
        }
    }

    /// Returns the report with the medians.
    pub(crate) fn report(&self, bench: &str, about: &str, runs: usize) -> KvReport {
        let mut loads: Vec<KvLoad> = Vec::new();
        for row in &self.rows {
            let side = self.side(row);
            match loads.iter_mut().find(|load| load.load == row.load) {
                Some(load) => load.sides.push(side),
                None => loads.push(KvLoad { load: row.load.clone(), sides: vec![side] }),
            }
        }
        KvReport {
            bench: bench.into(),
            about: about.into(),
            machine: Hardware::detect(),
            runs,
            loads,
            notes: Vec::new(),
        }
    }

    fn side(&self, row: &Row) -> KvSide {
        let side = row.side.clone();
        let refused = row.refused.clone();
        let Some(own) = Medians::of(&row.trials).filter(|_| refused.is_none()) else {
            return KvSide { side, refused, ..KvSide::default() };
        };
        let is_yardstick =
            |other: &&Row| other.load == row.load && Some(&other.side) == row.yardstick.as_ref();
        let other = self.rows.iter().find(is_yardstick);
        let other = other.and_then(|other| Medians::of(&other.trials));
        let rates = row.trials.iter().map(|trial| trial.rate);
        KvSide {
            side,
            refused,
            rate: Some(own.rate),
            rate_min: rates.clone().min_by(f64::total_cmp),
            rate_max: rates.max_by(f64::total_cmp),
            p50_us: Some(own.p50_us),
            p99_us: Some(own.p99_us),
            cpu_us: Some(own.cpu_us),
            rate_per_core: own.rate_per_core(),
            yardstick: row.yardstick.clone().filter(|_| other.is_some()),
            rate_ratio: other.map(|other| own.rate / other.rate),
            per_core_ratio: other
                .and_then(|other| Some(own.rate_per_core()? / other.rate_per_core()?)),
        }
    }
}

#[derive(Clone, Copy)]
struct Medians {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
}

impl Medians {
    fn of(trials: &[Trial]) -> Option<Self> {
        Some(Self {
            rate: median(trials, |trial| trial.rate)?,
            p50_us: median(trials, |trial| trial.p50_us)?,
            p99_us: median(trials, |trial| trial.p99_us)?,
            cpu_us: median(trials, |trial| trial.cpu_us)?,
        })
    }

    /// A side whose CPU time is below the resolution of the clock has none.
    fn rate_per_core(self) -> Option<f64> {
        (self.cpu_us > 0.0).then(|| 1e6 / self.cpu_us)
    }
}

/// Returns the median of a number of the trials; `None` if there is none.
fn median(trials: &[Trial], number: impl Fn(&Trial) -> f64) -> Option<f64> {
    let mut numbers: Vec<f64> = trials.iter().map(number).collect();
    numbers.sort_by(f64::total_cmp);
    let (upper, lower) = (numbers.get(numbers.len() / 2)?, numbers.get((numbers.len() - 1) / 2)?);
    Some(f64::midpoint(*upper, *lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(rate: f64, cpu_us: f64) -> Result<Trial, String> {
        Ok(Trial { rate, p50_us: 1.0, p99_us: 2.0, cpu_us })
    }

    #[test]
    fn reports_medians_and_ratios() {
        let mut rounds = Rounds::default();
        for (ours, theirs) in [(10.0, 40.0), (90.0, 20.0), (30.0, 60.0)] {
            rounds.add("SET", ("ours", Some("theirs")), trial(ours, 8.0));
            rounds.add("SET", ("theirs", None), trial(theirs, 2.0));
        }
        rounds.add("MSET", ("ours", Some("theirs")), trial(5.0, 0.0));
        rounds.add("MSET", ("theirs", None), Err("CROSSSLOT".into()));
        let report = rounds.report("b", "about", 3);
        let [ours, theirs] = &report.loads[0].sides[..] else { panic!("two sides") };
        assert_eq!((ours.rate, ours.rate_min, ours.rate_max), (Some(30.0), Some(10.0), Some(90.0)));
        assert_eq!((ours.rate_ratio, ours.per_core_ratio), (Some(0.75), Some(0.25)));
        assert_eq!((theirs.rate, theirs.rate_per_core), (Some(40.0), Some(500_000.0)));
        assert_eq!((theirs.rate_ratio, &theirs.yardstick), (None, &None));
        let [ours, theirs] = &report.loads[1].sides[..] else { panic!("two sides") };
        assert_eq!((ours.rate_per_core, ours.rate_ratio, &ours.yardstick), (None, None, &None));
        assert_eq!((theirs.refused.as_deref(), theirs.rate), (Some("CROSSSLOT"), None));
    }
}
