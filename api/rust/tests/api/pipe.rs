//! Pipes over shared memory, driven by threads of their own.

use crate::harness;

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use harness::{DEADLINE, fabric, meet, message, number, process, to};
use onepipe::{
    Event, JoinError, LeaveError, Message, Pipe, ProcessId, ReceiveError, ReceiveMode,
    ScatteringId, SendError, Timestamp,
};

#[test]
fn all_receivers_see_one_order() {
    const EACH: u64 = 3_000;
    let mut pipes = meet(&fabric("order"), 3);
    let count = pipes.len() as u32;
    let logs: Vec<Vec<(Timestamp, ProcessId, u64)>> = std::thread::scope(|scope| {
        let run = |pipe: &mut Pipe| {
            let mut log = Vec::new();
            for number in 0..EACH {
                let payload = number.to_be_bytes();
                let all: Vec<Message<'_>> = (0..count).map(|id| to(id, &payload)).collect();
                pipe.scatter_wait(&all, DEADLINE).expect("the buffer drains");
                pipe.poll(|event| {
                    let Event::Message(m) = event else { panic!("{event:?}") };
                    let bytes = m.payload.try_into().expect("the payload begins with eight bytes");
                    log.push((m.timestamp, m.from, u64::from_be_bytes(bytes)));
                });
            }
            while log.len() < (EACH * u64::from(count)) as usize {
                let m = message(pipe);
                log.push((m.timestamp, m.from, number(&m)));
            }
            log
        };
        let threads: Vec<_> = pipes.iter_mut().map(|pipe| scope.spawn(move || run(pipe))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(logs[0].is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
    assert_eq!(logs[0], logs[1]);
    assert_eq!(logs[0], logs[2]);
    for id in 0..count {
        let mine = logs[0].iter().filter(|entry| entry.1 == ProcessId(id)).map(|entry| entry.2);
        assert!(mine.eq(0..EACH), "each sender's own order is kept");
    }
}

#[test]
fn messages_of_a_scattering_share_a_timestamp() {
    let mut pipes = meet(&fabric("scattering"), 2);
    let [a, b] = &mut pipes[..] else { unreachable!() };
    let messages = [to(1, b"first"), to(0, b"mine"), to(1, b""), to(1, b"last")];
    assert_eq!(a.scatter(&messages), Ok(ScatteringId(0)));
    assert_eq!(a.scatter(&messages), Ok(ScatteringId(1)));
    let at_b: Vec<_> = (0..6).map(|_| message(b)).collect();
    let (mine, again) = (message(a), message(a));
    assert_eq!((mine.index, mine.from, &mine.payload[..]), (1, ProcessId(0), &b"mine"[..]));
    assert!(at_b[..3].iter().all(|m| m.timestamp == mine.timestamp));
    assert!(at_b[3..].iter().all(|m| m.timestamp == again.timestamp));
    let payloads: Vec<_> = at_b[..3].iter().map(|m| (m.index, &m.payload[..])).collect();
    assert_eq!(payloads, [(0, &b"first"[..]), (2, b""), (3, b"last")]);
    assert!(again.timestamp > mine.timestamp && a.now() > again.timestamp);
}

/// The first process of a segment gives the controllers, and no other one has to.
//= spec/ordering.md#R67
#[test]
fn controllers_of_the_first_process_are_adopted() {
    let name = fabric("controllers");
    let bounded = |id| process(&name, id).leave_timeout(Duration::ZERO);
    let first = bounded(0).controllers(7, 1).join().expect("the id is free");
    let second = bounded(1).join().expect("the id is free");
    assert_eq!(second.config().controllers, first.config().controllers);
    assert!(second.config().controllers.is_some());
    let error = bounded(2).controllers(6, 2).join().map(drop).expect_err("others than there");
    let JoinError::Mismatch { setting, ours, theirs } = error else { panic!("{error}") };
    assert_eq!((setting, &*ours, &*theirs), ("controllers", "6 to 7", "7"));

    let without = fabric("no-controllers");
    let _first = process(&without, 0).join().expect("the id is free");
    let error = process(&without, 1).controllers(7, 1).join().map(drop).expect_err("none there");
    assert!(matches!(error, JoinError::Mismatch { setting: "controllers", .. }), "{error}");
}

/// Returns a process of a fabric that states nothing but the id.
fn plain(fabric: &str, process: u32) -> onepipe::Builder {
    Pipe::builder().fabric(fabric).process(process).leave_timeout(Duration::ZERO)
}

fn mismatch(builder: onepipe::Builder) -> (&'static str, String, String) {
    match builder.join().map(drop).expect_err("not as the first process") {
        JoinError::Mismatch { setting, ours, theirs } => (setting, ours, theirs),
        error => panic!("{error}"),
    }
}

//= spec/ordering.md#R67
#[test]
fn link_timeout_of_the_first_process_is_adopted() {
    let name = fabric("link-timeout");
    let seven = Duration::from_secs(7);
    let _first = plain(&name, 0).link_timeout(seven).join().expect("the id is free");
    for second in [plain(&name, 1), plain(&name, 1).link_timeout(seven)] {
        let second = second.join().expect("the id is free");
        assert_eq!(second.config().link_timeout_ns, 7_000_000_000);
    }
    let (setting, ours, theirs) = mismatch(plain(&name, 1).link_timeout(2 * seven));
    assert_eq!((setting, &*ours, &*theirs), ("link timeout (ns)", "14000000000", "7000000000"));

    let _default = plain(&fabric("default-timeout"), 0).join().expect("the id is free");
    let (setting, _, theirs) = mismatch(plain(&fabric("default-timeout"), 1).link_timeout(seven));
    assert_eq!((setting, &*theirs), ("link timeout (ns)", "100000000"));
}

//= spec/ordering.md#R67
#[test]
fn receive_mode_of_the_first_process_is_adopted() {
    for (first, other) in
        [(ReceiveMode::Merged, ReceiveMode::Separate), (ReceiveMode::Separate, ReceiveMode::Merged)]
    {
        let name = fabric(&format!("mode-{first:?}"));
        let _first = plain(&name, 0).receive_mode(first).join().expect("the id is free");
        for second in [plain(&name, 1), plain(&name, 1).receive_mode(first)] {
            assert_eq!(second.join().expect("the id is free").config().receive_mode, first);
        }
        let (setting, ours, theirs) = mismatch(plain(&name, 1).receive_mode(other));
        let names = [other, first].map(|mode| format!("{mode:?}").to_lowercase());
        assert_eq!((setting, [ours, theirs]), ("receive mode", names));
    }
}

#[test]
fn taken_process_id_is_refused_with_its_owner() {
    let name = fabric("taken");
    let first = process(&name, 3).join().expect("the id is free");
    for error in [
        process(&name, 3).join().map(drop).expect_err("the id is taken"),
        process(&name, 3).embedded().map(drop).expect_err("the id is taken"),
    ] {
        let pid = std::process::id();
        let text =
            format!("process 3 of fabric {name:?} is taken by the live process with pid {pid}");
        assert!(error.to_string().starts_with(&text), "{error}");
        assert!(matches!(error, JoinError::Taken { process: ProcessId(3), .. }));
    }
    drop(first);
    process(&name, 3).join().expect("a dropped pipe frees its place");
}

#[test]
fn lowest_free_id_is_the_default() {
    let name = fabric("free");
    let zero = process(&name, 0).join().expect("the id is free");
    let one = Pipe::builder().fabric(&name).join().expect("there are free ids");
    assert_eq!((zero.process(), one.process()), (ProcessId(0), ProcessId(1)));
    assert_eq!(one.config().processes_max, 8, "the first process decides the number");
}

#[test]
fn join_errors_name_their_cause() {
    let text = |error: JoinError| {
        let source = error.source().map_or(String::new(), |source| format!(": {source}"));
        format!("{error}{source}")
    };
    let refused = |builder: onepipe::Builder| text(builder.join().expect_err("refused"));
    assert!(refused(process("no/name", 0)).contains("\"no/name\" in shared memory: "));
    let name = fabric("wrong");
    assert!(refused(process(&name, 8)).contains("process 8 is out of range"));
    let wrong = process(&name, 0).tune(|config| config.ack_packets = 0);
    assert_eq!(
        refused(wrong),
        "invalid configuration of process 0: ack_packets = 0 is out of range"
    );
    let wrong = process(&name, 0).tune(|config| config.frame_len_max = 60_000);
    assert!(refused(wrong).contains("60000 bytes exceeds the limit of this fabric, 8192 bytes"));
    assert!(refused(Pipe::builder().udp("127.0.0.1:1")).contains("no process id given"));
    assert!(
        refused(Pipe::builder().process(0).udp("nowhere"))
            .contains("\"nowhere\" is not the address")
    );
}

#[test]
fn impossible_scattering_is_refused_at_once() {
    let mut alone =
        process(&fabric("never"), 0).tune(small_buffers).join().expect("the id is free");
    let long = vec![0; (256 << 10) + 1];
    let payload = &long[1..];
    assert_eq!(alone.scatter(&[]), Err(SendError::Count(0)));
    assert_eq!(
        alone.scatter(&[to(0, b""), to(8, b"")]),
        Err(SendError::UnknownProcess { index: 1, process: 8, max: 8 })
    );
    assert_eq!(
        alone.scatter(&[to(0, &long)]),
        Err(SendError::MessageTooLarge { index: 0, len: long.len(), max: 256 << 10 })
    );
    let (need, max) = (5 * (payload.len() + 64), 1 << 20);
    assert_eq!(
        alone.scatter(&[to(0, payload); 5]),
        Err(SendError::ScatteringTooLarge { need, max })
    );
    assert_eq!(
        alone.scatter(&[to(0, b"good")]),
        Ok(ScatteringId(0)),
        "refused scatterings use no id"
    );
    assert_eq!(message(&mut alone).payload, b"good");
}

fn small_buffers(config: &mut onepipe::Config) {
    config.send_buffer_bytes_max = 1 << 20;
    config.receive_buffer_bytes_max = 2 << 20;
    config.window_bytes_max = 64 << 10;
    config.message_len_max = 256 << 10;
}

#[test]
fn slow_reader_fills_the_buffers_without_loss() {
    let name = fabric("full");
    let mut sender = process(&name, 0).tune(small_buffers).join().expect("the id is free");
    let mut reader = process(&name, 1).tune(small_buffers).join().expect("the id is free");
    assert!(sender.wait_for_peers(1, DEADLINE));
    let mut payload = [0; 4096];
    let mut sent: u64 = 0;
    // With an idle reader, batches, receive buffer, send buffer and requests fill one after
    // another.
    let full = loop {
        payload[..8].copy_from_slice(&sent.to_be_bytes());
        match sender.scatter_wait(&[to(1, &payload)], Duration::from_millis(300)) {
            Ok(id) => assert_eq!(id, ScatteringId(sent)),
            Err(error) => break error,
        }
        sent += 1;
        assert!(sent < 100_000, "memory is bounded");
    };
    assert!(matches!(full, SendError::BufferFull { need: 4160, free } if free < 4160), "{full:?}");

    // It recovers: sending goes on. But one message read need not free capacity for one: batches
    // are published with varying fill.
    let (mut next, end) = (0, sent + 500);
    while next < end {
        let received = message(&mut reader);
        assert_eq!(number(&received), next);
        assert_eq!(received.payload.len(), payload.len());
        next += 1;
        while sent < end {
            payload[..8].copy_from_slice(&sent.to_be_bytes());
            // Everything sent has been read: now there must be capacity.
            let timeout = if next == sent { DEADLINE } else { Duration::ZERO };
            let Ok(id) = sender.scatter_wait(&[to(1, &payload)], timeout) else {
                assert!(next < sent, "there is capacity again");
                break;
            };
            assert_eq!(id, ScatteringId(sent));
            sent += 1;
        }
    }
    assert_eq!(sender.leave(), Ok(()));
    assert_eq!(sender.stats().endpoint.messages_lost, 0);
}

#[test]
fn longest_message_arrives_in_order() {
    let mut pipes = meet(&fabric("long"), 2);
    let [a, b] = &mut pipes[..] else { unreachable!() };
    let long: Vec<u8> = (0..16 << 20).map(|at: u32| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    a.scatter(&[to(1, b"before"), to(0, &long)]).expect("the message fits the buffer");
    for messages in [&[to(1, &long)], &[to(1, b"after")]] {
        a.scatter_wait(messages, DEADLINE).expect("the buffer drains");
    }
    assert_eq!(message(b).payload, b"before");
    assert!(message(a).payload == long, "16 MiB to itself");
    let received: Vec<_> = [message(b), message(b)].map(|m| m.payload).into();
    // A long message waits for its receiver's window; a short one may overtake it meanwhile.
    let (short, longer) = match received[0].len() < received[1].len() {
        true => (&received[0], &received[1]),
        false => (&received[1], &received[0]),
    };
    assert!(*longer == long && short == b"after");
}

#[test]
fn after_leaving_events_are_readable_and_sends_fail() {
    let name = fabric("leave");
    let mut pipes = meet(&name, 2);
    let [a, b] = &mut pipes[..] else { unreachable!() };
    for number in 0..100u64 {
        b.scatter_wait(&[to(0, &number.to_be_bytes())], DEADLINE).expect("there is capacity");
    }
    assert_eq!(b.leave(), Ok(()), "everything was acknowledged");
    assert_eq!(b.leave(), Ok(()), "leaving twice is allowed");
    assert_eq!(b.scatter(&[to(0, b"too late")]), Err(SendError::Left));
    assert_eq!(b.recv(), Err(ReceiveError::Left(ProcessId(1))));
    assert_eq!(b.recv_timeout(DEADLINE), None);
    // The id of a process that has left is free, and its departure is not reported.
    let second = process(&name, 1).join().expect("the id is free");
    drop(second);
    let first = number(&message(a));
    assert_eq!(first, 0);
    assert_eq!(a.leave(), Ok(()));
    for number in 1..100 {
        let Ok(Event::Message(m)) = a.recv() else { panic!("message {number} is missing") };
        assert_eq!(harness::number(&m), number);
    }
    assert_eq!(a.recv(), Err(ReceiveError::Left(ProcessId(0))));
}

#[test]
fn dropping_a_pipe_leaves() {
    let name = fabric("drop");
    let mut pipes = meet(&name, 3);
    let mut dropped = pipes.remove(2);
    dropped.scatter(&[to(0, b"last words"), to(1, b"last words")]).expect("there is capacity");
    drop(dropped);
    for pipe in &mut pipes {
        assert_eq!(message(pipe).payload, b"last words", "no loss is reported");
    }
    pipes[0].scatter(&[to(1, b"we go on")]).expect("there is capacity");
    assert_eq!(message(&mut pipes[1]).payload, b"we go on");
}

#[test]
fn message_to_an_absent_process_is_reported() {
    let mut alone = process(&fabric("nobody"), 0)
        .tune(|config| config.probes_max = 4)
        .join()
        .expect("the id is free");
    let id = alone.scatter(&[to(0, b"me"), to(5, b"nobody")]).expect("there is capacity");
    match alone.recv_timeout(DEADLINE) {
        Some(Event::SendFailed(failed)) => {
            assert_eq!((failed.scattering, failed.index, failed.to), (id, 1, ProcessId(5)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        message(&mut alone).payload,
        b"me",
        "other messages of the scattering are delivered"
    );
}

#[test]
fn callback_receives_messages() {
    let mut pipes = meet(&fabric("callback"), 2);
    let [a, b] = &mut pipes[..] else { unreachable!() };
    let (seen, log) = mpsc::channel();
    b.on_message(move |event| {
        let Event::Message(m) = event else { panic!("{event:?}") };
        seen.send((m.from, m.payload.to_vec())).expect("the test listens");
    });
    for number in 0..50u64 {
        a.scatter(&[to(1, &number.to_be_bytes())]).expect("there is capacity");
    }
    // Messages that arrived before the callback took effect are received as usual.
    let mut next: u64 = 0;
    while let Some(event) = b.try_recv() {
        let Event::Message(m) = event else { panic!("{event:?}") };
        assert_eq!(number(&m), next);
        next += 1;
    }
    for number in next..50 {
        let expected = (ProcessId(0), number.to_be_bytes().to_vec());
        assert_eq!(log.recv_timeout(DEADLINE), Ok(expected));
    }
}

#[test]
fn batch_borrows_events_and_keeps_what_is_not_taken() {
    let mut pipes = meet(&fabric("batch"), 2);
    let [a, b] = &mut pipes[..] else { unreachable!() };
    for number in 0..100u64 {
        a.scatter(&[to(1, &number.to_be_bytes())]).expect("there is capacity");
    }
    let mut next: u64 = 0;
    while next < 100 {
        // One event of each batch, then one by itself, then the rest.
        for take in [1, 0, usize::MAX] {
            let events = b.recv_batch_timeout(Duration::ZERO);
            assert_eq!(events.size_hint().1, Some(events.len()));
            for event in events.take(take) {
                let Event::Message(m) = event else { panic!("{event:?}") };
                assert_eq!(m.payload, next.to_be_bytes());
                next += 1;
            }
            if let Some(event) = b.try_recv() {
                let Event::Message(m) = event else { panic!("{event:?}") };
                assert_eq!(number(&m), next);
                next += 1;
            }
        }
    }
    assert_eq!(b.leave(), Ok(()));
    assert!(matches!(b.recv_batch().map(drop), Err(ReceiveError::Left(ProcessId(1)))));
}

#[test]
fn thread_takes_over_while_the_caller_is_away() {
    let mut pipes = meet(&fabric("away"), 2);
    let [a, b] = &mut pipes[..] else { unreachable!() };
    for round in 0..20u64 {
        // Both drive in turn, so that both threads stand by.
        a.scatter(&[to(1, &round.to_be_bytes())]).expect("there is capacity");
        assert_eq!(number(&message(b)), round);
        b.scatter(&[to(0, &round.to_be_bytes())]).expect("there is capacity");
        assert_eq!(number(&message(a)), round);
    }
    // There is no call of `a` from here on: its thread acknowledges, or `b` could not leave.
    for number in 0..100u64 {
        b.scatter_reliably(&[to(0, &number.to_be_bytes())]).expect("there is capacity");
    }
    assert_eq!(b.leave(), Ok(()));
    assert_eq!(b.stats().endpoint.messages_lost, 0);
}

#[test]
fn scatterings_leave_without_another_call() {
    let mut pipes = meet(&fabric("coalesced"), 2);
    let [a, b] = &mut pipes[..] else { unreachable!() };
    for round in 0..20u64 {
        // The caller drives, so that the thread stands by.
        assert_eq!(a.try_recv(), None);
        // Faster than the first of them is sent: the rest waits for the thread.
        for number in 0..50u64 {
            a.scatter(&[to(1, &(round * 50 + number).to_be_bytes())]).expect("there is capacity");
        }
        for number in 0..50u64 {
            assert_eq!(self::number(&message(b)), round * 50 + number);
        }
    }
}

#[test]
fn panicking_callback_ends_its_own_pipe_only() {
    let mut pipes = meet(&fabric("panic"), 3);
    let [a, b, c] = &mut pipes[..] else { unreachable!() };
    b.on_message(|_| panic!("on purpose"));
    // The callback is in place before the message arrives, or at the latest with the second one.
    while b.recv_timeout(Duration::from_millis(1)).is_some() || b.scatter(&[to(1, b"")]).is_ok() {}
    assert_eq!(b.recv(), Err(ReceiveError::Left(ProcessId(1))));
    assert_eq!(b.leave(), Err(LeaveError::Panicked(ProcessId(1))));
    a.scatter(&[to(2, b"we go on")]).expect("there is capacity");
    assert_eq!(message(c).payload, b"we go on");
}
