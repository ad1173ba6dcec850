use super::*;
use onepipe_base::Timestamp;

fn promise(ns: u64) -> Promises {
    Promises { barrier: Timestamp::from_ns(ns), commit: Timestamp::from_ns(ns / 2) }
}

fn aggregator(promises: &[(u16, u64)]) -> Aggregator {
    let mut aggregator = Aggregator::new(3, 2);
    for &(port, ns) in promises {
        aggregator.update(Mono::from_ns(ns), Port(port), promise(ns));
    }
    aggregator
}

//= spec/ordering.md#R9
#[test]
fn uplinks_are_fed_by_lower_ports_only() {
    let mut aggregator = aggregator(&[(0, 50), (2, 40), (3, 10), (4, 20)]);
    assert_eq!(
        (aggregator.advertise(Port(3)), aggregator.advertise(Port(4))),
        (Some(promise(40)), Some(promise(40)))
    );
}

//= spec/ordering.md#R9
#[test]
fn downlinks_are_fed_by_upper_and_other_lower_ports() {
    let mut aggregator = aggregator(&[(0, 50), (2, 40), (3, 70), (4, 45)]);
    assert_eq!(aggregator.advertise(Port(0)), Some(promise(40)));
    assert_eq!(aggregator.advertise(Port(2)), Some(promise(45)));
    assert_eq!(aggregator.advertise(Port(1)), Some(promise(40)), "no input there, but an output");
}

//= spec/ordering.md#R10
#[test]
fn lone_port_gets_its_own_promise() {
    let mut alone = aggregator(&[(1, 50)]);
    assert_eq!(alone.advertise(Port(1)), Some(promise(50)));
    let mut with_upper = aggregator(&[(1, 50), (3, 60)]);
    assert_eq!(with_upper.advertise(Port(1)), Some(promise(60)));
}

#[test]
fn unfed_output_advertises_nothing() {
    let mut none = aggregator(&[]);
    assert_eq!((none.advertise(Port(0)), none.advertise(Port(3))), (None, None));
    let mut only_upper = aggregator(&[(3, 10)]);
    assert_eq!(
        (only_upper.advertise(Port(0)), only_upper.advertise(Port(3))),
        (Some(promise(10)), None)
    );
}

//= spec/ordering.md#R13
#[test]
fn joiner_does_not_move_a_barrier_back() {
    let mut aggregator = aggregator(&[(0, 50), (1, 60)]);
    assert_eq!(aggregator.advertise(Port(2)), Some(promise(50)));
    aggregator.update(Mono::from_ns(0), Port(3), promise(5));
    assert_eq!(aggregator.advertise(Port(2)), Some(promise(50)));
    assert!(!aggregator.has_update(Port(2), true));
    aggregator.update(Mono::from_ns(0), Port(3), promise(55));
    aggregator.update(Mono::from_ns(0), Port(0), promise(56));
    assert!(aggregator.has_update(Port(2), true));
    assert_eq!(aggregator.advertise(Port(2)), Some(promise(55)));
}

#[test]
fn expiry_covers_uplinks_and_downlinks() {
    let mut aggregator = aggregator(&[(0, 50), (2, 40), (3, 70), (4, 45)]);
    assert_eq!(aggregator.oldest_update(), Some(Mono::from_ns(40)));
    let mut lost = Vec::new();
    aggregator.expire(Mono::from_ns(50), |port| lost.push(port));
    assert_eq!(lost, [Port(2), Port(4)]);
    assert!(aggregator.is_live(Port(3)) && !aggregator.is_live(Port(4)));
}

#[test]
fn frozen_link_holds_commits_without_live_siblings() {
    let mut aggregator = aggregator(&[(0, 50), (1, 40), (3, 70)]);
    let freeze =
        |aggregator: &mut Aggregator, port| aggregator.freeze(Port(port)).map(Timestamp::as_ns);
    assert_eq!((freeze(&mut aggregator, 3), freeze(&mut aggregator, 4)), (Some(35), None));
    aggregator.update(Mono::from_ns(0), Port(0), promise(500));
    aggregator.update(Mono::from_ns(0), Port(1), promise(400));
    let promises = |barrier, commit| {
        let (barrier, commit) = (Timestamp::from_ns(barrier), Timestamp::from_ns(commit));
        Some(Promises { barrier, commit })
    };
    assert_eq!(aggregator.advertise(Port(0)), promises(400, 35), "no upper link is live");
    assert_eq!(
        aggregator.advertise(Port(3)),
        promises(400, 200),
        "upper inputs do not count for uplinks"
    );
    assert_eq!(freeze(&mut aggregator, 1), Some(200));
    assert_eq!(aggregator.advertise(Port(0)), promises(500, 35), "lone port with a frozen link");
    aggregator.hold(Port(3), None);
    assert_eq!(aggregator.advertise(Port(0)), promises(500, 200));
    aggregator.update(Mono::from_ns(0), Port(0), promise(1_000));
    aggregator.update(Mono::from_ns(0), Port(1), promise(1_200));
    assert_eq!(
        aggregator.advertise(Port(1)),
        promises(1_000, 200),
        "held by its own previous incarnation as well"
    );
    aggregator.hold(Port(1), None);
    assert_eq!(aggregator.advertise(Port(1)), promises(1_000, 500));
    assert_eq!(aggregator.advertise(Port(0)), promises(1_200, 600));
}

#[test]
fn commit_is_not_advertised_before_confirmation() {
    let mut aggregator = aggregator(&[(0, 50), (1, 40)]);
    let lower_bound = Timestamp::from_ns(3);
    let promises = |promises: Option<Promises>| {
        promises.map(|promises| (promises.barrier.as_ns(), promises.commit.as_ns()))
    };
    assert_eq!(promises(aggregator.advertise_barrier(Port(2), lower_bound)), Some((40, 3)));
    assert!(!aggregator.has_update(Port(2), false) && aggregator.has_update(Port(2), true));
    assert_eq!(promises(aggregator.advertise(Port(2))), Some((40, 20)));
    aggregator.update(Mono::from_ns(0), Port(1), promise(48));
    assert_eq!(promises(aggregator.advertise_barrier(Port(2), lower_bound)), Some((48, 20)));
}
