//! Scenarios of links that lose, corrupt, duplicate and reorder frames.

#[allow(dead_code)]
mod tale;

use onepipe_sim_network::{LinkFaults, Loss};
use onepipe_topology::Spread;
use tale::{begin, end, plan};

#[test]
fn thirty_percent_loss_on_every_link_breaks_no_promise() {
    let mut fabric = begin(plan("star:4", 1, 1));
    fabric.switch_faults(LinkFaults { loss: Loss::every(300_000), ..LinkFaults::default() });
    fabric.run_us(2_000);
    assert!(fabric.stats().drops.lost > 1_000);
    let report = end(fabric);
    assert!(report.messages.lost > 0 && report.messages.delivered > report.messages.lost);
}

#[test]
fn lost_beacons_cost_time_only() {
    let mut fabric = begin(plan("leaf-spine:2x2x2", 1, 2));
    let loss = Loss { beacon_ppm: 500_000, ..Loss::default() };
    fabric.switch_faults(LinkFaults { loss, ..LinkFaults::default() });
    fabric.run_us(500);
    assert_eq!(end(fabric).messages.unknown, 0);
}

#[test]
fn losses_in_bursts_break_no_promise() {
    let mut fabric = begin(plan("star:4", 1, 3));
    let faults = LinkFaults { burst_ppm: 2_000, burst_frames: 50, ..LinkFaults::default() };
    fabric.switch_faults(faults);
    fabric.run_us(1_000);
    end(fabric);
}

#[test]
fn a_storm_of_changed_frames_is_not_believed() {
    let mut fabric = begin(plan("leaf-spine:2x2x2", 1, 4));
    fabric.switch_faults(LinkFaults { corrupt_ppm: 300_000, ..LinkFaults::default() });
    fabric.run_us(1_000);
    assert!(fabric.stats().corrupted > 1_000);
    end(fabric);
}

#[test]
fn a_storm_of_duplicates_delivers_nothing_twice() {
    let mut fabric = begin(plan("leaf-spine:2x2x2", 1, 5));
    let faults =
        LinkFaults { duplicate_ppm: 500_000, delay_ns_max: 20_000, ..LinkFaults::default() };
    fabric.switch_faults(faults);
    fabric.run_us(500);
    assert!(fabric.stats().duplicated > 1_000);
    end(fabric);
}

#[test]
fn links_that_reorder_cost_messages_and_never_order() {
    let mut plan = plan("leaf-spine:2x2x2", 1, 6);
    plan.endpoint.reorder_packets = 0;
    let mut fabric = begin(plan);
    let faults = LinkFaults { reorder_ppm: 200_000, delay_ns_max: 10_000, ..LinkFaults::default() };
    fabric.switch_faults(faults);
    fabric.run_us(500);
    assert!(end(fabric).messages.lost > 0, "no message arrived below the barrier");
}

#[test]
fn packets_that_each_take_their_own_way_break_no_promise() {
    let mut plan = plan("testbed", 1, 7);
    plan.switch.spread = Spread::PerPacket;
    plan.endpoint.reorder_packets = 0;
    let mut fabric = begin(plan);
    // Every switch waits for all its inputs, so every path keeps the promises.
    fabric.be_strict();
    fabric.run_us(200);
    assert_eq!(end(fabric).messages.lost, 0);
}
