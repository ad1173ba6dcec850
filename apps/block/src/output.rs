//! Bytes on their way to the client.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Data from this length on is sent as it is; shorter data is copied behind what is queued, so that
/// one call of the system sends several replies.
const COPIED_BELOW: usize = 16 << 10;
/// A buffer that has this length is complete.
const BUFFER_LEN: usize = 64 << 10;

/// A queue of buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Output {
    buffers: VecDeque<Vec<u8>>,
    /// Number of bytes in `buffers`.
    queued: usize,
    /// Number of bytes that were polled and are not sent.
    polled: usize,
    is_closed: bool,
}

impl Output {
    /// Appends bytes by copying them.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.is_closed {
            return;
        }
        self.queued += bytes.len();
        match self.buffers.back_mut() {
            Some(last) if last.len() < BUFFER_LEN => last.extend_from_slice(bytes),
            _ => self.buffers.push_back(bytes.to_vec()),
        }
    }

    /// Appends data that may be long.
    pub fn push_data(&mut self, data: Vec<u8>) {
        if data.len() < COPIED_BELOW {
            self.push(&data);
        } else if !self.is_closed {
            self.queued += data.len();
            self.buffers.push_back(data);
        }
    }

    /// Returns the next buffer to send.
    pub fn poll(&mut self) -> Option<Vec<u8>> {
        let next = self.buffers.pop_front()?;
        self.queued -= next.len();
        self.polled += next.len();
        Some(next)
    }

    /// Returns the number of bytes that are queued, or were polled and are not sent.
    pub fn unsent(&self) -> usize {
        self.queued + self.polled
    }

    /// Takes note that bytes were sent.
    ///
    /// # Panics
    /// If they were not polled before.
    pub fn handle_sent(&mut self, count: usize) {
        if self.is_closed {
            return;
        }
        assert!(count <= self.polled, "{count} bytes were not polled");
        self.polled -= count;
    }

    /// Drops all bytes, also those of the future: the client is gone.
    pub fn close(&mut self) {
        *self = Output { is_closed: true, ..Output::default() };
    }
}
