//! The same traffic with an arbiter: empty queues and equal shares.

use onepipe_sim_arbiter::{Arbitration, Flow, OfferedLoad, Ping, Plan, Setup, SimEnv, measure};
use onepipe_sim_network::ClockConfig;
use onepipe_topology::Shape;

/// Bytes of a full frame with link overhead.
const FULL: u64 = 1_538;

#[test]
fn bulk_keeps_queue_empty_link_full_and_pings_fast() {
    let flows = (1..=4).flat_map(|from| [Flow::endless(from, 0); 20]).collect();
    let pings = vec![Ping { from: 5, to: 0, every_ns: 250_000 }];
    let setup = Setup { flows, pings, ..Setup::rack() }.scheduled();
    let plan = Plan { warm_up_ns: 20_000_000, measure_ns: 50_000_000, ..Plan::of(0) };
    let measured = measure(&setup, &plan);
    assert!(measured.queue_bytes(0.999) < 2 * FULL, "{}", measured.queue_bytes(0.999));
    assert!(measured.peak.bytes < 2 * FULL, "{:?}", measured.peak);
    let line = measured.goodput_bits_per_s() * FULL as f64 / f64::from(setup.segment_len());
    assert!(line > 0.98e10, "{line:e} bit/s of full frames");
    assert!(measured.pings() > 190 && measured.ping_ns(0.99) < 300_000, "{measured:?}");
    assert_eq!((measured.segments_lost, measured.overflowed), (0, 0));
}

#[test]
fn senders_to_one_receiver_share_timeslots_equally() {
    for senders in [2u32, 3, 5, 8] {
        let flows = (1..=senders).map(|from| Flow::endless(from, 0)).collect();
        let setup = Setup { flows, checks_grants: true, ..Setup::rack() }.scheduled();
        let mut env = SimEnv::new(&setup);
        env.run_for_ns(10_000_000);
        let first = env.grant_checker().sent.len();
        env.run_for_ns(5_000_000);
        let sent = env.grant_checker().sent[first..].iter().filter(|(.., dst, _)| *dst == 0);
        let sent: Vec<(u32, u16)> = sent.map(|(slot, src, ..)| (*slot, *src)).collect();
        assert!(sent.len() > 4_000, "{senders} senders: {} timeslots", sent.len());
        for window in sent.windows(senders as usize) {
            let mut sources: Vec<u16> = window.iter().map(|(_, src)| *src).collect();
            sources.sort_unstable();
            assert!(
                sources.iter().copied().eq(1..=senders as u16),
                "{senders} senders: {window:?}"
            );
            let slots = window[window.len() - 1].0 - window[0].0;
            assert_eq!(slots, senders - 1, "no timeslot is left out: {window:?}");
        }
        assert_eq!(env.grant_checker().violations, [""; 0]);
    }
}

#[test]
fn grants_of_64_timeslots_fit_one_packet() {
    let offer = Some(OfferedLoad::to_all(900));
    for (coalesces_grants, lead_ns, packets) in
        [(false, 65_000, 2), (true, 65_000, 1), (true, 40_000, 2)]
    {
        let arbitration = Arbitration { coalesces_grants, lead_ns, ..Arbitration::of(32) };
        let setup = Setup { offer, arbitration: Some(arbitration), ..Setup::rack() };
        let mut env = SimEnv::new(&setup);
        env.run_for_ns(2_000_000);
        let before = *env.control();
        env.run_for_ns(8_000_000);
        let grants = env.control().since(&before).grants;
        let all = 8_000_000 / setup.slot_ns() / 64 * 31;
        let of = grants.packets as f64 / all as f64;
        assert!(
            (of - f64::from(packets)).abs() < 0.1,
            "{coalesces_grants} {lead_ns}: {of} packets"
        );
        assert!((grants.acks, grants.resets) == (0, 0) && grants.totals * 20 < all, "{grants:?}");
        // With a shorter lead grants do not wait for the next batch.
        let late: u64 = env.clients().map(|client| client.stats().late).sum();
        assert_eq!(late, 0, "{coalesces_grants} {lead_ns}");
    }
}

#[test]
fn requests_arrive_just_before_a_batch_is_closed() {
    let offer = Some(OfferedLoad::to_all(100));
    let setup = Setup { offer, ..Setup::rack() }.scheduled();
    let (warm_up_ns, measure_ns, interval_ns) = (5_000_000, 10_000_000, 1_000_000);
    let plan = Plan { warm_up_ns, measure_ns, interval_ns, ..Plan::of(0) };
    let waits = measure(&setup, &plan).wait_slots(setup.slot_ns());
    // Half of the control interval, the margin, the lead, and up to half of a batch, as the few
    // frames leave early in it; unaligned requests would add half of a batch.
    let before = 32.0 + 4.0 + 52.0;
    assert!((before..before + 16.0).contains(&waits), "{waits} timeslots");
}

/// A fat tree of three tiers. Five pods of nine hosts fill 99 of 100 timeslots with traffic to
/// other pods; the arbiter is in the sixth pod. A tenth of each link is reserved for control
/// packets: with less they wait too long for gaps between slot frames, for which they have the
/// whole lead.
fn tree(offset_ns_max: u64) -> SimEnv {
    let shape = Shape::fat_tree(6).expect("six is even");
    let arbitration = Arbitration {
        endpoints: 45,
        reserve_permille: 100,
        coalesces_grants: false,
        ..Arbitration::of(54)
    };
    let setup = Setup {
        shape,
        arbitration: Some(arbitration),
        offer: Some(OfferedLoad { group_hosts: 9, ..OfferedLoad::to_all(990) }),
        clocks: ClockConfig { offset_ns_max, drift_ppb_max: 0 },
        // Only slot frames are measured: control packets wait for gaps.
        prioritizes_slots: true,
        checks_grants: true,
        ..Setup::rack()
    };
    let mut env = SimEnv::new(&setup);
    env.run_for_ns(2_000_000);
    env.begin();
    env.run_for_ns(3_000_000);
    assert_eq!((env.overflowed(), env.grant_checker().violations.len()), (0, 0));
    let (waiting, sent, received) = env.raw_frames();
    assert!(received * 100 > (waiting + sent) * 90, "{received} of {sent} and {waiting} waiting");
    let late: u64 = env.clients().map(|client| client.stats().late).sum();
    assert_eq!(late, 0);
    env
}

#[test]
fn exact_clocks_keep_fat_tree_queues_empty_at_99_percent() {
    let bytes = tree(0).peak().scheduled_bytes;
    // A slot frame may be delayed by a control packet in transmission.
    assert!((FULL..FULL + FULL / 2).contains(&bytes), "{bytes}");
}

#[test]
fn clock_skew_of_one_timeslot_queues_two_packets_at_most() {
    let slot_ns = 1_354;
    let bytes = tree(slot_ns / 2).peak().scheduled_bytes;
    assert!((FULL + FULL / 2..2 * FULL + FULL / 4).contains(&bytes), "{bytes}");
}

#[test]
fn late_hosts_fill_the_queue_before_a_receiver() {
    let queue_bytes = |jitter_ns_max| {
        let flows = (1..=4).map(|from| Flow::endless(from, 0)).collect();
        let setup = Setup { flows, jitter_ns_max, ..Setup::rack() }.scheduled();
        let plan = Plan { warm_up_ns: 10_000_000, measure_ns: 10_000_000, ..Plan::of(0) };
        measure(&setup, &plan).queue_bytes(0.99)
    };
    let (late, punctual) = (queue_bytes(15_000), queue_bytes(0));
    assert!(late > 4 * punctual && punctual < 2 * FULL, "{late} and {punctual}");
}
