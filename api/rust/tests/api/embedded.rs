//! Pipes driven by their caller's own thread, alone and among threaded ones.

use crate::harness;

use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

use harness::{DEADLINE, fabric, message, process, to};
use onepipe::{EmbeddedPipe, Event, LeaveError, Link, ProcessId, Received, SendError, Timestamp};

/// Drives all of `pipes` in turn, passing each event to `is_done` until it returns true.
fn drive(pipes: &mut [EmbeddedPipe], mut is_done: impl FnMut(usize, Option<Event<&[u8]>>) -> bool) {
    let start = Instant::now();
    loop {
        for (at, pipe) in pipes.iter_mut().enumerate() {
            let mut is_over = false;
            pipe.poll(|event| is_over |= is_done(at, Some(event)));
            if is_over || is_done(at, None) {
                return;
            }
        }
        assert!(start.elapsed() < DEADLINE, "the loop makes no progress");
    }
}

fn embedded(fabric: &str, count: u32) -> Vec<EmbeddedPipe> {
    (0..count).map(|id| process(fabric, id).embedded().expect("the id is free")).collect()
}

/// Joins pipes that know each other.
fn meet(fabric: &str, count: u32) -> Vec<EmbeddedPipe> {
    let mut pipes = embedded(fabric, count);
    let others = count as usize - 1;
    let start = Instant::now();
    while pipes.iter().any(|pipe| pipe.peers().len() < others) {
        drive(&mut pipes, |at, event| event.is_none() && at + 1 == count as usize);
        assert!(start.elapsed() < DEADLINE, "the pipes do not see each other");
    }
    pipes
}

#[test]
fn one_thread_drives_two_ends() {
    let mut pipes = meet(&fabric("two-ends"), 2);
    let id = pipes[0].scatter(&[to(1, b"to you"), to(0, b"to me")]).expect("there is capacity");
    assert_eq!(id.0, 0);
    let mut seen: Vec<(usize, Timestamp, u16, Vec<u8>)> = Vec::new();
    drive(&mut pipes, |at, event| {
        if let Some(Event::Message(Received { timestamp, index, payload, .. })) = event {
            seen.push((at, timestamp, index, payload.to_vec()));
        }
        seen.len() == 2
    });
    seen.sort_by_key(|seen| seen.0);
    assert_eq!((seen[0].0, seen[0].2, &seen[0].3[..]), (0, 1, &b"to me"[..]));
    assert_eq!((seen[1].0, seen[1].2, &seen[1].3[..]), (1, 0, &b"to you"[..]));
    assert_eq!(seen[0].1, seen[1].1);
    assert!(pipes[0].now() > seen[0].1);
}

#[test]
fn turn_keeps_events_for_the_next_poll() {
    let mut pipes = meet(&fabric("turn"), 2);
    pipes[0].scatter(&[to(1, b"kept")]).expect("there is capacity");
    let start = Instant::now();
    while !pipes[0].is_drained() {
        for pipe in &mut pipes {
            pipe.turn();
        }
        assert!(start.elapsed() < DEADLINE, "nothing is acknowledged");
    }
    assert_eq!(pipes[1].stats().endpoint.messages_delivered, 0);
    let mut seen = Vec::new();
    drive(&mut pipes, |at, event| {
        if let Some(Event::Message(m)) = event {
            seen.push((at, m.payload.to_vec()));
        }
        !seen.is_empty()
    });
    assert_eq!(seen, [(1, b"kept".to_vec())]);
}

#[test]
fn embedded_and_threaded_pipes_deliver_the_same_order() {
    const EACH: u64 = 2_000;
    let name = fabric("mixed");
    let mut threaded = process(&name, 0).join().expect("the id is free");
    let mut embedded = process(&name, 1).embedded().expect("the id is free");
    while embedded.peers().is_empty() {
        embedded.turn();
    }
    let (at_threaded, at_embedded) = std::thread::scope(|scope| {
        let threaded = scope.spawn(|| {
            assert!(threaded.wait_for_peers(1, DEADLINE));
            for number in 0..EACH {
                let payload = number.to_be_bytes();
                let both = [to(0, &payload), to(1, &payload)];
                threaded.scatter_wait(&both, DEADLINE).expect("the buffer drains");
            }
            let log = (0..2 * EACH).map(|_| message(&mut threaded));
            log.map(|m| (m.timestamp, m.from, m.payload)).collect::<Vec<_>>()
        });
        let (mut log, mut number, start) = (Vec::new(), 0, Instant::now());
        while log.len() < 2 * EACH as usize {
            if number < EACH {
                let payload = number.to_be_bytes();
                match embedded.scatter(&[to(0, &payload), to(1, &payload)]) {
                    Ok(_) => number += 1,
                    Err(error) => assert!(matches!(error, SendError::BufferFull { .. })),
                }
            }
            let progress = embedded.poll(|event| match event {
                Event::Message(m) => log.push((m.timestamp, m.from, m.payload.to_vec())),
                other => panic!("{other:?}"),
            });
            embedded.rest(progress);
            assert!(start.elapsed() < DEADLINE, "only {} messages came", log.len());
        }
        // The other pipe may not have received the acknowledgement of its last message yet.
        embedded.leave(|event| panic!("{event:?}")).expect("everything is acknowledged");
        (threaded.join().expect("no panic"), log)
    });
    assert_eq!(at_threaded, at_embedded);
}

#[test]
fn leaving_waits_for_outcomes_with_a_bound() {
    let name = fabric("unsettled");
    let mut pipes = meet(&name, 2);
    let undriven = pipes.pop().expect("there are two");
    let mut leaver = pipes.pop().expect("there are two");
    drop(leaver);
    leaver = process(&name, 0)
        .leave_timeout(std::time::Duration::from_millis(50))
        .embedded()
        .expect("the id is free");
    leaver.scatter(&[to(1, b"nobody drives you")]).expect("there is capacity");
    assert_eq!(leaver.leave(|_| {}), Err(LeaveError::Unresolved(ProcessId(0))));
    assert_eq!(undriven.process(), ProcessId(1));
    process(&name, 0).join().expect("the id is free after an unresolved leave");
}

#[test]
fn leaving_sends_pending_acknowledgements() {
    let name = fabric("acknowledged");
    let patient = |config: &mut onepipe::Config| {
        config.ack_delay_ns = 30_000_000;
        // Acknowledgements are delayed for long.
        config.ack_packets = 1_000;
        config.congestion_window_bytes = 1 << 20;
        config.probe_timeout_min_ns = 1_000_000_000;
    };
    let join = |id| process(&name, id).tune(patient).embedded().expect("the id is free");
    let mut pipes = vec![join(0), join(1)];
    // The first messages open the connection and its window.
    for _ in 0..8 {
        pipes[0].scatter(&[to(1, b"keep this")]).expect("there is capacity");
        drive(&mut pipes, |at, event| at == 1 && event.is_some());
    }
    let leaver = pipes.pop().expect("there are two");
    leaver.leave(|event| panic!("{event:?}")).expect("only an acknowledgement is pending");
    let start = Instant::now();
    while !pipes[0].is_drained() {
        pipes[0].poll(|event| panic!("{event:?}"));
        assert!(start.elapsed() < DEADLINE, "the outcomes stay unknown");
    }
    pipes[0].poll(|event| panic!("{event:?}"));
}

#[test]
fn full_send_buffer_is_an_error_and_drains_again() {
    let small = |config: &mut onepipe::Config| {
        config.send_buffer_bytes_max = 64 << 10;
        config.message_len_max = 16 << 10;
    };
    let mut alone =
        process(&fabric("full-embedded"), 0).tune(small).embedded().expect("the id is free");
    let payload = [1; 1000];
    let full = loop {
        if let Err(full) = alone.scatter(&[to(0, &payload)]) {
            break full;
        }
    };
    let free = (64 << 10) % 1064;
    assert_eq!(full, SendError::BufferFull { need: 1064, free });
    let (mut seen, mut pipes) = (0, [alone]);
    drive(&mut pipes, |_, event| {
        seen += u32::from(event.is_some());
        seen == (64 << 10) / 1064
    });
    pipes[0].scatter(&[to(0, &payload)]).expect("there is capacity again");
}

#[test]
fn undriven_pipe_delays_no_other() {
    // It promises and acknowledges nothing; the others are not affected.
    let mut pipes = meet(&fabric("undriven"), 3);
    let undriven = pipes.pop().expect("there are three");
    for round in 0..20u64 {
        pipes[0].scatter(&[to(1, &round.to_be_bytes())]).expect("there is capacity");
        drive(&mut pipes, |at, event| match event {
            Some(Event::LinkLost(Link::Process(ProcessId(2)))) => {
                panic!("an undriven process is alive")
            }
            Some(Event::Message(m)) => at == 1 && m.payload == round.to_be_bytes(),
            _ => false,
        });
    }
    drop(undriven);
}

/// Without the doorbell each hand-over takes until the end of a rest, up to 100 ms.
#[test]
fn doorbell_ends_a_rest() {
    const HAND_OVERS: u32 = 10;
    let fabric = fabric("doorbell");
    let (to_pipe, commands) = mpsc::channel();
    let (to_caller, answers) = mpsc::channel();
    let (send_bell, bells) = mpsc::channel();
    let driver = std::thread::spawn(move || {
        let mut pipe = process(&fabric, 0).embedded().expect("the id is free");
        send_bell.send(pipe.doorbell().expect("there are descriptors")).expect("it is awaited");
        loop {
            match commands.try_recv() {
                Ok(command) => to_caller.send(command).expect("it is awaited"),
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    let progress = pipe.turn();
                    pipe.rest(progress);
                }
            }
        }
    });
    let bell = bells.recv().expect("the pipe has joined");
    let hand_over = |number: u32, rings: bool| {
        // The driver rests by now.
        std::thread::sleep(Duration::from_millis(10));
        let began = Instant::now();
        to_pipe.send(number).expect("the driver runs");
        if rings {
            bell.ring();
        }
        assert_eq!(answers.recv_timeout(DEADLINE), Ok(number));
        began.elapsed()
    };
    let quiet: Duration = (0..HAND_OVERS).map(|number| hand_over(number, false)).sum();
    let rung: Duration = (0..HAND_OVERS).map(|number| hand_over(number, true)).sum();
    assert!(rung < quiet / 2, "{rung:?} with the doorbell, {quiet:?} without");
    drop(to_pipe);
    bell.ring();
    driver.join().expect("the driver ends");
}
