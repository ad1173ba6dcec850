//! A process's link to its switch.

use std::io;
use std::net::SocketAddr;

use onepipe_base::{Now, Port, Promises, Transmit, Verdict};
use onepipe_transport_driver::{Doorbell, Transport};
use onepipe_wire::mark_congestion;

use crate::{Config, Exchange, Offload, Place, Stats};

/// The port that a process's only link has.
const UPLINK: Port = Port(0);

/// A process's one link, port 0, to a switch.
#[derive(Debug)]
pub struct UdpLink {
    exchange: Exchange,
    slot: Option<Place>,
    /// Some of the last burst waits for room in the socket's buffer.
    is_blocked: bool,
}

impl UdpLink {
    /// A link to the switch at `switch`. Nothing is sent.
    ///
    /// # Errors
    /// What the system says; a configuration out of range.
    pub fn connect(switch: SocketAddr, config: &Config) -> io::Result<Self> {
        let exchange = Exchange::connect(switch, config)?;
        Ok(Self { exchange, slot: None, is_blocked: false })
    }

    /// Where this end is.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.exchange.local_addr()
    }

    /// What the kernel turned out to be good for.
    pub fn offload(&self) -> Offload {
        self.exchange.offload()
    }

    /// As [`Exchange::kernel_drops`].
    pub fn kernel_drops(&self) -> Option<u32> {
        self.exchange.kernel_drops()
    }

    /// As [`Exchange::receive_buffer_bytes`].
    pub fn receive_buffer_bytes(&self) -> Option<u32> {
        self.exchange.receive_buffer_bytes()
    }

    /// What has happened so far.
    pub fn stats(&self) -> &Stats {
        self.exchange.stats()
    }

    #[cfg(test)]
    pub(crate) fn exchange_mut(&mut self) -> &mut Exchange {
        &mut self.exchange
    }
}

impl Transport for UdpLink {
    const IS_FIFO: bool = false;

    fn receive(&mut self, _: Now, mut take: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize {
        let trains = self.exchange.receive();
        // The queue before this process is its own receive buffer; what finds it long is marked.
        let is_backlogged = self.exchange.is_backlogged();
        let mut frames = 0;
        for train in 0..trains {
            for place in self.exchange.frames(train) {
                frames += 1;
                let frame = self.exchange.frame(place);
                if is_backlogged {
                    mark_congestion(frame);
                }
                if let Verdict::Forward(UPLINK) = take(UPLINK, frame) {
                    self.exchange.send(UPLINK.index(), place);
                }
            }
        }
        if frames > 0 {
            // What was forwarded, if anything was: its memory is needed for the next batch.
            self.is_blocked |= !self.exchange.flush();
        }
        frames
    }

    fn has_room(&mut self, _: Now) -> bool {
        if self.is_blocked {
            self.is_blocked = !self.exchange.flush();
        }
        !self.is_blocked
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.slot = self.exchange.slot();
        self.slot.map(|slot| self.exchange.frame(slot))
    }

    #[inline]
    fn send(&mut self, transmit: Transmit) {
        if let Some(slot) = self.slot.take() {
            let frame = self.exchange.keep(slot, transmit.bytes);
            self.exchange.send(transmit.port.index(), frame);
        }
    }

    fn end_burst(&mut self, _: Option<Promises>) {
        self.is_blocked = !self.exchange.flush();
    }

    fn wait(&mut self, timeout_ns: u64) {
        self.exchange.wait(timeout_ns);
    }

    fn doorbell(&self) -> Doorbell {
        self.exchange.doorbell()
    }
}
