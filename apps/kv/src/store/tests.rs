use alloc::format;
use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::codec::Reader;
use crate::command::Command;

const ORIGIN_NS: u64 = 1_800_000_000_000_000_000;

fn at(offset_ns: u64) -> Timestamp {
    Timestamp::from_ns(ORIGIN_NS + offset_ns)
}

/// Returns the part of a command line for a store of one shard.
fn part(line: &str) -> Vec<u8> {
    let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    part_of(&words).expect("a command")
}

fn part_of(words: &[Vec<u8>]) -> Option<Vec<u8>> {
    let command = Command::parse(words).ok()?;
    let mut part = Vec::new();
    command.operations.iter().for_each(|operation| operation.put(&mut part));
    Some(part)
}

fn executed(store: &mut Store, offset_ns: u64, part: &[u8]) -> Vec<u8> {
    let mut results = Vec::new();
    store.execute(at(offset_ns), part, &mut results);
    results
}

fn read(store: &Store, timestamp: Timestamp, part: &[u8]) -> (Vec<u8>, Exact) {
    let mut results = Vec::new();
    let exact = store.read(timestamp, part, &mut results);
    (results, exact)
}

fn exact(store: &Store, offset_ns: u64, line: &str) -> (Option<u64>, Option<u64>) {
    let (_, exact) = read(store, at(offset_ns), &part(line));
    let offset = |timestamp: Timestamp| timestamp.as_ns() - ORIGIN_NS;
    (exact.from.map(offset), exact.until.map(offset))
}

#[test]
fn reads_are_exact_from_the_last_write_of_their_keys() {
    let mut store = Store::default();
    assert_eq!(exact(&store, 1, "GET a"), (None, None));
    executed(&mut store, 10, &part("SET a 1"));
    executed(&mut store, 20, &part("SET b 1 PX 1"));
    executed(&mut store, 30, &part("SET c 1 NX"));
    executed(&mut store, 40, &part("SET c 1 NX"));
    assert_eq!(exact(&store, 50, "GET a"), (Some(10), None));
    assert_eq!(exact(&store, 50, "MGET a b"), (Some(20), Some(1_000_020)));
    assert_eq!(exact(&store, 50, "GET c"), (Some(30), None));
    assert_eq!(exact(&store, 50, "GET never"), (None, None));
    assert_eq!(exact(&store, 50, "DBSIZE"), (Some(40), Some(1_000_020)));
    // The key expires, and is then removed by a write of another key.
    assert_eq!(exact(&store, 1_000_020, "GET b"), (Some(1_000_020), None));
    executed(&mut store, 2_000_000, &part("SET d 1"));
    assert_eq!(store.entries.len(), 3);
    assert_eq!(exact(&store, 2_000_000, "GET b"), (Some(1_000_020), None));
    executed(&mut store, 3_000_000, &part("DEL a"));
    assert_eq!(exact(&store, 3_000_001, "GET a"), (Some(3_000_000), None));
}

#[test]
fn the_time_to_live_is_exact_until_it_changes() {
    let mut store = Store::default();
    executed(&mut store, 0, &part("SET a 1 PX 10"));
    assert_eq!(exact(&store, 500_000, "PTTL a"), (Some(0), Some(1_000_000)));
    assert_eq!(exact(&store, 1_000_000, "PTTL a"), (Some(1_000_000), Some(2_000_000)));
    assert_eq!(exact(&store, 0, "TTL a"), (Some(0), Some(10_000_000)));
}

#[test]
fn expired_keys_are_removed_a_few_at_a_time() {
    let mut store = Store::default();
    for number in 0..40 {
        executed(&mut store, number, &part(&alloc::format!("SET key:{number} v PX 1")));
    }
    executed(&mut store, 5_000_000, &part("GET key:30"));
    assert_eq!(store.entries.len(), 40, "a read removes nothing");
    executed(&mut store, 5_000_000, &part("DEL x"));
    assert_eq!(store.entries.len(), 40 - SWEEP_MAX);
    let (results, _) = read(&store, at(5_000_000), &part("DBSIZE"));
    assert_eq!(results, [EXECUTED, 3, 0], "no expired key is counted");
    executed(&mut store, 5_000_001, &part("SET key:39 v NX"));
    executed(&mut store, 5_000_002, &part("DEL x"));
    assert_eq!((store.entries.len(), store.expiries.len()), (1, 0));
}

#[test]
fn a_write_does_not_see_an_expired_value() {
    let mut store = Store::default();
    for number in 0..40 {
        executed(&mut store, number, &part(&alloc::format!("RPUSH key:{number} v")));
        executed(&mut store, number, &part(&alloc::format!("PEXPIRE key:{number} 1")));
    }
    let results = executed(&mut store, 5_000_000, &part("RPUSH key:39 v"));
    assert_eq!(results, [EXECUTED, 3, 2], "the list has one element");
    assert_eq!(exact(&store, 5_000_001, "TTL key:39"), (Some(5_000_000), None));
}

#[test]
fn reads_of_all_keys_are_exact_between_two_expiries() {
    let mut store = Store::default();
    executed(&mut store, 1, &part("SET a 1 PX 1"));
    executed(&mut store, 2, &part("SET b 1 PX 3"));
    assert_eq!(exact(&store, 2_000_000, "DBSIZE"), (Some(1_000_001), Some(3_000_002)));
    assert_eq!(exact(&store, 2_000_000, "KEYS *"), (Some(1_000_001), Some(3_000_002)));
    assert_eq!(exact(&store, 9_000_000, "SCAN 0"), (Some(3_000_002), None));
}

#[test]
fn a_change_of_the_expiry_is_a_new_version() {
    let mut store = Store::default();
    executed(&mut store, 1, &part("SET a 1 PX 50"));
    executed(&mut store, 2, &part("EXPIREAT a 2000000000"));
    assert_eq!(exact(&store, 3, "EXPIRETIME a").0, Some(2));
    executed(&mut store, 4, &part("PERSIST a"));
    assert_eq!(exact(&store, 5, "TTL a"), (Some(4), None));
    executed(&mut store, 6, &part("EXPIRE a -1"));
    assert_eq!(exact(&store, 7, "GET a"), (Some(6), None));
    assert_eq!((store.entries.len(), store.expiries.len()), (0, 0));
}

/// Returns the results of a part with one operation.
fn results(value: Value) -> Vec<u8> {
    let mut results = vec![EXECUTED];
    value.put(&mut results);
    results
}

#[test]
fn an_overflow_of_a_field_is_no_wrong_number() {
    let mut store = Store::default();
    executed(&mut store, 10, &part("HSET h f 1.7e21 g x"));
    let sum = |store: &mut Store, field: &str| {
        executed(store, 20, &part(&format!("HINCRBYFLOAT h {field} 1.7e21")))
    };
    let overflow = "ERR increment would produce NaN or Infinity";
    assert_eq!(sum(&mut store, "f"), results(Value::Error(overflow.into())));
    assert_eq!(sum(&mut store, "g"), results(Value::Error("ERR hash value is not a float".into())));
}

#[test]
fn a_part_that_writes_is_refused_in_a_read() {
    let (results, exact) = read(&Store::default(), at(1), &part("SET a 1"));
    assert_eq!((results, exact), (vec![REFUSED], Exact { from: None, until: None }));
}

#[test]
fn changed_images_are_refused() {
    let mut store = Store::default();
    for line in ["SET a 1 PX 5", "HSET h f v", "SADD s 1 2", "RPUSH l a a", "ZADD z 1 m"] {
        let after = store.written.map_or(1, |written| written.as_ns() - ORIGIN_NS + 1);
        executed(&mut store, after, &part(line));
    }
    let mut image = Vec::new();
    store.save(&mut image);
    for index in 0..image.len() {
        let mut changed = image.clone();
        changed[index] ^= 1;
        let mut loaded = store.clone();
        assert!(!loaded.load(&changed) && !loaded.load(&image[..index]), "byte {index}");
        assert_eq!(loaded, store, "a refused image changes nothing");
    }
}

/// Commands with a number of arguments that fits, out of few keys and values.
fn command() -> impl Strategy<Value = Vec<u8>> {
    let specs: Vec<_> = Command::specs().filter(|spec| spec.name != "setrange").collect();
    let argument = prop::sample::select(vec![
        "0", "1", "2", "-1", "3", "m", "abc", "EX", "PX", "NX", "GT", "GET", "*", "LEFT", "BYSCORE",
    ]);
    let arguments = prop::collection::vec(argument, 6);
    let key = prop::sample::select(vec!["a", "b", "c"]);
    (prop::sample::select(specs), key.clone(), key, arguments, 0..4_usize).prop_filter_map(
        "a command",
        |(spec, key, other, arguments, more)| {
            let least = usize::try_from(spec.arity.unsigned_abs()).expect("a small arity") - 1;
            let len = if spec.arity < 0 { least + more } else { least };
            let first = match spec.keys.last {
                2 => vec![key, other],
                _ => vec![key],
            };
            let rest = arguments.iter().skip(first.len()).copied();
            let words =
                core::iter::once(spec.name).chain(first.iter().copied().chain(rest).take(len));
            part_of(&words.map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
        },
    )
}

/// Commands that are executed at the given intervals, some short and some beyond an expiry.
fn history() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    let gap_ns = prop::sample::select(vec![1, 1_000, 700_000, 1_000_000, 2_500_000, 1_000_000_000]);
    prop::collection::vec((gap_ns, command()), 1..40)
}

fn is_read(part: &[u8]) -> bool {
    let operations = decode_part(part).expect("a part that was encoded");
    !operations.iter().any(Operation::is_write)
}

/// Executes a history, and returns the timestamps with the store after each.
fn run(history: &[(u64, Vec<u8>)]) -> Vec<(u64, Store)> {
    let (mut store, mut now_ns) = (Store::default(), 0);
    let step = |(gap_ns, part): &(u64, Vec<u8>)| {
        now_ns += gap_ns;
        if !is_read(part) {
            executed(&mut store, now_ns, part);
        }
        (now_ns, store.clone())
    };
    history.iter().map(step).collect()
}

proptest! {
    #[test]
    fn states_are_equal_after_equal_parts(history in history()) {
        let (_, one) = run(&history).pop().expect("a history is not empty");
        let (_, other) = run(&history).pop().expect("a history is not empty");
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(one.digest(), other.digest());
        let mut image = Vec::new();
        one.save(&mut image);
        let mut loaded = Store::default();
        prop_assert!(loaded.load(&image));
        prop_assert_eq!(&loaded, &one);
        prop_assert_eq!(loaded.digest(), one.digest());
    }

    #[test]
    fn reads_are_exact_in_their_interval(history in history(), query in command()) {
        prop_assume!(is_read(&query));
        let states = run(&history);
        for (index, (now_ns, store)) in states.iter().enumerate() {
            let (expected, exact) = read(store, at(*now_ns), &query);
            prop_assert!(exact.from.is_none_or(|from| from <= at(*now_ns)));
            prop_assert!(exact.until.is_none_or(|until| until > at(*now_ns)));
            // Earlier timestamps of the interval, with the state of that time.
            for (earlier_ns, earlier) in &states[..index] {
                if exact.from.is_none_or(|from| from <= at(*earlier_ns)) {
                    prop_assert_eq!(&read(earlier, at(*earlier_ns), &query).0, &expected);
                }
            }
            if let Some(from) = exact.from {
                let state = states.iter().rfind(|(state_ns, _)| at(*state_ns) <= from);
                let (_, state) = state.expect("nothing was written before the first state");
                prop_assert_eq!(&read(state, from, &query).0, &expected);
            }
            // Later ones, if nothing more is written.
            let last = exact.until.map_or(at(now_ns + 5_000_000_000), |until| {
                until.saturating_sub_ns(1)
            });
            let middle = at(*now_ns).wrapping_add_ns(last.since_ns(at(*now_ns)) / 2);
            for later in [middle, last] {
                prop_assert_eq!(&read(store, later, &query).0, &expected);
            }
        }
    }

    #[test]
    fn reads_give_what_the_same_part_executed_gives(history in history(), query in command()) {
        prop_assume!(is_read(&query));
        let (now_ns, mut store) = run(&history).pop().expect("a history is not empty");
        let (expected, _) = read(&store, at(now_ns + 1), &query);
        prop_assert_eq!(executed(&mut store, now_ns + 1, &query), expected);
    }

    #[test]
    fn operations_have_one_encoding(
        code in 0_u8..160,
        bytes in prop::collection::vec(0_u8..5, 0..30),
    ) {
        let bytes = [&[code][..], &bytes].concat();
        let mut reader = Reader::new(&bytes);
        if let Some(operation) = Operation::take(&mut reader) {
            let mut encoded = Vec::new();
            operation.put(&mut encoded);
            prop_assert!(bytes.starts_with(&encoded));
        }
    }

    #[test]
    fn encoded_operations_are_decoded(part in command()) {
        let operations = decode_part(&part).expect("a part that was encoded");
        let mut encoded = Vec::new();
        operations.iter().for_each(|operation| operation.put(&mut encoded));
        prop_assert_eq!(encoded, part);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..60),
        small in prop::collection::vec(0_u8..6, 0..40),
        code in 0_u8..160,
    ) {
        let mut store = Store::default();
        let part = [&[code][..], &small].concat();
        for (offset_ns, part) in (1..).zip([&bytes, &small, &part]) {
            executed(&mut store, offset_ns, part);
            read(&store, at(offset_ns), part);
        }
        let before = store.clone();
        prop_assert!(!store.load(&bytes));
        prop_assert_eq!(store, before);
    }
}
