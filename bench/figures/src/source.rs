//! Where an experiment comes from: a figure, table or section of a paper.

use serde::Serialize;

use crate::Experiment;

const ONEPIPE: &str = "1Pipe (SIGCOMM 2021)";
const RDMC: &str = "RDMC (DSN 2018)";
const FASTPASS: &str = "Fastpass (SIGCOMM 2014)";
const P4MCAST: &str = "P4mCast (ICNP 2024)";

/// The origin of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The paper, with its conference.
    pub paper: &'static str,
    /// Figure, table, experiment or section of the paper.
    pub figure: String,
}

impl Experiment {
    /// Returns the origin of the experiment. Ids follow the papers: `8a` is figure 8a of 1Pipe,
    /// `F-A` experiment A of Fastpass, `R-4a` figure 4a and `T-1` table 1 of RDMC, `P-4` figure 4
    /// of P4mCast.
    pub fn source(&self) -> Source {
        let (paper, figure) = match self.id {
            "8a-measured" => (ONEPIPE, "figure 8a, costs of this machine".to_owned()),
            "11" => (ONEPIPE, "figure 11, throughput".to_owned()),
            "11m" => (ONEPIPE, "figure 11, memory".to_owned()),
            "15-removal" => (ONEPIPE, "section 7.3.2".to_owned()),
            "scale" | "scale-10" => (ONEPIPE, "section 7.2".to_owned()),
            "large" => (ONEPIPE, "section 7.2, extended".to_owned()),
            "large-from" => (RDMC, "section 4.6, extended".to_owned()),
            "F-I" => (FASTPASS, "section 5.1".to_owned()),
            "F-J" => (FASTPASS, "section 5.2".to_owned()),
            "R-fail" => (RDMC, "section 4.6".to_owned()),
            "R-slow" | "R-slack" => (RDMC, "section 4.5".to_owned()),
            id => match id.split_once('-') {
                None => (ONEPIPE, format!("figure {id}")),
                Some(("F", name)) => (FASTPASS, format!("experiment {name}")),
                Some(("R", number)) => (RDMC, format!("figure {number}")),
                Some(("T", number)) => (RDMC, format!("table {number}")),
                Some(("P", number)) => (P4MCAST, format!("figure {number}")),
                Some(_) => ("none", "an experiment of our own".to_owned()),
            },
        };
        Source { paper, figure }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::all;

    #[test]
    fn every_experiment_has_one_source_in_a_paper() {
        let mut known = BTreeSet::new();
        for experiment in all() {
            let source = experiment.source();
            assert_ne!(source.paper, "none", "{}", experiment.id);
            let has_digit = experiment.id.starts_with(|first: char| first.is_ascii_digit());
            assert!(!has_digit || source.paper.starts_with("1Pipe"), "{}", experiment.id);
            assert!(known.insert(experiment.id), "two experiments have the id {}", experiment.id);
        }
        let source = |id| all().into_iter().find(|one| one.id == id).map(|one| one.source().figure);
        assert_eq!(source("R-4a").as_deref(), Some("figure 4a"));
        assert_eq!(source("F-A").as_deref(), Some("experiment A"));
    }
}
