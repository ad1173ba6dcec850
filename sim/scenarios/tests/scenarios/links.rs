//! Scenarios of links that lose, corrupt, duplicate and reorder frames.

use crate::fixture;

use fixture::{begin, end, plan};
use onepipe_sim_network::{LinkFaults, Loss};
use onepipe_topology::Spread;

#[test]
fn thirty_percent_loss_breaks_no_invariant() {
    let mut fabric = begin(plan("star:4", 1, 1));
    fabric.set_link_faults(LinkFaults { loss: Loss::uniform(300_000), ..LinkFaults::default() });
    fabric.run_us(2_000);
    assert!(fabric.stats().drops.lost > 1_000);
    let report = end(fabric);
    assert!(report.messages.lost > 0 && report.messages.delivered > report.messages.lost);
}

#[test]
fn lost_beacons_cost_only_latency() {
    let mut fabric = begin(plan("leaf-spine:2x2x2", 1, 2));
    let loss = Loss { beacon_ppm: 500_000, ..Loss::default() };
    fabric.set_link_faults(LinkFaults { loss, ..LinkFaults::default() });
    fabric.run_us(500);
    assert_eq!(end(fabric).messages.unknown, 0);
}

#[test]
fn burst_losses_break_no_invariant() {
    let mut fabric = begin(plan("star:4", 1, 3));
    let faults = LinkFaults { burst_ppm: 2_000, burst_frames: 50, ..LinkFaults::default() };
    fabric.set_link_faults(faults);
    fabric.run_us(1_000);
    end(fabric);
}

#[test]
fn corrupted_frames_are_rejected() {
    let mut fabric = begin(plan("leaf-spine:2x2x2", 1, 4));
    fabric.set_link_faults(LinkFaults { corrupt_ppm: 300_000, ..LinkFaults::default() });
    fabric.run_us(1_000);
    assert!(fabric.stats().corrupted > 1_000);
    end(fabric);
}

//= spec/ordering.md#R21
#[test]
fn duplicated_frames_are_delivered_once() {
    let mut fabric = begin(plan("leaf-spine:2x2x2", 1, 5));
    let faults =
        LinkFaults { duplicate_ppm: 500_000, delay_ns_max: 20_000, ..LinkFaults::default() };
    fabric.set_link_faults(faults);
    fabric.run_us(500);
    assert!(fabric.stats().duplicated > 1_000);
    end(fabric);
}

//= spec/ordering.md#R22
#[test]
fn reordering_links_lose_messages_but_not_order() {
    let mut plan = plan("leaf-spine:2x2x2", 1, 6);
    plan.endpoint.reorder_packets = 0;
    let mut fabric = begin(plan);
    let faults = LinkFaults { reorder_ppm: 200_000, delay_ns_max: 10_000, ..LinkFaults::default() };
    fabric.set_link_faults(faults);
    fabric.run_us(500);
    assert!(end(fabric).messages.lost > 0, "no message arrived below the barrier");
}

#[test]
fn per_packet_spraying_breaks_no_invariant() {
    let mut plan = plan("testbed", 1, 7);
    plan.switch.spread = Spread::PerPacket;
    plan.endpoint.reorder_packets = 0;
    let mut fabric = begin(plan);
    // Every switch waits for all its inputs, so every path keeps the promises.
    fabric.set_strict();
    fabric.run_us(200);
    assert_eq!(end(fabric).messages.lost, 0);
}
