//! A process's links in an overlay: to its aggregator, and directly to all other processes.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use onepipe_base::{Cause, Incarnation, Now, Port, ProcessId, Promises, Psn, Transmit, Verdict};
use onepipe_join::{JoinerConfig, Roster};
use onepipe_transport_driver::{Doorbell, SharedWait, Transport, Wait};
use onepipe_wire::{
    AddressAd, Frame, HEADER_LEN, Header, Opcode, Terms, header_unchecked, mark_congestion,
    parse_header, seal,
};

use crate::peer_table::{PeerTable, PendingAd, Unproved};
use crate::uplink::Uplink;
use crate::{BatchSocket, Config, FrameRange, JoinFailure, Offload, OverlayStats, Refusal, Stats};

/// The port of the aggregator.
const TREE: Port = Port(0);
/// The port of all other processes.
const DIRECT: Port = Port(1);
/// The socket's destination for frames to the aggregator.
const TREE_DESTINATION: usize = 0;
/// The socket's destination for an advertisement sent directly; its address is set for each one.
const ONE_SHOT_DESTINATION: usize = 1;
/// The socket's first destination for direct routes.
const DIRECT_BASE: usize = 2;
/// Maximum number of direct routes in use; frames for further processes are sent by the tree.
const DIRECT_MAX: u32 = 1024;
/// Maximum number of pending advertisements; further queries are repeated later.
const ADS_MAX: usize = 64;

/// The identity of a process towards its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalProcess {
    /// The process id.
    pub process: ProcessId,
    /// The incarnation.
    pub incarnation: Incarnation,
    /// Process ids lie below this.
    pub processes_max: u32,
}

/// Two links over one socket: port 0 to the aggregator, port 1 to all other processes. The
/// addresses of these are learned by queries through the tree. Until a route is confirmed in both
/// directions, frames for its process are sent by the tree, too (docs/design/overlay.md, "How do
/// processes find each other?").
#[derive(Debug)]
pub struct UdpOverlay {
    socket: BatchSocket,
    uplink: Uplink,
    own: LocalProcess,
    /// The address advertised to other processes.
    advertised: SocketAddr,
    peers: PeerTable,
    /// The process and address of each direct route, from destination [`DIRECT_BASE`] on.
    direct_slots: Vec<Option<(ProcessId, SocketAddr)>>,
    ads: Vec<PendingAd>,
    now: Option<Now>,
    slot: Option<FrameRange>,
    is_blocked: bool,
    stats: OverlayStats,
}

impl UdpOverlay {
    /// Opens the links of `own` through the aggregator at `aggregator`. Advertises `advertised`, or
    /// by default the local address that reaches the aggregator. Sends nothing.
    ///
    /// # Errors
    /// The system's; a configuration out of range.
    pub fn connect(
        aggregator: SocketAddr,
        own: LocalProcess,
        advertised: Option<SocketAddr>,
        config: &Config,
    ) -> io::Result<Self> {
        let any: SocketAddr =
            if aggregator.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let bind = config.bind.unwrap_or(any);
        let direct_slots = own.processes_max.min(DIRECT_MAX) as usize;
        let config = Config { bind: Some(bind), ..config.clone() };
        let mut socket = BatchSocket::bind(&config, DIRECT_BASE + direct_slots)?;
        let mut local = socket.local_addr()?;
        if local.ip().is_unspecified() {
            local.set_ip(ip_towards(aggregator, any)?);
        }
        socket.set_destination(TREE_DESTINATION, Some(aggregator));
        Ok(Self {
            socket,
            uplink: Uplink::new("aggregator", aggregator, TREE_DESTINATION),
            own,
            advertised: advertised.unwrap_or(local),
            peers: PeerTable::new(own.process, own.processes_max),
            direct_slots: vec![None; direct_slots],
            ads: Vec::with_capacity(ADS_MAX),
            now: None,
            slot: None,
            is_blocked: false,
            stats: OverlayStats::default(),
        })
    }

    /// As [`crate::UdpLink::joining`].
    #[must_use]
    pub fn joining(mut self) -> Self {
        let LocalProcess { process, incarnation, .. } = self.own;
        let joiner = JoinerConfig::process(process, incarnation);
        self.uplink.start_joining(JoinerConfig { wants_members: true, ..joiner });
        self
    }

    /// As [`crate::UdpLink::join`]. Process ids lie below [`Terms::processes_max`] from then on.
    ///
    /// # Errors
    /// The aggregator does not answer, or refuses this process.
    pub fn join(
        &mut self,
        wait: Duration,
        read: impl FnMut() -> Now,
    ) -> Result<Option<Terms>, JoinFailure> {
        let terms = self.uplink.join(&mut self.socket, wait, read)?;
        if let Some(terms) = &terms {
            self.own.processes_max = terms.processes_max;
            self.peers = PeerTable::new(self.own.process, terms.processes_max);
        }
        Ok(terms)
    }

    /// As [`crate::UdpLink::refusal`].
    pub fn refusal(&self) -> Option<Refusal> {
        self.uplink.refusal()
    }

    /// As [`crate::UdpLink::roster`].
    pub fn roster(&self) -> Option<&Roster> {
        self.uplink.roster()
    }

    /// The address advertised to other processes.
    pub fn advertised(&self) -> SocketAddr {
        self.advertised
    }

    /// The address of the direct route to `process`, if there is one.
    pub fn direct(&self, process: ProcessId) -> Option<SocketAddr> {
        self.peers.direct(process)
    }

    /// Number of processes with a direct route.
    pub fn direct_count(&self) -> usize {
        self.peers.direct_count()
    }

    /// Counters of the two kinds of routes.
    pub fn overlay_stats(&self) -> &OverlayStats {
        &self.stats
    }

    /// Counters of the socket.
    pub fn stats(&self) -> &Stats {
        self.socket.stats()
    }

    /// See [`BatchSocket::offload`].
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

    /// Returns the destination for a frame of the endpoint.
    #[inline]
    fn destination_of(&mut self, port: Port, frame: FrameRange) -> usize {
        if port == TREE {
            return TREE_DESTINATION;
        }
        let (Some(now), Ok((header, opcode))) = (self.now, parse_header(self.socket.frame(frame)))
        else {
            return TREE_DESTINATION;
        };
        let (to, ads) = (header.dst(), &mut self.ads);
        let route = self.peers.route(now.mono, to, |ad| {
            if ads.len() < ADS_MAX {
                ads.push(ad);
            }
        });
        // A handshake goes to the newest incarnation, which the tree knows: the direct route may
        // still lead to the previous one.
        let route = route.filter(|_| opcode.in_best_effort() != Opcode::Connect);
        let Some(destination) = route.and_then(|at| self.assign_destination(to, at)) else {
            self.stats.frames_by_tree += 1;
            return TREE_DESTINATION;
        };
        self.stats.frames_direct += 1;
        destination
    }

    /// Returns the destination with address `at` for `process`, or `None` if its slot holds the
    /// direct route of another process.
    #[inline]
    fn assign_destination(&mut self, process: ProcessId, at: SocketAddr) -> Option<usize> {
        let direct_slot = process.index() % self.direct_slots.len();
        if self.direct_slots[direct_slot] == Some((process, at)) {
            return Some(DIRECT_BASE + direct_slot);
        }
        let is_in_use =
            |(other, _): (ProcessId, _)| other != process && self.peers.direct(other).is_some();
        if self.direct_slots[direct_slot].is_some_and(is_in_use) {
            return None;
        }
        let at_socket = self.to_socket_family(at)?;
        self.direct_slots[direct_slot] = Some((process, at));
        self.socket.set_destination(DIRECT_BASE + direct_slot, Some(at_socket));
        Some(DIRECT_BASE + direct_slot)
    }

    /// Converts an address to the family of this socket.
    fn to_socket_family(&self, address: SocketAddr) -> Option<SocketAddr> {
        match (self.uplink.address(), address) {
            (SocketAddr::V4(_), SocketAddr::V4(_)) | (SocketAddr::V6(_), SocketAddr::V6(_)) => {
                Some(address)
            }
            (SocketAddr::V6(_), SocketAddr::V4(v4)) => {
                Some((v4.ip().to_ipv6_mapped(), v4.port()).into())
            }
            (SocketAddr::V4(_), SocketAddr::V6(_)) => None,
        }
    }

    /// Handles an address advertisement of another process.
    #[cold]
    fn on_address_ad(&mut self, now: Now, range: FrameRange, seen: Option<SocketAddr>) {
        let Ok(frame) = Frame::parse(self.socket.frame(range)) else { return };
        let Ok(address_ad) = AddressAd::parse(frame.payload) else { return };
        if frame.header.dst() != self.own.process {
            return;
        }
        let from = (frame.header.src(), frame.header.incarnation());
        self.stats.address_ads_received += 1;
        match self.peers.on_address_ad(now.mono, from, address_ad, seen) {
            Ok(Some(ad)) if self.ads.len() < ADS_MAX => self.ads.push(ad),
            Ok(_) => {}
            Err(Unproved) => self.on_unproved(now, from.0),
        }
    }

    //= spec/ordering.md#R80
    /// Handles a frame that came directly from an address which its sender has not proved. The
    /// sender may have restarted, or moved: it is asked by the tree, if a query is due.
    #[cold]
    fn on_unproved(&mut self, now: Now, sender: ProcessId) {
        self.stats.frames_unproved += 1;
        let ads = &mut self.ads;
        if sender != self.own.process {
            self.peers.route(now.mono, sender, |ad| {
                if ads.len() < ADS_MAX {
                    ads.push(ad);
                }
            });
        }
    }

    /// Sends the pending advertisements. Returns false when the socket's buffer is full.
    fn send_ads(&mut self, now: Now) -> bool {
        let mut is_sent = true;
        while let Some(ad) = self.ads.pop() {
            let to = match ad.at {
                None => TREE_DESTINATION,
                Some(at) => {
                    let Some(at) = self.to_socket_family(at) else { continue };
                    self.socket.set_destination(ONE_SHOT_DESTINATION, Some(at));
                    ONE_SHOT_DESTINATION
                }
            };
            let Some(slot) = self.socket.slot() else { break };
            let bytes = HEADER_LEN
                + write_address_ad(self.socket.frame(slot), self.own, now, (ad, self.advertised));
            let frame = self.socket.keep(slot, bytes);
            self.socket.send(to, frame);
            self.stats.address_ads_sent += 1;
            // The next one may have another address.
            is_sent = self.socket.flush();
        }
        is_sent
    }
}

/// Writes an address advertisement and returns the length of its payload.
fn write_address_ad(
    slot: &mut [u8],
    own: LocalProcess,
    now: Now,
    (ad, advertised): (PendingAd, SocketAddr),
) -> usize {
    let PendingAd { wants_reply, nonce, proof, .. } = ad;
    let payload = AddressAd { wants_reply, address: advertised, nonce, proof };
    let bytes =
        payload.write(&mut slot[HEADER_LEN..]).expect("a slot must hold an address advertisement");
    let header = Header::new(Opcode::AddressAd, own.process, ad.to, own.incarnation);
    seal(slot, header.stamped(now.sync, Promises::both(now.sync), Psn::FIRST), bytes);
    bytes
}

/// Returns the local address from which this machine sends to `to`.
fn ip_towards(to: SocketAddr, any: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

#[inline]
fn is_address_ad(frame: &[u8]) -> bool {
    parse_header(frame).is_ok_and(|(_, opcode)| opcode == Opcode::AddressAd)
}

impl Transport for UdpOverlay {
    const IS_FIFO: bool = false;

    fn receive(&mut self, now: Now, mut on_frame: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize {
        self.now = Some(now);
        let batches = self.socket.receive();
        let is_backlogged = self.socket.is_backlogged();
        let mut frames = 0;
        for batch in 0..batches {
            let from = self.socket.source(batch);
            let is_tree = from == Some(self.uplink.address());
            let (port, seen) = if is_tree { (TREE, None) } else { (DIRECT, from) };
            for range in self.socket.frames(batch) {
                let frame = self.socket.frame(range);
                if self.uplink.takes(frame) {
                    if is_tree {
                        self.uplink.on_frame(now, frame);
                    }
                    continue;
                }
                if is_address_ad(frame) {
                    self.on_address_ad(now, range, seen);
                    continue;
                }
                let sender =
                    header_unchecked(frame).map_or(self.own.process, |header| header.src());
                if !is_tree && !self.peers.is_source(sender, from) {
                    self.on_unproved(now, sender);
                    continue;
                }
                let frame = self.socket.frame(range);
                frames += 1;
                if is_backlogged {
                    mark_congestion(frame);
                }
                // A process forwards no frames.
                on_frame(port, frame);
            }
        }
        self.uplink.send(now, &mut self.socket);
        if !self.ads.is_empty() {
            self.is_blocked |= !self.send_ads(now);
        }
        frames
    }

    fn poll_links_down(&mut self, _: impl FnMut(Port, Cause)) {
        while let Some(address) = self.socket.refused() {
            self.peers.on_refused(address);
        }
    }

    fn can_begin_burst(&mut self, _: Now) -> bool {
        if self.is_blocked {
            self.is_blocked = !self.socket.flush();
        }
        !self.is_blocked
    }

    fn begin_burst(&mut self, now: Now, _: Option<Promises>) {
        self.now = Some(now);
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
            let destination = self.destination_of(transmit.port, frame);
            self.socket.send(destination, frame);
        }
    }

    fn end_burst(&mut self, _: Option<Promises>) {
        self.is_blocked = !self.socket.flush();
        if let Some(now) = self.now
            && !self.ads.is_empty()
        {
            self.is_blocked |= !self.send_ads(now);
        }
    }

    fn wait(&mut self, timeout_ns: u64) {
        self.socket.wait(self.uplink.limit_wait(timeout_ns));
    }

    fn doorbell(&self) -> Doorbell {
        self.socket.doorbell()
    }
}

impl SharedWait for UdpOverlay {
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

#[cfg(test)]
mod tests;
