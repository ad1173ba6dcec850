//! Allocation: every timeslot is a matching, every batch is maximal, and no demand is lost.

use std::collections::BTreeMap;

use onepipe_timeslots::{Allocator, Batch, Capacity, Config, Policy, RequestError, Timeslot};
use proptest::prelude::*;

type Wants = BTreeMap<(u32, u32), u64>;

/// The demand of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Want {
    /// Unmet demand of the active flow.
    own: u64,
    /// Demand queued since the flow became active.
    more: u64,
    /// The batch that drained the flow.
    dry_in: Option<u64>,
}

/// An allocator and a reference model of its demand.
struct Model {
    allocator: Allocator,
    wants: BTreeMap<(u32, u32), Want>,
    batches: u64,
}

impl Model {
    fn new(config: Config) -> Self {
        let allocator = Allocator::new(config).expect("the settings are right");
        Self { allocator, wants: BTreeMap::new(), batches: 0 }
    }

    fn request(&mut self, src: u32, dst: u32, slots: u32) {
        let refused = match self.allocator.request(src, dst, slots) {
            Ok(()) => 0,
            Err(RequestError::TooMuch { refused }) => refused,
            Err(_) => return,
        };
        if slots > refused {
            let slots = u64::from(slots - refused);
            self.wants
                .entry((src, dst))
                .and_modify(|want| want.more += slots)
                .or_insert(Want { own: slots, ..Want::default() });
        }
    }

    fn wanted(&self) -> u64 {
        self.wants.values().map(|want| want.own + want.more).sum()
    }

    /// Renews flows that were drained the configured number of batches ago.
    fn close(&mut self) {
        let now = self.batches;
        self.batches += 1;
        let returns = u64::from(self.allocator.config().renew_after_batches);
        self.wants.retain(|_, want| {
            if returns == 0 {
                *want = Want { own: want.own + want.more, ..Want::default() };
            }
            if want.dry_in.is_some_and(|batch| batch + returns == now) {
                *want = Want { own: want.more, ..Want::default() };
            }
            want.own > 0 || want.dry_in.is_some()
        });
    }

    /// Allocates a batch and checks its invariants. Returns what was granted to each pair.
    fn batch(&mut self) -> Wants {
        let number = self.batches;
        self.close();
        let known: Vec<_> = self.wants.iter().filter(|(_, want)| want.own > 0).collect();
        let known: Vec<_> = known.into_iter().map(|(pair, _)| *pair).collect();
        let start = self.allocator.next();
        let batch = self.allocator.next_batch();
        assert_eq!(batch.start(), start);
        let [sources, destinations] = check_matching(batch);
        let mut granted = Wants::new();
        for grant in batch.grants() {
            let pair = (u32::from(grant.src), u32::from(grant.dst));
            let slots = u64::from(grant.slots.count_ones());
            assert!(slots > 0, "a grant of nothing");
            *granted.entry(pair).or_default() += slots;
            let want = self.wants.get_mut(&pair).expect("granted without demand");
            want.own = want.own.checked_sub(slots).expect("granted more than demanded");
            want.dry_in = (want.own == 0).then_some(number);
        }
        let all = u64::MAX >> (64 - batch.slots());
        for (src, dst) in known {
            let taken = sources.get(&src).unwrap_or(&0) | destinations.get(&dst).unwrap_or(&0);
            let is_done = self.wants[&(src, dst)].own == 0;
            assert!(is_done || taken == all, "{src} and {dst} are both idle in {:b}", all & !taken);
        }
        assert_eq!(self.allocator.wanted(), self.wanted());
        let pairs = self.wants.values().filter(|want| want.own > 0).count();
        assert_eq!(self.allocator.pairs() as usize, pairs);
        granted
    }
}

/// Checks that each endpoint sends and receives at most once per timeslot. Returns when each does.
fn check_matching(batch: &Batch) -> [BTreeMap<u32, u64>; 2] {
    let mut taken = [BTreeMap::new(), BTreeMap::new()];
    for grant in batch.grants() {
        for (side, node) in [grant.src, grant.dst].into_iter().enumerate() {
            let slots = taken[side].entry(u32::from(node)).or_insert(0);
            assert_eq!(*slots & grant.slots, 0, "endpoint {node} twice in a timeslot");
            *slots |= grant.slots;
        }
    }
    taken
}

fn config() -> impl Strategy<Value = Config> {
    (2u32..24, 1u32..=64, any::<bool>(), 1u32..=64, 0u32..5).prop_map(
        |(nodes, batch_slots, is_fair, share_slots, renew_after_batches)| {
            let policy = if is_fair { Policy::MaxMinFair } else { Policy::ShortestFirst };
            Config { batch_slots, policy, share_slots, renew_after_batches, ..Config::new(nodes) }
        },
    )
}

/// Rounds of requests: source, destination, timeslots.
fn rounds() -> impl Strategy<Value = Vec<Vec<(u32, u32, u32)>>> {
    let length = prop_oneof![8 => 1u32..20, 1 => 20u32..400, 1 => 60_000u32..140_000];
    let request = (0u32..24, 0u32..24, length);
    prop::collection::vec(prop::collection::vec(request, 0..40), 1..12)
}

proptest! {
    //= spec/arbiter.md#R7
    //= spec/arbiter.md#R8
    //= spec/arbiter.md#R9
    #[test]
    fn grants_are_matchings_and_equal_demand(
        config in config(),
        rounds in rounds(),
    ) {
        let mut model = Model::new(config);
        for requests in rounds {
            for (src, dst, slots) in requests {
                model.request(src, dst, slots);
            }
            model.batch();
        }
        // Without new requests twice the demand of the busiest endpoint suffices.
        let mut busiest = BTreeMap::<(bool, u32), u64>::new();
        for (&(src, dst), want) in &model.wants {
            *busiest.entry((true, src)).or_default() += want.own + want.more;
            *busiest.entry((false, dst)).or_default() += want.own + want.more;
        }
        let most = busiest.values().max().copied().unwrap_or(0);
        // Drained flows with queued demand wait once more.
        let batches = (2 * most).div_ceil(u64::from(config.batch_slots)) + 1;
        for _ in 0..2 * batches + u64::from(config.renew_after_batches) {
            model.batch();
        }
        prop_assert_eq!(
            (model.wanted(), model.allocator.pairs()),
            (0, 0),
            "{:?}",
            model.wants
        );
        prop_assert_eq!(model.allocator.next_batch().granted(), 0);
    }

    #[test]
    fn equal_requests_get_equal_grants(config in config(), rounds in rounds()) {
        let mut models = [Model::new(config), Model::new(config)];
        for requests in rounds {
            let granted = models.each_mut().map(|model| {
                for &(src, dst, slots) in &requests {
                    model.request(src, dst, slots);
                }
                model.batch()
            });
            prop_assert_eq!(&granted[0], &granted[1]);
        }
        prop_assert_eq!(&models[0].allocator, &models[1].allocator);
    }

    //= spec/arbiter.md#R12
    #[test]
    fn rack_capacity_is_never_exceeded(
        requests in prop::collection::vec((0u32..24, 0u32..24, 1u32..200), 1..200),
        rack_nodes in 1u32..9,
        packets_max in 1u8..5,
    ) {
        let mut allocator = Allocator::new(Config::new(24)).expect("the settings are right");
        let capacity = Capacity::of_racks(24, rack_nodes, packets_max);
        allocator.limit(capacity).expect("the numbers of endpoints match");
        let mut wanted = 0;
        for (src, dst, slots) in requests {
            wanted += if allocator.request(src, dst, slots).is_ok() { u64::from(slots) } else { 0 };
        }
        let mut granted = 0;
        while allocator.wanted() > 0 {
            let batch = allocator.next_batch();
            check_matching(batch);
            prop_assert!(batch.granted() > 0, "no progress");
            granted += u64::from(batch.granted());
            let mut packets = BTreeMap::<(bool, u32, u32), u8>::new();
            for grant in batch.grants() {
                let racks = [grant.src, grant.dst].map(|node| u32::from(node) / rack_nodes);
                for slot in (0..64).filter(|slot| grant.slots >> slot & 1 == 1) {
                    if racks[0] != racks[1] {
                        *packets.entry((true, racks[0], slot)).or_default() += 1;
                        *packets.entry((false, racks[1], slot)).or_default() += 1;
                    }
                }
            }
            prop_assert!(packets.values().all(|packets| *packets <= packets_max));
        }
        prop_assert_eq!(granted, wanted);
    }

    //= spec/arbiter.md#R15
    #[test]
    fn restarted_endpoint_has_no_demand(config in config(), rounds in rounds()) {
        let mut model = Model::new(config);
        for (round, requests) in rounds.into_iter().enumerate() {
            for (src, dst, slots) in requests {
                model.request(src, dst, slots);
            }
            let reset = round as u32 % config.nodes;
            model.allocator.forget(reset);
            model.wants.retain(|(src, _), _| *src != reset);
            // The restarted endpoint waits for nothing of before.
            model.request(reset, (reset + 1) % config.nodes, 3);
            model.batch();
        }
    }
}

/// Returns the order of service of senders that always want the same receiver.
fn saturate(config: Config, senders: u32, batches: u32) -> Vec<Vec<u32>> {
    let mut allocator = Allocator::new(config).expect("the settings are right");
    let mut order = Vec::new();
    for _ in 0..batches {
        for src in 1..=senders {
            // Always more than a batch can grant.
            let _ = allocator.request(src, 0, 100);
        }
        let batch = allocator.next_batch();
        for slot in 0..batch.slots() {
            let mut slots = batch.grants().iter().filter(|grant| grant.slots >> slot & 1 == 1);
            order
                .push(slots.next().map(|grant| u32::from(grant.src)).expect("all slots are given"));
        }
    }
    order.chunks(senders as usize).map(<[u32]>::to_vec).collect()
}

//= spec/arbiter.md#R10
#[test]
fn saturated_senders_alternate_per_timeslot() {
    for senders in [2, 3, 7, 13] {
        let config = Config { share_slots: 1, ..Config::new(16) };
        for mut order in saturate(config, senders, 20) {
            let wanted: Vec<u32> = (1..=senders).take(order.len()).collect();
            order.sort_unstable();
            order.dedup();
            assert_eq!(order.len(), wanted.len(), "{senders} senders alternate");
        }
    }
}

/// Returns the timeslots granted to each of `pairs` in the second half of the batches, if all of
/// them always want more, and the longest run of batches without a grant for each.
fn compete(config: Config, pairs: &[(u32, u32)], batches: u32) -> (Vec<u32>, Vec<u32>) {
    let mut allocator = Allocator::new(config).expect("the settings are right");
    let [mut granted, mut waits, mut longest] = [(); 3].map(|()| vec![0; pairs.len()]);
    for number in 0..batches {
        for &(src, dst) in pairs {
            // The demand exceeds a batch unless all requests are rejected.
            let _ = allocator.request(src, dst, 40);
        }
        let batch = allocator.next_batch();
        for (index, &(src, dst)) in pairs.iter().enumerate() {
            let grants = batch.grants().iter();
            let own = grants.filter(|grant| (grant.src.into(), grant.dst.into()) == (src, dst));
            let slots: u32 = own.map(|grant| grant.slots.count_ones()).sum();
            granted[index] += if number < batches / 2 { 0 } else { slots };
            waits[index] = if slots > 0 { 0 } else { waits[index] + 1 };
            longest[index] = waits[index].max(longest[index]);
        }
    }
    (granted, longest)
}

//= spec/arbiter.md#R10
#[test]
fn yielding_flows_do_not_starve() {
    // Of six endpoints three send to the last one, and one of these also to two others. Its flow to
    // the last one always finds both ends busy, while each other flow has an end that is free every
    // other batch: it would starve if it always yielded. Many copies of this, and some hundred
    // flows to one receiver, so that most flows are blocked and filtered first.
    let kinds = [(0, 5), (2, 3), (1, 5), (2, 4), (2, 5)];
    let copies = |(src, dst): (u32, u32)| (0..60).map(move |copy| (6 * copy + src, 6 * copy + dst));
    let hot_pairs = (361..600).map(|src| (src, 360));
    let pairs: Vec<_> = hot_pairs.clone().chain(kinds.into_iter().flat_map(copies)).collect();
    for renew_after_batches in [0, 1, 3] {
        let own =
            Config { batch_slots: 16, share_slots: 16, renew_after_batches, ..Config::new(600) };
        let (mut granted, mut longest) = compete(own, &pairs, 600);
        granted.drain(..hot_pairs.len());
        longest.drain(..hot_pairs.len());
        assert!(
            longest.iter().all(|wait| *wait <= 64 + 4),
            "given nothing for {longest:?} batches"
        );
        // Each flow gets a third of the capacity of its ends.
        for slots in &granted {
            assert!((1_500..=1_700).contains(slots), "{granted:?} of 4800 each end");
        }
    }
}

#[test]
fn long_transfer_does_not_starve_beside_short_ones() {
    let config = Config { policy: Policy::ShortestFirst, ..Config::new(80) };
    let mut allocator = Allocator::new(config).expect("the settings are right");
    allocator.request(79, 0, 1_000).expect("an endpoint");
    let mut granted = 0;
    for _ in 0..200 {
        for src in 1..79 {
            let _ = allocator.request(src, 0, 1);
        }
        let batch = allocator.next_batch();
        let grants = batch.grants().iter().filter(|grant| grant.src == 79);
        granted += grants.map(|grant| grant.slots.count_ones()).sum::<u32>();
    }
    // It gets a whole batch each time that it is urgent.
    assert!(granted >= 5 * 64, "only {granted} of 1000");
    assert!(granted < 1_000, "there was no stream to hold it back");
}

//= spec/arbiter.md#R11
#[test]
fn shortest_transfer_completes_first() {
    let config = Config { policy: Policy::ShortestFirst, ..Config::new(4) };
    let mut allocator = Allocator::new(config).expect("the settings are right");
    for (src, slots) in [(1, 40), (2, 3), (3, 9)] {
        allocator.request(src, 0, slots).expect("endpoints");
    }
    let batch = allocator.next_batch();
    let first: Vec<_> = batch.grants().iter().map(|grant| (grant.src, grant.slots)).collect();
    assert_eq!(first, [(2, 0b111), (3, 0x1ff << 3), (1, ((1 << 40) - 1) << 12)]);
}

/// Every endpoint sends to every other one, and batches are overloaded for a while; an endpoint may
/// be reset before the third batch. Returns the number of pairs served in each batch.
fn run_overloaded(late: u32, batches: u32, reset: Option<u32>) -> Vec<usize> {
    let mut model = Model::new(Config::new(64));
    for (src, turn) in (1..64).flat_map(|turn| (0..64).map(move |src| (src, turn))) {
        model.request(src, (src + turn) % 64, 1);
    }
    let pairs = |batch| {
        if batch < late {
            model.allocator.on_overload();
        }
        if let (2, Some(reset)) = (batch, reset) {
            model.allocator.forget(reset);
            model.wants.retain(|(src, _), _| *src != reset);
        }
        // A batch need not be maximal while flows are held back.
        let granted: BTreeMap<_, u64> = model.allocator.next_batch().grants().iter().fold(
            BTreeMap::new(),
            |mut granted, grant| {
                *granted.entry((grant.src, grant.dst)).or_default() +=
                    u64::from(grant.slots.count_ones());
                granted
            },
        );
        for (pair, slots) in &granted {
            let want =
                model.wants.get_mut(&(pair.0.into(), pair.1.into())).expect("the pair has demand");
            want.own = want.own.checked_sub(*slots).expect("at most the demand");
        }
        assert_eq!(model.allocator.wanted(), model.wanted(), "held-back flows keep their demand");
        let waiting = model.wants.values().filter(|want| want.own > 0).count();
        assert_eq!(model.allocator.pairs() as usize, waiting);
        granted.len()
    };
    (0..batches).map(pairs).collect()
}

//= spec/arbiter.md#R14
#[test]
fn overload_reduces_flows_and_drops_none() {
    let plain = run_overloaded(0, 8, None);
    assert!(plain[0] > 3_000, "nearly all fit: {plain:?}");
    let late = run_overloaded(6, 9, None);
    assert_eq!(late, [512, 512, 512, 512, 512, 512, 512 + 64 / 8, 63 * 64 - 7 * 512 - 8, 0]);
    let left = run_overloaded(6, 9, Some(5));
    assert_eq!(
        (left.iter().sum::<usize>(), left[8]),
        (63 * 64 - 47, 0),
        "all but the reset endpoint"
    );
}

#[test]
fn invalid_requests_are_rejected_without_effect() {
    let config = Config { pairs_max: 2, ..Config::new(3) };
    let mut allocator = Allocator::new(config).expect("the settings are right");
    let before = allocator.clone();
    let unknown_destinations = RequestError::UnknownNode { node: 3, nodes: 3 };
    assert_eq!(allocator.request(0, 3, 1), Err(unknown_destinations));
    assert_eq!(allocator.request(3, 0, 1), Err(unknown_destinations));
    assert_eq!(allocator.request(1, 1, 1), Err(RequestError::ToItself(1)));
    assert_eq!(allocator.request(0, 1, 0), Ok(()), "no demand");
    assert_eq!(allocator, before);
    assert_eq!(allocator.request(0, 1, 100_000), Err(RequestError::TooMuch { refused: 34_466 }));
    assert_eq!(allocator.wanted(), 65_534, "what fits was taken");
    allocator.request(0, 2, 1).expect("the second pair");
    assert_eq!(allocator.request(1, 2, 1), Err(RequestError::Full(2)));
    allocator.request(0, 2, 1).expect("a pair that waits already");
    let other = Capacity::of_racks(4, 2, 1);
    assert!(allocator.limit(other).is_err(), "of more endpoints");
    for (nodes, batch_slots) in [(1, 64), (4097, 64), (4, 0), (4, 65)] {
        assert!(Allocator::new(Config { batch_slots, ..Config::new(nodes) }).is_err());
    }
}

#[test]
fn skip_to_leaves_earlier_timeslots_unused() {
    let mut allocator = Allocator::new(Config::new(2)).expect("the settings are right");
    allocator.skip_to(Timeslot(1_000));
    assert_eq!(allocator.next_batch().start(), Timeslot(1_000));
    allocator.skip_to(Timeslot(7));
    assert_eq!(allocator.next_batch().start(), Timeslot(1_064), "never back");
}
