//! One socket, fixed memory, trains to many destinations.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use onepipe_transport_driver::{Bell, Doorbell};
use socket2::{SockAddr, Socket};

use crate::bell::EventBell;
use crate::receive::{Receiver, TRAIN_BYTES};
use crate::refusal::{self, Report};
use crate::send::{Sender, Sent};
use crate::train::{FRAMES_MAX, Trains};
use crate::{Config, Offload, Stats, socket};

/// A stretch of an exchange's memory that holds a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    at: usize,
    bytes: usize,
}

impl Place {
    /// How long the frame is.
    pub fn bytes(self) -> usize {
        self.bytes
    }
}

/// A socket with memory for what has arrived and for what is written here, and trains that wait to
/// leave: frames are sent from where they lie.
///
/// In turn: [`Exchange::receive`], then any number of [`Exchange::send`] of frames that have
/// arrived ([`Exchange::frame`]) or were written ([`Exchange::slot`]), then [`Exchange::flush`].
pub struct Exchange {
    socket: Socket,
    offload: Offload,
    /// What has arrived, then slots.
    memory: Box<[u8]>,
    slots_at: usize,
    /// Where the next slot begins.
    slot_at: usize,
    frame_len_max: usize,
    receiver: Receiver,
    /// Trains taken by the last `receive`.
    arrived: usize,
    sender: Sender,
    destinations: Vec<Destination>,
    /// Destinations with something to send.
    busy: Vec<usize>,
    /// Something that has arrived waits to be sent from where it lies.
    is_lent: bool,
    bell: Arc<EventBell>,
    stats: Stats,
}

struct Destination {
    address: Option<SockAddr>,
    trains: Trains,
    is_busy: bool,
}

/// Pieces that may wait for one destination: a batch of full trains of frames that do not lie
/// together; fewer where there are many destinations, …
const PIECES_MAX: usize = 4096;
/// … but at least a few trains'.
const PIECES_MIN: usize = 256;
/// Pieces that may wait for all destinations: 24 bytes each, and room for as many trains.
const PIECES_ALL_MAX: usize = 1 << 18;

impl Exchange {
    /// A socket that sends to `to` and hears nobody else: destination 0.
    ///
    /// # Errors
    /// What the system says; a configuration out of range.
    pub fn connect(to: SocketAddr, config: &Config) -> io::Result<Self> {
        let (socket, offload) = socket::open(config, to)?;
        socket.connect(&to.into())?;
        Self::new(socket, offload, config, 1, false)
    }

    /// A socket bound to `config.bind` that hears everybody and can send to `destinations` whom
    /// [`Exchange::set_destination`] names.
    ///
    /// # Errors
    /// What the system says; a configuration out of range or without an address.
    pub fn bind(config: &Config, destinations: usize) -> io::Result<Self> {
        let Some(bind) = config.bind else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to bind to"));
        };
        let (socket, offload) = socket::open(config, bind)?;
        socket::ask_for_reports(&socket);
        Self::new(socket, offload, config, destinations, true)
    }

    fn new(
        socket: Socket,
        offload: Offload,
        config: &Config,
        destinations: usize,
        has_names: bool,
    ) -> io::Result<Self> {
        let batch_max = if offload == Offload::Plain { 1 } else { usize::MAX };
        let frames_max = if offload == Offload::Segment { FRAMES_MAX } else { 1 };
        let receiver = Receiver::new(batch_max, has_names);
        let slots_at = receiver.bytes();
        let bytes = slots_at + config.send_room_bytes.max(config.frame_len_max);
        let pieces_max = (PIECES_ALL_MAX / destinations.max(1)).clamp(PIECES_MIN, PIECES_MAX);
        let destination = |_| Destination {
            address: None,
            trains: Trains::new(frames_max, pieces_max),
            is_busy: false,
        };
        Ok(Self {
            socket,
            offload,
            memory: vec![0; bytes].into_boxed_slice(),
            slots_at,
            slot_at: slots_at,
            frame_len_max: config.frame_len_max,
            receiver,
            arrived: 0,
            sender: Sender::new(batch_max),
            destinations: (0..destinations).map(destination).collect(),
            busy: Vec::with_capacity(destinations),
            is_lent: false,
            bell: Arc::new(EventBell::new()?),
            stats: Stats::default(),
        })
    }

    /// Where the socket is.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?;
        address.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// What the kernel turned out to be good for.
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// What has happened so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Names a destination, or makes it nobody's; what waits for it is forgotten.
    pub fn set_destination(&mut self, destination: usize, to: Option<SocketAddr>) {
        let destination = &mut self.destinations[destination];
        destination.address = to.map(SockAddr::from);
        destination.trains.clear();
    }

    /// Takes what has arrived, a batch at most, and answers how many trains it is. Frames that
    /// arrived before are gone; those of them that still wait to be sent are dropped.
    pub fn receive(&mut self) -> usize {
        if self.is_lent {
            self.discard();
        }
        self.arrived = self.receiver.receive(&self.socket, &mut self.memory[..self.slots_at]);
        self.stats.trains_received += self.arrived as u64;
        self.stats.receives += 1;
        self.arrived
    }

    /// The next address at which nobody listens, as the kernel has learned from a datagram that was
    /// sent there; each datagram may tell once more. Only of a bound exchange; costs a system call
    /// only where something was reported.
    pub fn refused(&mut self) -> Option<SocketAddr> {
        while self.receiver.has_reports {
            match refusal::next(&self.socket) {
                Some(Report::Refused(to)) => {
                    self.stats.refusals += 1;
                    return Some(to);
                }
                Some(Report::Other) => {}
                None => self.receiver.has_reports = false,
            }
        }
        None
    }

    /// Who sent a train of the last `receive`.
    pub fn sender(&self, train: usize) -> Option<SocketAddr> {
        self.receiver.from(train)
    }

    /// The frames of a train of the last `receive`. None of one that was too long.
    pub fn frames(&mut self, train: usize) -> impl Iterator<Item = Place> + use<> {
        debug_assert!(train < self.arrived);
        let arrived = self.receiver.arrived(train);
        let bytes = if arrived.is_truncated { 0 } else { arrived.bytes };
        self.stats.trains_truncated += u64::from(arrived.is_truncated);
        let car_bytes = arrived.car_bytes.max(1);
        self.stats.frames_received += bytes.div_ceil(car_bytes) as u64;
        let first = train * TRAIN_BYTES;
        (0..bytes)
            .step_by(car_bytes)
            .map(move |car| Place { at: first + car, bytes: car_bytes.min(bytes - car) })
    }

    /// The bytes of a frame.
    #[inline]
    pub fn frame(&mut self, place: Place) -> &mut [u8] {
        &mut self.memory[place.at..place.at + place.bytes]
    }

    /// Room for a frame of the configured length, or `None` when all of it waits to be sent.
    #[inline]
    pub fn slot(&mut self) -> Option<Place> {
        if self.memory.len() - self.slot_at < self.frame_len_max {
            self.flush();
            if self.memory.len() - self.slot_at < self.frame_len_max {
                return None;
            }
        }
        Some(Place { at: self.slot_at, bytes: self.frame_len_max })
    }

    /// Keeps the first `bytes` of the slot given last: the next one lies behind.
    #[inline]
    pub fn keep(&mut self, slot: Place, bytes: usize) -> Place {
        debug_assert!(slot.at == self.slot_at && bytes <= slot.bytes);
        self.slot_at += bytes;
        Place { at: slot.at, bytes }
    }

    /// Puts a frame behind all others for `destination`. It must stay as it is until flushed.
    #[inline]
    pub fn send(&mut self, destination: usize, frame: Place) {
        let Some(to) = self.destinations.get_mut(destination) else {
            self.stats.frames_refused += 1;
            return;
        };
        if !to.trains.push(frame.at, frame.bytes) {
            self.flush();
            let to = &mut self.destinations[destination];
            if !to.trains.push(frame.at, frame.bytes) {
                self.stats.frames_overflowed += 1;
                return;
            }
            // The others have left and given back their slots; this one's is still needed.
            self.slot_at = self.slot_at.max(frame.at + frame.bytes);
        }
        self.is_lent |= frame.at < self.slots_at;
        let to = &mut self.destinations[destination];
        if !to.is_busy {
            to.is_busy = true;
            self.busy.push(destination);
        }
    }

    /// Hands everything that waits to the kernel. Answers false when some of it has to wait for
    /// room in the socket's buffer.
    pub fn flush(&mut self) -> bool {
        loop {
            self.stage();
            if self.sender.is_empty() {
                break;
            }
            self.stats.sends += 1;
            // SAFETY: memory and addresses are this exchange's own, and were staged just now.
            let sent = unsafe { self.sender.fire(&self.socket) };
            match sent {
                Sent::Trains(count) => (0..count).for_each(|index| self.on_sent(index)),
                Sent::Blocked => {
                    self.stats.sends_blocked += 1;
                    self.sender.clear();
                    return false;
                }
                Sent::Refused(error) => self.on_refused(&error),
            }
        }
        self.on_empty();
        true
    }

    /// Drops everything that waits.
    pub fn discard(&mut self) {
        for &busy in &self.busy {
            let trains = &mut self.destinations[busy].trains;
            let frames: usize = trains.waiting().iter().map(|train| train.frames).sum();
            self.stats.frames_overflowed += frames as u64;
            trains.clear();
        }
        self.on_empty();
    }

    /// Whether frames queue up before this socket: more came at once than one train, and the
    /// receive buffer is still more than a quarter full. Costs a system call if the first holds.
    pub fn is_backlogged(&mut self) -> bool {
        let is_backlogged = self.arrived > 1
            && socket::backlog(&self.socket).is_some_and(|backlog| backlog.used > backlog.size / 4);
        self.stats.backlogs += u64::from(is_backlogged);
        is_backlogged
    }

    /// Datagrams that the kernel has dropped because the receive buffer was full; `None` where it
    /// does not tell. Costs a system call.
    pub fn kernel_drops(&self) -> Option<u32> {
        socket::backlog(&self.socket).map(|backlog| backlog.drops)
    }

    /// How large the receive buffer is that the kernel has granted, in bytes of its own memory.
    /// Costs a system call.
    pub fn receive_buffer_bytes(&self) -> Option<u32> {
        socket::backlog(&self.socket).map(|backlog| backlog.size)
    }

    /// Blocks until something has arrived, the doorbell was rung or `timeout_ns` have passed. May
    /// return early for no reason.
    pub fn wait(&mut self, timeout_ns: u64) {
        let fds = [self.socket.as_raw_fd(), self.bell.fd()];
        self.receiver.has_reports |= socket::poll(fds, timeout_ns);
        self.bell.answer();
    }

    /// What wakes [`Exchange::wait`] from another thread.
    pub fn doorbell(&self) -> Doorbell {
        let bell: Arc<dyn Bell> = self.bell.clone();
        Doorbell::new(bell)
    }

    /// Stands for a way that does not cut trains.
    #[cfg(test)]
    pub(crate) fn refuse_trains(&mut self) {
        self.sender.refuses_trains = true;
    }

    /// Prepares the next system call from what waits.
    fn stage(&mut self) {
        self.sender.clear();
        for &busy in &self.busy {
            let Destination { address, trains, .. } = &self.destinations[busy];
            for train in trains.waiting() {
                let pieces = trains.pieces(train);
                if !self.sender.stage(&self.memory, train, pieces, busy, address.as_ref()) {
                    return;
                }
            }
        }
    }

    /// The train that was staged at `index` has left.
    fn on_sent(&mut self, index: usize) {
        let trains = &mut self.destinations[self.sender.destination(index)].trains;
        self.stats.frames_sent += trains.waiting()[0].frames as u64;
        self.stats.bytes_sent += trains.waiting()[0].bytes as u64;
        self.stats.trains_sent += 1;
        trains.on_left(1);
    }

    /// The first train was refused. It may have been told of an earlier one's fate; it may be that
    /// this way cannot cut trains; else it is dropped.
    fn on_refused(&mut self, error: &io::Error) {
        self.receiver.has_reports = true;
        let destination = self.sender.destination(0);
        let Destination { address, trains, .. } = &mut self.destinations[destination];
        let train = trains.waiting()[0];
        let is_late_report = error.kind() == io::ErrorKind::ConnectionRefused;
        let is_train = train.frames > 1
            && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE));
        let sent = if is_train || is_late_report {
            let pieces = trains.pieces(&train);
            self.sender.send_apart(&self.socket, &self.memory, &train, pieces, address.as_ref())
        } else {
            0
        };
        trains.on_left(1);
        self.stats.frames_sent += sent as u64;
        self.stats.frames_refused += (train.frames - sent) as u64;
        if is_train && sent > 0 {
            self.offload = Offload::Batch;
            self.destinations.iter_mut().for_each(|to| to.trains.end_trains());
        }
    }

    /// Nothing waits any more.
    fn on_empty(&mut self) {
        while let Some(busy) = self.busy.pop() {
            self.destinations[busy].is_busy = false;
        }
        self.slot_at = self.slots_at;
        self.is_lent = false;
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("socket", &self.socket)
            .field("offload", &self.offload)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
