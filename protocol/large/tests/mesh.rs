//! Several processes on links that lose, repeat and reorder frames, that restart, and that lie.

mod network;

use network::{Faults, LARGE, Network, payload};
use onepipe_endpoint::{Outcome, Service};
use onepipe_large::Event;
use onepipe_wire::{LargeControl, LargeObject};

const SIZES: [usize; 7] = [0, 1, LARGE, LARGE + 1, 5_000, 16_384, 40_001];

/// Scatters payloads of all sizes, each to several processes, and checks that all receive all of
/// them, unchanged and in one order.
fn deliver_all(seed: u64, faults: Faults, service: Service) {
    let processes = 2 + seed as u32 % 3;
    let mut network = Network::new(processes, seed, |config| {
        config.objects_max = 1 + seed as usize % 3;
    });
    network.faults = faults;
    let mut expected = vec![0; processes as usize];
    for (number, bytes) in SIZES.into_iter().enumerate() {
        let from = number as u32 % processes;
        let to: Vec<u32> = (0..processes).filter(|to| *to != from || number % 2 == 0).collect();
        to.iter().for_each(|to| expected[*to as usize] += 1);
        network.scatter(service, from, &to, &payload(number as u64, bytes)).expect("it fits");
    }
    let has_all = |network: &Network| {
        network.delivered.iter().zip(&expected).all(|(delivered, all)| delivered.len() == *all)
    };
    assert!(network.run_until(2_000_000_000, has_all), "seed {seed}: {faults:?}");
    for (number, bytes) in SIZES.into_iter().enumerate() {
        let sent = payload(number as u64, bytes);
        let copies = network.delivered.iter().flatten().filter(|(_, got)| *got == sent).count();
        let receivers = (0..processes).filter(|to| *to != number as u32 % processes).count();
        assert_eq!(copies, receivers + usize::from(number % 2 == 0), "seed {seed}: {bytes} bytes");
    }
    for delivered in &network.delivered {
        assert!(delivered.is_sorted_by_key(|(order, _)| *order), "seed {seed}: one order");
    }
    let is_empty = |network: &Network| {
        let mut ends = network.ends.iter().flatten();
        ends.all(|end| end.buffered_bytes() == (0, 0) && end.is_drained())
    };
    assert!(network.run_until(2_000_000_000, is_empty), "seed {seed}: all memory is released");
}

#[test]
fn delivers_any_size_over_healthy_links() {
    for service in [Service::BestEffort, Service::Reliable] {
        (0..6).for_each(|seed| deliver_all(seed, Faults::default(), service));
    }
}

#[test]
fn delivers_any_size_over_faulty_links() {
    for seed in 0..10 {
        let faults = Faults {
            loss: 20 * (seed % 8),
            repetition: 30 * (seed % 5),
            reordering: 50 * (seed % 6),
        };
        deliver_all(seed, faults, Service::Reliable);
    }
}

#[test]
fn payload_waits_for_memory_at_its_receiver() {
    let mut network = Network::new(2, 1, |config| config.received_bytes_max = 50_000);
    network.holds = true;
    for number in 0..3 {
        let sent = payload(number, 30_000);
        network.scatter(Service::Reliable, 0, &[1], &sent).expect("it fits");
    }
    let count = |count: usize| move |network: &Network| network.delivered[1].len() == count;
    for delivered in 1..=3 {
        assert!(network.run_until(100_000_000, count(delivered)), "{delivered}");
        let is_over = network.run_until(20_000_000, count(delivered + 1));
        assert!(!is_over, "the next one waits until this one is released");
        assert!(network.end(1).buffered_bytes().1 <= 50_000);
        network.release_held(1);
    }
    assert_eq!(network.end(1).stats().objects_received, 3);
}

#[test]
fn submissions_wait_for_space_in_the_send_buffer() {
    let mut network = Network::new(2, 1, |config| config.sent_bytes_max = 100_000);
    let sent = payload(1, 60_000);
    network.scatter(Service::Reliable, 0, &[1], &sent).expect("it fits");
    let refused = network.scatter(Service::Reliable, 0, &[1], &sent);
    let full = onepipe_large::SendError::Full { need: 60_000, free: 40_000 };
    assert_eq!(refused, Err(full));
    assert!(network.run_until(100_000_000, |network| !network.delivered[1].is_empty()));
    network.run_for(10_000_000);
    network.scatter(Service::Reliable, 0, &[1], &sent).expect("the first one is ordered");
}

#[test]
fn crashed_receiver_fails_its_scatterings_everywhere() {
    let mut network = Network::new(3, 3, |_| {});
    let sent = payload(1, 40_000);
    network.scatter(Service::Reliable, 0, &[1, 2], &sent).expect("it fits");
    network.run_for(30_000);
    network.crash(2);
    let has_failed = |network: &Network| network.failed[0].len() == 2;
    assert!(network.run_until(900_000_000, has_failed), "a payload must reach all receivers");
    assert!(network.failed[0].iter().all(|failed| failed.outcome == Outcome::Lost));
    let is_dropped = |network: &Network| network.end(1).buffered_bytes() == (0, 0);
    assert!(network.run_until(900_000_000, is_dropped), "no receiver has what is not ordered");
    assert!(network.delivered[1].is_empty() && network.end(0).buffered_bytes() == (0, 0));
    assert_eq!(network.end(0).stats().objects_failed, 1);

    network.restart(2);
    let again = payload(2, 20_000);
    let has_both = |network: &Network| network.delivered[1..].iter().all(|one| one.len() == 1);
    let receives = (0..4).any(|_| {
        // A scattering fails as long as the previous incarnation counts.
        network.scatter(Service::Reliable, 0, &[1, 2], &again).expect("it fits");
        network.run_until(900_000_000, has_both)
    });
    assert!(receives, "the next incarnation receives");
}

#[test]
fn crashed_sender_leaves_no_payload_behind() {
    for crash_ns in [10_000, 25_000, 60_000, 90_000, 120_000, 200_000] {
        let mut network = Network::new(3, crash_ns, |config| config.dead_after_ns = 5_000_000);
        let sent = payload(1, 40_000);
        network.scatter(Service::Reliable, 0, &[1, 2], &sent).expect("it fits");
        network.run_for(crash_ns);
        network.crash(0);
        let is_empty =
            |network: &Network| (1..3).all(|at| network.end(at).buffered_bytes() == (0, 0));
        network.run_for(20_000_000);
        assert!(network.run_until(500_000_000, is_empty), "crash at {crash_ns} ns");
        network.restart(0);
        network.run_for(5_000_000);
        let before: Vec<usize> = network.delivered.iter().map(Vec::len).collect();
        let again = payload(2, 20_000);
        network.scatter(Service::Reliable, 0, &[1, 2], &again).expect("it fits");
        let has_more =
            |network: &Network| (1..3).all(|at| network.delivered[at].len() > before[at]);
        assert!(network.run_until(500_000_000, has_more), "crash at {crash_ns} ns");
        assert_eq!(network.delivered[1].last().map(|last| &last.1), Some(&again));
    }
}

#[test]
fn leaver_orders_its_payloads_first() {
    let mut network = Network::new(2, 5, |_| {});
    let sent = payload(1, 40_000);
    network.scatter(Service::Reliable, 0, &[1], &sent).expect("it fits");
    network.act(0, |end| end.leave());
    let has_left = |network: &Network| network.end(0).endpoint().has_left();
    assert!(!has_left(&network), "the payload is not ordered yet");
    assert!(network.run_until(200_000_000, |network| network.delivered[1].len() == 1));
    assert_eq!(network.delivered[1][0].1, sent);
}

#[test]
fn open_scatterings_have_the_ids_of_the_application() {
    let mut network = Network::new(2, 5, |_| {});
    let (small, large) = (payload(1, 10), payload(2, 20_000));
    network.faults.loss = 1_000;
    for (number, sent) in [&small, &large, &small].into_iter().enumerate() {
        let id = network.scatter(Service::Reliable, 0, &[1], sent).expect("it fits");
        assert_eq!(id.0, number as u64);
    }
    network.run_for(100_000);
    let end = network.end(0);
    let ids: Vec<u64> = end.open_scatterings().iter().map(|open| open.scattering.0).collect();
    assert_eq!(ids, [0, 2], "the large one is not ordered yet");
    assert_eq!(end.resolved_below(Service::Reliable).0, 0);
    assert_eq!(end.resolved_below(Service::BestEffort).0, 0);
    let cancelled = network.act(0, |end| {
        let open = end.open_scatterings();
        let unknown = onepipe_base::ScatteringId(1);
        (end.cancel(unknown), end.cancel(open[1].scattering))
    });
    assert_eq!(cancelled, (false, true));
    network.faults.loss = 0;
    assert!(network.run_until(500_000_000, |network| network.delivered[1].len() == 2));
    let got: Vec<&Vec<u8>> = network.delivered[1].iter().map(|(_, got)| got).collect();
    assert!(got.contains(&&small) && got.contains(&&large));
}

/// Returns the bytes of a control message.
fn control(write: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut |part| bytes.extend_from_slice(part));
    bytes
}

#[test]
fn lying_process_does_no_harm() {
    let process = onepipe_base::ProcessId;
    let of = |sender: u64, number: u64| LargeObject {
        group: sender << 44 | 1 << 32 | number,
        bytes: 30_000,
        digest: 7,
    };
    let invitation = |object, piece_len, members: &[u32]| {
        let members = members.iter().map(|member| process(*member));
        control(|put| LargeControl::write_invitation(object, 16_384, piece_len, members, put))
    };
    let huge = LargeObject { bytes: u64::MAX, ..of(2, 9) };
    let invalid = [
        invitation(of(2, 1), 1_200, &[0, 1, 2]),
        invitation(of(0, 2), 1_200, &[2, 1]),
        invitation(of(2, 3), 1_200, &[2, 0]),
        invitation(of(2, 4), 60_000, &[2, 1]),
        invitation(of(2, 5), 0, &[2, 1]),
        invitation(of(2, 6), 1_200, &[2, 1, 1]),
    ];
    let mut network = Network::new(3, 5, |_| {});
    network.run_for(1_000_000);
    for message in &invalid {
        network.send_raw(2, 1, message);
    }
    network.run_for(5_000_000);
    let stats = *network.end(1).stats();
    assert_eq!((stats.invalid, stats.orphans), (invalid.len() as u64, 0));
    // Valid ones, but nothing follows; then a descriptor of a payload that never came.
    for message in [
        invitation(of(2, 7), 1_200, &[2, 1]),
        invitation(of(2, 7), 1_200, &[2, 1]),
        invitation(huge, 1_200, &[2, 1]),
        control(|put| LargeControl::write_descriptor(of(2, 7), put)),
        control(|put| LargeControl::write_descriptor(of(0, 8), put)),
        control(|put| LargeControl::write_withdrawn(of(0, 8).group, put)),
    ] {
        network.send_raw(2, 1, &message);
    }
    network.run_for(5_000_000);
    let stats = *network.end(1).stats();
    assert_eq!((stats.invalid, stats.orphans), (invalid.len() as u64 + 1, 2));
    assert_eq!(network.end(1).buffered_bytes(), (0, 0), "no memory before a first frame");
    network.send_raw(2, 1, &control(|put| LargeControl::write_withdrawn(of(2, 7).group, put)));
    network.run_for(5_000_000);
    assert_eq!(network.end(1).stats().objects_dropped, stats.objects_dropped + 1);
    // A message of the application that looks like one of these arrives as it is.
    network.scatter(Service::Reliable, 0, &[1], &invalid[0]).expect("it fits");
    assert!(network.run_until(100_000_000, |network| !network.delivered[1].is_empty()));
    assert_eq!(network.delivered[1][0].1, invalid[0]);
}

#[test]
fn arbitrary_frames_are_dropped() {
    let mut network = Network::new(2, 9, |_| {});
    let sent = payload(1, 40_000);
    network.scatter(Service::Reliable, 0, &[1], &sent).expect("it fits");
    network.corruption = 200;
    assert!(network.run_until(2_000_000_000, |network| network.delivered[1].len() == 1));
    assert_eq!(network.delivered[1][0].1, sent);
    let event = network.act(1, onepipe_base::Machine::poll_event);
    assert!(!matches!(event, Some(Event::Delivered(_))), "once");
}
