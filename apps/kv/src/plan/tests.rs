use alloc::string::ToString;
use alloc::vec;

use onepipe_base::Timestamp;
use onepipe_transaction::State;
use proptest::prelude::*;

use super::*;
use crate::Store;

/// A store of several shards that executes command lines.
struct Shards {
    stores: Vec<Store>,
    at_ns: u64,
}

impl Shards {
    fn new(shards: u16) -> Self {
        let stores = (0..shards).map(|_| Store::default()).collect();
        Self { stores, at_ns: 1_800_000_000_000_000_000 }
    }

    /// Executes the commands as one transaction, at a later timestamp than the one before.
    fn run(&mut self, commands: &[Command]) -> Vec<Value> {
        self.at_ns += 1_000;
        let at = Timestamp::from_ns(self.at_ns);
        let plan = Plan::new(commands, u16::try_from(self.stores.len()).expect("few shards"));
        let mut results = Vec::new();
        for (shard, part) in plan.parts() {
            let store = &mut self.stores[usize::from(*shard)];
            let mut result = Vec::new();
            match plan.is_read_only() {
                true => drop(store.read(at, part, &mut result)),
                false => store.execute(at, part, &mut result),
            }
            results.push((*shard, result));
        }
        let results: Vec<_> = results.iter().map(|(shard, result)| (*shard, &result[..])).collect();
        plan.replies(&results).expect("the results are those of the parts")
    }

    /// Executes one line, and returns the reply as `testdata/replies.txt` has it.
    fn reply(&mut self, line: &str) -> String {
        let command = match Command::parse(&words(line)) {
            Ok(command) => command,
            Err(error) => return format!("-{error}"),
        };
        let mut reply = self.run(core::slice::from_ref(&command)).remove(0);
        if let ("keys" | "hkeys", Value::Array(keys)) = (command.name(), &mut reply) {
            keys.sort_by_key(shown);
        }
        if let ("scan", Value::Array(pair)) = (command.name(), &mut reply)
            && let [_, Value::Array(keys)] = &mut pair[..]
        {
            keys.sort_by_key(shown);
        }
        shown(&reply)
    }
}

/// Divides a line into words, of which some are quoted.
fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut rest) = (Vec::new(), line);
    while !rest.is_empty() {
        let (quote, body) = match rest.strip_prefix('"') {
            Some(body) => ('"', body),
            None => (' ', rest),
        };
        let (word, after) = body.split_once(quote).unwrap_or((body, ""));
        words.push(word.as_bytes().to_vec());
        rest = after.trim_start();
    }
    words
}

/// Returns a reply as text, in the types of RESP2.
fn shown(value: &Value) -> String {
    let array = |values: &mut dyn Iterator<Item = &Value>| {
        format!("[{}]", values.map(shown).collect::<Vec<_>>().join(", "))
    };
    match value {
        Value::Ok => "+OK".to_string(),
        Value::Simple(text) => format!("+{text}"),
        Value::Error(text) => format!("-{text}"),
        Value::Integer(integer) => format!(":{integer}"),
        Value::Bulk(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            format!("\"{}\"", text.replace('"', "\\\"").replace('\0', "\\0"))
        }
        Value::Null => "nil".to_string(),
        Value::NullArray => "nil-array".to_string(),
        Value::Double(score) => format!("\"{score}\""),
        Value::Array(values) | Value::Set(values) => array(&mut values.iter()),
        Value::Map(pairs) | Value::Pairs(pairs) => {
            array(&mut pairs.iter().flat_map(|(one, other)| [one, other]))
        }
    }
}

const REPLIES: &str = include_str!("../../testdata/replies.txt");
const NOT_SUPPORTED: &str = "would need the value of one shard on another";

/// Executes the lines of the table, and returns those with another reply than Redis gives.
fn differences(shards: u16) -> Vec<String> {
    let mut differences = Vec::new();
    let mut store = Shards::new(shards);
    let mut lines = REPLIES.lines();
    while let Some(line) = lines.next() {
        match line.strip_prefix("> ") {
            Some(command) => {
                let expected = lines.next().expect("a reply follows each command");
                let reply = store.reply(command);
                if reply != expected {
                    differences
                        .push(format!("{command}\n  expected {expected}\n  received {reply}"));
                }
            }
            None => store = Shards::new(shards),
        }
    }
    differences
}

#[test]
fn replies_are_those_of_redis() {
    let differences = differences(1);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn replies_of_many_shards_are_those_of_redis() {
    // `MSETNX` is refused over several shards, and a call of `SCAN` reads one.
    let differences = differences(5);
    let is_expected = |text: &str| text.contains(NOT_SUPPORTED) || text.starts_with("SCAN 0");
    let unexpected = differences.iter().filter(|text| !is_expected(text));
    let unexpected: Vec<_> = unexpected.collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    assert!(!differences.is_empty());
}

#[test]
fn commands_of_a_block_are_one_part_a_shard() {
    let mut store = Shards::new(3);
    let lines = ["SET a 1", "LPUSH a x", "INCR a", "RENAME a b", "MGET a b c", "DBSIZE"];
    let commands: Vec<Command> =
        lines.iter().map(|line| Command::parse(&words(line)).expect("a command")).collect();
    let plan = Plan::new(&commands, 3);
    let shards: Vec<u16> = plan.parts().iter().map(|(shard, _)| *shard).collect();
    assert_eq!(shards, [0, 1, 2]);
    assert!(!plan.is_read_only());
    let replies: Vec<String> = store.run(&commands).iter().map(shown).collect();
    assert_eq!(replies[..3], ["+OK", &wrong_type(), ":2"]);
    assert!(replies[3].starts_with("-ERR RENAME over keys of several shards"), "{}", replies[3]);
    assert_eq!(replies[4..], ["[\"2\", nil, nil]", ":1"]);
}

fn wrong_type() -> String {
    "-WRONGTYPE Operation against a key holding the wrong kind of value".to_string()
}

#[test]
fn a_scan_returns_every_key_once() {
    let mut store = Shards::new(4);
    for number in 0..100 {
        store.reply(&format!("SET key:{number} v"));
    }
    let (mut cursor, mut found, mut steps) = ("0".to_string(), Vec::new(), 0);
    loop {
        let command = Command::parse(&words(&format!("SCAN {cursor} COUNT 7"))).expect("a command");
        let Value::Array(pair) = store.run(&[command]).remove(0) else { panic!() };
        let [Value::Bulk(next), Value::Array(keys)] = &pair[..] else { panic!() };
        assert!(keys.len() <= 7, "a hash of its own for each key");
        found.extend(keys.iter().map(shown));
        cursor = String::from_utf8(next.clone()).expect("digits");
        steps += 1;
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    found.dedup();
    assert_eq!((found.len(), steps > 14), (100, true));
    assert_eq!(store.reply("SCAN 99999999999999"), "-ERR invalid cursor");
}

#[test]
fn results_of_another_transaction_are_refused() {
    let command = Command::parse(&words("MGET a b")).expect("a command");
    let plan = Plan::new(&[command], 1);
    assert_eq!(plan.replies(&[]), Err(ReplyError::Missing(0)));
    assert_eq!(plan.replies(&[(0, &[])]), Err(ReplyError::Mismatch(0)));
    assert_eq!(plan.replies(&[(0, &[REFUSED])]), Err(ReplyError::Refused(0)));
    // One null, and three.
    assert_eq!(plan.replies(&[(0, &[EXECUTED, 5])]), Err(ReplyError::Mismatch(0)));
    assert_eq!(plan.replies(&[(0, &[EXECUTED, 5, 5, 5])]), Err(ReplyError::Mismatch(0)));
    let nulls = Value::Array(vec![Value::Null, Value::Null]);
    assert_eq!(plan.replies(&[(0, &[EXECUTED, 5, 5])]), Ok(vec![nulls]));
}

/// Lines with the name of a command and any words.
fn line() -> impl Strategy<Value = String> {
    let names = Command::specs().map(|spec| spec.name).filter(|name| *name != "setrange");
    let words = prop::sample::select(vec![
        "a", "b", "c", "{t}1", "{t}2", "0", "1", "2", "-1", "1.5", "(1", "inf", "EX", "NX", "XX",
        "GT", "CH", "INCR", "GET", "LEFT", "BYSCORE", "REV", "LIMIT", "COUNT", "MATCH", "*", "[a",
        "\"\"",
    ]);
    let words = prop::collection::vec(words, 0..6);
    let line = |(name, words): (&str, Vec<&str>)| format!("{name} {}", words.join(" "));
    (prop::sample::select(names.collect::<Vec<_>>()), words).prop_map(line)
}

proptest! {
    #[test]
    fn replies_do_not_depend_on_the_number_of_shards(
        lines in prop::collection::vec(line(), 1..40),
    ) {
        let (mut one, mut many) = (Shards::new(1), Shards::new(5));
        // A call of `SCAN` reads one shard, so that its reply depends on their number.
        for line in lines.iter().filter(|line| !line.starts_with("scan")) {
            let reply = many.reply(line);
            // A refused command has changed the store of one shard: the states differ from then on.
            if reply.contains(NOT_SUPPORTED) {
                break;
            }
            prop_assert_eq!(one.reply(line), reply, "{}", line);
        }
    }

    #[test]
    fn arbitrary_results_never_panic(bytes in prop::collection::vec(0_u8..16, 0..40)) {
        for line in ["SCAN 0", "KEYS *", "SINTER a b", "MGET a b", "DEL a b", "DBSIZE"] {
            let command = Command::parse(&words(line)).expect("a command");
            let _ = Plan::new(&[command], 1).replies(&[(0, &bytes)]);
        }
    }

    #[test]
    fn values_have_one_encoding(bytes in prop::collection::vec(0_u8..13, 0..40)) {
        let mut reader = Reader::new(&bytes);
        if let Some(value) = Value::take(&mut reader) {
            let mut encoded = Vec::new();
            value.put(&mut encoded);
            prop_assert!(bytes.starts_with(&encoded));
        }
    }
}

#[test]
fn replies_that_exceed_a_message_are_errors() {
    let mut shards = Shards::new(1);
    let value = vec![b'v'; 8 << 20];
    for key in [b"a", b"b"] {
        let set = [b"SET".to_vec(), key.to_vec(), value.clone()];
        assert_eq!(shards.run(&[Command::parse(&set).expect("a command")]), [Value::Ok]);
    }
    let parse = |line| Command::parse(&words(line)).expect("a command");
    let lines = ["GET a", "MGET c b", "INCR n", "GET n"].map(parse);
    let too_long = Value::Error(TOO_LONG.into());
    let [first, others @ ..] = &shards.run(&lines)[..] else { panic!("a reply to each") };
    assert!(*first == Value::Bulk(value), "what fits is there");
    assert!(others.iter().all(|reply| *reply == too_long), "no more than fits");
    assert_eq!(shards.reply("GET n"), "\"1\"");
    assert_eq!(shards.run(&[parse("MGET a b")]), [too_long]);
}
