//! Random requests with losses, repetitions and late barriers have the results of the reference.

use crate::model;

#[test]
fn results_are_those_of_the_reference() {
    for seed in 0..300 {
        model::run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}
