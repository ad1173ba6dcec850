//! `cargo run --release -p onepipe-sim-scenarios --example swarm FROM COUNT`: random runs by seed,
//! every invariant checked; says which seeds break one.

use std::process::ExitCode;

use onepipe_sim_scenarios::Swarm;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (Some(Ok(from)), Some(Ok(count))) = (numbers.next(), numbers.next()) else {
        eprintln!("usage: swarm FROM COUNT");
        return ExitCode::from(2);
    };
    let (mut broken, mut delivered) = (0, 0);
    for seed in from..from + count {
        let report = Swarm::draw(seed).run();
        delivered += report.messages.delivered;
        if report.violations > 0 {
            broken += 1;
            println!("seed {seed} breaks {:?}", report.violations_by_rule);
        }
    }
    println!("{count} seeds, {delivered} deliveries checked, {broken} broken");
    ExitCode::from(u8::from(broken > 0))
}
