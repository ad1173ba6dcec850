//! Members that restart with an empty memory: they are refused before they take part.

use crate::harness;

use harness::{Harness, Plan, Step};
use onepipe_amcast::{
    Config, Coordinator, CoordinatorConfig, GroupSet, Groups, Member, MemberEvent,
};
use onepipe_base::{Incarnation, Machine, Now, Port, ProcessId, Verdict};

const COORDINATOR: ProcessId = ProcessId(9);

fn announcing() -> Harness {
    Harness::new(Plan { announces: true, ..Plan::calm() })
}

fn member(groups: &Groups, incarnation: u32) -> Member {
    let config = Config {
        incarnation: Incarnation(incarnation),
        coordinators: vec![COORDINATOR],
        ..Config::new(ProcessId(0), groups.clone())
    };
    Member::new(config).expect("a member")
}

/// Passes all frames of `from` for `to` on. Returns the last verdict.
fn pass(now: Now, from: &mut impl Machine, to: (ProcessId, &mut impl Machine)) -> Option<Verdict> {
    let (mut slot, mut verdict) = ([0; 256], None);
    while let Some(sent) = from.poll_transmit(now, &mut slot) {
        let frame = &mut slot[..sent.bytes];
        let header = onepipe_wire::header_unchecked(frame).expect("a frame");
        if header.dst() == to.0 {
            verdict = Some(to.1.handle_frame(now, Port(0), frame));
        }
    }
    verdict
}

//= spec/amcast.md#R35
#[test]
fn restarted_member_is_refused_and_group_continues() {
    for restarted in 0..3 {
        let mut harness = announcing();
        harness.run_until(100_000);
        assert!(harness.send_one(0, GroupSet::from_bits(1)));
        harness.run_until(300_000);
        harness.plan(300_000, Step::CrashMember(restarted));
        harness.plan(300_000, Step::RestartMember(restarted));
        harness.run_until(301_000);
        assert!(harness.members[restarted].as_ref().is_some_and(|member| !member.is_leader()));
        harness.run_until(500_000);
        assert!(harness.members[restarted].is_none(), "member {restarted} was not refused");
        let refused = |member: &Member| member.stats().reincarnated;
        assert!(harness.members.iter().flatten().map(refused).sum::<u64>() > 0);
        assert!(harness.send_one(0, GroupSet::from_bits(1)));
        assert_eq!(harness.run(), None);
        assert_eq!(harness.delivered[0].len(), 2);
    }
}

//= spec/amcast.md#R36
#[test]
fn member_takes_no_part_before_majority_knows_it() {
    let mut harness = announcing();
    let all = (0..3).flat_map(|from| (0..3).map(move |to| (ProcessId(from), ProcessId(to))));
    harness.blocked_links = all.collect();
    harness.blocked_until = 1_000_000;
    assert!(harness.send_one(0, GroupSet::from_bits(1)));
    harness.run_until(900_000);
    let now = harness.time();
    for member in harness.members.iter_mut().flatten() {
        assert!(!member.has_joined() && !member.is_leader() && !member.lead(now, 2));
        assert_eq!((member.epoch(), member.stats().proposed), (1, 0));
    }
    assert!(harness.members[0].as_ref().is_some_and(|member| member.stats().early > 0));
    assert_eq!(harness.run(), None);
    assert!(harness.members.iter().flatten().all(Member::is_known_by_all));
    assert_eq!(harness.delivered[0].len(), 1);
}

//= spec/amcast.md#R35
#[test]
fn coordinator_refuses_restarted_member() {
    let harness = announcing();
    let (now, groups) = (harness.time(), &harness.groups);
    let config = CoordinatorConfig::new(COORDINATOR, groups.clone());
    let mut coordinator = Coordinator::new(config).expect("a coordinator");
    for (incarnation, verdict) in [(1, Verdict::Consumed), (2, Verdict::Dropped)] {
        let mut member = member(groups, incarnation);
        coordinator.activate(now, []);
        coordinator.handle_timeout(now);
        pass(now, &mut coordinator, (ProcessId(0), &mut member));
        let reply = pass(now, &mut member, (COORDINATOR, &mut coordinator));
        assert_eq!(reply, Some(verdict), "incarnation {incarnation}");
        pass(now, &mut coordinator, (ProcessId(0), &mut member));
        let event = (incarnation == 2).then_some(MemberEvent::Refused);
        assert_eq!(member.poll_event(), event);
        // A refused member has stopped.
        assert_eq!(member.lead(now, 2), event.is_none());
        assert_eq!(member.poll_timeout().is_some(), event.is_none());
    }
    assert_eq!(coordinator.stats().reincarnated, 1);
}
