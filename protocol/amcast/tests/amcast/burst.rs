//! Recovery from a burst of loss: requests double in length, and nothing is retransmitted twice.

use crate::harness;

use harness::{Harness, Plan};
use onepipe_amcast::GroupSet;
use onepipe_base::ProcessId;
use onepipe_wire::{Amcast, Frame, Opcode};

/// Number of messages lost.
const LOST: usize = 400;
/// End of the burst: proposals that `is_lost` selects are lost until then.
const LOST_UNTIL_NS: u64 = 60_000;

/// Runs a group of three members and a replica through a burst of loss.
fn burst(is_lost: fn(&Harness, &Frame<'_>) -> bool) -> Harness {
    let window = LOST as u32 + 1;
    let mut harness =
        Harness::new(Plan { window, replicas: 1, busy_threshold: 1_024, ..Plan::calm() });
    harness.drop_filter = is_lost;
    for _ in 0..LOST {
        assert!(harness.send_one(0, GroupSet::from_bits(1)));
    }
    harness.run_until(LOST_UNTIL_NS);
    // A further message reveals the gap.
    assert!(harness.send_one(0, GroupSet::from_bits(1)));
    harness
}

/// Returns the time in ns from the end of the burst until the replica has delivered everything.
fn recovery_ns(harness: &mut Harness) -> u64 {
    while harness.delivered[0].len() < LOST + 1 {
        assert!(harness.now < 100_000_000, "{} delivered", harness.delivered[0].len());
        harness.run_until(harness.now + 1_000);
    }
    assert_eq!(harness.wrong, None);
    harness.now - LOST_UNTIL_NS
}

fn is_early_proposal(harness: &Harness, frame: &Frame<'_>) -> bool {
    harness.now < LOST_UNTIL_NS && frame.opcode == Opcode::Prop
}

//= spec/amcast.md#R28
#[test]
fn followers_recover_burst_in_few_round_trips() {
    let mut harness = burst(|harness, frame| {
        is_early_proposal(harness, frame) && frame.header.dst() != ProcessId(3)
    });
    let took_ns = recovery_ns(&mut harness);
    // Requests of 32 positions each would take 13 round trips of 10 us, and timeouts take longer.
    assert!(took_ns < 140_000, "{took_ns} ns");
}

//= spec/amcast.md#R28
#[test]
fn replica_recovers_burst_in_few_round_trips() {
    let mut harness = burst(|harness, frame| {
        is_early_proposal(harness, frame) && frame.header.dst() == ProcessId(3)
    });
    let took_ns = recovery_ns(&mut harness);
    assert!(took_ns < 100_000, "{took_ns} ns");
    let retransmitted: u64 =
        harness.members.iter().flatten().map(|member| member.stats().retransmitted).sum();
    assert!(retransmitted < LOST as u64 + 8, "{retransmitted}: each once");
}

#[test]
fn buffered_positions_are_not_retransmitted() {
    let mut harness = burst(|harness, frame| {
        let (body, _) = Amcast::parse(frame.payload).expect("valid output of a machine");
        is_early_proposal(harness, frame) && (100..200).contains(&body.position)
    });
    let took_ns = recovery_ns(&mut harness);
    assert!(took_ns < 200_000, "{took_ns} ns");
    let leader = harness.members[0].as_ref().expect("a live machine").stats().retransmitted;
    // Each of two followers gets what it has lost, and a few timeouts retransmit.
    assert!(leader < 2 * 100 + 100, "{leader}");
}
