//! Replies as text: as `redis-cli` writes them, raw, or as JSON.

use redis::{ServerError, Value};
use serde_json::json;

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
    pub fn write(self, reply: &Value) -> Vec<u8> {
        let mut text = match self {
            Self::Pretty => pretty(reply, 0).into_bytes(),
            Self::Raw => raw(reply),
            Self::Json => to_json(reply).to_string().into_bytes(),
        };
        text.push(b'\n');
        text
    }
}

/// Returns an error as the server has sent it.
pub fn error_text(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// Returns the elements of a reply that has some. The keys and values of a map follow each other,
/// as in replies of RESP2.
fn elements(reply: &Value) -> Option<Vec<&Value>> {
    match reply {
        Value::Array(replies) | Value::Set(replies) => Some(replies.iter().collect()),
        Value::Push { data, .. } => Some(data.iter().collect()),
        Value::Map(pairs) => Some(pairs.iter().flat_map(|(key, value)| [key, value]).collect()),
        _ => None,
    }
}

/// Returns the lines of a reply. All lines but the first begin with `indent` spaces.
fn pretty(reply: &Value, indent: usize) -> String {
    if let Some(replies) = elements(reply) {
        if replies.is_empty() {
            return "(empty array)".to_owned();
        }
        let digits = replies.len().to_string().len();
        let lines = replies.iter().zip(1..).map(|(reply, number)| {
            format!("{number:digits$}) {}", pretty(reply, indent + digits + 2))
        });
        return lines.collect::<Vec<_>>().join(&format!("\n{:indent$}", ""));
    }
    match reply {
        Value::ServerError(error) => format!("(error) {}", error_text(error)),
        Value::Int(number) => format!("(integer) {number}"),
        Value::Double(number) => format!("(double) {number}"),
        Value::Boolean(truth) => format!("({truth})"),
        Value::BulkString(bytes) => quoted(bytes),
        Value::VerbatimString { text, .. } => quoted(text.as_bytes()),
        Value::Nil => "(nil)".to_owned(),
        other => String::from_utf8_lossy(&raw(other)).into_owned(),
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

fn raw(reply: &Value) -> Vec<u8> {
    if let Some(replies) = elements(reply) {
        return replies.into_iter().map(raw).collect::<Vec<_>>().join(&b"\n"[..]);
    }
    match reply {
        Value::BulkString(bytes) | Value::BigNumber(bytes) => bytes.clone(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone().into_bytes(),
        Value::Okay => b"OK".to_vec(),
        Value::ServerError(error) => error_text(error).into_bytes(),
        Value::Int(number) => number.to_string().into_bytes(),
        Value::Double(number) => number.to_string().into_bytes(),
        Value::Boolean(truth) => truth.to_string().into_bytes(),
        Value::Attribute { data, .. } => raw(data),
        _ => Vec::new(),
    }
}

fn to_json(reply: &Value) -> serde_json::Value {
    if let Some(replies) = elements(reply) {
        return replies.into_iter().map(to_json).collect();
    }
    match reply {
        Value::Nil => serde_json::Value::Null,
        Value::ServerError(error) => json!({"error": error_text(error)}),
        Value::Int(number) => (*number).into(),
        Value::Double(number) => (*number).into(),
        Value::Boolean(truth) => (*truth).into(),
        other => {
            let bytes = raw(other);
            match String::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(error) => {
                    let bytes = error.into_bytes().into_iter();
                    bytes.map(char::from).collect::<String>().into()
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    /// Returns the text of a reply, given as a server sends it.
    fn write(format: Format, bytes: &str) -> String {
        let reply = parse_redis_value(bytes.as_bytes()).expect("a reply");
        String::from_utf8(format.write(&reply)).expect("the replies of the tests are text")
    }

    /// As `redis-cli` 7.0.15 does.
    #[test]
    fn writes_replies_for_people() {
        let inner = "*2\r\n$5\r\na\"\n\u{1}\\\r\n:-7\r\n";
        let numbers: String = (4..=10).map(|number| format!(":{number}\r\n")).collect();
        let reply = format!("*10\r\n$-1\r\n{inner}-ERR no\r\n{numbers}");
        let text = write(Format::Pretty, &reply);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], [" 1) (nil)", r#" 2) 1) "a\"\n\x01\\""#], "{text}");
        assert_eq!(lines[2..4], ["    2) (integer) -7", " 3) (error) ERR no"], "{text}");
        assert_eq!(lines[10], "10) (integer) 10", "{text}");
        assert_eq!(write(Format::Pretty, "*0\r\n"), "(empty array)\n");
        assert_eq!(write(Format::Pretty, "+OK\r\n"), "OK\n");
        assert_eq!(write(Format::Pretty, "+QUEUED\r\n"), "QUEUED\n");
        assert_eq!(write(Format::Pretty, "%1\r\n+a\r\n#t\r\n"), "1) a\n2) (true)\n");
    }

    #[test]
    fn raw_replies_are_the_values_alone() {
        let reply = "*4\r\n$3\r\na b\r\n$-1\r\n:3\r\n+OK\r\n";
        assert_eq!(write(Format::Raw, reply), "a b\n\n3\nOK\n");
        assert_eq!(write(Format::Raw, "-WRONGTYPE no list\r\n"), "WRONGTYPE no list\n");
    }

    #[test]
    fn json_has_the_values_and_errors() {
        let reply = "*4\r\n$2\r\né\r\n$-1\r\n-ERR no\r\n,1.5\r\n";
        assert_eq!(write(Format::Json, reply), "[\"é\",null,{\"error\":\"ERR no\"},1.5]\n");
        let bytes = Value::BulkString(vec![0xff, b'a']);
        assert_eq!(Format::Json.write(&bytes), "\"ÿa\"\n".as_bytes());
    }

    /// Bytes of a server that nest without end are refused: a decoder that calls itself for each
    /// level would overflow the stack.
    #[test]
    fn deep_reply_is_refused() {
        assert!(parse_redis_value("*1\r\n".repeat(1_000_000).as_bytes()).is_err());
    }
}
