//! `cargo run --release -p onepipe-sim-amcast --features mistakes --example mistakes [TITLE]`
//! prints how many seeds it takes to detect each seeded bug of agreed multicast, as rows of a
//! table. Used by `cargo xtask bugs`.

use std::process::ExitCode;

use onepipe_sim_amcast::{CAUGHT_BY_SEEDS, first_violation};

fn main() -> ExitCode {
    onepipe_sim_check::mutation_main(CAUGHT_BY_SEEDS, first_violation)
}
