//! Links to processes of known addresses over one socket.

use std::io;
use std::net::SocketAddr;

use onepipe_base::{Now, Port, ProcessId, Promises, Transmit, Verdict};
use onepipe_transport_driver::{Doorbell, Transport};
use onepipe_wire::header_unchecked;

use crate::{BatchSocket, Config, FrameRange, Offload, Stats};

/// The only port of a mesh.
const MESH: Port = Port(0);

/// One port, 0, to all processes of known addresses, without a switch: a frame is sent to the
/// address of its destination process. For machines without promises.
///
/// A frame counts only if it comes from the address of the process that it names as its sender.
#[derive(Debug)]
pub struct UdpMesh {
    socket: BatchSocket,
    /// The address of each process, by id.
    peers: Vec<Option<SocketAddr>>,
    slot: Option<FrameRange>,
    is_blocked: bool,
    frames_unknown: u64,
    frames_misattributed: u64,
}

impl UdpMesh {
    /// Binds a socket at `config.bind` for process ids below `processes`. No address is known yet.
    ///
    /// # Errors
    /// The system's; a configuration out of range or without an address.
    pub fn bind(config: &Config, processes: u32) -> io::Result<Self> {
        let processes = processes as usize;
        Ok(Self {
            socket: BatchSocket::bind(config, processes)?,
            peers: vec![None; processes],
            slot: None,
            is_blocked: false,
            frames_unknown: 0,
            frames_misattributed: 0,
        })
    }

    /// Sets the address of `process`. Ids out of range are ignored.
    pub fn set_peer(&mut self, process: ProcessId, at: SocketAddr) {
        if let Some(peer) = self.peers.get_mut(process.index()) {
            *peer = Some(at);
            self.socket.set_destination(process.index(), Some(at));
        }
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

    /// Counters of the socket.
    pub fn stats(&self) -> &Stats {
        self.socket.stats()
    }

    /// Frames dropped because the address of their destination is unknown.
    pub fn frames_unknown(&self) -> u64 {
        self.frames_unknown
    }

    /// Frames dropped because they came from another address than that of their sender.
    pub fn frames_misattributed(&self) -> u64 {
        self.frames_misattributed
    }
}

impl Transport for UdpMesh {
    const IS_FIFO: bool = false;

    fn receive(&mut self, _: Now, mut on_frame: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize {
        let batches = self.socket.receive();
        let mut frames = 0;
        for batch in 0..batches {
            let from = self.socket.source(batch);
            for range in self.socket.frames(batch) {
                let frame = self.socket.frame(range);
                //= spec/amcast.md#R38
                // A frame without a header counts as one of process 0, and the machine drops it.
                let sender = header_unchecked(frame).map_or(0, |header| header.src().index());
                if from.is_none() || self.peers.get(sender) != Some(&from) {
                    self.frames_misattributed += 1;
                    continue;
                }
                frames += 1;
                // Frames are not forwarded: there is no other port.
                on_frame(MESH, frame);
            }
        }
        // Machines detect absent peers by timeouts; the kernel's reports only have to be cleared.
        while self.socket.refused().is_some() {}
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
        let Some(slot) = self.slot.take() else { return };
        let to = header_unchecked(self.socket.frame(slot)).map(|header| header.dst().index());
        match to.filter(|to| self.peers.get(*to).is_some_and(Option::is_some)) {
            Some(to) => {
                let frame = self.socket.keep(slot, transmit.bytes);
                self.socket.send(to, frame);
            }
            None => self.frames_unknown += 1,
        }
    }

    fn end_burst(&mut self, _: Option<Promises>) {
        self.is_blocked = !self.socket.flush();
    }

    fn wait(&mut self, timeout_ns: u64) {
        self.socket.wait(timeout_ns);
    }

    fn doorbell(&self) -> Doorbell {
        self.socket.doorbell()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use onepipe_base::{Incarnation, Mono, Psn, Timestamp};
    use onepipe_wire::{Header, Opcode, seal};

    use super::*;

    const NOW: Now = Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1 << 50) };

    fn mesh() -> (UdpMesh, SocketAddr) {
        let bind = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let config = Config { bind, ..Config::default() };
        let mesh = UdpMesh::bind(&config, 3).expect("the loopback is available");
        let at = mesh.local_addr().expect("the socket is bound");
        (mesh, at)
    }

    fn send(mesh: &mut UdpMesh, to: u32, payload: &[u8]) {
        let header = Header::new(Opcode::Start, ProcessId(0), ProcessId(to), Incarnation(1));
        let header = header.stamped(NOW.sync, Promises::both(NOW.sync), Psn(0));
        let slot = mesh.slot().expect("there is capacity");
        slot[onepipe_wire::HEADER_LEN..][..payload.len()].copy_from_slice(payload);
        let bytes = seal(slot, header, payload.len());
        mesh.send(Transmit { port: MESH, bytes });
    }

    #[test]
    fn frames_go_to_their_destination() {
        let (mut one, own) = mesh();
        let mut others = [mesh(), mesh()];
        for (process, (other, at)) in (1..).zip(&mut others) {
            one.set_peer(ProcessId(process), *at);
            other.set_peer(ProcessId(0), own);
        }
        // Two of one length, and frames without a destination between them.
        for to in [1, 2, 0, 9, 1] {
            send(&mut one, to, &[to as u8; 40]);
        }
        one.end_burst(None);
        assert_eq!((one.frames_unknown(), one.stats().frames_sent), (2, 3));
        for ((mut other, _), (process, wanted)) in others.into_iter().zip([(1, 2), (2, 1)]) {
            let (began, mut got) = (Instant::now(), 0);
            while got < wanted && began.elapsed() < Duration::from_secs(10) {
                other.wait(1_000_000);
                got += other.receive(NOW, |_, frame| {
                    assert_eq!(
                        header_unchecked(frame).map(|header| header.dst()),
                        Some(ProcessId(process))
                    );
                    assert_eq!(frame[onepipe_wire::HEADER_LEN], process as u8);
                    Verdict::Consumed
                });
            }
            assert_eq!(got, wanted, "to {process}");
        }
    }

    #[test]
    fn absent_peer_does_no_harm() {
        let (mut one, own) = mesh();
        let (closed, at) = mesh();
        drop(closed);
        let (mut other, there) = mesh();
        other.set_peer(ProcessId(0), own);
        one.set_peer(ProcessId(1), at);
        one.set_peer(ProcessId(2), there);
        let began = Instant::now();
        let mut got = 0;
        while got < 3 && began.elapsed() < Duration::from_secs(10) {
            send(&mut one, 1, b"gone");
            send(&mut one, 2, b"here");
            one.end_burst(None);
            assert_eq!(one.receive(NOW, |_, _| Verdict::Consumed), 0);
            other.wait(1_000_000);
            got += other.receive(NOW, |_, _| Verdict::Consumed);
        }
        assert!(got >= 3);
    }

    /// One datagram as the coordinator, with the last epoch, once stopped a group permanently.
    //= spec/amcast.md#R38
    #[test]
    fn frame_from_another_address_is_dropped() {
        let (mut victim, there) = mesh();
        let (mut honest, own) = mesh();
        let (mut stranger, _) = mesh();
        // A member that speaks as another one.
        let (mut member, at) = mesh();
        victim.set_peer(ProcessId(0), own);
        victim.set_peer(ProcessId(2), at);
        for sender in [&mut stranger, &mut member, &mut honest] {
            sender.set_peer(ProcessId(1), there);
            send(sender, 1, b"as process 0");
            sender.end_burst(None);
        }
        let (began, mut got) = (Instant::now(), 0);
        while (got == 0 || victim.frames_misattributed() < 2)
            && began.elapsed() < Duration::from_secs(10)
        {
            victim.wait(1_000_000);
            got += victim.receive(NOW, |_, _| Verdict::Consumed);
        }
        assert_eq!((got, victim.frames_misattributed()), (1, 2));
    }
}
