//! A process's links in an overlay: to its aggregator, and past it to everybody.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use onepipe_base::{Incarnation, Now, Port, ProcessId, Promises, Psn, Transmit, Verdict};
use onepipe_transport_driver::{Doorbell, Transport};
use onepipe_wire::{
    AddressAd, Frame, HEADER_LEN, Header, Opcode, mark_congestion, parse_header, seal,
};

use crate::whereabouts::{Say, Whereabouts};
use crate::{Config, Exchange, Offload, OverlayStats, Place, Stats};

/// The link to the aggregator.
const TREE: Port = Port(0);
/// All other processes, past it.
const DIRECT: Port = Port(1);
/// The aggregator's place among the exchange's destinations, that of an address which is only asked
/// or answered, and the first of those for messages.
const TREE_PLACE: usize = 0;
const ONCE_PLACE: usize = 1;
const SEATS_AT: usize = 2;
/// Ways that are kept open at once; frames for more processes go by the tree.
const SEATS_MAX: u32 = 1024;
/// Questions and answers that wait to be said; more are asked again.
const SAYS_MAX: usize = 64;

/// Who a process is, for the processes that look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whoami {
    /// Its id.
    pub process: ProcessId,
    /// Its life.
    pub incarnation: Incarnation,
    /// Ids lie below this.
    pub processes_max: u32,
}

/// Two links over one socket: port 0 to the aggregator, port 1 to all other processes. Where these
/// are is found out by asking them through the tree; until a way is known to be open in both
/// directions, frames go by the tree, too (design: docs/design/overlay.md).
#[derive(Debug)]
pub struct UdpOverlay {
    exchange: Exchange,
    aggregator: SocketAddr,
    own: Whoami,
    /// What others are told.
    here: SocketAddr,
    known: Whereabouts,
    /// Whose messages go to each destination behind [`SEATS_AT`].
    seats: Vec<Option<(ProcessId, SocketAddr)>>,
    says: Vec<Say>,
    now: Option<Now>,
    slot: Option<Place>,
    is_blocked: bool,
    stats: OverlayStats,
}

impl UdpOverlay {
    /// Links of `own` by way of the aggregator at `aggregator`. Others are told to look for this
    /// process at `here`, or where this machine is seen from the aggregator. Nothing is sent.
    ///
    /// # Errors
    /// What the system says; a configuration out of range.
    pub fn connect(
        aggregator: SocketAddr,
        own: Whoami,
        here: Option<SocketAddr>,
        config: &Config,
    ) -> io::Result<Self> {
        let any: SocketAddr =
            if aggregator.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let bind = config.bind.unwrap_or(any);
        let seats = own.processes_max.min(SEATS_MAX) as usize;
        let config = Config { bind: Some(bind), ..config.clone() };
        let mut exchange = Exchange::bind(&config, SEATS_AT + seats)?;
        let mut local = exchange.local_addr()?;
        if local.ip().is_unspecified() {
            local.set_ip(ip_towards(aggregator, any)?);
        }
        exchange.set_destination(TREE_PLACE, Some(aggregator));
        Ok(Self {
            exchange,
            aggregator,
            own,
            here: here.unwrap_or(local),
            known: Whereabouts::new(own.process, own.processes_max),
            seats: vec![None; seats],
            says: Vec::with_capacity(SAYS_MAX),
            now: None,
            slot: None,
            is_blocked: false,
            stats: OverlayStats::default(),
        })
    }

    /// Where others are told to look for this process.
    pub fn here(&self) -> SocketAddr {
        self.here
    }

    /// Where `process` is reached directly, if it is.
    pub fn direct(&self, process: ProcessId) -> Option<SocketAddr> {
        self.known.open(process)
    }

    /// How many processes are reached directly.
    pub fn direct_count(&self) -> usize {
        self.known.open_count()
    }

    /// Counters of the two ways.
    pub fn overlay_stats(&self) -> &OverlayStats {
        &self.stats
    }

    /// What has happened to the socket so far.
    pub fn stats(&self) -> &Stats {
        self.exchange.stats()
    }

    /// As [`Exchange::offload`].
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

    /// The destination for a frame of the endpoint.
    #[inline]
    fn place_of(&mut self, port: Port, frame: Place) -> usize {
        if port == TREE {
            return TREE_PLACE;
        }
        let (Some(now), Ok((header, _))) = (self.now, parse_header(self.exchange.frame(frame)))
        else {
            return TREE_PLACE;
        };
        let (to, says) = (header.dst(), &mut self.says);
        let way = self.known.way(now.mono, to, |say| {
            if says.len() < SAYS_MAX {
                says.push(say);
            }
        });
        let Some(place) = way.and_then(|at| self.seat(to, at)) else {
            self.stats.frames_by_tree += 1;
            return TREE_PLACE;
        };
        self.stats.frames_direct += 1;
        place
    }

    /// The destination that sends to `at`, where `process` is.
    #[inline]
    fn seat(&mut self, process: ProcessId, at: SocketAddr) -> Option<usize> {
        let seat = process.index() % self.seats.len();
        if self.seats[seat] == Some((process, at)) {
            return Some(SEATS_AT + seat);
        }
        let is_others =
            |(other, _): (ProcessId, _)| other != process && self.known.open(other).is_some();
        if self.seats[seat].is_some_and(is_others) {
            return None;
        }
        let at_socket = self.as_socket_says(at)?;
        self.seats[seat] = Some((process, at));
        self.exchange.set_destination(SEATS_AT + seat, Some(at_socket));
        Some(SEATS_AT + seat)
    }

    /// The address as this socket can send to it.
    fn as_socket_says(&self, address: SocketAddr) -> Option<SocketAddr> {
        match (self.aggregator, address) {
            (SocketAddr::V4(_), SocketAddr::V4(_)) | (SocketAddr::V6(_), SocketAddr::V6(_)) => {
                Some(address)
            }
            (SocketAddr::V6(_), SocketAddr::V4(v4)) => {
                Some((v4.ip().to_ipv6_mapped(), v4.port()).into())
            }
            (SocketAddr::V4(_), SocketAddr::V6(_)) => None,
        }
    }

    /// Takes in what another process says of where it is.
    #[cold]
    fn on_here(&mut self, now: Now, place: Place, seen: Option<SocketAddr>) {
        let Ok(frame) = Frame::parse(self.exchange.frame(place)) else { return };
        let Ok(here) = AddressAd::parse(frame.payload) else { return };
        if frame.header.dst() != self.own.process {
            return;
        }
        let from = (frame.header.src(), frame.header.incarnation());
        self.stats.heres_received += 1;
        if let Some(say) = self.known.on_here(now.mono, from, here, seen)
            && self.says.len() < SAYS_MAX
        {
            self.says.push(say);
        }
    }

    /// Says what is to be said. Answers false when the socket's buffer is full.
    fn say_all(&mut self, now: Now) -> bool {
        let mut is_sent = true;
        while let Some(say) = self.says.pop() {
            let to = match say.at {
                None => TREE_PLACE,
                Some(at) => {
                    let Some(at) = self.as_socket_says(at) else { continue };
                    self.exchange.set_destination(ONCE_PLACE, Some(at));
                    ONCE_PLACE
                }
            };
            let Some(slot) = self.exchange.slot() else { break };
            let bytes =
                HEADER_LEN + write_here(self.exchange.frame(slot), self.own, now, (say, self.here));
            let frame = self.exchange.keep(slot, bytes);
            self.exchange.send(to, frame);
            self.stats.heres_sent += 1;
            // The next one may go elsewhere.
            is_sent = self.exchange.flush();
        }
        is_sent
    }
}

/// Writes the frame. Answers the bytes of its payload.
fn write_here(slot: &mut [u8], own: Whoami, now: Now, (say, here): (Say, SocketAddr)) -> usize {
    let payload = AddressAd { asks: say.asks, address: here };
    let bytes = payload.write(&mut slot[HEADER_LEN..]).expect("the slot holds any frame");
    let header = Header::new(Opcode::AddressAd, own.process, say.to, own.incarnation);
    seal(slot, header.stamped(now.sync, Promises::both(now.sync), Psn::FIRST), bytes);
    bytes
}

/// The address from which this machine sends to `to`.
fn ip_towards(to: SocketAddr, any: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

#[inline]
fn is_here(frame: &[u8]) -> bool {
    parse_header(frame).is_ok_and(|(_, opcode)| opcode == Opcode::AddressAd)
}

impl Transport for UdpOverlay {
    const IS_FIFO: bool = false;

    fn receive(&mut self, now: Now, mut take: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize {
        self.now = Some(now);
        let trains = self.exchange.receive();
        let is_backlogged = self.exchange.is_backlogged();
        let mut frames = 0;
        for train in 0..trains {
            let from = self.exchange.sender(train);
            let is_tree = from == Some(self.aggregator);
            let (port, seen) = if is_tree { (TREE, None) } else { (DIRECT, from) };
            for place in self.exchange.frames(train) {
                let frame = self.exchange.frame(place);
                if is_here(frame) {
                    self.on_here(now, place, seen);
                    continue;
                }
                frames += 1;
                if is_backlogged {
                    mark_congestion(frame);
                }
                // A process forwards nothing.
                take(port, frame);
            }
        }
        if !self.says.is_empty() {
            self.is_blocked |= !self.say_all(now);
        }
        frames
    }

    fn gone(&mut self, _: impl FnMut(Port)) {
        while let Some(address) = self.exchange.refused() {
            self.known.on_refused(address);
        }
    }

    fn has_room(&mut self, _: Now) -> bool {
        if self.is_blocked {
            self.is_blocked = !self.exchange.flush();
        }
        !self.is_blocked
    }

    fn begin_burst(&mut self, now: Now, _: Option<Promises>) {
        self.now = Some(now);
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
            let place = self.place_of(transmit.port, frame);
            self.exchange.send(place, frame);
        }
    }

    fn end_burst(&mut self, _: Option<Promises>) {
        self.is_blocked = !self.exchange.flush();
        if let Some(now) = self.now
            && !self.says.is_empty()
        {
            self.is_blocked |= !self.say_all(now);
        }
    }

    fn wait(&mut self, timeout_ns: u64) {
        self.exchange.wait(timeout_ns);
    }

    fn doorbell(&self) -> Doorbell {
        self.exchange.doorbell()
    }
}

#[cfg(test)]
mod tests;
