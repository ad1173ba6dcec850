//! Runs of whole fabrics in virtual time, over every service and fault mix.

use onepipe_bulk::{Algorithm, Delivery, Plain};
use onepipe_endpoint::Service;
use onepipe_sim_network::{Fault, LinkFaults, Loss, NodeId, Placement};
use onepipe_sim_scenarios::Swarm;
use onepipe_topology::Shape;

use crate::Case;
use crate::digest;

/// Number of seeds that draw everything: shapes, clocks, both services, controllers, faults.
const DRAWN: u64 = 300;
/// Number of seeds for each placement of the switches' machines.
const PLACED: u64 = 16;
const AMCAST: u64 = 48;
const ARBITER: u64 = 24;
const LARGE: u64 = 24;

/// 1 ms, in ns.
const MS: u64 = 1_000_000;

/// Returns the cases of every service.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for seed in 0..DRAWN {
        cases.push(Case::new(format!("scattering {seed}"), move || swarm(&Swarm::draw(seed))));
    }
    for placement in Placement::ALL {
        for seed in 1_000..1_000 + PLACED {
            cases.push(Case::new(format!("form {} {seed}", placement.name()), move || {
                swarm(&Swarm::draw_with(seed, placement))
            }));
        }
    }
    for seed in 0..AMCAST {
        cases.push(Case::new(format!("amcast {seed}"), move || amcast(seed)));
    }
    for seed in 0..ARBITER {
        cases.push(Case::new(format!("arbiter {seed}"), move || arbiter(seed)));
    }
    for seed in 0..LARGE {
        cases.push(Case::new(format!("large {seed}"), move || large(seed)));
    }
    cases.extend(bulk());
    cases
}

fn swarm(swarm: &Swarm) -> u64 {
    let report = swarm.run();
    let messages = report.messages;
    digest::of([
        report.trace_hash,
        report.network.hops,
        messages.delivered,
        messages.reliable,
        messages.failures,
        report.violations,
        report.latency.max_ns,
    ])
}

fn amcast(seed: u64) -> u64 {
    let outcome = onepipe_sim_amcast::Swarm::draw(seed).run();
    let numbers = [outcome.trace_hash, outcome.events, outcome.sent, outcome.delivered];
    digest::of(numbers.into_iter().chain([outcome.elections, outcome.busy]))
}

/// A rack with two arbiters, of which one may crash and return, over links that may lose,
/// duplicate, reorder or corrupt frames; every third seed adds TCP flows, every fourth runs on a
/// fabric of four racks.
fn arbiter(seed: u64) -> u64 {
    use onepipe_sim_arbiter::{Arbitration, Flow, OfferedLoad, Setup, SimEnv};
    let offer =
        Some(OfferedLoad { until_ns: 5 * MS, ..OfferedLoad::to_all(300 + 25 * (seed % 8) as u32) });
    let arbitration = Arbitration { arbiters: 2, endpoints: 24, ..Arbitration::of(32) };
    let shape = match seed % 4 {
        3 => Shape::leaf_spine(4, 4, 8).expect("32 hosts fit"),
        _ => Setup::rack().shape,
    };
    let flows = if seed.is_multiple_of(3) {
        (1..=4).map(|from| Flow::endless(from, 0)).collect()
    } else {
        vec![]
    };
    let arbitration = Some(arbitration);
    let mut env = SimEnv::new(&Setup { shape, offer, arbitration, flows, seed, ..Setup::rack() });
    let mut faults = LinkFaults::default();
    match seed % 5 {
        1 => faults.loss = Loss::uniform(20_000),
        2 => {
            (faults.duplicate_ppm, faults.reorder_ppm, faults.delay_ns_max) =
                (200_000, 100_000, 50_000)
        }
        3 => faults.corrupt_ppm = 50_000,
        _ => {}
    }
    for link in env.links() {
        env.schedule(MS, Fault::SetLinkFaults(link, faults));
        env.schedule(4 * MS, Fault::SetLinkFaults(link, LinkFaults::default()));
    }
    if seed.is_multiple_of(2) {
        env.schedule(2 * MS + seed * 37_000, Fault::Crash(NodeId(31)));
        env.schedule(4 * MS, Fault::Restart(NodeId(31)));
    }
    env.run_for_ns(8 * MS);
    let (waiting, sent, received) = env.raw_frames();
    digest::of([env.trace_hash(), env.slots_sent(), waiting, sent, received])
}

/// Payloads of any size by both services, with lossy links and a process that crashes.
fn large(seed: u64) -> u64 {
    use onepipe_sim_large::{Scattering, Setup, SimEnv};
    const PROCESSES: u32 = 5;
    let mut random = onepipe_sim_engine::Random::named(seed, "large", 0);
    let mut scatterings = Vec::new();
    for _ in 0..random.between(2, 8) {
        let from = random.below(PROCESSES.into()) as u32;
        let to = (0..PROCESSES).filter(|to| *to != from && random.below(3) > 0).collect::<Vec<_>>();
        let bytes = if random.below(3) == 0 { 100 } else { random.between(4_000, 60_000) };
        let at_ns = 400_000 + random.below(200_000);
        let service = if random.below(4) == 0 { Service::BestEffort } else { Service::Reliable };
        if !to.is_empty() {
            scatterings
                .push(Scattering { service, ..Scattering::new(at_ns, from, to, bytes as usize) });
        }
    }
    // The process, a time in ns, and the number of frames that it sends after that time.
    let crash = (random.below(PROCESSES.into()) as u32, 400_000, random.below(150) as u32);
    let setup = Setup {
        scatterings,
        crashes_after: if seed.is_multiple_of(2) { vec![crash] } else { vec![] },
        loss_ppm: if seed.is_multiple_of(3) { 10_000 } else { 0 },
        large_threshold_bytes: 4 << 10,
        seed,
        ..Setup::new(Shape::leaf_spine(2, 1, 3).expect("6 hosts fit"), PROCESSES)
    };
    let outcome = SimEnv::new(setup).run(40 * MS);
    let delivered = outcome.delivered.iter().flatten();
    let numbers = delivered.flat_map(|seen| [seen.timestamp, seen.from.into(), seen.at_ns]);
    digest::of([outcome.trace_hash].into_iter().chain(numbers))
}

/// Every algorithm on the testbed and on a narrow core, and members that crash.
fn bulk() -> Vec<Case> {
    use onepipe_sim_bulk::Setup;
    let mut cases = Vec::new();
    let plain = [
        ("sequential", Plain::Sequential),
        ("chain", Plain::Chain),
        ("tree", Plain::Tree),
        ("pipeline", Plain::Pipeline),
    ];
    let run = |name: String, setup: Setup, crash: Option<(usize, u64)>| {
        Case::new(name, move || {
            let mut env = onepipe_sim_bulk::SimEnv::new(&setup);
            if let Some((rank, at_ns)) = crash {
                env.crash(rank, at_ns);
            }
            let outcome = env.run(1_000 * MS);
            digest::of([outcome.trace_hash, outcome.last_ns().unwrap_or(u64::MAX)])
        })
    };
    for (name, algorithm) in plain {
        for members in [2, 5, 8, 16] {
            let algorithm = Algorithm::Plain(algorithm);
            let objects = vec![1 << 20, 1, 300_000];
            let setup = Setup { algorithm, objects, ..Setup::new(Shape::testbed(), members) };
            cases.push(run(format!("bulk {name} members={members}"), setup, None));
        }
    }
    for (rank, delivery) in [(0, Delivery::AtOnce), (3, Delivery::AtOnce), (0, Delivery::AllOrNone)]
    {
        for at_ns in [2_000, 15_000, 40_000, 90_000] {
            let objects = vec![1 << 19, 1 << 18];
            let setup = Setup { objects, delivery, ..Setup::new(Shape::testbed(), 8) };
            let is_all_or_none = u8::from(delivery == Delivery::AllOrNone);
            let name = format!("bulk crash rank={rank} at={at_ns} all={is_all_or_none}");
            cases.push(run(name, setup, Some((rank, at_ns))));
        }
    }
    let shape = Shape::leaf_spine(4, 1, 8).expect("32 hosts fit");
    for (name, across, inside) in [
        ("chain-tree", Plain::Chain, Plain::Tree),
        ("pipeline-pipeline", Plain::Pipeline, Plain::Pipeline),
    ] {
        let algorithm = Algorithm::Racks { across, inside, sizes: vec![8; 4] };
        let setup = Setup { algorithm, objects: vec![2 << 20], ..Setup::new(shape, 32) };
        cases.push(run(format!("bulk racks {name}"), setup, None));
    }
    cases
}
