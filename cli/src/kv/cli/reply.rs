//! Replies as text: as `redis-cli` writes them, raw, or as JSON.

use redis_protocol::resp2::types::OwnedFrame;
use serde_json::{Value, json};

/// How replies are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people: the type of each value can be seen.
    Pretty,
    /// The values alone, one on a line.
    Raw,
    /// One JSON value on a line.
    Json,
}

impl Format {
    /// Returns the text of a reply, with the end of its last line.
    pub fn write(self, reply: &OwnedFrame) -> Vec<u8> {
        let mut text = match self {
            Self::Pretty => pretty(reply, 0).into_bytes(),
            Self::Raw => raw(reply),
            Self::Json => to_json(reply).to_string().into_bytes(),
        };
        text.push(b'\n');
        text
    }
}

/// Returns the lines of a reply. All lines but the first begin with `indent` spaces.
fn pretty(reply: &OwnedFrame, indent: usize) -> String {
    match reply {
        OwnedFrame::SimpleString(text) => String::from_utf8_lossy(text).into_owned(),
        OwnedFrame::Error(text) => format!("(error) {text}"),
        OwnedFrame::Integer(number) => format!("(integer) {number}"),
        OwnedFrame::BulkString(bytes) => quoted(bytes),
        OwnedFrame::Null => "(nil)".to_owned(),
        OwnedFrame::Array(replies) if replies.is_empty() => "(empty array)".to_owned(),
        OwnedFrame::Array(replies) => {
            let digits = replies.len().to_string().len();
            let lines = replies.iter().zip(1..).map(|(reply, number)| {
                format!("{number:digits$}) {}", pretty(reply, indent + digits + 2))
            });
            lines.collect::<Vec<_>>().join(&format!("\n{:indent$}", ""))
        }
    }
}

/// Returns a string in double quotes, with escapes for all but printable ASCII.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from('"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => text.extend(['\\', char::from(*byte)]),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            7 => text.push_str("\\a"),
            8 => text.push_str("\\b"),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\x{other:02x}")),
        }
    }
    text.push('"');
    text
}

fn raw(reply: &OwnedFrame) -> Vec<u8> {
    match reply {
        OwnedFrame::SimpleString(text) | OwnedFrame::BulkString(text) => text.clone(),
        OwnedFrame::Error(text) => text.clone().into_bytes(),
        OwnedFrame::Integer(number) => number.to_string().into_bytes(),
        OwnedFrame::Null => Vec::new(),
        OwnedFrame::Array(replies) => replies.iter().map(raw).collect::<Vec<_>>().join(&b"\n"[..]),
    }
}

fn to_json(reply: &OwnedFrame) -> Value {
    match reply {
        OwnedFrame::SimpleString(text) | OwnedFrame::BulkString(text) => match str::from_utf8(text)
        {
            Ok(text) => text.into(),
            Err(_) => text.iter().copied().map(char::from).collect::<String>().into(),
        },
        OwnedFrame::Error(text) => json!({"error": text}),
        OwnedFrame::Integer(number) => (*number).into(),
        OwnedFrame::Null => Value::Null,
        OwnedFrame::Array(replies) => replies.iter().map(to_json).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> OwnedFrame {
        OwnedFrame::BulkString(text.into())
    }

    fn write(format: Format, reply: &OwnedFrame) -> String {
        String::from_utf8(format.write(reply)).expect("the replies of the tests are text")
    }

    #[test]
    fn writes_replies_as_redis_cli_does() {
        let inner = OwnedFrame::Array(vec![bulk("a\"\n\u{1}é"), OwnedFrame::Integer(-7)]);
        let mut replies = vec![OwnedFrame::Null, inner, OwnedFrame::Error("ERR no".into())];
        replies.extend((4..=10).map(OwnedFrame::Integer));
        let text = write(Format::Pretty, &OwnedFrame::Array(replies));
        // What redis-cli 7.0.15 prints for the same reply.
        let first = " 1) (nil)\n 2) 1) \"a\\\"\\n\\x01\\xc3\\xa9\"\n    2) (integer) -7\n\
                     \x203) (error) ERR no\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.ends_with("\n10) (integer) 10\n"), "{text}");
        assert_eq!(write(Format::Pretty, &OwnedFrame::Array(vec![])), "(empty array)\n");
        assert_eq!(write(Format::Pretty, &OwnedFrame::SimpleString("OK".into())), "OK\n");
    }

    #[test]
    fn raw_replies_are_the_values_alone() {
        let replies = vec![bulk("a b"), OwnedFrame::Null, OwnedFrame::Integer(3)];
        assert_eq!(write(Format::Raw, &OwnedFrame::Array(replies)), "a b\n\n3\n");
        assert_eq!(write(Format::Raw, &OwnedFrame::Error("ERR no".into())), "ERR no\n");
    }

    #[test]
    fn json_has_the_values_and_errors() {
        let bytes = OwnedFrame::BulkString(vec![0xff, b'a']);
        let replies = vec![bulk("é"), bytes, OwnedFrame::Null, OwnedFrame::Error("ERR no".into())];
        let text = write(Format::Json, &OwnedFrame::Array(replies));
        assert_eq!(text, "[\"é\",\"ÿa\",null,{\"error\":\"ERR no\"}]\n");
    }
}
