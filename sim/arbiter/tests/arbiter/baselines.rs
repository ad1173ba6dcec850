//! TCP on the rack without an arbiter.

use onepipe_sim_arbiter::{Flow, Ping, Plan, Setup, SimEnv, measure};
use onepipe_sim_traffic::{CongestionControl, Incast};

/// Four senders with 20 flows each to host 0, and a fifth host that pings it (Fastpass section
/// 7.1).
fn bulk(congestion_control: CongestionControl) -> Setup {
    let flows = (1..=4).flat_map(|from| [Flow::endless(from, 0); 20]).collect();
    let pings = vec![Ping { from: 5, to: 0, every_ns: 250_000 }];
    Setup { congestion_control, flows, pings, ..Setup::rack() }
}

const PLAN: Plan = Plan { measure_ns: 100_000_000, ..Plan::of(0) };

#[test]
fn reno_fills_the_queue_and_delays_pings() {
    let measured = measure(&bulk(CongestionControl::Reno), &PLAN);
    assert!(measured.goodput_bits_per_s() > 9.3e9, "{:e}", measured.goodput_bits_per_s());
    let queue = measured.queue_bytes(0.5);
    assert!((3_000_000..5_240_000).contains(&queue), "{queue}");
    // The queue at 10 Gbit/s, and the round trip.
    let wait_ns = queue * 8 / 10;
    let ping_ns = measured.ping_ns(0.5);
    assert!(ping_ns.abs_diff(wait_ns) < wait_ns / 20, "{ping_ns} of {wait_ns}");
    assert!(measured.pings() > 350, "{}", measured.pings());
    assert!(measured.overflowed > 0 && measured.segments_lost > 0);
}

#[test]
fn dctcp_keeps_the_queue_short_at_full_throughput() {
    let measured = measure(&bulk(CongestionControl::Dctcp), &PLAN);
    assert!(measured.goodput_bits_per_s() > 9.3e9, "{:e}", measured.goodput_bits_per_s());
    let queue = measured.queue_bytes(0.5);
    // 80 flows with at least two segments each exceed the marking threshold.
    assert!((97_500..400_000).contains(&queue), "{queue}");
    assert_eq!(measured.segments_lost, 0);
}

#[test]
fn incast_loses_segments_and_retransmits_them() {
    let incast = Incast { to: 0, senders: 20, bytes: 1 << 20, every_ns: 25_000_000, rounds: 8 };
    let flows = incast.specs(32).into_iter().map(|spec| Flow { spec, closes_ns: None });
    let setup = Setup { flows: flows.collect(), ..Setup::rack() };
    let plan = Plan { warm_up_ns: 0, measure_ns: 250_000_000, ..Plan::of(0) };
    let measured = measure(&setup, &plan);
    assert_eq!(measured.flows_done(), 160);
    assert!(measured.segments_lost > 100, "{}", measured.segments_lost);
    assert_eq!(measured.overflowed, measured.segments_lost, "what is lost is sent again");
}

#[test]
fn equal_setups_have_equal_trace_hashes() {
    let hash = |seed| {
        let mut env = SimEnv::new(&Setup { seed, ..bulk(CongestionControl::Reno) });
        env.run_for_ns(3_000_000);
        env.trace_hash()
    };
    assert_eq!(hash(1), hash(1));
}
