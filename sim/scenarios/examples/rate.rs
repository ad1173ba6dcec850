//! `cargo run --release -p onepipe-sim-scenarios --example rate FROM COUNT`: runs random scenarios
//! by seed and prints how many seeds a second it ran, and one hash over all histories: a change
//! that only makes the simulator faster leaves the hash as it was.

use std::process::ExitCode;
use std::time::Instant;

use onepipe_sim_scenarios::{RunOutcome, Swarm};

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [from, count] = numbers[..] else {
        eprintln!("usage: rate FROM COUNT");
        return ExitCode::from(2);
    };
    let (began, mut hash, mut events) = (Instant::now(), 0u64, 0);
    for seed in from..from + count {
        let (part, network_events) = match Swarm::draw(seed).attempt() {
            RunOutcome::Report(report) => (report.trace_hash, report.network.events),
            RunOutcome::Panic(_) => (seed, 0),
        };
        hash = hash.rotate_left(1) ^ part;
        events += network_events;
    }
    let seconds = began.elapsed().as_secs_f64();
    let per_second = count as f64 / seconds;
    println!(
        "{count} seeds, {events} events in {seconds:.1} s: {per_second:.2} a second; {hash:016x}"
    );
    ExitCode::SUCCESS
}
