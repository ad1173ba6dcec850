//! What both ends say to each other: each word is an object, a line of JSON and bytes behind it.

use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

/// What is spoken here; both ends must speak the same.
pub const VERSION: u32 = 2;
/// The line is never longer.
const LINE_LEN_MAX: usize = 1 << 16;

/// A word, and which file it is about: the sender has chosen its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// What is spoken.
    pub version: u32,
    /// The number of the file, by which its words are told from those of others.
    pub file: u64,
    /// The word.
    pub body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// Of a sender: a file of this name is coming; its bytes, if they are known.
    Open { name: String, bytes: Option<u64> },
    /// Of a receiver: let it come.
    Accept,
    /// Of a sender: bytes of it, from there on.
    Data { offset: u64 },
    /// Of a receiver: so much of it is where it belongs.
    Written { bytes: u64 },
    /// Of a sender: that was all of it.
    Finish { bytes: u64, digest: String },
    /// Of a receiver: it has it.
    Complete,
    /// Of a sender that has nothing else to say.
    KeepAlive,
    /// Nothing comes of it.
    Failed { reason: String },
}

/// An object that says this.
pub fn write(file: u64, body: Body, bytes: &[u8]) -> Vec<u8> {
    let message = Message { version: VERSION, file, body };
    let mut object = serde_json::to_vec(&message).expect("numbers and text");
    object.reserve_exact(1 + bytes.len());
    object.push(b'\n');
    object.extend_from_slice(bytes);
    object
}

/// What an object says, and where its bytes begin.
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

/// What another process says, for a terminal.
fn sanitize(text: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => character,
    };
    text.chars().map(shown).collect()
}

/// A terminal would obey to a name with control characters.
pub fn check_name(name: &str) -> Result<()> {
    ensure!(
        !name.contains(char::is_control),
        "{name:?}is not a valid name: it contains control characters"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_round_trips() {
        let body = Body::Data { offset: u64::MAX };
        let object = write(u64::MAX - 1, body.clone(), b"1\n2\n");
        let (message, at) = read(&object).expect("it is one");
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
            assert!(check_name(name).is_err(), "{name:?}");
            let object = write(1, Body::Failed { reason: name.to_owned() }, b"");
            let (message, _) = read(&object).expect("it is one");
            let Body::Failed { reason } = message.body else { panic!("{:?}", message.body) };
            assert!(!reason.contains(char::is_control), "{reason:?}");
            let object = br#"{"version":2,"file":1,"body":"\u001b[2J"}"#;
            let reason = read(&[object, &b"\n"[..]].concat()).expect_err("there is no such word");
            assert!(!format!("{reason:#}").contains(char::is_control), "{reason:?}");
        }
        check_name("Straße 1 – été.tar").expect("it is a name");
    }
}
