//! Restarted senders and receivers, and stray frames of their previous incarnations.

use onepipe_base::{Machine, Port};
use onepipe_wire::{Frame, Opcode};

use super::net::{MS, TestNet, object};

/// Takes the first frame in flight to `dst` with a transfer packet.
fn take_frame_in_flight(net: &mut TestNet, dst: usize) -> Vec<u8> {
    for _ in 0..200 {
        net.run_for(1_250);
        let slots = net.in_flight.values().find(|(to, bytes)| {
            *to == dst && Frame::parse(bytes).expect("sealed").opcode == Opcode::Slot
        });
        if let Some((_, bytes)) = slots {
            return bytes.clone();
        }
    }
    panic!("nothing is sent");
}

//= spec/arbiter.md#R34
#[test]
fn restarted_receiver_gets_all_objects_again() {
    let mut net = TestNet::new(6);
    net.send(0, 3, object(300_000, 1));
    net.run_for(MS);
    assert!(net.transfers[3].stats().pieces_received > 100 && net.received(3).is_empty());
    net.restart(3);
    net.run_for(200 * MS);
    assert_eq!((net.received(3).len(), net.sent(0)), (1, 1));
    assert_eq!(net.received(3)[0].2, &object(300_000, 1));
}

#[test]
fn restarted_sender_restarts_object_numbers() {
    let mut net = TestNet::new(6);
    for number in 0..3 {
        assert_eq!(net.send(0, 3, object(2_000, 1)).number, number);
    }
    net.run_for(5 * MS);
    net.send(0, 3, object(300_000, 1));
    net.run_for(MS);
    net.restart(0);
    assert_eq!(net.send(0, 3, object(300_000, 7)).number, 0);
    net.run_for(200 * MS);
    let received = net.received(3);
    assert_eq!((received.len(), received[3].2), (4, &object(300_000, 7)));
    assert_eq!(net.sent(0), 3 + 1);
}

//= spec/arbiter.md#R37
#[test]
fn stray_frame_of_a_previous_sender_is_ignored() {
    let mut net = TestNet::new(6);
    net.send(0, 3, object(2_000, 1));
    let mut stray = take_frame_in_flight(&mut net, 3);
    net.run_for(5 * MS);
    net.restart(0);
    net.send(0, 3, object(300_000, 7));
    net.run_for(MS);
    let before = *net.transfers[3].stats();
    assert!(before.pieces_received > 100 && net.received(3).len() == 1, "{before:?}");
    let now = net.at();
    net.transfers[3].handle_frame(now, Port(0), &mut stray);
    net.deliver(3);
    net.run_for(20 * MS);
    assert_eq!((net.received(3).len(), net.sent(0)), (2, 2));
    let sent = net.transfers[0].stats().pieces_sent;
    // 1340 pieces, and no retransmission.
    assert_eq!((sent, net.transfers[3].stats().dropped), (1_340, 1));
    assert_eq!(net.transfers[3].client().stats().slots_lost, 0);
}

//= spec/arbiter.md#R37
#[test]
fn stray_report_of_a_previous_receiver_is_ignored() {
    let pieces_sent = [false, true].map(|is_stray| {
        let mut net = TestNet::new(6);
        net.send(0, 3, object(2_000, 1));
        let mut stray = take_frame_in_flight(&mut net, 0);
        net.run_for(5 * MS);
        net.restart(3);
        net.send(0, 3, object(300_000, 7));
        net.run_for(2 * MS);
        assert_eq!(net.sent(0), 1);
        if is_stray {
            let now = net.at();
            net.transfers[0].handle_frame(now, Port(0), &mut stray);
            net.deliver(0);
        }
        net.run_for(20 * MS);
        assert_eq!((net.received(3).len(), net.sent(0)), (2, 2));
        net.transfers[0].stats().pieces_sent
    });
    assert_eq!(pieces_sent[0], pieces_sent[1]);
}

/// Its receiver may serve another process with this id, and says nothing about this one.
#[test]
fn reports_to_another_incarnation_are_not_counted() {
    for (is_restarted, expected) in [(false, 1), (true, 0)] {
        let mut net = TestNet::new(6);
        net.send(0, 3, object(2_000, 1));
        let mut report = take_frame_in_flight(&mut net, 0);
        assert_eq!(net.transfers[0].stats().reports_received, 0);
        if is_restarted {
            net.restart(0);
        }
        let now = net.at();
        net.transfers[0].handle_frame(now, Port(0), &mut report);
        assert_eq!(net.transfers[0].stats().reports_received, expected);
    }
}

#[test]
fn late_report_to_a_previous_sender_is_ignored() {
    let mut net = TestNet::new(6);
    net.send(0, 3, object(2_000, 1));
    // The last report, that object 0 is complete, is delayed.
    let mut stray = None;
    for _ in 0..400 {
        net.run_for(1_250);
        let mut reports = net.in_flight.values().filter(|(to, bytes)| {
            *to == 0 && Frame::parse(bytes).expect("sealed").opcode == Opcode::Slot
        });
        if let Some((_, bytes)) = reports.next_back() {
            stray = Some(bytes.clone());
        }
    }
    let mut stray = stray.expect("a report");
    net.restart(0);
    let sent_before = net.sent(0);
    // The restarted sender has another object of the same number, far from complete.
    let id = net.send(0, 3, object(300_000, 7));
    assert_eq!(id.number, 0);
    net.run_for(MS);
    assert_eq!(net.sent(0), sent_before);
    let now = net.at();
    net.transfers[0].handle_frame(now, Port(0), &mut stray);
    net.deliver(0);
    assert_eq!(net.sent(0), sent_before, "reported as sent, but incomplete");
    net.run_for(200 * MS);
    assert_eq!(net.received(3).last().expect("one").2, &object(300_000, 7));
}

#[test]
fn receiver_survives_restart_of_its_sender_while_idle() {
    let mut net = TestNet::new(6);
    net.run_for(5 * MS);
    net.send(0, 3, object(2_000, 1));
    // From now on frames to 3 stay in its socket.
    let mut waiting = Vec::new();
    let mut sleep = |net: &mut TestNet, ns: u64| {
        for _ in 0..ns / 1_000 {
            net.run_for(1_000);
            let theirs = |(_, (to, _)): &(&(u64, u64), &(usize, Vec<u8>))| *to == 3;
            let keys: Vec<_> = net.in_flight.iter().filter(theirs).map(|(key, _)| *key).collect();
            for key in keys {
                waiting.extend(net.in_flight.remove(&key).map(|(_, frame)| frame));
            }
        }
    };
    sleep(&mut net, MS);
    net.restart(0);
    net.send(0, 3, object(300_000, 7));
    sleep(&mut net, 3 * MS);
    for mut frame in waiting {
        let now = net.at();
        net.transfers[3].handle_frame(now, Port(0), &mut frame);
        net.deliver(3);
    }
    net.run_for(300 * MS);
    let arrived = net.received(3).iter().any(|(.., bytes)| **bytes == object(300_000, 7));
    assert!(arrived, "reported as sent {} times", net.sent(0));
}
