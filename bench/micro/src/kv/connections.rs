//! Connections to servers that speak the protocol of Redis.

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::closed_loop::Connection;
use super::workload::{Workload, multi, resp};

/// Executes `MULTI`, a `SET` of each of several random keys, `EXEC`: sent at once, so that the
/// transaction takes one round trip.
pub(super) struct MultiSets {
    stream: TcpStream,
    workload: Workload,
    keys: usize,
    received: Vec<u8>,
}

impl MultiSets {
    /// Connects to a server of this machine.
    pub(super) async fn connect(port: u16, workload: Workload, keys: usize) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await;
        let stream = stream.with_context(|| format!("connecting to port {port}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, workload, keys, received: Vec::new() })
    }
}

impl Connection for MultiSets {
    async fn transaction(&mut self) -> Result<()> {
        let set = |workload: &mut Workload| {
            let key = workload.key();
            resp(&[b"SET", &key, workload.value()])
        };
        let sets: Vec<Vec<u8>> = (0..self.keys).map(|_| set(&mut self.workload)).collect();
        let (sent, expected) = multi(&sets, &b"+OK\r\n".repeat(self.keys));
        self.stream.write_all(&sent).await?;
        self.received.clear();
        while self.received.len() < expected.len() {
            let len = self.stream.read_buf(&mut self.received).await?;
            // An error reply is shorter than the reply that is expected.
            if len == 0 || !expected.starts_with(&self.received) {
                let text = String::from_utf8_lossy(&self.received);
                let lines: Vec<&str> = text.split("\r\n").collect();
                let error = lines.iter().find(|line| line.starts_with('-'));
                bail!("{}", error.map_or_else(|| format!("{text:?}"), |error| error[1..].into()));
            }
        }
        Ok(())
    }
}

/// Sends one command, and returns its reply, which has one line.
pub(super) async fn ask(port: u16, words: &[&[u8]]) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(&resp(words)).await?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let len = stream.read_buf(&mut line).await?;
        anyhow::ensure!(len > 0, "the server closed the connection");
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}
