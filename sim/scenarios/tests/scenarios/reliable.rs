//! Scenarios of the reliable service without failures.

use crate::fixture;

use fixture::plan;
use onepipe_sim_network::{LinkFaults, Loss};
use onepipe_sim_scenarios::Fabric;

/// Lets every process scatter reliably thirty times under `faults`. Returns the messages delivered.
fn rounds(faults: LinkFaults) -> u64 {
    let mut plan = plan("leaf-spine:2x2x2", 1, 3);
    plan.load = None;
    let mut fabric = Fabric::new(plan);
    fabric.run_us(100);
    if faults != LinkFaults::default() {
        fabric.set_link_faults(faults);
    }
    for _ in 0..30 {
        for from in 0..8 {
            let to: Vec<(u32, u32)> = (0..8).map(|to| (to, 100 + from)).collect();
            fabric
                .scatter_reliably(from % 4, &to[..4])
                .expect("the process runs")
                .expect("the message fits the send buffer");
        }
        fabric.run_us(5);
    }
    fabric.heal();
    assert!(fabric.drain_us(50_000));
    let report = fabric.finish();
    assert_eq!(report.first_violations, Vec::<String>::new());
    assert_eq!((report.messages.lost, report.messages.unknown), (0, 0));
    report.messages.reliable
}

#[test]
fn reliable_delivers_everything_without_faults() {
    assert_eq!(rounds(LinkFaults::default()), 30 * 8 * 4);
}

#[test]
fn reliable_delivers_everything_despite_link_faults() {
    let faults = LinkFaults {
        loss: Loss::uniform(100_000),
        corrupt_ppm: 50_000,
        duplicate_ppm: 100_000,
        reorder_ppm: 100_000,
        delay_ns_max: 5_000,
        ..LinkFaults::default()
    };
    assert_eq!(rounds(faults), 30 * 8 * 4);
}
