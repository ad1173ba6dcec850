//! What leaves over a connection.

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;

/// Bytes behind a front that are copied to it: less than they cost as a part of their own.
const COPIED_MAX: usize = 4096;

/// Frames that wait for the socket: short ones until there is no more to say, and the rest of what
/// it has not taken.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    bytes: Vec<u8>,
    at: usize,
}

impl Outbound {
    /// Whether something waits.
    pub fn is_waiting(&self) -> bool {
        self.at < self.bytes.len()
    }

    /// Sends a frame of which the bytes `behind` its front lie elsewhere. Short frames wait for
    /// others, or for [`Self::flush`]. What the socket does not take now is kept; answers whether
    /// some was.
    pub fn send(&mut self, mut to: &TcpStream, front: &[u8], behind: &[u8]) -> io::Result<bool> {
        if behind.len() <= COPIED_MAX {
            self.bytes.extend_from_slice(front);
            self.bytes.extend_from_slice(behind);
            return Ok(false);
        }
        let waiting = self.bytes.len() - self.at;
        let parts = [&self.bytes[self.at..], front, behind].map(IoSlice::new);
        let taken = match to.write_vectored(&parts) {
            Err(error) if is_would_block(&error) => 0,
            taken => taken?,
        };
        let rest = taken.saturating_sub(waiting);
        self.on_taken(taken.min(waiting));
        self.bytes.extend_from_slice(&front[rest.min(front.len())..]);
        self.bytes.extend_from_slice(&behind[rest.saturating_sub(front.len())..]);
        Ok(self.is_waiting())
    }

    /// Hands what waits to the socket, as far as it takes it.
    pub fn flush(&mut self, mut to: &TcpStream) -> io::Result<()> {
        while self.is_waiting() {
            match to.write(&self.bytes[self.at..]) {
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
        self.at += bytes;
        if !self.is_waiting() {
            self.bytes.clear();
            self.at = 0;
        }
    }
}

/// Whether the socket only takes or gives nothing now.
pub(crate) fn is_would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
