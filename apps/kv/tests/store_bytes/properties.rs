//! Properties of stores, plans and images of any bytes. Shared with `verify/fuzz`.

use onepipe_base::Timestamp;
use onepipe_kv::{Command, Plan, Store};
use onepipe_transaction::{Exact, State};
use xxhash_rust::xxh3::xxh3_64;

/// What a store holds before arbitrary bytes arrive: keys of each type, some with an expiry.
const FILL: &[&str] = &[
    "MSET a 1 b text c 2.5",
    "SET expiring 1 PX 1",
    "RPUSH list 1 2 3",
    "SADD set x y z",
    "HSET hash f 1 g 2",
    "ZADD sorted 1 m 2.5 n inf o",
    "PEXPIRE list 2",
];
/// Timestamp of the first part after those.
const FIRST_NS: u64 = 1_000_000;
/// A timestamp above those of loaded states, from which a little time is left.
const LAST_NS: u64 = u64::MAX - 3;
/// Reads that look at everything.
const READS: &[&str] = &["KEYS *", "DBSIZE", "SCAN 0 COUNT 100", "MGET a b c expiring"];

fn command(line: &[u8]) -> Option<Command> {
    let words = line.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect::<Vec<_>>();
    // A value of 512 MB, as `SETRANGE` makes it of one byte, needs more memory than a fuzzer has.
    let is_large = words[0].eq_ignore_ascii_case(b"SETRANGE")
        && words.get(2).is_some_and(|offset| offset.len() > 4);
    if is_large { None } else { Command::parse(&words).ok() }
}

fn commands(lines: &[&str]) -> Vec<Command> {
    lines.iter().map(|line| command(line.as_bytes()).expect("a command")).collect()
}

/// Returns a store of one shard that has executed [`FILL`].
fn filled() -> Store {
    let (mut store, plan) = (Store::default(), Plan::new(&commands(FILL), 1));
    for (_, part) in plan.parts() {
        store.execute(Timestamp::from_ns(1), part, &mut Vec::new());
    }
    store
}

/// Checks what arbitrary bytes do, of which the first chooses what they are: parts, an image,
/// commands, or results.
pub fn check_store(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    match mode % 4 {
        0 => check_parts(bytes),
        1 => check_image(mode / 4, bytes),
        2 => check_commands(u16::from(mode / 4) % 5 + 1, bytes),
        _ => check_results(bytes),
    }
}

/// Executes parts, each after its length and the time since the one before in units of 2^16 ns: two
/// stores agree, and stay equal to what is loaded of their images.
fn check_parts(mut bytes: &[u8]) {
    let (mut store, mut now_ns) = (filled(), FIRST_NS);
    let mut replica = store.clone();
    while let [len, pause, rest @ ..] = bytes {
        let (part, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        now_ns += u64::from(*pause) << 16;
        if has_large_offset(part) {
            continue;
        }
        execute(&mut store, &mut replica, now_ns, part);
    }
    check_saved(&store, now_ns);
}

/// Returns whether a part may hold a `SetRange` (code 105) that needs much memory: an offset of
/// three bytes or more.
fn has_large_offset(part: &[u8]) -> bool {
    let has_many = part.windows(2).filter(|pair| pair[0] >= 0x80 && pair[1] >= 0x80).count() > 0;
    part.contains(&105) && has_many
}

/// Executes a part on a store and its replica. A part that only reads has the results of a read,
/// and changes nothing. Returns the results.
fn execute(store: &mut Store, replica: &mut Store, at_ns: u64, part: &[u8]) -> Vec<u8> {
    let (at, before) = (Timestamp::from_ns(at_ns), store.digest());
    let (mut read, mut results, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let exact = store.read(at, part, &mut read);
    // All parts before were executed at or before this one.
    check_exact(store, exact, (at_ns, part), &read);
    store.execute(at, part, &mut results);
    replica.execute(at, part, &mut others);
    assert_eq!(results, others, "two replicas answer alike");
    // The first byte of refused results is 1.
    let is_read = read[0] == 0;
    if is_read || results[0] != 0 {
        assert_eq!(store.digest(), before, "a read and a refused part change nothing");
    }
    if is_read {
        assert_eq!(read, results, "a read answers what the same part in a write does");
    }
    results
}

/// Checks that a read has the same results at the ends of the interval that it states.
fn check_exact(store: &Store, exact: Exact, (at_ns, part): (u64, &[u8]), results: &[u8]) {
    let at = Timestamp::from_ns(at_ns);
    assert!(exact.from <= Some(at) && exact.until.is_none_or(|until| until > at), "{exact:?}");
    let last = exact.until.map(|until| Timestamp::from_ns(until.as_ns() - 1));
    for other in exact.from.into_iter().chain(last) {
        let mut again = Vec::new();
        store.read(other, part, &mut again);
        assert_eq!(results, again, "{exact:?} of {at:?} at {other:?}");
    }
}

/// Checks that a store equals what is loaded of its image, also in what it does next.
fn check_saved(store: &Store, now_ns: u64) {
    let (mut image, mut loaded) = (Vec::new(), Store::default());
    store.save(&mut image);
    assert!(loaded.load(&image), "a saved state is loaded");
    assert_eq!((&loaded, loaded.digest()), (store, store.digest()));
    let mut store = store.clone();
    for lines in [READS, FILL] {
        for (_, part) in Plan::new(&commands(lines), 1).parts() {
            execute(&mut store, &mut loaded, now_ns + 1, part);
        }
    }
}

/// Loads an image with the right checksum: arbitrary bytes, or a good image of which bytes are
/// changed. One that is loaded is saved as it was.
fn check_image(mode: u8, bytes: &[u8]) {
    let mut image = Vec::new();
    if mode.is_multiple_of(2) {
        image.extend_from_slice(bytes);
    } else {
        filled().save(&mut image);
        image.truncate(image.len() - 8);
        for edit in bytes.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % image.len();
            image[at] = edit[2];
        }
    }
    let checksum = xxh3_64(&image);
    image.extend(checksum.to_be_bytes());
    let mut store = filled();
    let before = store.digest();
    if store.load(&image) {
        let mut again = Vec::new();
        store.save(&mut again);
        assert_eq!(again, image);
        // The state may be one of any timestamp, but for the last ones.
        let plan = Plan::new(&commands(&["DBSIZE"]), 1);
        let last = Timestamp::from_ns(LAST_NS);
        if store.read(last, &plan.parts()[0].1, &mut Vec::new()).from <= Some(last) {
            check_saved(&store, LAST_NS);
        }
    } else {
        assert_eq!(store.digest(), before, "a refused image changes nothing");
    }
}

/// Executes lines of commands on some shards, each with two replicas. An empty line ends a
/// transaction. Each command has a reply.
fn check_commands(shards: u16, bytes: &[u8]) {
    let mut stores = vec![(Store::default(), Store::default()); usize::from(shards)];
    let (mut now_ns, mut transaction) = (FIRST_NS, Vec::new());
    for line in bytes.split(|byte| *byte == b'\n').chain([&[][..]]) {
        if !line.is_empty() {
            transaction.extend(command(line));
            continue;
        }
        now_ns += 500_000;
        let plan = Plan::new(&std::mem::take(&mut transaction), shards);
        let mut results = Vec::new();
        for (shard, part) in plan.parts() {
            let (store, replica) = &mut stores[usize::from(*shard)];
            results.push((*shard, execute(store, replica, now_ns, part)));
        }
        let results: Vec<(u16, &[u8])> =
            results.iter().map(|(shard, results)| (*shard, results.as_slice())).collect();
        plan.replies(&results).expect("the results are those of the plan");
    }
    stores.iter().for_each(|(store, _)| check_saved(store, now_ns));
}

/// Makes replies of arbitrary results of three shards, each after its length.
fn check_results(mut bytes: &[u8]) {
    let lines = ["MSET a 1 b 2 c 3", "MGET a b c", "SINTER a b c", "SCAN 0", "DBSIZE", "KEYS *"];
    let mut results = Vec::new();
    for shard in 0..3 {
        let Some((len, rest)) = bytes.split_first() else { break };
        let (result, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        results.push((shard, result));
        bytes = rest;
    }
    for line in lines {
        // An error says what does not fit.
        let _ = Plan::new(&commands(&[line]), 3).replies(&results);
    }
    let _ = Plan::new(&commands(&lines), 3).replies(&results);
}
