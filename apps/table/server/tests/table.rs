//! Tables over real pipes: clients meet at few keys, replicas are equal, and one may leave.

use std::time::{Duration, Instant};

use onepipe::memory::Rights;
use onepipe::{Builder, Pipe, ProcessId};
use onepipe_table_server::{Layout, Outcome, Table, TableError, serve};

/// No process may count as failed because this machine is busy.
const LONG: Duration = Duration::from_secs(60);
const LONG_NS: u64 = LONG.as_nanos() as u64;
/// Limit on a call that is expected to end by it.
const LIMIT: Duration = Duration::from_millis(200);
const KEYS: u64 = 5;
const LAYOUT: Layout = Layout { shards: 1, buckets: 2, nodes: 500, value_len: 8 };

fn tuned(builder: Builder) -> Builder {
    builder
        .processes(8)
        .tune(|config| {
            config.link_timeout_ns = LONG_NS;
            config.probes_max = 100_000;
        })
        .tune_memory(|options| options.client.give_up_ns = LONG_NS)
}

fn over_memory(name: &str) -> impl Fn(u32) -> Builder {
    let fabric = format!("test-table-{}-{name}", std::process::id());
    move |process| {
        let builder = Pipe::builder().fabric(&fabric).process(process);
        tuned(builder).link_timeout(LONG).tune_shared_memory(|config| config.hold_ns = LONG_NS)
    }
}

/// Replicas 0 to `replicas`, and two clients.
fn meet(
    replicas: u32,
    builder: impl Fn(u32) -> Builder,
    layout: Layout,
) -> (Vec<Pipe>, Vec<Table>) {
    let join = |process| builder(process).join().expect("the id is free");
    let mut servers: Vec<Pipe> = (0..replicas).map(join).collect();
    servers.iter_mut().for_each(|pipe| serve(pipe, layout, 0).expect("the first region"));
    let clients: Vec<Pipe> = (replicas..replicas + 2).map(join).collect();
    for pipe in servers.iter().chain(&clients) {
        assert!(pipe.wait_for_peers(replicas as usize + 1, LONG));
    }
    let ids: Vec<ProcessId> = (0..replicas).map(ProcessId).collect();
    let table = |pipe| Table::new(pipe, layout, vec![ids.clone()]);
    (servers, clients.into_iter().map(table).collect())
}

/// Two clients change the same keys at a time. Each key is inserted and removed in turn, so the
/// counts of both clients say whether it is in the table in the end.
fn check_clients(replicas: u32, builder: impl Fn(u32) -> Builder) {
    let (mut servers, tables) = meet(replicas, builder, LAYOUT);
    let changes = |mut table: Table| {
        let mut counts = [0_i64; KEYS as usize];
        for round in 0..60 {
            let key = round % KEYS;
            let value = (round * 10 + key).to_le_bytes();
            counts[key as usize] += i64::from(table.insert(key, &value).expect("it is there"));
            if let Some(value) = table.look_up(key).expect("it is there") {
                let value = u64::from_le_bytes(value.try_into().expect("8 bytes"));
                assert_eq!(value % 10, key, "a value that was written for the key");
            }
            if round % 3 > 0 {
                counts[key as usize] -= i64::from(table.remove(key).expect("it is there"));
            }
        }
        (table, counts)
    };
    let threads: Vec<_> =
        tables.into_iter().map(|table| std::thread::spawn(move || changes(table))).collect();
    let ended = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
    let (mut tables, counts): (Vec<Table>, Vec<_>) = ended.unzip();
    for key in 0..KEYS {
        let count: i64 = counts.iter().map(|counts| counts[key as usize]).sum();
        let found = tables[0].look_up(key).expect("it is there");
        assert_eq!(count, i64::from(found.is_some()), "key {key}");
    }
    let bytes: Vec<Vec<u8>> = servers
        .iter_mut()
        .map(|pipe| pipe.with_region(LAYOUT.region(0), |bytes| bytes.to_vec()).expect("registered"))
        .collect();
    assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "replicas differ");
    assert!(LAYOUT.content(&bytes[0]).is_some(), "the lists are sound");
}

#[test]
fn clients_of_one_replica_meet_at_keys() {
    check_clients(1, over_memory("one"));
}

#[test]
fn clients_of_three_replicas_meet_at_keys() {
    check_clients(3, over_memory("three"));
}

#[test]
fn table_goes_on_without_a_replica_that_has_left() {
    let (mut servers, mut tables) = meet(2, over_memory("leave"), LAYOUT);
    let table = &mut tables[0];
    assert_eq!(table.insert(1, b"one.....".as_slice()), Ok(true));
    servers.remove(0).leave().expect("nothing is in flight");
    assert_eq!(table.insert(2, b"two.....".as_slice()), Ok(true));
    for _ in 0..4 {
        assert_eq!(table.look_up(1), Ok(Some(b"one.....".to_vec())));
    }
    assert_eq!(table.remove(2), Ok(true));
}

#[test]
fn several_operations_are_in_flight() {
    let (_servers, mut tables) = meet(1, over_memory("many"), LAYOUT);
    let table = &mut tables[0];
    let value = [7; 8];
    for key in 10..40 {
        table.client_mut().insert(key, &value).expect("8 bytes");
    }
    // The result of an operation that is awaited in between is not mixed up with others.
    assert_eq!(table.insert(99, &value), Ok(true));
    for _ in 10..40 {
        let finished = table.finished(LONG).expect("the pipe has not left");
        assert_eq!(finished.map(|one| one.outcome), Some(Ok(Outcome::Inserted)));
    }
    let wrong = table.insert(1, b"short");
    assert_eq!(wrong, Err(TableError::ValueLen { len: 5, expected: 8 }));
}

#[test]
fn full_shard_refuses_insertions() {
    let layout = Layout { nodes: 3, ..LAYOUT };
    let (_servers, mut tables) = meet(2, over_memory("full"), layout);
    let outcomes: Vec<_> = (0..4).map(|key| tables[0].insert(key, &[0; 8])).collect();
    assert_eq!(outcomes, [Ok(true), Ok(true), Ok(true), Err(TableError::Full(0))]);
}

/// One replica has another version of the only bucket, as if it had started again: a change that is
/// repeated until all replicas have executed it would never end.
#[test]
fn replicas_that_differ_are_reported() {
    let layout = Layout { buckets: 1, ..LAYOUT };
    let (mut servers, mut tables) = meet(2, over_memory("differ"), layout);
    assert_eq!(tables[0].insert(1, &[1; 8]), Ok(true));
    let at = layout.location(2);
    let change = |bytes: &mut [u8]| bytes[at.bucket as usize] += 1;
    servers[1].with_region(layout.region(0), change).expect("it is registered");
    let error = tables[0].insert(2, &[2; 8]).expect_err("one replica refuses each change");
    let replicas = vec![ProcessId(0), ProcessId(1)];
    assert_eq!(error, TableError::ReplicasDiffer { shard: 0, replicas });
    let text = error.to_string();
    assert!(text.contains("shard 0 (processes 0, 1) differ"), "{text}");
    assert!(text.contains("fill the table again"), "{text}");
}

/// A replica that does not drive its pipe answers nothing, and has not ended either.
#[test]
fn call_ends_after_its_limit() {
    let builder = over_memory("limit");
    let mut idle = builder(0).embedded().expect("the id is free");
    idle.register(LAYOUT.region(0), LAYOUT.empty_shard(), Rights::all()).expect("the first one");
    let pipe = builder(1).join().expect("the id is free");
    let mut table = Table::new(pipe, LAYOUT, vec![vec![ProcessId(0)]]).with_limit(LIMIT);
    let began = Instant::now();
    let error = table.look_up(7).expect_err("no replica answers");
    assert!(began.elapsed() >= LIMIT);
    let expected = TableError::TimedOut {
        shard: 0,
        replicas: vec![ProcessId(0)],
        limit_ms: LIMIT.as_millis() as u64,
        may_be_executed: false,
    };
    assert_eq!(error, expected);
    let text = error.to_string();
    assert!(text.contains("shard 0 (process 0) has not ended within 200 ms"), "{text}");
    // Operations that several calls have in flight are limited as well.
    table.client_mut().look_up(8);
    let finished = table.finished(LONG).expect("the pipe has not left").expect("it ends");
    assert_eq!(finished.outcome, Err(expected));
    assert_eq!(table.client_mut().in_flight(), 0);
}
