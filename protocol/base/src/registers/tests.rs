//! The cached minima against a model, and links that join, fail and are held.

use super::*;
use proptest::prelude::*;

fn promise(ns: u64) -> Promises {
    Promises { barrier: Timestamp::from_ns(ns), commit: Timestamp::from_ns(ns / 2) }
}

//= spec/ordering.md#R7
//= spec/ordering.md#R14
//= spec/ordering.md#R15
#[test]
fn ignores_idle_links_and_expires_dead_ones() {
    let mut registers = Registers::new(3);
    assert_eq!(registers.minimum(), None);
    assert!(registers.update(Mono::from_ns(5), Port(0), promise(100)));
    assert!(registers.update(Mono::from_ns(9), Port(2), promise(60)));
    assert_eq!(registers.minimum(), Some(promise(60)));
    assert_eq!(registers.minimum_except(Port(2)), Some(promise(100)));
    assert_eq!(registers.oldest_update(), Some(Mono::from_ns(5)));

    let mut lost = Vec::new();
    registers.expire(Mono::from_ns(9), |port| lost.push(port));
    assert_eq!(lost, [Port(0)]);
    assert_eq!((registers.live_count(), registers.minimum_except(Port(2))), (1, None));
}

#[test]
fn unknown_port_changes_nothing() {
    let mut registers = Registers::new(2);
    assert!(!registers.update(Mono::from_ns(0), Port(7), promise(1)));
    assert_eq!((registers.minimum(), registers.remove(Port(7))), (None, false));
}

//= spec/failure.md#R13
#[test]
fn frozen_link_holds_commits_until_resolved() {
    let mut registers = Registers::new(2);
    registers.update(Mono::from_ns(0), Port(0), promise(100));
    registers.update(Mono::from_ns(0), Port(1), promise(40));
    let commit = |registers: &Registers| registers.minimum().map(|minimum| minimum.commit.as_ns());
    assert_eq!(registers.freeze(Port(1)), Some(Timestamp::from_ns(20)));
    assert_eq!(registers.freeze(Port(1)), None);
    registers.update(Mono::from_ns(1), Port(0), promise(200));
    let minimum = registers.minimum().expect("one is live");
    assert_eq!(
        (minimum.barrier.as_ns(), minimum.commit.as_ns(), registers.live_count()),
        (200, 20, 1)
    );
    let floor = |ns| Some(Timestamp::from_ns(ns));
    assert_eq!(registers.minimum_except(Port(0)), None, "only a dead link is left");
    assert_eq!(registers.commit_floor_except(Port(0)), floor(20));
    assert_eq!((registers.commit_floor(), registers.is_held(Port(1))), (floor(20), true));
    // A new instance joins: its barrier counts, its commits are deferred.
    registers.update(Mono::from_ns(2), Port(1), promise(300));
    assert_eq!(registers.minimum().map(|minimum| minimum.barrier.as_ns()), Some(200));
    assert_eq!(commit(&registers), Some(20));
    // It fails as well, and the first failure is resolved: the second one holds.
    assert_eq!(registers.freeze(Port(1)), Some(Timestamp::from_ns(150)));
    assert_eq!(commit(&registers), Some(20));
    registers.hold(Port(1), Some(Timestamp::from_ns(150)));
    registers.update(Mono::from_ns(3), Port(0), promise(1_000));
    assert_eq!(commit(&registers), Some(150));
    registers.hold(Port(1), None);
    assert_eq!(commit(&registers), Some(500));
    registers.hold(Port(1), Some(Timestamp::from_ns(1)));
    assert_eq!(commit(&registers), Some(500), "nothing is held there any more");
}

//= spec/failure.md#R13
#[test]
fn deferred_commit_counts_after_hold_ends() {
    let mut registers = Registers::new(2);
    registers.update(Mono::from_ns(0), Port(0), promise(900));
    registers.update(Mono::from_ns(0), Port(1), promise(40));
    registers.freeze(Port(1));
    registers.update(Mono::from_ns(2), Port(1), promise(10));
    registers.update(Mono::from_ns(2), Port(1), promise(8));
    assert_eq!(registers.minimum().map(|minimum| minimum.commit.as_ns()), Some(5));
    registers.hold(Port(1), None);
    assert_eq!(registers.minimum().map(|minimum| minimum.commit.as_ns()), Some(5));
    registers.update(Mono::from_ns(3), Port(1), promise(60));
    assert_eq!(registers.minimum().map(|minimum| minimum.commit.as_ns()), Some(30));
}

#[test]
fn maximum_timestamp_is_a_valid_promise() {
    let mut registers = Registers::new(2);
    let end = Promises::both(Timestamp::from_ns(u64::MAX));
    assert!(registers.update(Mono::from_ns(0), Port(0), end));
    assert!(!registers.update(Mono::from_ns(0), Port(0), end));
    assert_eq!((registers.live_count(), registers.is_live(Port(0))), (1, true));
}

#[test]
fn link_updated_at_deadline_stays_live() {
    let mut registers = Registers::new(1);
    registers.update(Mono::from_ns(7), Port(0), promise(9));
    registers.expire(Mono::from_ns(7), |_| unreachable!("it was updated at the deadline"));
    assert_eq!(registers.live_count(), 1);
}

//= spec/failure.md#R15
#[test]
fn unfed_link_is_live_but_not_in_minimum() {
    let mut registers = Registers::new(2);
    let mark = |registers: &mut Registers, ns, held| {
        let held = Option::map(held, Timestamp::from_ns);
        registers.update_unfed(Mono::from_ns(ns), Port(1), Timestamp::from_ns(ns), held)
    };
    let bounds = |registers: &Registers| {
        registers.minimum().map(|minimum| (minimum.barrier.as_ns(), minimum.commit.as_ns()))
    };
    registers.update(Mono::from_ns(0), Port(0), promise(100));
    assert!(mark(&mut registers, 10, None) && !mark(&mut registers, 11, None));
    assert_eq!((registers.live_count(), bounds(&registers)), (2, Some((100, 50))));
    assert!(registers.promises_no_commit(Port(1)) && registers.get(Port(1)).is_none());
    assert_eq!(registers.freeze(Port(1)), None, "there is nothing to hold");
    assert_eq!(registers.oldest_update(), Some(Mono::from_ns(0)));
    // A promise older than the last mark only proves that the link is live.
    assert!(!registers.update(Mono::from_ns(12), Port(1), promise(10)));
    assert_eq!(bounds(&registers), Some((100, 50)));
    assert!(!registers.update(Mono::from_ns(13), Port(1), promise(12)));
    assert_eq!(bounds(&registers), Some((12, 6)), "something feeds it");
    // So does a mark older than the promise.
    assert!(!mark(&mut registers, 12, None));
    assert_eq!(bounds(&registers), Some((12, 6)));
    // Its input fails, and holds a commit behind it.
    assert!(!mark(&mut registers, 13, Some(7)));
    assert_eq!(bounds(&registers), Some((100, 7)));
    assert!(registers.has_holds() && !registers.promises_no_commit(Port(1)));
    assert_eq!(registers.commit_floor_except(Port(0)).map(Timestamp::as_ns), Some(7));
    let mut frozen = registers.clone();
    assert_eq!(frozen.freeze(Port(1)).map(Timestamp::as_ns), Some(7));
    assert_eq!((frozen.live_count(), bounds(&frozen)), (1, Some((100, 7))));
    // That failure is resolved.
    assert!(!mark(&mut registers, 13, None));
    assert_eq!((bounds(&registers), registers.has_holds()), (Some((100, 50)), false));
    assert_eq!(registers.idle_since(Mono::from_ns(12)), Some(Port(0)));
    assert_eq!(registers.idle_since(Mono::from_ns(0)), None);
    assert!(registers.remove(Port(1)) && !registers.remove(Port(1)));
    assert_eq!(registers.live_count(), 1);
    assert!(mark(&mut registers, 3, None), "a link that comes back has no old mark");
}

#[test]
fn previous_instance_holds_unfed_link() {
    let mut registers = Registers::new(2);
    registers.update(Mono::from_ns(0), Port(0), promise(900));
    registers.update(Mono::from_ns(0), Port(1), promise(40));
    registers.freeze(Port(1));
    let commit = |registers: &Registers| registers.minimum().map(|minimum| minimum.commit.as_ns());
    let (mark, held) = (Timestamp::from_ns(50), Timestamp::from_ns(12));
    assert!(registers.update_unfed(Mono::from_ns(1), Port(1), mark, Some(held)));
    assert_eq!(commit(&registers), Some(12));
    registers.update_unfed(Mono::from_ns(2), Port(1), mark, None);
    assert_eq!(commit(&registers), Some(20));
    assert!(registers.promises_no_commit(Port(1)), "except for the previous incarnation");
    assert!(registers.remove(Port(1)));
    assert_eq!(commit(&registers), Some(20));
    registers.update_unfed(Mono::from_ns(3), Port(1), mark, None);
    registers.hold(Port(1), None);
    assert_eq!(commit(&registers), Some(450));
}

const LINKS: u16 = 6;

#[derive(Clone, Debug)]
enum Step {
    Update { port: u16, barrier: u64, commit: u64 },
    Unfed { port: u16, mark: u64, held: Option<u64> },
    Remove { port: u16 },
    Expire { idle_ns: u64 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let port = 0..LINKS + 1;
    // A small range, so that links are often equal.
    let update = (port.clone(), 1u64..40, 1u64..40)
        .prop_map(|(port, barrier, commit)| Step::Update { port, barrier, commit });
    let unfed = (port.clone(), 1u64..40, prop::option::of(1u64..40))
        .prop_map(|(port, mark, held)| Step::Unfed { port, mark, held });
    prop_oneof![
        16 => update,
        4 => unfed,
        1 => port.prop_map(|port| Step::Remove { port }),
        1 => (0u64..20).prop_map(|idle_ns| Step::Expire { idle_ns }),
    ]
}

/// A live link of the model.
#[derive(Clone, Copy)]
struct Known {
    last_seen: Mono,
    is_fed: bool,
    /// The highest barrier promised, or mark.
    highest: u64,
    commit: Option<u64>,
}

const NEW: Known = Known { last_seen: Mono::from_ns(0), is_fed: false, highest: 0, commit: None };

proptest! {
    /// Compares with a model that caches nothing and searches all links each time.
    #[test]
    fn cached_minima_match_model(steps in prop::collection::vec(any_step(), 1..300)) {
        let mut registers = Registers::new(LINKS);
        let mut model = [None::<Known>; LINKS as usize];
        for (clock, step) in steps.into_iter().enumerate() {
            let now = Mono::from_ns(clock as u64);
            match step {
                Step::Update { port, barrier, commit } => {
                    let (highest, promised) = (barrier, Timestamp::from_ns(barrier));
                    let promises =
                        Promises { barrier: promised, commit: Timestamp::from_ns(commit) };
                    let is_new = registers.update(now, Port(port), promises);
                    let Some(slot) = model.get_mut(usize::from(port)) else {
                        prop_assert!(!is_new);
                        continue;
                    };
                    prop_assert_eq!(is_new, slot.is_none());
                    let known = slot.get_or_insert(Known { last_seen: now, ..NEW });
                    known.last_seen = now;
                    if known.is_fed || highest >= known.highest {
                        known.is_fed = true;
                        known.highest = known.highest.max(highest);
                        known.commit = known.commit.max(Some(commit));
                    }
                }
                Step::Unfed { port, mark, held } => {
                    let (ts, held_ts) = (Timestamp::from_ns(mark), held.map(Timestamp::from_ns));
                    let is_new = registers.update_unfed(now, Port(port), ts, held_ts);
                    let Some(slot) = model.get_mut(usize::from(port)) else {
                        prop_assert!(!is_new);
                        continue;
                    };
                    prop_assert_eq!(is_new, slot.is_none());
                    let known = slot.get_or_insert(Known { last_seen: now, ..NEW });
                    known.last_seen = now;
                    if mark > known.highest || (mark == known.highest && !known.is_fed) {
                        (known.is_fed, known.highest) = (false, mark);
                        known.commit = held.and(known.commit.max(held));
                    }
                }
                Step::Remove { port } => {
                    let slot = model.get_mut(usize::from(port)).and_then(Option::take);
                    prop_assert_eq!(registers.remove(Port(port)), slot.is_some());
                }
                Step::Expire { idle_ns } => {
                    let deadline = Mono::from_ns(now.as_ns().saturating_sub(idle_ns));
                    let mut lost = Vec::new();
                    registers.expire(deadline, |port| lost.push(port.index()));
                    let mut late = Vec::new();
                    for (at, slot) in model.iter_mut().enumerate() {
                        if slot.take_if(|known| known.last_seen < deadline).is_some() {
                            late.push(at);
                        }
                    }
                    prop_assert_eq!(lost, late);
                }
            }
            let low = |skip: usize| {
                let others = model.iter().enumerate().filter(|(at, _)| *at != skip);
                let others: Vec<Known> = others.filter_map(|(_, slot)| *slot).collect();
                let fed = others.iter().filter(|known| known.is_fed);
                let barrier = fed.map(|known| known.highest).min()?;
                let commit = others.iter().filter_map(|known| known.commit).min()?;
                let (barrier, commit) = (Timestamp::from_ns(barrier), Timestamp::from_ns(commit));
                Some(Promises { barrier, commit })
            };
            let live = || model.iter().flatten();
            prop_assert_eq!(registers.minimum(), low(usize::MAX));
            prop_assert_eq!(registers.live_count() as usize, live().count());
            prop_assert_eq!(registers.oldest_update(), live().map(|known| known.last_seen).min());
            let floor = live().filter_map(|known| known.commit).min().map(Timestamp::from_ns);
            prop_assert_eq!(registers.commit_floor(), floor);
            let is_held = |known: &Known| !known.is_fed && known.commit.is_some();
            prop_assert_eq!(registers.has_holds(), live().any(is_held));
            for (at, slot) in model.iter().enumerate() {
                let port = Port(at as u16);
                prop_assert_eq!(registers.minimum_except(port), low(at));
                let fed = slot.filter(|known| known.is_fed);
                prop_assert_eq!(registers.get(port).is_some(), fed.is_some());
                prop_assert_eq!(registers.is_live(port), slot.is_some());
                let promises_no_commit = slot.is_some_and(|known| known.commit.is_none());
                prop_assert_eq!(registers.promises_no_commit(port), promises_no_commit);
            }
        }
    }
}
