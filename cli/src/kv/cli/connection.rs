//! A connection to a server of the protocol of Redis.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use redis::{Parser, Value, pack_command};

use super::reply::error_text;

/// How long a server may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A connection that executes one command after the other.
pub struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    /// Holds what was received and is not yet a whole reply.
    parser: Parser,
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
                    return Ok(Self { stream, address, parser: Parser::new() });
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
        match self.request(&[b"AUTH".to_vec(), password.as_bytes().to_vec()])? {
            Value::ServerError(error) => {
                let error = error_text(&error);
                bail!("the server at {} refuses the password: {error}", self.address)
            }
            _ => Ok(()),
        }
    }

    /// Executes a command. An error reply is a reply.
    pub fn request(&mut self, words: &[Vec<u8>]) -> Result<Value> {
        let address = self.address;
        let sent = self.stream.write_all(&pack_command(words));
        sent.with_context(|| format!("the connection to {address} is lost"))?;
        self.parser.parse_value(&self.stream).map_err(|error| {
            let is_io = error.is_io_error() || error.is_connection_dropped();
            anyhow!(error).context(match is_io {
                true => format!("the connection to {address} is lost"),
                false => format!("the server at {address} does not speak the protocol of Redis"),
            })
        })
    }
}
