//! `cargo run --release -p onepipe-sim-amcast --features mistakes --example mistakes [TITLE]`: how
//! many seeds it takes to catch each mistake of agreed multicast, as rows of a table. What `cargo
//! xtask bugs` runs.

use std::process::ExitCode;

use onepipe_sim_amcast::{CAUGHT_BY_SEEDS, first_violation};

fn main() -> ExitCode {
    onepipe_sim_check::drill_program(CAUGHT_BY_SEEDS, first_violation)
}
