//! One connection to another member.

use std::io;
use std::net::TcpStream;

use onepipe_base::{Now, Port};
use onepipe_bulk::{Group, Memory};
use socket2::SockRef;

use crate::inbound::{Inbound, ReadOutcome};
use crate::outbound::Outbound;

/// Maximum number of unsent bytes in the socket (`TCP_NOTSENT_LOWAT`): control frames must not wait
/// long behind pieces, and the sender must not wait for the kernel.
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// A connection to another member.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    pub inbound: Inbound,
    pub outbound: Outbound,
    /// Whether epoll reports when the socket becomes writable (`EPOLLOUT`).
    pub wants_write: bool,
    /// Whether the last turn stopped before everything was handled: frames may be left in the read
    /// buffer, which epoll does not report.
    pub has_more: bool,
}

impl Connection {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(None)?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        Ok(Self {
            stream,
            inbound: Inbound::new(),
            outbound: Outbound::default(),
            wants_write: false,
            has_more: true,
        })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn receive<M: Memory>(
        &mut self,
        now: Now,
        port: Port,
        group: &mut Group<M>,
        frames: &mut usize,
    ) -> io::Result<()> {
        let outcome = self.inbound.receive(&self.stream, now, port, group, frames)?;
        self.has_more = outcome == ReadOutcome::More;
        Ok(())
    }

    pub fn send(&mut self, header: &[u8], payload: &[u8]) -> io::Result<bool> {
        self.outbound.send(&self.stream, header, payload)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.outbound.flush(&self.stream)
    }
}
