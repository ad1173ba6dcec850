//! A fixed set of seeds with all kinds of faults, and all invariants checked.

use std::collections::BTreeMap;

use onepipe_sim_amcast::{FaultEvent, Quorums, Swarm};

#[test]
fn invariants_hold_under_all_faults() {
    let (mut elections, mut delivered, mut busy, mut names) = (0, 0, 0, BTreeMap::new());
    let mut refused_members = 0;
    let mut quorums = Quorums::default();
    for seed in 0..150 {
        let swarm = Swarm::draw(seed);
        let outcome = swarm.run();
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        (elections, delivered) = (elections + outcome.elections, delivered + outcome.delivered);
        busy += outcome.busy;
        refused_members += outcome.refused_members;
        let one = outcome.quorums;
        quorums = Quorums {
            leaders: quorums.leaders + one.leaders,
            followers: quorums.followers + one.followers,
            changed: quorums.changed + one.changed,
            lost: quorums.lost + one.lost,
            split_brain: quorums.split_brain + one.split_brain,
        };
        for name in swarm.timeline.iter().filter_map(|(_, event)| event.name()) {
            *names.entry(name).or_insert(0) += 1;
        }
    }
    assert!(elections > 100 && delivered > 10_000 && busy > 100, "{elections} {delivered} {busy}");
    let Quorums { leaders, followers, changed, lost, split_brain } = quorums;
    let fewest = [leaders, followers, changed, lost, split_brain].into_iter().min();
    assert!(fewest > Some(20), "{quorums:?}");
    assert!(names.len() == 12 && names.values().all(|count| *count > 5), "{names:?}");
    assert!(refused_members > 10, "{refused_members}");
}

fn holds(seed: u64) {
    let swarm = Swarm::draw(seed);
    // As it was found, before members were isolated in turn, received only some packets, or
    // restarted.
    let mut found = swarm.clone();
    found.setup.load.shift = None;
    found.setup.announces = false;
    let one_way_at = |at: u64| {
        let is_it = |(time, event): &&(u64, FaultEvent)| {
            *time == at
                && matches!(event, FaultEvent::CoordinatorLoss(..) | FaultEvent::MemberLoss(..))
        };
        swarm.timeline.iter().filter(is_it).count()
    };
    found.timeline.retain(|(at, event)| match event {
        FaultEvent::IsolateMany(_)
        | FaultEvent::ReconnectMany(_)
        | FaultEvent::MemberLoss(..)
        | FaultEvent::RestartMember(_) => false,
        FaultEvent::CoordinatorLoss(..) => one_way_at(*at) == 1,
        _ => true,
    });
    for swarm in [swarm, found] {
        let violations = swarm.run().violations;
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
    }
}

//= spec/amcast.md#R32
/// A replica that started late in an idle group received nothing.
#[test]
fn restarted_replica_requests_until_acknowledged() {
    [7, 16, 54, 102].into_iter().for_each(holds);
}

//= spec/amcast.md#R23
/// A candidate requested the log from a member that had crashed after its promise, for ever.
#[test]
fn candidate_changes_source_of_stalled_transfer() {
    holds(215);
}

/// A decided position that arrived again, late, replaced the votes for a later message, and a
/// retransmitted request for a message between the two was proposed again: it was delivered twice.
#[test]
fn repeated_decision_has_no_effect() {
    holds(1_227);
}

/// Crashed switches may partition the live processes. A part with majorities and a coordinator
/// makes progress, and processes outside of it count as crashed; without such a part only safety
/// holds.
#[test]
fn only_part_with_majorities_must_progress() {
    [101_900, 104_345].into_iter().for_each(holds);
    for seed in [100_681, 101_962, 105_580] {
        holds(seed);
        assert!(Swarm::draw(seed).run().is_partitioned, "seed {seed}");
    }
}

/// All messages were complete, and then a message of a crashed client was decided: some replicas
/// had delivered it at the last check.
#[test]
fn message_of_crashed_client_may_be_decided_last() {
    [6_166, 8_970].into_iter().for_each(holds);
}
