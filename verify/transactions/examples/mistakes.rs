//! `cargo run --release -p onepipe-verify-transactions --features mistakes --example mistakes
//! [TITLE]`: prints the number of seeds that it takes to detect each seeded mistake of
//! transactions, as rows of a table.

use std::process::ExitCode;

use onepipe_verify_transactions::{SIMULATED, detected};

fn main() -> ExitCode {
    onepipe_sim_check::mutation_main(SIMULATED, detected)
}
