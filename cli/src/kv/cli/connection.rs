//! A connection to a server of the protocol of Redis.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::encode::encode;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

/// How long a server may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Number of bytes that are read at once.
const CHUNK: usize = 1 << 16;

/// A connection that executes one command after the other.
pub struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    /// What was received and is not yet a whole reply.
    received: Vec<u8>,
}

impl Connection {
    /// Connects to the first address of the host that accepts.
    pub fn open(host: &str, port: u16) -> Result<Self> {
        let addresses = (host, port).to_socket_addrs();
        let addresses = addresses.with_context(|| format!("the host {host:?} has no address"))?;
        let mut failure = anyhow!("the host {host:?} has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
                Ok(stream) => {
                    // Without it the connection works, too, only slower.
                    let _ = stream.set_nodelay(true);
                    return Ok(Self { stream, address, received: Vec::new() });
                }
                Err(error) => {
                    failure = anyhow!(error).context(format!(
                        "no server answers at {address}: start one with onepipe kv serve --resp \
                         {address}, or name another with -h and -p"
                    ));
                }
            }
        }
        Err(failure)
    }

    /// Returns the server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends the password.
    pub fn authenticate(&mut self, password: &str) -> Result<()> {
        match self.request(vec![b"AUTH".to_vec(), password.as_bytes().to_vec()])? {
            OwnedFrame::Error(error) => {
                bail!("the server at {} refuses the password: {error}", self.address)
            }
            _ => Ok(()),
        }
    }

    /// Executes a command. An error reply is a reply.
    pub fn request(&mut self, words: Vec<Vec<u8>>) -> Result<OwnedFrame> {
        let command = OwnedFrame::Array(words.into_iter().map(OwnedFrame::BulkString).collect());
        let mut bytes = vec![0; command.encode_len(false)];
        encode(&mut bytes, &command, false).context("cannot encode the command")?;
        let lost = || format!("the connection to {} is lost", self.address);
        self.stream.write_all(&bytes).with_context(lost)?;
        loop {
            let decoded = decode(&self.received);
            let reply = decoded.with_context(|| {
                format!("{} does not speak the protocol of Redis", self.address)
            })?;
            if let Some((reply, len)) = reply {
                self.received.drain(..len);
                return Ok(reply);
            }
            let before = self.received.len();
            self.received.resize(before + CHUNK, 0);
            let read = self.stream.read(&mut self.received[before..]);
            self.received.truncate(before + read.as_ref().copied().unwrap_or_default());
            if read.with_context(lost)? == 0 {
                bail!("the server at {} has closed the connection", self.address);
            }
        }
    }
}
