//! Objects arrive whole and once, despite loss and restarts.

mod net;
mod restarts;

use onepipe_arbiter::{
    Client, ClientConfig, OBJECT_LEN_MIN, Transfer, TransferConfig, TransferError, TransferEvent,
};
use onepipe_base::{Incarnation, Machine, Port, ProcessId};
use onepipe_wire::{Frame, Header, Opcode, SHORT_HEADER_LEN, SLOT_HEADER_LEN, Slot, seal};

use net::{MS, NODES, TestNet, config, object};

//= spec/arbiter.md#R34
#[test]
fn objects_of_any_length_arrive_once_despite_loss() {
    // Pieces have 210 bytes here, and the window has 1024 pieces.
    let lengths = [0, 1, 209, 210, 211, 420, 5_000, 13_440, 13_441, 60_000, 250_000];
    for (seed, lose, jitter_ns) in [(1, 0, 1), (2, 50, 30_000), (3, 7, 1), (4, 4, 100_000)] {
        let mut net = TestNet::new(seed);
        (net.lose, net.jitter_ns) = (lose, jitter_ns);
        for (number, length) in lengths.into_iter().enumerate() {
            let id = net.send(0, 3, object(length, number as u8));
            assert_eq!((id.dst, id.number), (ProcessId(3), number as u32));
            net.send(3, 0, object(length, 100));
            net.run_for(if length > 100_000 { 600 * MS } else { 2 * MS });
        }
        net.run_for(800 * MS);
        for (src, dst) in [(0, 3), (3, 0)] {
            let mut received = net.received(dst);
            received.sort_by_key(|(_, number, _)| *number);
            assert_eq!(received.len(), lengths.len(), "seed {seed}, {src} to {dst}");
            for ((from, number, bytes), length) in received.into_iter().zip(lengths) {
                let mark = if src == 0 { number as u8 } else { 100 };
                assert_eq!((from, bytes), (ProcessId(src), &object(length, mark)));
            }
            assert_eq!((net.sent(src), net.transfers[src as usize].sending()), (11, 0));
        }
    }
}

#[test]
fn retransmissions_barely_exceed_losses() {
    let mut net = TestNet::new(9);
    net.run_for(MS);
    net.lose = 20;
    net.send(0, 3, object(224 * 2_000, 1)[..224 * 1_780].to_vec());
    net.run_for(100 * MS);
    assert_eq!(net.received(3).len(), 1);
    let stats = *net.transfers[0].stats();
    let retransmitted = stats.pieces_sent - 1_780;
    assert!((60..150).contains(&retransmitted), "{retransmitted} of {}", stats.pieces_sent);
    assert_eq!(stats.pieces_retransmitted, retransmitted);
    let reports = net.transfers[3].stats().reports_sent;
    assert!(reports < 150, "{reports} reports");
}

#[test]
fn transfers_in_flight_do_not_allocate() {
    let mut net = TestNet::new(9);
    for dst in 1..NODES {
        net.send(0, dst, object(390_000, 1));
        net.send(dst as usize, 0, object(100_000, 1));
    }
    net.run_for(MS);
    let (before, taken) = (*net.transfers[0].stats(), net.taken);
    assert!(before.pieces_sent > 500 && before.pieces_received > 500, "{before:?}");
    net.lose = 20;
    net.run_for(MS / 2);
    let stats = net.transfers[0].stats();
    assert!(stats.pieces_sent > before.pieces_sent + 300 && net.events.is_empty(), "{stats:?}");
    assert_eq!(net.taken, taken);
}

#[test]
fn lossless_transfer_uses_few_extra_timeslots() {
    let mut net = TestNet::new(9);
    net.run_for(MS);
    net.send(0, 3, object(390_000, 1));
    // 1742 timeslots, plus the time to start and to end.
    net.run_for(1_742 * 1_250 + 300_000);
    assert_eq!(net.received(3).len(), 1);
    assert_eq!(net.transfers[0].stats().pieces_sent, 1_742);
    assert_eq!(net.transfers[0].stats().pieces_retransmitted, 0);
}

//= spec/arbiter.md#R36
#[test]
fn objects_beyond_receive_memory_are_refused() {
    let (large, small) = (object(400_001, 1), object(1_000, 2));
    for seed in 0..8 {
        let mut net = TestNet::new(seed);
        net.lose = 3;
        let id = net.send(1, 2, large.clone());
        net.send(1, 2, small.clone());
        net.run_for(1_000 * MS);
        let refused = net.events.iter().find_map(|(at, event)| match event {
            TransferEvent::Refused(id, bytes) => Some((*at, *id, bytes)),
            _ => None,
        });
        assert_eq!(refused, Some((1, id, &large)), "the object is returned");
        assert_eq!((net.received(2).len(), net.sent(1)), (1, 1));
    }
    let mut transfer = Transfer::new(config(0)).expect("right");
    for unknown in [0, 4] {
        let unknown = ProcessId(unknown);
        assert_eq!(transfer.send(unknown, small.clone()), Err(TransferError::Unknown(unknown)));
    }
    let ids: Vec<_> =
        (0..64).map(|_| transfer.send(ProcessId(1), small.clone()).expect("room")).collect();
    let full = transfer.send(ProcessId(1), small.clone());
    assert_eq!(full, Err(TransferError::Full(small.clone())));
    // Only the end of the oldest object frees space in the window.
    assert_eq!(transfer.cancel(ids[1]), Some(small.clone()));
    assert!(transfer.send(ProcessId(1), small.clone()).is_err());
    assert_eq!((transfer.cancel(ids[0]), transfer.cancel(ids[0])), (Some(small.clone()), None));
    assert_eq!(transfer.send(ProcessId(1), small).map(|id| id.number), Ok(64));
}

#[test]
fn foreign_and_malformed_packets_are_dropped() {
    let mut net = TestNet::new(6);
    let mut draws = TestNet::new(7);
    net.send(0, 3, object(100_000, 1));
    for _ in 0..2_000 {
        net.run_for(1_000);
        let (length, kind) = (draws.draw() as usize % 60, draws.draw() % 3);
        let mut bytes = [0; 400];
        let front = SHORT_HEADER_LEN + SLOT_HEADER_LEN;
        let slot = Slot { label: [255; 4], timeslot: 0, path: 255, earlier: [255; 3] };
        slot.write(&mut bytes[SHORT_HEADER_LEN..]).expect("it fits");
        let mut packet = vec![0; length];
        packet.fill_with(|| draws.draw() as u8);
        // Small values, so that some are valid.
        packet.iter_mut().skip(1).filter(|byte| **byte > 60).for_each(|byte| *byte = 0);
        packet.iter_mut().take(1).for_each(|byte| *byte = kind as u8);
        let end = onepipe_wire::write_packet(&mut bytes[front..], &packet).expect("it fits");
        let header = Header::new(Opcode::Slot, ProcessId(1), ProcessId(3), Incarnation(1));
        let end = seal(&mut bytes, header, SLOT_HEADER_LEN + end);
        let now = net.at();
        net.transfers[3].handle_frame(now, Port(0), &mut bytes[..end]);
        assert!(Client::packets(&bytes[..end]).is_some());
        net.deliver(3);
    }
    net.run_for(100 * MS);
    assert!(net.transfers[3].stats().dropped > 500);
    let received = net.received(3);
    let ours: Vec<_> = received.iter().filter(|(from, ..)| *from == ProcessId(0)).collect();
    assert_eq!((ours.len(), ours[0].2), (1, &object(100_000, 1)));
}

//= spec/arbiter.md#R36
#[test]
fn incomplete_objects_of_a_dead_sender_expire() {
    let mut net = TestNet::new(6);
    net.send(0, 3, object(300_000, 1));
    net.run_for(MS);
    assert!(net.transfers[3].stats().pieces_received > 100 && net.received(3).is_empty());
    // The restarted endpoint has nothing to send to 3.
    net.restart(0);
    net.run_for(9_000 * MS);
    assert_eq!(net.transfers[3].stats().expired, 0);
    net.run_for(1_100 * MS);
    assert_eq!(net.transfers[3].stats().expired, 1);
    net.send(1, 3, object(390_000, 1));
    net.run_for(100 * MS);
    assert_eq!((net.received(3).len(), net.sent(1)), (1, 1));
}

//= spec/arbiter.md#R34
//= spec/arbiter.md#R36
#[test]
fn expired_object_is_resent_and_completes() {
    let mut net = TestNet::new(6);
    net.send(0, 3, object(300_000, 1));
    net.run_for(3 * MS / 2);
    assert!(net.transfers[3].stats().pieces_received > 600 && net.received(3).is_empty());
    net.lose = 1;
    net.run_for(11_000 * MS);
    assert_eq!(net.transfers[3].stats().expired, 1);
    net.lose = 0;
    net.run_for(600 * MS);
    assert_eq!((net.received(3).len(), net.sent(0)), (1, 1));
    assert_eq!(net.received(3)[0].2, &object(300_000, 1));
}

#[test]
fn cancelled_object_is_returned_and_not_delivered() {
    let mut net = TestNet::new(6);
    let cancelled = net.send(0, 3, object(300_000, 1));
    net.send(0, 3, object(100_000, 2));
    net.run_for(MS);
    assert!(net.transfers[3].stats().pieces_received > 100);
    assert_eq!(net.transfers[0].cancel(cancelled), Some(object(300_000, 1)));
    net.run_for(10_100 * MS);
    assert_eq!((net.received(3).len(), net.sent(0)), (1, 1));
    assert_eq!((net.transfers[0].sending(), net.transfers[3].stats().expired), (0, 1));
}

#[test]
fn empty_objects_count_towards_memory() {
    let mut net = TestNet::new(6);
    net.transfers[3].set_receive_bytes_max(OBJECT_LEN_MIN - 1);
    net.send(0, 3, Vec::new());
    net.run_for(MS);
    assert_eq!((net.received(3).len(), net.transfers[3].stats().refused), (0, 1));
    net.transfers[3].set_receive_bytes_max(OBJECT_LEN_MIN);
    net.send(0, 3, Vec::new());
    net.run_for(MS);
    assert_eq!(net.received(3).len(), 1);
}

#[test]
fn absent_receiver_does_not_block_others() {
    let mut net = TestNet::new(6);
    for _ in 0..64 {
        net.send(0, 1, object(100, 1));
    }
    let more = net.transfers[0].send(ProcessId(1), object(100, 1));
    assert!(matches!(more, Err(TransferError::Full(_))), "the window is full");
    net.send(0, 3, object(100, 2));
    // Neither does the limit on objects in flight.
    let config = TransferConfig { objects_max: 2, ..config(0) };
    let mut transfer = Transfer::new(config).expect("right");
    let mut send = |dst| transfer.send(ProcessId(dst), object(100, 2)).is_ok();
    assert_eq!([send(1), send(1), send(1), send(3), send(3)], [true, true, false, true, false]);
}

#[test]
fn objects_to_many_receivers_progress_in_parallel() {
    let nodes = 40;
    let client = ClientConfig {
        frame_len_max: 300,
        ..ClientConfig::new(ProcessId(0), nodes, ProcessId(nodes), 1_250)
    };
    let mut transfer = Transfer::new(TransferConfig::new(client)).expect("right");
    let mut of = |count| -> Vec<u32> {
        for dst in 1..=count {
            transfer.send(ProcessId(dst), object(300_000, 1)).expect("room");
        }
        (1..=count).map(|dst| transfer.client().queued(ProcessId(dst))).collect()
    };
    let queued = of(8);
    assert!(queued.iter().all(|queued| *queued > 0), "{queued:?}");
}

#[test]
fn lost_last_piece_is_retransmitted_during_later_objects() {
    let mut net = TestNet::new(6);
    net.run_for(MS);
    net.send(0, 3, object(2_000, 1));
    // The last piece of the object is lost once.
    let mut is_lost = false;
    let is_last = |bytes: &[u8]| {
        let frame = Frame::parse(bytes).expect("sealed");
        frame.opcode == Opcode::Slot
            && Client::packets(bytes).into_iter().flatten().any(|packet| {
                let packet = onepipe_wire::TransferPacket::parse(packet).expect("ours");
                matches!(packet, onepipe_wire::TransferPacket::Piece(piece, _)
                    if piece.object == 0 && piece.index == 8)
            })
    };
    let began = net.now;
    let mut follow = 0;
    while !net.received(3).iter().any(|(_, number, _)| *number == 0) {
        // Further objects follow, a dozen in flight at a time.
        while net.transfers[0].sending() < 12
            && net.transfers[0].send(ProcessId(3), object(20_000, 2)).is_ok()
        {
            follow += 1;
        }
        net.deliver(0);
        net.run_for(1_000);
        let found = net.in_flight.iter().find(|(_, (to, bytes))| *to == 3 && is_last(bytes));
        if let Some(key) = found.map(|(key, _)| *key).filter(|_| !is_lost) {
            net.in_flight.remove(&key);
            is_lost = true;
        }
        assert!(net.now < began + 100 * MS, "the object never arrives");
    }
    let (arrived, took) = (net.received(3).len() - 1, net.now - began);
    assert!(is_lost && took < 4 * MS, "{arrived} of {follow} others arrived before, {took} ns");
}
