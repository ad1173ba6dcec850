//! Prints the composition of control traffic on the rack of 32: `cargo run --release -p
//! onepipe-sim-arbiter --example control`.

use onepipe_sim_arbiter::{ControlTraffic, OfferedLoad, Ping, Plan, Setup, measure};

/// Number of destinations per endpoint.
const PEERS: [u32; 2] = [u32::MAX, 4];
const LOADS: [u32; 4] = [100, 500, 900, 990];
/// Counts are per endpoint and this number of timeslots.
const SLOTS: f64 = 64.0;

#[expect(clippy::print_stdout, reason = "a program that prints a table")]
fn main() {
    println!(
        "peers load | packets acks resets totals slots headers fronts parts | the same of the \
         arbiter | % of traffic: asked given | a frame waits, slots | ping ms p50 p99"
    );
    for peers in PEERS {
        for load in LOADS {
            let offer = Some(OfferedLoad { peers, ..OfferedLoad::to_all(load) });
            let pings = vec![Ping { from: 5, to: 0, every_ns: 250_000 }];
            let setup = Setup { offer, pings, ..Setup::rack() }.scheduled();
            let plan = Plan {
                warm_up_ns: 2_000_000,
                measure_ns: 50_000_000,
                interval_ns: 1_000_000,
                ..Plan::of(0)
            };
            let measured = measure(&setup, &plan);
            let overhead = setup.host_link.overhead_bytes;
            let endpoints = f64::from(setup.arbitration.expect("the setup is scheduled").endpoints);
            let all = plan.measure_ns as f64 / setup.slot_ns() as f64 * endpoints / SLOTS;
            let direction = |direction: &ControlTraffic| {
                let (headers, fronts) = direction.front_len();
                let headers = headers + direction.packets * overhead;
                let counts = [
                    direction.packets,
                    direction.acks,
                    direction.resets,
                    direction.totals,
                    direction.slots,
                ];
                let bytes = [headers, fronts, direction.part_len];
                let each = counts.iter().chain(&bytes).map(|count| *count as f64 / all);
                each.map(|each| format!("{each:.2}")).collect::<Vec<_>>().join(" ")
            };
            let sent = measured.slots_sent * setup.full_len();
            let percent = |direction: &ControlTraffic| {
                100.0 * (direction.bytes + direction.packets * overhead) as f64 / sent as f64
            };
            let (requests, grants) = (&measured.control.requests, &measured.control.grants);
            let counted =
                requests.bytes + grants.bytes + (requests.packets + grants.packets) * overhead;
            let ping = |part| measured.ping_ns(part) as f64 / 1e6;
            println!(
                "{peers} {:.2} | {} | {} | {:.3} {:.3} {:.3} ({counted} {}) | {:.1} | {:.3} {:.3}",
                f64::from(load) / 1e3,
                direction(requests),
                direction(grants),
                percent(requests),
                percent(grants),
                percent(requests) + percent(grants),
                measured.control_bytes,
                measured.wait_slots(setup.slot_ns()),
                ping(0.5),
                ping(0.99),
            );
        }
    }
}
