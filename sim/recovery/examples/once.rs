//! Simulates one failure and prints the phases of its recovery: `cargo run --release -p
//! onepipe-sim-recovery --example once -- SHAPE HOSTS COMPONENT flat|tree [SEED]`. SHAPE is
//! `testbed` or a topology; COMPONENT is `all` or one of the components.

use std::error::Error;
use std::time::Instant;

use onepipe_sim_recovery::{Component, Options, Recovery, paper_us, run};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [shape, hosts, component, recovery, rest @ ..] = arguments.as_slice() else {
        return Err("usage: once SHAPE HOSTS COMPONENT flat|tree [SEED]".into());
    };
    let hosts: u32 = hosts.parse()?;
    let seed = rest.first().map_or(Ok(1), |seed| seed.parse())?;
    let recovery = if recovery == "flat" { Recovery::Flat } else { Recovery::Tree };
    let is_chosen = |failing: &Component| component == "all" || failing.name() == component;
    for failing in Component::ALL.into_iter().filter(is_chosen) {
        let options = if shape == "testbed" {
            Options::testbed(hosts, failing, recovery, seed)
        } else {
            Options::full(shape.parse()?, failing, recovery, seed)
        };
        let start = Instant::now();
        let mut announced = 0;
        let measured = run(&options, |us| {
            if us >= announced + 100 {
                announced = us;
                eprint!("\r{us} us");
            }
        })?;
        println!(
            "{:11} {hosts:3} stall {:7.1} last {:7.1} = detect {:5.1} + determine {:5.1} + \
             broadcast {:6.1} + resume {:5.1}; contacts {} evaluations {} visits {} evaluating {:.1} us; paper {:?}; {} failed; {} us in {:.2} s, {} hops",
            failing.name(),
            measured.stall_us(),
            measured.last_us,
            measured.detection_us,
            measured.determination_us,
            measured.broadcast_us,
            measured.resume_us,
            measured.contacts,
            measured.controller_work.evaluations,
            measured.controller_work.visits,
            measured.controller_work.ns as f64 / 1_000.0,
            paper_us(failing, hosts),
            measured.failed,
            measured.simulated_us,
            start.elapsed().as_secs_f64(),
            measured.network.hops,
        );
    }
    Ok(())
}
