//! A process's link to its switch.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use onepipe_base::{Now, Port, Promises, Transmit, Verdict};
use onepipe_join::{JoinerConfig, Roster};
use onepipe_transport_driver::{Doorbell, SharedWait, Transport, Wait};
use onepipe_wire::{Terms, mark_congestion};

use crate::uplink::Uplink;
use crate::{BatchSocket, Config, FrameRange, JoinFailure, Offload, Refusal, Stats};

/// The port of a process's only link.
const UPLINK: Port = Port(0);

/// The one link, port 0, of a process to a switch.
#[derive(Debug)]
pub struct UdpLink {
    socket: BatchSocket,
    uplink: Uplink,
    slot: Option<FrameRange>,
    /// Part of the last burst waits for capacity in the socket's buffer.
    is_blocked: bool,
}

impl UdpLink {
    /// Opens a link to the switch at `switch`. Sends nothing.
    ///
    /// # Errors
    /// The system's; a configuration out of range.
    pub fn connect(switch: SocketAddr, config: &Config) -> io::Result<Self> {
        let socket = BatchSocket::connect(switch, config)?;
        let uplink = Uplink::new("switch", switch, UPLINK.index());
        Ok(Self { socket, uplink, slot: None, is_blocked: false })
    }

    /// Makes the link ask the switch to admit this node, from the first turn on, and again whenever
    /// the switch has restarted. Until it is admitted, what it sends is lost.
    #[must_use]
    pub fn joining(mut self, joiner: JoinerConfig) -> Self {
        self.uplink.start_joining(joiner);
        self
    }

    /// Asks the switch for its terms, for at most `wait`; `read` reads the clock that the driver
    /// will read. Call [`UdpLink::joining`] before. `None` without it, or if `wait` is zero: then
    /// the link joins while it is driven.
    ///
    /// # Errors
    /// The switch does not answer, or refuses this node.
    pub fn join(
        &mut self,
        wait: Duration,
        read: impl FnMut() -> Now,
    ) -> Result<Option<Terms>, JoinFailure> {
        self.uplink.join(&mut self.socket, wait, read)
    }

    /// Why the switch refuses this node at present.
    pub fn refusal(&self) -> Option<Refusal> {
        self.uplink.refusal()
    }

    /// As [`UdpLink::refusal`], as an error, if it will not pass by itself.
    pub fn failure(&self) -> Option<JoinFailure> {
        self.uplink.failure()
    }

    /// The other processes, as far as the switch knows them; `None` before the terms are known, or
    /// without [`JoinerConfig::wants_members`].
    pub fn roster(&self) -> Option<&Roster> {
        self.uplink.roster()
    }

    /// The local address.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The offload in use, as far as the kernel supports it.
    pub fn offload(&self) -> Offload {
        self.socket.offload()
    }

    /// See [`BatchSocket::kernel_drops`].
    pub fn kernel_drops(&self) -> Option<u32> {
        self.socket.kernel_drops()
    }

    /// See [`BatchSocket::receive_buffer_bytes`].
    pub fn receive_buffer_bytes(&self) -> Option<u32> {
        self.socket.receive_buffer_bytes()
    }

    /// Counters of the socket.
    pub fn stats(&self) -> &Stats {
        self.socket.stats()
    }

    #[cfg(test)]
    pub(crate) fn socket_mut(&mut self) -> &mut BatchSocket {
        &mut self.socket
    }
}

impl Transport for UdpLink {
    const IS_FIFO: bool = false;

    fn receive(&mut self, now: Now, mut on_frame: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize {
        let batches = self.socket.receive();
        // The receive buffer is the queue before this process: a long queue marks its frames.
        let is_backlogged = self.socket.is_backlogged();
        let mut frames = 0;
        for batch in 0..batches {
            for range in self.socket.frames(batch) {
                frames += 1;
                let frame = self.socket.frame(range);
                if self.uplink.takes(frame) {
                    self.uplink.on_frame(now, frame);
                    continue;
                }
                if is_backlogged {
                    mark_congestion(frame);
                }
                if let Verdict::Forward(UPLINK) = on_frame(UPLINK, frame) {
                    self.socket.send(UPLINK.index(), range);
                }
            }
        }
        self.uplink.send(now, &mut self.socket);
        if frames > 0 {
            // Flush forwarded frames: their memory is needed for the next batch.
            self.is_blocked |= !self.socket.flush();
        }
        frames
    }

    fn can_begin_burst(&mut self, _: Now) -> bool {
        if self.is_blocked {
            self.is_blocked = !self.socket.flush();
        }
        !self.is_blocked
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.slot = self.socket.slot();
        self.slot.map(|slot| self.socket.frame(slot))
    }

    #[inline]
    fn send(&mut self, transmit: Transmit) {
        if let Some(slot) = self.slot.take() {
            let frame = self.socket.keep(slot, transmit.bytes);
            self.socket.send(transmit.port.index(), frame);
        }
    }

    fn end_burst(&mut self, _: Option<Promises>) {
        self.is_blocked = !self.socket.flush();
    }

    fn wait(&mut self, timeout_ns: u64) {
        self.socket.wait(self.uplink.limit_wait(timeout_ns));
    }

    fn doorbell(&self) -> Doorbell {
        self.socket.doorbell()
    }
}

impl SharedWait for UdpLink {
    fn wait_handle(&self) -> io::Result<Arc<dyn Wait>> {
        self.socket.wait_handle()
    }

    /// The kernel wakes every thread that polls the socket: nothing to announce.
    fn begin_wait(&mut self) -> bool {
        true
    }

    fn end_wait(&mut self) {
        self.socket.end_wait();
    }
}
