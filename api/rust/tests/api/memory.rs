//! Registered memory over shared memory and through a switch.

use crate::harness;

use std::thread;
use std::time::Duration;

use harness::switch::{self, Running, join_and_exchange};
use harness::{DEADLINE, fabric, message, process, to};
use onepipe::memory::{
    Executed, MemoryError, Operation, OperationError, Outcome, Processes, Reason, Refusal,
    RegionError, RegionId, RequestError, Rights, SubmitError,
};
use onepipe::{Builder, Event, Pipe, ProcessId, ReceiveMode, SendError};
use onepipe_memory::{Order, Request};
use onepipe_wire::MarkedMessage;

const REGION: RegionId = RegionId(3);

/// Owners are given up after this time, however busy this machine is.
fn patient(builder: Builder) -> Builder {
    builder.tune_memory(|options| options.client.give_up_ns = DEADLINE.as_nanos() as u64)
}

/// Joins pipes for processes 0 to `count` in shared memory.
fn meet(name: &str, count: u32) -> Vec<Pipe> {
    let name = fabric(&format!("memory-{name}"));
    let join = |id| patient(process(&name, id)).join().expect("the id is free");
    let pipes: Vec<Pipe> = (0..count).map(join).collect();
    for pipe in &pipes {
        assert!(pipe.wait_for_peers(count as usize - 1, DEADLINE));
    }
    pipes
}

/// Joins pipes for processes 0 to `count` through a switch.
fn meet_over_udp(switch: &Running, count: u32) -> Vec<Pipe> {
    join_and_exchange((0..count).map(|id| patient(switch::process(switch, id))).collect())
}

fn refusal(error: &OperationError) -> Refusal {
    match error {
        OperationError::Failed { reason: MemoryError::Refused(refusal), .. } => *refusal,
        other => panic!("{other}"),
    }
}

/// Returns what the only owner of a request has executed.
fn executed(pipe: &mut Pipe, owner: u32, batch: &[Operation<'_>]) -> Executed {
    let mut answers = pipe.execute(&[(ProcessId(owner), batch)]).expect("a sound request");
    let (process, answer) = answers.pop().expect("the owner answers");
    assert_eq!((process, answers.len()), (ProcessId(owner), 0));
    answer.expect("the owner allows it")
}

#[test]
fn operations_execute_without_owners_application() {
    check_operations(meet("operations", 2));
}

#[test]
fn operations_execute_without_owners_application_over_udp() {
    let switch = Running::start("127.0.0.1:0");
    check_operations(meet_over_udp(&switch, 2));
}

/// Each operation has its result, and the owner's application gets no event.
fn check_operations(mut pipes: Vec<Pipe>) {
    let [owner, client] = &mut pipes[..] else { panic!("two pipes") };
    owner.register(REGION, vec![0; 64], Rights::all()).expect("it is the first");
    let mut region = client.remote(ProcessId(0), REGION);
    let first = region.write(8, &[1, 0, 0, 0, 0, 0, 0, 1]).expect("all may write");
    let second = region.write(0, b"abc").expect("all may write");
    assert!(first < second, "operations have ascending timestamps");
    assert_eq!(region.read(6, 4).expect("all may read"), [0, 0, 1, 0]);
    let word = 1 | 1 << 56;
    assert_eq!(region.fetch_add(8, u64::MAX), Ok(word), "the sum is modulo 2^64");
    assert_eq!(region.compare_and_swap(8, word, 5), Ok(word - 1), "it has another value");
    assert_eq!(region.compare_and_swap(8, word - 1, 5), Ok(word - 1));
    assert_eq!(region.read(0, 16).expect("all may read")[..9], *b"abc\0\0\0\0\0\x05");
    assert_eq!(owner.with_region(REGION, |bytes| bytes[8..10].to_vec()), Ok(vec![5, 0]));
    owner.with_region(REGION, |bytes| bytes[63] = 9).expect("the region is there");
    assert_eq!(client.remote(ProcessId(0), REGION).read(63, 1), Ok(vec![9]));
    // The owner's own operations are in the order, too.
    assert_eq!(owner.remote(ProcessId(0), REGION).fetch_add(8, 1), Ok(5));
    assert_eq!(client.remote(ProcessId(0), REGION).fetch_add(8, 0), Ok(6));
    let zero = owner.memory_stats().expect("it has not left").owner;
    assert_eq!((zero.refused, zero.malformed), (0, 0), "{zero:?}");
    for pipe in &mut pipes {
        assert_eq!(pipe.try_recv(), None);
        pipe.leave().expect("all outcomes are known");
    }
    assert_eq!(pipes[0].with_region(REGION, |_| ()), Err(RegionError::Left));
    let left = pipes[1].remote(ProcessId(0), REGION).read(0, 1);
    assert_eq!(left, Err(OperationError::Request(RequestError::Left)));
}

#[test]
fn failed_compare_skips_rest_of_batch() {
    let mut pipes = meet("batch", 2);
    pipes[0].register(REGION, vec![0; 64], Rights::all()).expect("it is the first");
    let region = REGION;
    let batch = [
        Operation::FetchAdd { region, offset: 0, addend: 7 },
        Operation::CompareAndSwap { region, offset: 0, expected: 7, new: 8 },
        Operation::Write { region, offset: 16, bytes: b"done" },
    ];
    let first = executed(&mut pipes[1], 0, &batch).outcomes;
    let compared = |previous, is_swapped| Outcome::Compared { previous, is_swapped };
    assert_eq!(first, [Outcome::Added { previous: 0 }, compared(7, true), Outcome::Written]);
    let second = executed(&mut pipes[1], 0, &batch).outcomes;
    assert_eq!(second, [Outcome::Added { previous: 8 }, compared(15, false), Outcome::Skipped]);
}

/// In a fabric with one order of both services, requests have it, too.
#[test]
fn operations_execute_in_merged_order() {
    let name = fabric("memory-merged");
    let join = |id| {
        let builder = patient(process(&name, id)).receive_mode(ReceiveMode::Merged);
        builder.join().expect("the id is free")
    };
    let pipes: Vec<Pipe> = (0..2).map(join).collect();
    assert!(pipes[1].wait_for_peers(1, DEADLINE));
    check_operations(pipes);
}

#[test]
fn requests_in_owner_order_are_executed_once() {
    let mut pipes = meet("owner-order", 2);
    pipes[0].register(REGION, vec![0; 16], Rights::all()).expect("it is the first");
    let read = Operation::Read { region: REGION, offset: 8, len: 1 };
    let write = Operation::Write { region: REGION, offset: 8, bytes: b"x" };
    let add = Operation::FetchAdd { region: REGION, offset: 0, addend: 1 };
    let mut execute = |batch: &[Operation<'_>]| {
        let request = pipes[1].request_in_owner_order(ProcessId(0), batch);
        let completed = pipes[1].completed(DEADLINE).expect("the owner answers");
        assert_eq!(Ok(completed.request), request);
        completed.answers[0].1.as_ref().expect("all may read and write").outcomes.clone()
    };
    assert_eq!(execute(&[read]), [Outcome::Read(vec![0])]);
    for previous in 0..100 {
        let outcomes = [Outcome::Added { previous }, Outcome::Written, Outcome::Read(b"x".into())];
        assert_eq!(execute(&[add, write, read]), outcomes);
    }
    let count = pipes[0].with_region(REGION, |bytes| bytes[0]).expect("registered");
    assert_eq!(count, 100);
}

#[test]
fn two_owners_execute_requests_in_one_order() {
    check_one_order(meet("order", 4));
}

#[test]
fn two_owners_execute_requests_in_one_order_over_udp() {
    let switch = Running::start("127.0.0.1:0");
    check_one_order(meet_over_udp(&switch, 4));
}

/// Two clients add to a counter of each of two owners, by one request: if both owners execute all
/// requests in one order, both counters have the same value before each.
fn check_one_order(mut pipes: Vec<Pipe>) {
    const EACH: u64 = 200;
    for owner in &mut pipes[..2] {
        owner.register(REGION, vec![0; 8], Rights::all()).expect("it is the first");
    }
    let clients = pipes.split_off(2);
    let add = |mut client: Pipe| {
        let add = [Operation::FetchAdd { region: REGION, offset: 0, addend: 1 }];
        let batches = [(ProcessId(0), &add[..]), (ProcessId(1), &add[..])];
        let mut all = Vec::new();
        let mut submitted = 0;
        while all.len() < EACH as usize {
            // Several are in flight, so that those of the clients interleave.
            while submitted < EACH && submitted - (all.len() as u64) < 16 {
                client.request(&batches).expect("a sound request");
                submitted += 1;
            }
            let completed = client.completed(DEADLINE).expect("the owners answer");
            let answers = completed.answers.into_iter();
            let answers = answers.map(|(_, answer)| answer.expect("the owners allow it"));
            let answers: Vec<Executed> = answers.collect();
            assert_eq!(answers[0].at, answers[1].at, "one request has one timestamp");
            assert_eq!(answers[0].outcomes, answers[1].outcomes, "both execute in one order");
            all.push((answers[0].at, answers[0].outcomes.clone()));
        }
        assert_eq!(client.try_recv(), None);
        all
    };
    let mut all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            clients.into_iter().map(|client| scope.spawn(move || add(client))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    for (number, (_, outcomes)) in all.iter().enumerate() {
        assert_eq!(*outcomes, [Outcome::Added { previous: number as u64 }]);
    }
    for owner in &mut pipes {
        let sum = owner.with_region(REGION, |bytes| {
            u64::from_le_bytes([
                bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
            ])
        });
        assert_eq!(sum, Ok(2 * EACH));
    }
}

#[test]
fn rights_and_bounds_are_errors_that_say_why() {
    let mut pipes = meet("rights", 3);
    let rights = Rights {
        read: Processes::All,
        write: Processes::Only([ProcessId(1)].into()),
        atomics: Processes::None,
    };
    pipes[0].register(REGION, vec![0; 64], rights).expect("it is the first");
    let again = pipes[0].register(REGION, vec![0; 8], Rights::all());
    assert_eq!(again, Err(RegionError::Exists(REGION)));

    let mut region = pipes[2].remote(ProcessId(0), REGION);
    let error = region.write(0, b"x").expect_err("process 2 may not write");
    assert_eq!(refusal(&error), Refusal { index: 0, reason: Reason::NoRight });
    let text = error.to_string();
    assert!(text.starts_with("cannot write bytes 0..1 of region 3 of process 0: "), "{text}");
    let error = region.fetch_add(0, 1).expect_err("no process may");
    assert_eq!(refusal(&error).reason, Reason::NoRight);
    let error = region.read(60, 5).expect_err("the region ends before");
    assert_eq!(refusal(&error).reason, Reason::OutOfBounds { len: 64 });
    let error = region.read(u64::MAX, u32::MAX).expect_err("the end has no number");
    assert_eq!(refusal(&error).reason, Reason::OutOfBounds { len: 64 });
    assert_eq!(region.read(64, 0), Ok(vec![]), "nothing is within the bounds");
    let error = pipes[2].remote(ProcessId(0), RegionId(4)).read(0, 1);
    assert_eq!(refusal(&error.expect_err("there is none")).reason, Reason::UnknownRegion);

    // A batch is executed as a whole or not at all.
    let batch = [
        Operation::Write { region: REGION, offset: 0, bytes: b"mine" },
        Operation::Read { region: REGION, offset: 63, len: 2 },
    ];
    let answers = pipes[1].execute(&[(ProcessId(0), &batch)]).expect("a sound request");
    let refused = Refusal { index: 1, reason: Reason::OutOfBounds { len: 64 } };
    assert_eq!(answers, [(ProcessId(0), Err(MemoryError::Refused(refused)))]);
    assert_eq!(pipes[0].with_region(REGION, |bytes| bytes[..4].to_vec()), Ok(vec![0; 4]));

    pipes[0].set_rights(REGION, Rights::all()).expect("the region is there");
    let error = pipes[2].remote(ProcessId(0), REGION).fetch_add(4, 1);
    assert_eq!(refusal(&error.expect_err("no word")).reason, Reason::Misaligned);
    assert_eq!(pipes[2].remote(ProcessId(0), REGION).fetch_add(8, 1), Ok(0));
    pipes[0].deregister(REGION).expect("the region is there");
    assert_eq!(pipes[0].deregister(REGION), Err(RegionError::Unknown(REGION)));
    let error = pipes[2].remote(ProcessId(0), REGION).read(0, 1);
    assert_eq!(refusal(&error.expect_err("it is gone")).reason, Reason::UnknownRegion);

    let refused = pipes[2].execute(&[]);
    assert_eq!(refused, Err(RequestError::Submit(SubmitError::Empty)));
}

/// A payload of the application is delivered as it is, whatever it looks like.
#[test]
fn messages_never_pass_for_requests() {
    let name = fabric("forged");
    let plain = |id| patient(process(&name, id));
    check_forged([0, 1].map(|id| plain(id).join().expect("the id is free")));
    let name = fabric("forged-any-size");
    let any_size = |id| patient(process(&name, id)).any_size();
    check_forged([0, 1].map(|id| any_size(id).join().expect("the id is free")));
}

fn check_forged(mut pipes: [Pipe; 2]) {
    assert!(pipes[1].wait_for_peers(1, DEADLINE));
    pipes[0].register(REGION, vec![0; 8], Rights::all()).expect("it is the first");
    let write = Operation::Write { region: REGION, offset: 0, bytes: b"forged" };
    let request = Request::Execute {
        session: 1,
        number: 1,
        finished: 0,
        order: Order::Total,
        operations: vec![write],
    };
    let mut forged = Vec::new();
    MarkedMessage::Memory(&request.to_bytes()).write(|part| forged.extend_from_slice(part));
    let mut twice = Vec::new();
    MarkedMessage::Escaped(&forged).write(|part| twice.extend_from_slice(part));
    let mut large = forged.clone();
    large.resize(300_000, 1);
    for payload in [&forged, &twice, &large] {
        pipes[1].scatter_reliably(&[to(0, b"before"), to(0, payload)]).expect("there is capacity");
        assert_eq!(message(&mut pipes[0]).payload, b"before");
        assert!(message(&mut pipes[0]).payload == *payload);
    }
    assert_eq!(pipes[0].with_region(REGION, |bytes| bytes.to_vec()), Ok(vec![0; 8]));
    // The same bytes as a request are executed: the message was not harmless by chance.
    let mut region = pipes[1].remote(ProcessId(0), REGION);
    region.write(0, b"forged").expect("all may write");
    assert_eq!(region.read(0, 8), Ok(b"forged\0\0".to_vec()));
}

/// Payload of a large region.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8).collect()
}

fn check_large(mut pipes: Vec<Pipe>, bytes: usize) {
    pipes[0].register(REGION, vec![0; bytes + 1], Rights::all()).expect("it is the first");
    let sent = pattern(bytes);
    let mut region = pipes[1].remote(ProcessId(0), REGION);
    region.write(1, &sent).expect("all may write");
    assert!(region.read(1, bytes as u32) == Ok(sent), "{bytes} bytes come back");
    assert_eq!(pipes[0].try_recv(), None);
    assert_eq!(pipes[1].try_recv(), None);
}

#[test]
fn large_reads_and_writes_travel_as_messages() {
    check_large(meet("large-plain", 2), 3 << 20);
    let switch = Running::start("127.0.0.1:0");
    check_large(meet_over_udp(&switch, 2), 1 << 20);
}

#[test]
fn large_reads_and_writes_travel_by_bulk_multicast() {
    let name = fabric("large-any-size");
    let join = |id| {
        // No process may count as failed because this machine is busy.
        let builder = patient(process(&name, id)).tune_any_size(|config| {
            config.dead_after_ns = DEADLINE.as_nanos() as u64;
        });
        let builder =
            builder.tune_memory(|options| options.owner.reply_len_max = u64::from(u32::MAX));
        builder.join().expect("the id is free")
    };
    check_large((0..2).map(join).collect(), 20 << 20);
}

#[test]
fn results_beyond_the_longest_message_are_refused() {
    let name = fabric("too-long");
    let join = |id| {
        let builder = patient(process(&name, id)).tune(|config| config.message_len_max = 10_000);
        builder.join().expect("the id is free")
    };
    let mut pipes = [join(0), join(1)];
    pipes[0].register(REGION, vec![0; 20_000], Rights::all()).expect("it is the first");
    let mut region = pipes[1].remote(ProcessId(0), REGION);
    assert_eq!(region.read(0, 9_000).expect("short enough").len(), 9_000);
    let error = region.read(0, 10_000).expect_err("the reply is too long");
    let Reason::ResultTooLong { limit } = refusal(&error).reason else { panic!("{error}") };
    assert!((9_000..10_000).contains(&limit), "{limit}");
    let error = region.write(0, &[1; 10_000]).expect_err("the request is too long");
    assert!(
        matches!(&error, OperationError::Failed { reason: MemoryError::Unsendable, .. }),
        "{error}"
    );
    assert!(!error.may_be_executed());
    assert!(matches!(
        pipes[1].scatter(&[to(0, &[0; 10_001])]),
        Err(SendError::MessageTooLarge { .. })
    ));
}

/// Ids of the application's scatterings and their failures do not mix with those of requests.
#[test]
fn failures_of_requests_are_no_events() {
    let mut pipe = patient(process(&fabric("failures"), 0))
        .tune(|config| config.probes_max = 1)
        .tune_memory(|options| options.client.give_up_ns = 300_000_000)
        .join()
        .expect("the id is free");
    // No process has these ids.
    let read = [Operation::Read { region: REGION, offset: 0, len: 1 }];
    let add = [Operation::FetchAdd { region: REGION, offset: 0, addend: 1 }];
    pipe.request(&[(ProcessId(5), &read)]).expect("a sound request");
    pipe.request(&[(ProcessId(5), &add)]).expect("a sound request");
    let sent = pipe.scatter(&[to(6, b"lost")]).expect("there is capacity");
    assert!(pipe.open_scatterings().is_empty(), "requests are not the application's");
    let mut failed = 0;
    for _ in 0..2 {
        let completed = pipe.completed(DEADLINE).expect("it is given up");
        assert_eq!(completed.answers, [(ProcessId(5), Err(MemoryError::Unanswered))]);
    }
    while failed == 0 {
        match pipe.recv_timeout(DEADLINE) {
            Some(Event::SendFailed(event)) => {
                assert_eq!((event.scattering, event.to), (sent, ProcessId(6)));
                failed += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(pipe.try_recv(), None);
}

#[test]
fn completions_that_are_not_taken_count_as_in_flight() {
    let name = fabric("untaken");
    let join = |id| {
        let builder = patient(process(&name, id));
        let builder = builder.tune_memory(|options| options.client.pending_max = 4);
        builder.join().expect("the id is free")
    };
    let mut pipes = [join(0), join(1)];
    pipes[0].register(REGION, vec![1], Rights::all()).expect("it is the first");
    let read = [Operation::Read { region: REGION, offset: 0, len: 1 }];
    let full = RequestError::Submit(SubmitError::Full(4));
    for number in 0..10 {
        let submitted = pipes[1].request(&[(ProcessId(0), &read)]);
        assert_eq!(submitted.err(), (number >= 4).then_some(full), "request {number}");
        // The owner answers meanwhile.
        assert_eq!(pipes[0].recv_timeout(Duration::from_millis(1)), None);
        assert_eq!(pipes[1].try_recv(), None);
    }
    for _ in 0..4 {
        assert!(pipes[1].completed(DEADLINE).is_some());
    }
    assert!(pipes[1].request(&[(ProcessId(0), &read)]).is_ok());
}
