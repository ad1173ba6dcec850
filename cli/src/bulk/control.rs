//! What a sender and a receiver say to each other besides the file: a line of JSON at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Schedule;

/// What is spoken here; both ends must speak the same.
pub const VERSION: u32 = 3;
/// A line is never longer.
const LINE_LEN_MAX: u64 = 1 << 16;

/// What a sender says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// A file is coming.
    Offer(Offer),
    /// It begins now.
    Begin(Round),
}

/// Which file is coming.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// What is spoken.
    pub version: u32,
    /// Its name, without folders.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// When it was changed last, in ns since 1970: another time, another file.
    pub changed_ns: u64,
    /// Bytes that come at a time.
    pub chunk_len: u64,
}

/// Who takes part in a round, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    /// The group's name.
    pub group: u64,
    /// Its members, the sender first.
    pub members: Vec<SocketAddr>,
    /// The receiver's own rank.
    pub own: u32,
    /// How blocks travel.
    pub schedule: Schedule,
    /// The name of what carries them.
    pub transport: String,
}

/// What a receiver says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It wants the file, and has so many bytes of it.
    Resume(u64),
    /// It has all of it, and this is its digest.
    Done(String),
    /// It cannot have it.
    Failed {
        /// Why.
        reason: String,
        /// Whether it is of no use to try again.
        is_final: bool,
    },
}

/// One end of the conversation.
#[derive(Debug)]
pub struct ControlConnection {
    stream: BufReader<TcpStream>,
}

impl ControlConnection {
    /// Over a fresh connection.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Says something.
    pub fn send(&self, what: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.stream.get_ref().write_all(&line).context("connection lost")
    }

    /// Hears what is said next, within `timeout`.
    pub fn recv<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<T> {
        self.stream.get_ref().set_read_timeout(Some(timeout))?;
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(LINE_LEN_MAX).read_until(b'\n', &mut line);
        match read.map(|_| line.last() == Some(&b'\n')) {
            Ok(true) => serde_json::from_slice(&line).context("malformed message"),
            Ok(false) => bail!("connection closed by the peer"),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                bail!("no reply within {} s", timeout.as_secs())
            }
            Err(error) => Err(error).context("connection lost"),
        }
    }
}
