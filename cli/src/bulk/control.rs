//! Control protocol between sender and receiver: one JSON message per line over TCP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Schedule;

/// Protocol version; both ends must use the same.
pub const VERSION: u32 = 3;
/// Maximum length of a line.
const LINE_LEN_MAX: u64 = 1 << 16;

/// Messages of a sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Offers a file.
    Offer(Offer),
    /// Starts a round.
    Begin(Round),
}

/// The file that is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Protocol version.
    pub version: u32,
    /// File name without directories.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Modification time in ns since 1970: a file with another time is another file.
    pub changed_ns: u64,
    /// Size of a chunk in bytes.
    pub chunk_len: u64,
}

/// Parameters of a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    /// Group id.
    pub group: u64,
    /// Members, the sender first.
    pub members: Vec<SocketAddr>,
    /// Rank of this receiver.
    pub own: u32,
    /// Block schedule.
    pub schedule: Schedule,
    /// Name of the transport.
    pub transport: String,
}

/// Messages of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Accepts the file from this offset on.
    Resume(u64),
    /// The file is complete and has this digest.
    Done(String),
    /// The file was not received.
    Failed {
        /// Error message.
        reason: String,
        /// Whether a retry is of no use.
        is_final: bool,
    },
}

/// One end of a control connection.
#[derive(Debug)]
pub struct ControlConnection {
    stream: BufReader<TcpStream>,
}

impl ControlConnection {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    pub fn send(&self, message: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.get_ref().write_all(&line).context("connection lost")
    }

    /// Receives the next message, within `timeout`.
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
