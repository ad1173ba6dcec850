//! Random runs: payloads of all sizes between any processes, by both services, with frame loss,
//! skewed clocks, scarce memory and a crash.

use crate::verify;

use onepipe_endpoint::Service;
use onepipe_sim_large::{Probes, Scattering, Setup, SimEnv};
use onepipe_topology::Shape;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

const PROCESSES: u32 = 5;
/// All nodes know the controller by then, in ns.
const READY_NS: u64 = 400_000;
/// Submissions, and the crash, happen within this time, in ns.
const BUSY_NS: u64 = 200_000;
/// Payloads longer than this are large.
const LARGE_BYTES: usize = 4 << 10;
/// Bulk groups detect a failure after this time, in ns.
const DEAD_AFTER_NS: u64 = 2_000_000;
/// Opening a connection to a crashed process takes eight attempts with doubled timeouts: 51 ms.
const RUN_NS: u64 = 60_000_000;

fn service() -> impl Strategy<Value = Service> {
    prop_oneof![3 => Just(Service::Reliable), 1 => Just(Service::BestEffort)]
}

/// Small, around the limits of large payloads and of frames, and several blocks.
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
            // Some receive the payload, others a small message of the same scattering.
            let gets_payload = |to: &u32| split >> to & 1 == 0;
            let (mut to, mut small_to): (Vec<u32>, Vec<u32>) =
                receivers.into_iter().partition(gets_payload);
            if to.is_empty() {
                std::mem::swap(&mut to, &mut small_to);
            }
            Scattering { small_to, service, ..Scattering::new(READY_NS + at_ns, from, to, bytes) }
        },
    )
}

fn setup() -> impl Strategy<Value = Setup> {
    let crash = prop_oneof![
        1 => Just(None),
        1 => (0..PROCESSES, 0..BUSY_NS, 0u32..200).prop_map(Some),
    ];
    let loss = prop_oneof![2 => Just(0u32), 1 => 0u32..20_000];
    let memory = prop_oneof![2 => Just(1u64 << 30), 1 => 60_000u64..150_000];
    (vec(scattering(), 1..12), crash, loss, memory, 0u64..2_000, any::<u64>(), any::<bool>())
        .prop_map(|(scatterings, crash, loss_ppm, memory, clock_ns, seed, has_probes)| {
            let probes = has_probes.then_some(Probes {
                every_ns: 5_000,
                from_ns: READY_NS,
                until_ns: READY_NS + BUSY_NS,
                service: Service::Reliable,
            });
            let crash = crash.map(|(who, at_ns, frames)| (who, READY_NS + at_ns, frames));
            Setup {
                scatterings,
                probes,
                crashes_after: crash.into_iter().collect(),
                loss_ppm,
                received_bytes_max: memory,
                clock_ns,
                seed,
                large_threshold_bytes: LARGE_BYTES,
                dead_after_ns: DEAD_AFTER_NS,
                ..Setup::new(Shape::leaf_spine(2, 1, 3).expect("there is one"), PROCESSES)
            }
        })
}

fn run_verified(setup: &Setup) -> Result<(), TestCaseError> {
    let report = SimEnv::new(setup.clone()).run(RUN_NS);
    match verify::verify(setup, &report) {
        None => Ok(()),
        Some(wrong) => Err(TestCaseError::fail(format!("{wrong}\n{:?}", report.failed))),
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
    fn random_runs_are_ordered_and_atomic(setup in setup()) {
        run_verified(&setup)?;
    }
}
