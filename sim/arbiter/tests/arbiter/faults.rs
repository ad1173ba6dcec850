//! Crashes of arbiters, lost control packets and lossy links: no timeslot is granted twice, and all
//! offered frames are sent.

use onepipe_sim_arbiter::{Arbitration, OfferedLoad, Setup, SimEnv};
use onepipe_sim_network::{Fault, LinkFaults, Loss, NodeId};
use onepipe_topology::Shape;

const MS: u64 = 1_000_000;

/// The rack with two arbiters, host 31 as the initial primary, and 30 hosts with a load to all.
fn rack(seed: u64, until_ns: u64) -> SimEnv {
    let offer = Some(OfferedLoad { until_ns, ..OfferedLoad::to_all(300) });
    let arbitration = Arbitration { arbiters: 2, endpoints: 30, ..Arbitration::of(32) };
    let (arbitration, checks_grants) = (Some(arbitration), true);
    SimEnv::new(&Setup { offer, arbitration, checks_grants, seed, ..Setup::rack() })
}

/// Returns the arbiters that grant timeslots.
fn primaries(env: &SimEnv) -> Vec<u32> {
    let is_primary = |host: &u32| env.arbiter(*host).is_some_and(|one| one.is_primary());
    (30..32).filter(is_primary).collect()
}

/// Runs in steps of 100 us. Returns the longest time without a slot frame, us.
fn longest_pause_us(env: &mut SimEnv, ns: u64) -> u64 {
    let (mut peak, mut pause) = (0, 0);
    for _ in 0..ns / 100_000 {
        let before = env.slots_sent();
        env.run_for_ns(100_000);
        pause = if env.slots_sent() == before { pause + 100 } else { 0 };
        peak = peak.max(pause);
    }
    peak
}

/// Asserts that all offered frames were sent, and that both ends agree on all totals.
fn assert_quiet(env: &SimEnv, what: &str) {
    let (waiting, sent, received) = env.raw_frames();
    assert!(sent > 10_000 && received > sent / 2, "{what}: {sent} and {received}");
    assert_eq!(waiting, 0, "{what}");
    for client in env.clients() {
        assert_eq!((client.backlog(), client.pending_grants()), (0, 0), "{what}: {client:?}");
        assert_eq!(client.stats().duplicate, 0, "{what}");
        for dst in 0..30 {
            let (requests, grants) = client.totals(onepipe_base::ProcessId(dst));
            assert_eq!(requests, grants, "{what}, to {dst}");
        }
    }
    assert_eq!(env.grant_checker().violations, [""; 0], "{what}");
    assert!(env.grant_checker().granted() >= env.slots_sent(), "{what}");
}

#[test]
fn secondary_takes_over_and_the_old_primary_rejoins() {
    for seed in 1..=3 {
        let mut env = rack(seed, 12 * MS);
        env.run_for_ns(3 * MS);
        assert_eq!(primaries(&env), [31]);
        env.schedule(seed * 37_000, Fault::Crash(NodeId(31)));
        // A millisecond until the takeover, a lead and what the crashed arbiter may have granted
        // ahead, and a round trip for all endpoints to request again.
        let pause_us = longest_pause_us(&mut env, 3 * MS);
        assert!((500..=1_500).contains(&pause_us), "{pause_us} us");
        assert_eq!(primaries(&env), [30]);
        env.schedule(0, Fault::Restart(NodeId(31)));
        let pause_us = longest_pause_us(&mut env, 6 * MS);
        assert!(pause_us <= 200, "{pause_us} us: no interruption");
        assert_eq!(primaries(&env), [30], "the restarted arbiter does not depose the primary");
        env.run_for_ns(4 * MS);
        assert_quiet(&env, &format!("seed {seed}"));
        let (_, sent, received) = env.raw_frames();
        assert_eq!(sent, received, "no link has lost any");
    }
}

#[test]
fn repeated_arbiter_crashes_only_cost_time() {
    let mut env = rack(7, 16 * MS);
    for (ms, host, crashes) in
        [(3, 31, true), (6, 31, false), (8, 30, true), (11, 30, false), (13, 31, true)]
    {
        let fault = if crashes { Fault::Crash(NodeId(host)) } else { Fault::Restart(NodeId(host)) };
        env.schedule(ms * MS, fault);
    }
    env.run_for_ns(22 * MS);
    assert_eq!(primaries(&env), [30]);
    assert_quiet(&env, "after three deaths");
}

#[test]
fn link_faults_only_cost_time() {
    let faults = [
        LinkFaults { loss: Loss::uniform(50_000), ..LinkFaults::default() },
        LinkFaults { burst_ppm: 2_000, burst_frames: 30, ..LinkFaults::default() },
        LinkFaults {
            duplicate_ppm: 200_000,
            reorder_ppm: 100_000,
            delay_ns_max: 50_000,
            ..LinkFaults::default()
        },
        LinkFaults { corrupt_ppm: 50_000, ..LinkFaults::default() },
    ];
    for (number, faults) in (0u64..).zip(faults) {
        let mut env = rack(10 + number, 7 * MS);
        for link in env.links() {
            env.schedule(2 * MS, Fault::SetLinkFaults(link, faults));
            env.schedule(6 * MS, Fault::SetLinkFaults(link, LinkFaults::default()));
        }
        env.run_for_ns(16 * MS);
        assert_quiet(&env, &format!("{faults:?}"));
        assert_eq!(primaries(&env).len(), 1, "{faults:?}");
    }
}

#[test]
fn one_way_link_failures_cause_no_double_grant() {
    // In each direction: one arbiter receives nothing for a while.
    for (isolated, seed) in [(30, 21), (31, 22)] {
        let mut env = rack(seed, 12 * MS);
        env.run_for_ns(2 * MS);
        let link = env.down_link(isolated);
        env.schedule(MS, Fault::Cut(link));
        env.schedule(4 * MS, Fault::Repair(link));
        env.run_for_ns(16 * MS);
        assert_eq!(primaries(&env).len(), 1, "one steps down after the repair");
        assert_quiet(&env, &format!("{isolated} receives nothing"));
    }
}

#[test]
fn lossy_primary_is_replaced_while_it_still_grants() {
    let mut takeovers = 0;
    for seed in 34..38 {
        let mut env = rack(seed, 8 * MS);
        let link = env.card_link(31);
        let loss = LinkFaults { loss: Loss::uniform(850_000), ..LinkFaults::default() };
        env.schedule(2 * MS + seed * 13_000, Fault::SetLinkFaults(link, loss));
        env.schedule(7 * MS, Fault::SetLinkFaults(link, LinkFaults::default()));
        env.run_for_ns(13 * MS);
        takeovers += env.arbiter(30).map_or(0, |arbiter| arbiter.stats().takeovers);
        assert_quiet(&env, &format!("seed {seed}"));
    }
    assert!(takeovers >= 2, "{takeovers} in four runs");
}

#[test]
fn lossy_rack_link_is_avoided_and_reused_after_repair() {
    let setup = Setup {
        shape: Shape::leaf_spine(4, 4, 8).expect("it fits"),
        arbitration: Some(Arbitration { endpoints: 24, ..Arbitration::of(32) }),
        offer: Some(OfferedLoad { group_hosts: 8, ..OfferedLoad::to_all(300) }),
        checks_grants: true,
        ..Setup::rack()
    };
    let mut env = SimEnv::new(&setup);
    let link = env.up_link(0, 2);
    let in_ms = |env: &mut SimEnv| {
        let before = env.slots_on(link);
        env.run_for_ns(MS);
        env.slots_on(link) - before
    };
    env.run_for_ns(3 * MS);
    let healthy = in_ms(&mut env);
    assert!(healthy > 300, "a quarter of what eight hosts send: {healthy}");
    let loss = LinkFaults { loss: Loss::uniform(300_000), ..LinkFaults::default() };
    env.schedule(0, Fault::SetLinkFaults(link, loss));
    let left_after = (1..=10).find(|_| in_ms(&mut env) == 0);
    assert!(left_after.is_some_and(|ms| ms <= 4), "after {left_after:?} ms");
    let of_all = |env: &SimEnv| {
        let links = (0..4).map(|nth| env.slots_on(env.up_link(0, nth)));
        links.sum::<u64>()
    };
    let before = of_all(&env);
    assert_eq!(in_ms(&mut env), 0);
    let more = of_all(&env) - before;
    // Eight hosts with 804 timeslots per millisecond at a load of 30 %.
    assert!((1_700..2_200).contains(&more), "the three others bear it: {more}");
    env.schedule(0, Fault::SetLinkFaults(link, LinkFaults::default()));
    let used_after = (1..=30).find(|_| in_ms(&mut env) > healthy / 2);
    assert!(used_after.is_some_and(|ms| ms <= 25), "after {used_after:?} ms");
    assert_eq!(env.grant_checker().violations, [""; 0]);
}

/// Five pods of a fat tree, and one more with the arbiter. First a link from a spine to a core is
/// lossy, then one from a rack to a spine.
#[test]
fn lossy_link_in_a_fat_tree_is_avoided_and_reused() {
    let setup = Setup {
        shape: Shape::fat_tree(6).expect("six is even"),
        arbitration: Some(Arbitration { endpoints: 45, ..Arbitration::of(54) }),
        offer: Some(OfferedLoad { group_hosts: 9, ..OfferedLoad::to_all(300) }),
        checks_grants: true,
        ..Setup::rack()
    };
    for is_of_core in [true, false] {
        let mut env = SimEnv::new(&setup);
        let link = if is_of_core { env.core_link(0, 1, 1) } else { env.up_link(0, 1) };
        let in_ms = |env: &mut SimEnv| {
            let before = env.slots_on(link);
            env.run_for_ns(MS);
            env.slots_on(link) - before
        };
        env.run_for_ns(2 * MS);
        let healthy = in_ms(&mut env);
        assert!(healthy > 100, "a third of what three hosts send: {healthy}");
        let loss = LinkFaults { loss: Loss::uniform(400_000), ..LinkFaults::default() };
        env.schedule(0, Fault::SetLinkFaults(link, loss));
        let left_after = (1..=10).find(|_| in_ms(&mut env) == 0);
        assert!(left_after.is_some_and(|ms| ms <= 5), "after {left_after:?} ms");
        let lost = env.arbiter(53).map(|arbiter| arbiter.stats().lost);
        assert!(lost.is_some_and(|lost| lost > 0));
        // Nothing else is avoided: the neighbouring link carries its traffic.
        let others = |env: &SimEnv| match is_of_core {
            true => env.slots_on(env.core_link(0, 1, 0)),
            false => env.slots_on(env.up_link(0, 0)),
        };
        let before = others(&env);
        assert_eq!(in_ms(&mut env), 0);
        assert!(others(&env) - before > healthy / 2, "{}", others(&env) - before);
        env.schedule(0, Fault::SetLinkFaults(link, LinkFaults::default()));
        let used_after = (1..=40).find(|_| in_ms(&mut env) > healthy / 2);
        assert!(used_after.is_some_and(|ms| ms <= 25), "after {used_after:?} ms");
        assert_eq!(env.grant_checker().violations, [""; 0]);
    }
}
