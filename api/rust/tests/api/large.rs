//! Payloads of any size in the total order, over shared memory and through a switch.

use crate::harness;

use std::time::{Duration, Instant};

use harness::switch::{self, Running, join_and_exchange};
use harness::{DEADLINE, fabric, message, process, to};
use onepipe::{Builder, Event, Outcome, Pipe, Received, SendError};
use onepipe_daemon_switch::Faults;

fn any_size(fabric: &str, id: u32) -> Builder {
    large(process(fabric, id))
}

fn large(builder: Builder) -> Builder {
    builder.tune_any_size(|config| {
        // No process may count as failed because this machine is busy.
        config.dead_after_ns = 60_000_000_000;
        config.object_len_max = 64 << 20;
    })
}

/// Joins pipes for processes 0 to `count`, which know each other.
fn meet(fabric: &str, count: u32) -> Vec<Pipe> {
    let join = |id| any_size(fabric, id).join().expect("the id is free");
    let pipes: Vec<Pipe> = (0..count).map(join).collect();
    for pipe in &pipes {
        assert!(pipe.wait_for_peers(count as usize - 1, DEADLINE));
    }
    pipes
}

/// Returns a payload unique to `number`.
fn payload(number: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ number).collect()
}

/// Returns the position and length of a message.
fn key(received: &Received) -> (u64, u32, u16, usize) {
    let Received { timestamp, from, index, payload, .. } = received;
    (timestamp.as_ns(), from.0, *index, payload.len())
}

#[test]
fn small_and_large_payloads_share_one_order() {
    check_one_order(meet(&fabric("large"), 3), [100, 5 << 20, 70_000, 10]);
}

#[test]
fn small_and_large_payloads_share_one_order_over_udp() {
    let switch = Running::start("127.0.0.1:0");
    let pipes = join_and_exchange((0..3).map(|id| large(switch::process(&switch, id))).collect());
    check_one_order(pipes, [100, 5 << 20, 70_000, 10]);
}

#[test]
fn lost_and_corrupted_frames_are_retransmitted() {
    let faults = Faults { loss: 0.02, corruption: 0.01, seed: 11, ..Faults::default() };
    let switch = Running::start_with("127.0.0.1:0", |config| config.faults = faults);
    let pipes = join_and_exchange((0..3).map(|id| large(switch::process(&switch, id))).collect());
    check_one_order(pipes, [100, 1 << 20, 70_000, 10]);
}

/// Three processes scatter reliably to all, and all deliver the same order.
fn check_one_order(mut pipes: Vec<Pipe>, sizes: [usize; 4]) {
    let mut firsts = [None; 3];
    for (sender, round) in [(0, 0u8), (1, 1), (2, 2), (0, 3)] {
        for (number, bytes) in sizes.into_iter().enumerate() {
            let payload = payload(round * 4 + number as u8, bytes);
            let all = [to(0, &payload), to(1, &payload), to(2, &payload)];
            let id =
                pipes[sender].scatter_reliably_wait(&all, DEADLINE).expect("there is capacity");
            let first = *firsts[sender].get_or_insert(id.0);
            let before = if round == 3 { 4 } else { 0 };
            assert_eq!(id.0, first + before + number as u64, "ids follow the order of submission");
        }
    }
    let logs: Vec<Vec<Received>> =
        pipes.iter_mut().map(|pipe| (0..16).map(|_| message(pipe)).collect()).collect();
    for log in &logs {
        let order: Vec<_> =
            log.iter().map(|received| (received.timestamp, received.from)).collect();
        assert!(order.is_sorted(), "{order:?}");
        for received in log {
            let number = received.payload[0];
            assert!(received.payload == payload(number, received.payload.len()));
        }
    }
    // Not the index, which differs between receivers.
    let seen = |log: &Vec<Received>| -> Vec<_> {
        log.iter().map(key).map(|(at, from, _, bytes)| (at, from, bytes)).collect()
    };
    assert_eq!(seen(&logs[0]), seen(&logs[1]));
    assert_eq!(seen(&logs[0]), seen(&logs[2]));
    for mut pipe in pipes {
        pipe.leave().expect("all outcomes are known");
    }
}

#[test]
fn oversize_payloads_are_refused_at_once() {
    let name = fabric("too-large");
    let mut pipe = any_size(&name, 0).join().expect("the id is free");
    let too_large = vec![0; (64 << 20) + 1];
    let refused = pipe.scatter(&[to(0, &too_large)]);
    assert!(matches!(refused, Err(SendError::MessageTooLarge { index: 0, .. })), "{refused:?}");
    let mut plain = process(&name, 1).join().expect("the id is free");
    let refused = plain.scatter(&[to(1, &too_large)]);
    let max = 16 << 20;
    assert!(matches!(refused, Err(SendError::MessageTooLarge { max: most, .. }) if most == max));
}

#[test]
fn embedded_caller_borrows_payloads() {
    let name = fabric("large-embedded");
    let mut pair = [0, 1].map(|id| any_size(&name, id).embedded().expect("the id is free"));
    let sent = payload(9, 3 << 20);
    pair[0].scatter(&[to(1, &sent), to(1, b"small")]).expect("there is capacity");
    let mut found = vec![];
    let until = std::time::Instant::now() + DEADLINE;
    while found.len() < 2 && std::time::Instant::now() < until {
        pair[0].poll(|event| panic!("the sender gets no event: {event:?}"));
        pair[1].poll(|event| {
            if let Event::Message(received) = event {
                found.push((received.index, received.payload == &sent[..], received.payload.len()));
            }
        });
        std::thread::yield_now();
    }
    assert_eq!(found, [(0, true, 3 << 20), (1, false, 5)]);
}

/// Without controllers no process is declared failed: the payload cannot reach all receivers, so
/// none delivers it, and its sender is notified.
#[test]
fn payload_to_a_silent_receiver_is_lost_for_all_over_udp() {
    const SILENT_NS: u64 = 1_500_000_000;
    // The switch delivers nothing beside a silent process before its link timeout.
    let switch = Running::start_with("127.0.0.1:0", |config| config.link_timeout_ns = SILENT_NS);
    let impatient = |id| {
        large(switch::process(&switch, id)).tune_any_size(|config| config.dead_after_ns = SILENT_NS)
    };
    let mut pipes = join_and_exchange((0..2).map(impatient).collect());
    let mut silent = impatient(2).embedded().expect("the switch is there");
    // Wait until the switch knows its address, and it knows the others.
    let until = Instant::now() + DEADLINE;
    let mut has_received = false;
    while !has_received && Instant::now() < until {
        let _ = pipes[0].scatter(&[to(2, b"hello")]);
        silent.poll(|event| has_received |= matches!(event, Event::Message(_)));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(has_received);
    let sent = payload(5, 1 << 20);
    let id = pipes[0].scatter(&[to(1, &sent), to(2, &sent)]).expect("there is capacity");
    let began = Instant::now();
    let mut lost = vec![];
    while lost.len() < 2 && began.elapsed() < DEADLINE {
        match pipes[0].recv_timeout(Duration::from_millis(100)) {
            Some(Event::SendFailed(failed)) if failed.scattering == id => {
                assert_eq!(failed.outcome, Outcome::Lost);
                lost.push(failed.to.0);
            }
            Some(Event::SendFailed(_)) | None => {}
            other => panic!("{other:?}"),
        }
    }
    lost.sort_unstable();
    assert_eq!(lost, [1, 2]);
    assert_eq!(pipes[1].recv_timeout(Duration::from_millis(300)), None, "no message was delivered");
    // The others go on.
    let more = payload(6, 1 << 20);
    pipes[0].scatter(&[to(1, &more)]).expect("there is capacity");
    assert!(message(&mut pipes[1]).payload == more);
}
