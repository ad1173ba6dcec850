//! `cargo run --release -p onepipe-sim-scenarios --features mistakes --example mistakes [TITLE]`:
//! how many seeds it takes to catch each mistake of ordered scattering, as rows of a table. What
//! `cargo xtask bugs` runs.

use std::process::ExitCode;

use onepipe_base::mistake::Mistake;
use onepipe_sim_scenarios::shown;

fn main() -> ExitCode {
    onepipe_sim_check::drill_program(Mistake::of_scattering(), shown)
}
