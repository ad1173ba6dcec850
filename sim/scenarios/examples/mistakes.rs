//! `cargo run --release -p onepipe-sim-scenarios --features mistakes --example mistakes [TITLE]`:
//! prints the number of seeds that it takes to detect each seeded mistake of ordered scattering, as
//! rows of a table. `cargo xtask bugs` runs this program.

use std::process::ExitCode;

use onepipe_base::mistake::Mistake;
use onepipe_sim_scenarios::detected;

fn main() -> ExitCode {
    onepipe_sim_check::mutation_main(Mistake::of_scattering(), detected)
}
