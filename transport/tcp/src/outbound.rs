//! Writing frames to a connection.

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;

/// Payloads up to this length are copied behind their header part: cheaper than a range of their
/// own.
const COPIED_MAX: usize = 4096;

/// The queue in front of a socket: short frames that are written together, and the rest of what the
/// socket has not taken.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// What the socket has taken of the queue, and then what it has not.
    bytes: Vec<u8>,
    /// Number of bytes that the socket has taken.
    taken_len: usize,
}

impl Outbound {
    /// Whether bytes are queued.
    pub fn is_waiting(&self) -> bool {
        self.taken_len < self.bytes.len()
    }

    /// Sends a frame whose `payload` lies elsewhere. Short frames wait for others, or for
    /// [`Self::flush`]. Queues what the socket does not take, and returns whether it queued any.
    pub fn send(&mut self, mut to: &TcpStream, header: &[u8], payload: &[u8]) -> io::Result<bool> {
        if payload.len() <= COPIED_MAX {
            self.bytes.extend_from_slice(header);
            self.bytes.extend_from_slice(payload);
            return Ok(false);
        }
        let queued = self.bytes.len() - self.taken_len;
        let parts = [&self.bytes[self.taken_len..], header, payload].map(IoSlice::new);
        let taken = match to.write_vectored(&parts) {
            Err(error) if is_would_block(&error) => 0,
            taken => taken?,
        };
        let taken_of_frame = taken.saturating_sub(queued);
        self.on_taken(taken.min(queued));
        self.bytes.extend_from_slice(&header[taken_of_frame.min(header.len())..]);
        self.bytes.extend_from_slice(&payload[taken_of_frame.saturating_sub(header.len())..]);
        Ok(self.is_waiting())
    }

    /// Writes the queue to the socket, as far as the socket takes it.
    pub fn flush(&mut self, mut to: &TcpStream) -> io::Result<()> {
        while self.is_waiting() {
            match to.write(&self.bytes[self.taken_len..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => self.on_taken(taken),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_would_block(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn on_taken(&mut self, bytes: usize) {
        self.taken_len += bytes;
        if !self.is_waiting() {
            self.bytes.clear();
            self.taken_len = 0;
        }
    }
}

/// Whether the operation would block or was interrupted, so that it may be retried.
pub(crate) fn is_would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
