//! Connections that receive any bytes: random ones, and the fuzzer's corpus.

mod properties;

use proptest::prelude::*;

/// Parts of requests. Random bytes alone seldom pass the first byte.
fn token() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "*1\r\n",
        "*2\r\n",
        "*3\r\n",
        "*-1\r\n",
        "$1\r\n",
        "$3\r\n",
        "$4\r\n",
        "$99\r\n",
        "GET\r\n",
        "SET\r\n",
        "a\r\n",
        "EXEC\r\n",
        "\r\n",
        "PING\r\n",
        "MULTI\r\n",
        "INCR a\r\n",
        "GET a\r\n",
        "SET a b\r\n",
        "EXEC\n",
        "DISCARD\r\n",
        "HELLO 3\r\n",
        "HELLO 2\r\n",
        "CLIENT LIST\r\n",
        "INFO\r\n",
        "COMMAND\r\n",
        "QUIT\r\n",
        "RESET\r\n",
        "AUTH x\r\n",
        "MGET a b c\r\n",
        "CONFIG GET *\r\n",
        "\"",
        "'",
        "\\x",
        "*",
        "$",
    ];
    prop_oneof![
        4 => prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        properties::check_connection(&bytes);
    }

    #[test]
    fn arbitrary_requests_are_safe(
        mode in any::<u8>(), tokens in prop::collection::vec(token(), 0..60),
    ) {
        let mut bytes = vec![mode];
        bytes.extend(tokens.concat());
        properties::check_connection(&bytes);
    }
}

#[test]
fn corpus_requests_are_safe() {
    onepipe_verify_testing::check_corpus("resp", properties::check_connection);
}
