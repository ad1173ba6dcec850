//! Drives one member's group over UDP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use onepipe_base::{Machine, Mono, Now, Port};
use onepipe_bulk::{Event, Group, Memory};
use onepipe_transport_clock::Clock;
use onepipe_transport_driver::Doorbell;
use onepipe_transport_tcp::{
    Listener, Progress, Rendezvous, RendezvousError, connect_members, exchange_values,
};
use onepipe_transport_udp::{BatchSocket, Config};
use onepipe_wire::{header_unchecked, mark_congestion};

use crate::JoinError;
use crate::frame_len::{self, Advertisement};

/// Delay before a full socket is tried again: time for some frames to leave a link of 100 Mbit/s.
const RETRY_NS: u64 = 500_000;
/// Description of the error of a member whose advertisement is incomplete.
const NO_FRAME_LEN: &str =
    "the member does not say how long its frames are: update onepipe on its host";

/// Drives one member over a UDP socket. Several groups of a process have several sockets, so that
/// the kernel demultiplexes frames and the groups do not share queues.
///
/// The driver rules of [`Machine`] are kept: D1 the clock is read once before received frames and
/// once before sending, and `mono` is held if it goes back; D2 after every mutation events and
/// frames are drained before it waits; D3 the frames for a member leave in the order polled; D4
/// links are [`onepipe_bulk::Link::Lossy`]; D5 timers run by the clock.
///
/// A piece is copied once into its frame, in memory that the kernel sends from, and once from the
/// received frame into its object.
#[derive(Debug)]
pub(crate) struct UdpGroupDriver<C, M = Vec<u8>> {
    group: Group<M>,
    socket: BatchSocket,
    /// The addresses of the others, by rank.
    peers: Vec<Option<SocketAddr>>,
    /// By rank, whether a frame has come from that address.
    is_confirmed: Vec<bool>,
    frames_misattributed: u64,
    clock: C,
    last_mono: Option<Mono>,
    /// Frames wait for capacity in the socket's buffer.
    is_blocked: bool,
}

impl<C: Clock, M: Memory> UdpGroupDriver<C, M> {
    //= spec/bulk.md#R31
    /// Connects to the others over TCP, opens the socket, and exchanges the UDP ports and the
    /// length of frames.
    pub fn join(
        mut group: Group<M>,
        rendezvous: &Rendezvous<'_>,
        listener: &Listener,
        clock: C,
    ) -> Result<Self, JoinError> {
        let system = |what| move |source| JoinError::System { what, source };
        let streams = connect_members(rendezvous, listener)?;
        let configured = group.config().frame_len_max;
        let longest = match group.has_begun() {
            true => configured,
            false => frame_len::longest(configured, &streams),
        };
        let config = Config {
            frame_len_max: longest,
            bind: Some((own_ip(&streams).map_err(system("find this member's address"))?, 0).into()),
            ..Config::default()
        };
        let socket = BatchSocket::bind(&config, streams.len()).map_err(system("open a socket"))?;
        let own = socket.local_addr().map_err(system("find the socket's port"))?;
        let own = Advertisement { frame_len: longest as u16, udp_port: own.port() };
        let values = exchange_values(rendezvous, &streams, own.value())?;
        let (mut peers, mut agreed) = (Vec::with_capacity(streams.len()), longest);
        for (rank, (stream, value)) in (0..).zip(streams.iter().zip(values)) {
            let (Some(stream), Some(value)) = (stream, value) else {
                peers.push(None);
                continue;
            };
            let address = rendezvous.members[rank as usize];
            let error = |source| RendezvousError::Member { rank, address, source };
            let peer = Advertisement::parse(value)
                .ok_or_else(|| error(io::Error::new(io::ErrorKind::InvalidData, NO_FRAME_LEN)))?;
            agreed = agreed.min(peer.frame_len.into());
            let mut at = stream.peer_addr().map_err(error)?;
            at.set_port(peer.udp_port);
            peers.push(Some(at));
        }
        // A shorter configured length is a different configuration: the groups refuse each other.
        if agreed > configured {
            let set = group.set_frame_len(agreed);
            set.expect("the group has not begun, and the socket accepts a longer frame");
        }
        Ok(Self::new(group, socket, peers, clock))
    }

    pub fn new(
        group: Group<M>,
        mut socket: BatchSocket,
        peers: Vec<Option<SocketAddr>>,
        clock: C,
    ) -> Self {
        for (rank, at) in peers.iter().enumerate() {
            socket.set_destination(rank, *at);
        }
        let is_confirmed = vec![false; peers.len()];
        Self {
            group,
            socket,
            peers,
            is_confirmed,
            frames_misattributed: 0,
            clock,
            last_mono: None,
            is_blocked: false,
        }
    }

    /// Number of frames dropped because they came from another address than that of their sender.
    pub fn frames_misattributed(&self) -> u64 {
        self.frames_misattributed
    }

    //= spec/bulk.md#R32
    /// Returns whether a frame of the member at `rank` may come from `from`. A member with several
    /// addresses may send from another one than others connect to: then every address counts.
    fn may_come_from(&mut self, rank: u32, from: Option<SocketAddr>) -> bool {
        let rank = rank as usize;
        let Some(peer) = self.peers.get(rank).filter(|peer| peer.is_some()) else { return true };
        let is_its_own = *peer == from;
        self.is_confirmed[rank] |= is_its_own;
        is_its_own || !self.is_confirmed[rank]
    }

    pub fn group(&self) -> &Group<M> {
        &self.group
    }

    pub fn group_mut(&mut self) -> &mut Group<M> {
        &mut self.group
    }

    pub fn doorbell(&self) -> Doorbell {
        self.socket.doorbell()
    }

    pub fn turn(
        &mut self,
        wait_ns: u64,
        mut on_event: impl FnMut(&mut Group<M>, Event<M>),
    ) -> Progress {
        let mut progress = Progress::default();
        self.drain_output(&mut progress, &mut on_event);
        let now = self.read_clock();
        self.receive(now, &mut progress, &mut on_event);
        if progress.is_idle() {
            self.socket.wait(self.idle_ns(now, wait_ns));
            let now = self.read_clock();
            self.receive(now, &mut progress, &mut on_event);
        }
        let now = self.read_clock();
        if self.group.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.group.handle_timeout(now);
        }
        self.drain_output(&mut progress, &mut on_event);
        progress
    }

    /// Returns how long to wait for a frame before there is other work.
    fn idle_ns(&self, now: Now, wait_ns: u64) -> u64 {
        let due_ns = self.group.poll_timeout().map_or(u64::MAX, |due| due.since_ns(now.mono));
        let blocked_ns = if self.is_blocked { RETRY_NS } else { u64::MAX };
        wait_ns.min(due_ns).min(blocked_ns)
    }

    /// Hands out events and sends frames until there are no more of either.
    fn drain_output(
        &mut self,
        progress: &mut Progress,
        on_event: &mut impl FnMut(&mut Group<M>, Event<M>),
    ) {
        loop {
            let before = *progress;
            progress.events += deliver_events(&mut self.group, on_event);
            self.transmit(progress);
            if *progress == before {
                return;
            }
        }
    }

    fn transmit(&mut self, progress: &mut Progress) {
        if self.is_blocked {
            self.is_blocked = !self.socket.flush();
        }
        let now = self.read_clock();
        while !self.is_blocked {
            let Some(slot) = self.socket.slot() else {
                self.is_blocked = true;
                return;
            };
            let Some(sent) = self.group.poll_transmit(now, self.socket.frame(slot)) else {
                break;
            };
            let frame = self.socket.keep(slot, sent.bytes);
            self.socket.send(sent.port.index(), frame);
            progress.frames_sent += 1;
        }
        self.is_blocked |= !self.socket.flush();
    }

    fn receive(
        &mut self,
        now: Now,
        progress: &mut Progress,
        on_event: &mut impl FnMut(&mut Group<M>, Event<M>),
    ) {
        let batches = self.socket.receive();
        // The receive buffer is the queue before this member: a long queue marks its frames.
        let is_backlogged = self.socket.is_backlogged();
        for batch in 0..batches {
            let address = self.socket.source(batch);
            for range in self.socket.frames(batch) {
                // Replies go to the address of the member named in the frame, not to its source.
                let header = header_unchecked(self.socket.frame(range));
                let from = header.map_or(0, |header| header.src().0);
                if !self.may_come_from(from, address) {
                    self.frames_misattributed += 1;
                    continue;
                }
                let frame = self.socket.frame(range);
                if is_backlogged {
                    mark_congestion(frame);
                }
                self.group.handle_frame(now, Port(from as u16), frame);
                progress.frames_received += 1;
                // The application may provide memory for what follows.
                progress.events += deliver_events(&mut self.group, on_event);
            }
        }
        while let Some(at) = self.socket.refused() {
            // All members opened their sockets before the start: this one has been closed since.
            let rank = self.peers.iter().position(|peer| *peer == Some(at));
            if let Some(rank) = rank {
                self.group.handle_link_down(rank as u32);
            }
        }
    }

    /// Reads both clocks; `mono` never goes back (rule D1).
    fn read_clock(&mut self) -> Now {
        let mut now = self.clock.read();
        now.mono = self.last_mono.map_or(now.mono, |before| before.max(now.mono));
        self.last_mono = Some(now.mono);
        now
    }
}

/// Hands out events and returns their number.
fn deliver_events<M: Memory>(
    group: &mut Group<M>,
    on_event: &mut impl FnMut(&mut Group<M>, Event<M>),
) -> usize {
    let mut events = 0;
    while let Some(event) = group.poll_event() {
        on_event(group, event);
        events += 1;
    }
    events
}

/// Returns the local address that all others use; unspecified if they use several.
fn own_ip(streams: &[Option<TcpStream>]) -> io::Result<IpAddr> {
    let mut own = None;
    for stream in streams.iter().flatten() {
        let ip = stream.local_addr()?.ip();
        match own {
            Some(other) if other != ip => {
                return Ok(match ip {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
                });
            }
            _ => own = Some(ip),
        }
    }
    Ok(own.unwrap_or(Ipv4Addr::LOCALHOST.into()))
}
