//! Anything at once: payloads of all sizes between anybody, by both services, while links lose,
//! clocks differ, memory is short and somebody dies.

mod court;

use onepipe_endpoint::Service;
use onepipe_sim_large::{Probes, Scattering, Setup, World};
use onepipe_topology::Shape;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

const PROCESSES: u32 = 5;
/// Everybody knows the controller by then, in ns.
const CALM_NS: u64 = 400_000;
/// Everything is submitted within so many ns from then on, and somebody dies, too.
const BUSY_NS: u64 = 200_000;
/// What is large, in bytes.
const LARGE_BYTES: usize = 4 << 10;
/// Bulk groups take that long to find out who is dead, in ns.
const DEAD_AFTER_NS: u64 = 2_000_000;
/// Whoever opens a connection to the dead asks eight times, each time waiting twice as long: 51 ms.
const RUN_NS: u64 = 60_000_000;

fn service() -> impl Strategy<Value = Service> {
    prop_oneof![3 => Just(Service::Reliable), 1 => Just(Service::BestEffort)]
}

/// Small, at the edges of what is large and of a frame, and several blocks.
fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        8usize..200,
        LARGE_BYTES - 2..LARGE_BYTES + 3,
        1_400usize..1_500,
        LARGE_BYTES..60_000,
    ]
}

fn scattering() -> impl Strategy<Value = Scattering> {
    let receivers = btree_set(0..PROCESSES, 1..=PROCESSES as usize);
    let split = (receivers, any::<u8>());
    (0..BUSY_NS, 0..PROCESSES, split, bytes(), service()).prop_map(
        |(at_ns, from, (receivers, split), bytes, service)| {
            // Some have the payload, and others a small message of the same scattering.
            let keeps = |to: &u32| split >> to & 1 == 0;
            let (mut to, mut small_to): (Vec<u32>, Vec<u32>) =
                receivers.into_iter().partition(keeps);
            if to.is_empty() {
                std::mem::swap(&mut to, &mut small_to);
            }
            Scattering { small_to, service, ..Scattering::new(CALM_NS + at_ns, from, to, bytes) }
        },
    )
}

fn setup() -> impl Strategy<Value = Setup> {
    let death = prop_oneof![
        1 => Just(None),
        1 => (0..PROCESSES, 0..BUSY_NS, 0u32..200).prop_map(Some),
    ];
    let loss = prop_oneof![2 => Just(0u32), 1 => 0u32..20_000];
    let room = prop_oneof![2 => Just(1u64 << 30), 1 => 60_000u64..150_000];
    (vec(scattering(), 1..12), death, loss, room, 0u64..2_000, any::<u64>(), any::<bool>())
        .prop_map(|(scatterings, death, loss_ppm, room, clock_ns, seed, has_probes)| {
            let probes = has_probes.then_some(Probes {
                every_ns: 5_000,
                from_ns: CALM_NS,
                until_ns: CALM_NS + BUSY_NS,
                service: Service::Reliable,
            });
            let death = death.map(|(who, at_ns, frames)| (who, CALM_NS + at_ns, frames));
            Setup {
                scatterings,
                probes,
                deaths_after: death.into_iter().collect(),
                loss_ppm,
                received_bytes_max: room,
                clock_ns,
                seed,
                large_bytes: LARGE_BYTES,
                dead_after_ns: DEAD_AFTER_NS,
                ..Setup::new(Shape::leaf_spine(2, 1, 3).expect("there is one"), PROCESSES)
            }
        })
}

fn judged(setup: &Setup) -> Result<(), TestCaseError> {
    let story = World::new(setup.clone()).run(RUN_NS);
    match court::judge(setup, &story) {
        None => Ok(()),
        Some(wrong) => Err(TestCaseError::fail(format!("{wrong}\n{:?}", story.failed))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        rng_seed: proptest::test_runner::RngSeed::Fixed(34),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_is_sent_has_one_order_and_one_fate(setup in setup()) {
        judged(&setup)?;
    }
}
