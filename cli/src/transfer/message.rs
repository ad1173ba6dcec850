//! Messages between sender and receiver: each is an object, a line of JSON followed by data.

use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::remote_text::sanitize;

/// Protocol version; both ends must use the same.
pub const VERSION: u32 = 2;
/// Maximum length of the JSON line.
const LINE_LEN_MAX: usize = 1 << 16;

/// The JSON line of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Protocol version.
    pub version: u32,
    /// Id of the transfer, chosen by its sender.
    pub file: u64,
    /// What the message says; data follows the line.
    pub body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// Sender: offers a file with this name, and its size if known.
    Open { name: String, bytes: Option<u64> },
    /// Receiver: accepts the file.
    Accept,
    /// Sender: data at this offset.
    Data { offset: u64 },
    /// Receiver: number of bytes written so far.
    Written { bytes: u64 },
    /// Sender: end of the file, with its size and digest.
    Finish { bytes: u64, digest: String },
    /// Receiver: the file is complete.
    Complete,
    /// Sender: keepalive.
    KeepAlive,
    /// Either: the transfer has failed.
    Failed { reason: String },
}

/// Encodes a message.
pub fn write(file: u64, body: Body, bytes: &[u8]) -> Vec<u8> {
    let message = Message { version: VERSION, file, body };
    let mut object = serde_json::to_vec(&message).expect("numbers and text");
    object.reserve_exact(1 + bytes.len());
    object.push(b'\n');
    object.extend_from_slice(bytes);
    object
}

/// Decodes a message. Returns its line and the offset of its data.
pub fn read(object: &[u8]) -> Result<(Message, usize)> {
    let front = &object[..object.len().min(LINE_LEN_MAX)];
    let newline = front.iter().position(|byte| *byte == b'\n').context("no header line")?;
    let message =
        serde_json::from_slice(&object[..newline]).map_err(|error| sanitize(&error.to_string()));
    let mut message: Message = message.map_err(|reason| anyhow!("malformed message: {reason}"))?;
    if let Body::Failed { reason } = &mut message.body {
        *reason = sanitize(reason);
    }
    ensure!(
        message.version == VERSION,
        "protocol version {} in place of {VERSION}",
        message.version
    );
    Ok((message, newline + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_round_trips() {
        let body = Body::Data { offset: u64::MAX };
        let object = write(u64::MAX - 1, body.clone(), b"1\n2\n");
        let (message, at) = read(&object).expect("valid");
        assert_eq!(
            (message.file, message.body, &object[at..]),
            (u64::MAX - 1, body, &b"1\n2\n"[..])
        );
    }

    #[test]
    fn rejects_malformed_messages() {
        let other = write(1, Body::Accept, b"");
        let other =
            String::from_utf8(other).expect("text").replace("\"version\":2", "\"version\":3");
        for object in [&b""[..], b"\n", b"{}\n", b"no header line", other.as_bytes()] {
            assert!(read(object).is_err(), "{object:?}");
        }
        assert!(read(&vec![b' '; 1 << 20]).is_err());
    }
    #[test]
    fn strips_terminal_control_characters() {
        for name in ["\x1b[2J", "a\nb", "a\u{9b}2J", "\u{7f}"] {
            let object = write(1, Body::Failed { reason: name.to_owned() }, b"");
            let (message, _) = read(&object).expect("valid");
            let Body::Failed { reason } = message.body else { panic!("{:?}", message.body) };
            assert!(!reason.contains(char::is_control), "{reason:?}");
            let object = br#"{"version":2,"file":1,"body":"\u001b[2J"}"#;
            let reason = read(&[object, &b"\n"[..]].concat()).expect_err("there is no such word");
            assert!(!format!("{reason:#}").contains(char::is_control), "{reason:?}");
        }
    }
}
