//! Stores, plans and images of any bytes: random ones, and the fuzzer's corpus.

mod properties;

use proptest::prelude::*;

/// Parts of commands, with what follows each.
fn word() -> impl Strategy<Value = &'static str> {
    let words = [
        "\n",
        "\n\n",
        "GET a",
        "SET a ",
        "SET b ",
        "INCR a",
        "a",
        "b",
        " PX 1",
        " EX 1",
        " GET",
        "MSET a 1 b 2",
        "MGET a b",
        "RPUSH l 1 2",
        "LRANGE l 0 -1",
        "LPOP l 2",
        "SADD s x y",
        "SMEMBERS s",
        "ZADD z 1 m 2 n",
        "ZRANGE z 0 -1",
        "ZPOPMIN z",
        "HSET h f 1",
        "HGETALL h",
        "PEXPIRE a 1",
        "PTTL a",
        "TTL a",
        "PERSIST a",
        "DEL a b",
        "KEYS *",
        "DBSIZE",
        "SCAN 0",
        "RENAME a b",
        "COPY a b REPLACE",
        "FLUSHALL",
        "APPEND a x",
        "SINTERSTORE s s t",
        " ",
        "1",
    ];
    prop::sample::select(words.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_bytes_are_safe(
        mode in any::<u8>(), bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        properties::check_store(&[&[mode], &bytes[..]].concat());
    }

    #[test]
    fn arbitrary_commands_are_safe(
        shards in 0..5_u8, words in prop::collection::vec(word(), 0..60),
    ) {
        properties::check_store(&[&[shards * 4 + 2], words.concat().as_bytes()].concat());
    }
}

#[test]
fn corpus_inputs_are_safe() {
    onepipe_verify_testing::check_corpus("store", properties::check_store);
}
