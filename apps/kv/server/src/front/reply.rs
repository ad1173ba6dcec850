//! Replies as bytes of RESP2 or RESP3.

use onepipe_kv::Value;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Resp2,
    Resp3,
}

impl Protocol {
    /// Returns the version number.
    pub(super) fn version(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Appends the encoding of a reply.
pub(super) fn encode(value: &Value, protocol: Protocol, output: &mut Vec<u8>) {
    let is_resp3 = protocol == Protocol::Resp3;
    match value {
        Value::Ok => output.extend_from_slice(b"+OK\r\n"),
        Value::Simple(text) => line(b'+', text.as_bytes(), output),
        Value::Error(text) => line(b'-', text.as_bytes(), output),
        Value::Integer(integer) => number(b':', *integer, output),
        Value::Bulk(bytes) => bulk(bytes, output),
        Value::Null | Value::NullArray if is_resp3 => output.extend_from_slice(b"_\r\n"),
        Value::Null => output.extend_from_slice(b"$-1\r\n"),
        Value::NullArray => output.extend_from_slice(b"*-1\r\n"),
        Value::Array(values) => {
            length(b'*', values.len(), output);
            values.iter().for_each(|value| encode(value, protocol, output));
        }
        Value::Set(values) => {
            length(if is_resp3 { b'~' } else { b'*' }, values.len(), output);
            values.iter().for_each(|value| encode(value, protocol, output));
        }
        Value::Map(pairs) => {
            match is_resp3 {
                true => length(b'%', pairs.len(), output),
                false => length(b'*', 2 * pairs.len(), output),
            }
            for (key, value) in pairs {
                encode(key, protocol, output);
                encode(value, protocol, output);
            }
        }
        Value::Pairs(pairs) => {
            length(b'*', if is_resp3 { pairs.len() } else { 2 * pairs.len() }, output);
            for (first, second) in pairs {
                if is_resp3 {
                    length(b'*', 2, output);
                }
                encode(first, protocol, output);
                encode(second, protocol, output);
            }
        }
        Value::Double(score) => match is_resp3 {
            true => line(b',', score.to_string().as_bytes(), output),
            false => bulk(score.to_string().as_bytes(), output),
        },
    }
}

/// Appends the head of an array whose elements follow.
pub(super) fn begin_array(count: usize, output: &mut Vec<u8>) {
    length(b'*', count, output);
}

/// Appends text that is one line whatever it holds.
fn line(kind: u8, text: &[u8], output: &mut Vec<u8>) {
    output.push(kind);
    let start = output.len();
    output.extend_from_slice(text);
    for byte in &mut output[start..] {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    output.extend_from_slice(b"\r\n");
}

fn bulk(bytes: &[u8], output: &mut Vec<u8>) {
    length(b'$', bytes.len(), output);
    output.extend_from_slice(bytes);
    output.extend_from_slice(b"\r\n");
}

fn length(kind: u8, length: usize, output: &mut Vec<u8>) {
    number(kind, length, output);
}

fn number(kind: u8, number: impl itoa::Integer, output: &mut Vec<u8>) {
    output.push(kind);
    output.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    output.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
