//! Shared frames: when they are used, and what becomes of them.

use onepipe_base::ProcessId;

use super::super::harness::{SenderHarness, SentFrame};
use super::*;
use crate::{Links, MESSAGE_CHARGE_BYTES};

/// Returns a sender with open connections to the processes 1 to 4.
fn open(service: Service, change: impl FnOnce(&mut Config)) -> SenderHarness {
    let mut harness = SenderHarness::new(service, |config| {
        config.shares_payloads = true;
        change(config);
    });
    harness.open(&[(1, 1 << 16), (2, 1 << 16), (3, 1 << 16), (4, 1 << 16)]);
    harness
}

/// Sends a burst. Returns the opcode, the receivers and the number of messages of each frame.
fn burst(harness: &mut SenderHarness) -> Vec<(Opcode, Vec<u32>, usize)> {
    harness.burst();
    harness.frames().iter().map(shape).collect()
}

fn shape(sent: &SentFrame) -> (Opcode, Vec<u32>, usize) {
    let to = match sent.opcode {
        Opcode::SharedData => sent.receivers.iter().map(|one| one.process.0).collect(),
        _ => [sent.to].to_vec(),
    };
    (sent.opcode, to, sent.messages.len())
}

//= spec/ordering.md#R51
#[test]
fn payload_for_several_receivers_leaves_once() {
    for service in [Service::BestEffort, Service::Reliable] {
        let mut harness = open(service, |_| {});
        harness.scatter(&[(1, 1_024), (2, 1_024), (4, 1_024)]);
        harness.burst();
        let frames = harness.frames();
        let [sent] = &frames[..] else { panic!("one frame: {frames:?}") };
        assert_eq!(sent.messages, [(sent.timestamp, 0, 1_024)]);
        let list: Vec<_> =
            sent.receivers.iter().map(|one| (one.process.0, one.psn.0, one.index)).collect();
        assert_eq!(list, [(1, 1, 0), (2, 1, 1), (4, 1, 2)]);
        assert_eq!(sent.unfinished, None, "the burst is over");
        for to in [1, 2, 4] {
            let peer_index = harness.sender.peers.index_of(ProcessId(to)).expect("opened");
            let connection = harness.sender.peers.get(peer_index);
            let charge = u64::from(1_024 + MESSAGE_CHARGE_BYTES);
            assert_eq!((connection.flight.charge(), connection.in_burst), (charge, 0));
            assert!(connection.deadline.is_some());
        }
        // Best effort retains nothing; the reliable service all until its acknowledgement.
        let left = harness.sender.buffered_bytes();
        let is_retained = service == Service::Reliable;
        assert_eq!(left, if is_retained { 3 * (1_024 + MESSAGE_CHARGE_BYTES as usize) } else { 0 });
    }
}

//= spec/ordering.md#R87
#[test]
fn acknowledgements_travel_as_far_as_they_fit() {
    for (len, fits) in [(64, [1, 4].as_slice()), (1_330, &[1]), (1_350, &[])] {
        let mut harness = open(Service::BestEffort, |config| config.frame_len_max = 1_460);
        harness.acknowledged.extend([1, 4]);
        harness.scatter(&[(1, len), (2, len), (4, len)]);
        harness.burst();
        let frames = harness.frames();
        let [sent] = &frames[..] else { panic!("one frame: {frames:?}") };
        assert_eq!(sent.messages, [(sent.timestamp, 0, len)], "behind the acknowledgements");
        let with_ack = sent.receivers.iter().filter(|one| one.has_ack);
        let with_ack: Vec<_> = with_ack.map(|one| one.process.0).collect();
        assert_eq!(with_ack, fits, "{len} bytes");
    }
}

//= spec/ordering.md#R51
#[test]
fn coalesced_messages_are_shared_as_a_whole() {
    let mut harness = open(Service::BestEffort, |_| {});
    for _ in 0..5 {
        harness.scatter(&[(1, 400), (2, 400), (3, 400)]);
    }
    let shared = |count| (Opcode::SharedData, [1, 2, 3].to_vec(), count);
    assert_eq!(burst(&mut harness), [shared(3), shared(2)]);
}

//= spec/ordering.md#R51
#[test]
fn sharing_never_adds_a_frame() {
    let mut harness = open(Service::BestEffort, |_| {});
    // The chains of 1 and 2 begin alike, and 2 has more to send in the same frame.
    harness.scatter(&[(1, 50), (2, 50)]);
    harness.scatter(&[(2, 60)]);
    let data = |to, count| (Opcode::Data, [to].to_vec(), count);
    assert_eq!(burst(&mut harness), [data(1, 1), data(2, 2)]);
    // The index of 1 differs from scattering to scattering.
    harness.scatter(&[(1, 50), (2, 50)]);
    harness.scatter(&[(3, 60), (1, 60), (2, 60)]);
    assert_eq!(burst(&mut harness), [data(1, 2), data(2, 2), data(3, 1)]);
    // Only some of the receivers have the same messages.
    harness.scatter(&[(1, 50), (2, 50), (3, 50)]);
    harness.scatter(&[(3, 60)]);
    let shared = (Opcode::SharedData, [1, 2].to_vec(), 1);
    assert_eq!(burst(&mut harness), [shared, data(3, 2)]);
}

#[test]
fn shares_with_as_many_receivers_as_fit() {
    let mut harness = open(Service::BestEffort, |_| {});
    let payload = |receivers| {
        1_472 - onepipe_wire::HEADER_LEN - SharedReceivers::list_len(receivers) - MESSAGE_HEADER_LEN
    };
    for (receivers, expected) in [(4, &[4][..]), (3, &[3, 1]), (2, &[2, 2]), (1, &[1, 1, 1, 1])] {
        let len = payload(receivers);
        harness.scatter(&[(1, len), (2, len), (3, len), (4, len)]);
        let sent = burst(&mut harness);
        let counts: Vec<_> = sent.iter().map(|frame| frame.1.len()).collect();
        assert_eq!(counts, expected);
    }
    // A message that exceeds a frame is sent in fragments.
    harness.scatter(&[(1, 2_000), (2, 2_000)]);
    assert!(burst(&mut harness).iter().all(|frame| frame.0 == Opcode::Fragment));
}

#[test]
fn only_a_switch_gets_shared_frames() {
    for change in [
        (|config| config.links = Links::Mesh) as fn(&mut Config),
        |config| config.links = Links::Overlay,
        |config| config.shares_payloads = false,
    ] {
        let mut harness = open(Service::BestEffort, change);
        harness.scatter(&[(1, 64), (2, 64)]);
        assert!(burst(&mut harness).iter().all(|frame| frame.0 == Opcode::Data));
    }
}

//= spec/ordering.md#R51
#[test]
fn each_receiver_is_retransmitted_to_alone() {
    let mut harness = open(Service::Reliable, |_| {});
    harness.scatter(&[(1, 1_024), (2, 1_024)]);
    assert_eq!(burst(&mut harness), [(Opcode::SharedData, [1, 2].to_vec(), 1)]);
    harness.respond(1, Opcode::Ack, |ack| {
        (ack.window_bytes, ack.cumulative) = (1 << 16, Psn(2));
    });
    let retransmitted = harness.retransmit_after(1_000_000_000);
    assert_eq!(retransmitted, [(2, Opcode::Data, 1, 1_024)]);
}
