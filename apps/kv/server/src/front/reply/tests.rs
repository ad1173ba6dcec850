use onepipe_kv::Score;
use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::{resp2, resp3};

use super::*;

fn encoded(value: &Value, protocol: Protocol) -> String {
    let mut output = Vec::new();
    encode(value, protocol, &mut output);
    String::from_utf8(output).expect("the replies of these tests are text")
}

fn bulk_of(text: &str) -> Value {
    Value::Bulk(text.into())
}

/// Replies with their encodings in RESP2 and RESP3.
fn cases() -> Vec<(Value, &'static str, &'static str)> {
    let score = |value| Value::Double(Score::new(value).expect("it is a number"));
    let pair = || vec![(bulk_of("a"), score(1.5))];
    vec![
        (Value::Ok, "+OK\r\n", "+OK\r\n"),
        (Value::Simple("a\r\nb".into()), "+a  b\r\n", "+a  b\r\n"),
        (Value::Error("ERR x".into()), "-ERR x\r\n", "-ERR x\r\n"),
        (Value::Integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
        (Value::Integer(999_999_999_999_999), ":999999999999999\r\n", ":999999999999999\r\n"),
        (bulk_of("a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"),
        (Value::Null, "$-1\r\n", "_\r\n"),
        (Value::NullArray, "*-1\r\n", "_\r\n"),
        (score(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
        (score(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
        (Value::Array(vec![Value::Ok, Value::Null]), "*2\r\n+OK\r\n$-1\r\n", "*2\r\n+OK\r\n_\r\n"),
        (Value::Set(vec![bulk_of("a")]), "*1\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n"),
        (Value::Map(pair()), "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n", "%1\r\n$1\r\na\r\n,1.5\r\n"),
        (Value::Pairs(pair()), "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n", "*1\r\n*2\r\n$1\r\na\r\n,1.5\r\n"),
    ]
}

#[test]
fn replies_have_the_types_of_their_protocol() {
    for (value, expected2, expected3) in cases() {
        assert_eq!(encoded(&value, Protocol::Resp2), expected2, "{value:?}");
        assert_eq!(encoded(&value, Protocol::Resp3), expected3, "{value:?}");
    }
}

/// A decoder that was written by others reads each reply to its last byte.
#[test]
fn another_decoder_reads_every_reply() {
    for (value, ..) in cases() {
        let bytes = encoded(&value, Protocol::Resp2);
        let (frame, count) =
            resp2::decode::decode(bytes.as_bytes()).expect("valid").expect("complete");
        assert_eq!(count, bytes.len(), "{value:?}: {frame:?}");
        assert_eq!(matches!(frame, Frame2::Error(_)), matches!(value, Value::Error(_)));
        let bytes = encoded(&value, Protocol::Resp3);
        let decoded = resp3::decode::complete::decode(bytes.as_bytes());
        let (frame, count) = decoded.expect("valid").expect("complete");
        assert_eq!(count, bytes.len(), "{value:?}: {frame:?}");
    }
}
