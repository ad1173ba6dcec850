//! One socket with fixed memory, and GSO batches to many destinations.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use onepipe_transport_driver::{Doorbell, Wait, Waker};
use socket2::{SockAddr, Socket};

use crate::error_queue::{self, Report};
use crate::event_fd::EventFd;
use crate::gso::{FRAMES_MAX, GsoQueue};
use crate::receive::{BATCH_BYTES_MAX, Receiver};
use crate::send::{Sender, Sent};
use crate::{Config, Offload, Stats, socket};

/// The position of a frame in a socket's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRange {
    at: usize,
    bytes: usize,
}

impl FrameRange {
    /// Length of the frame in bytes.
    pub fn bytes(self) -> usize {
        self.bytes
    }
}

/// A socket with memory for received and for written frames, and queues of GSO batches: frames are
/// sent in place.
///
/// In turn: [`BatchSocket::receive`], then any number of [`BatchSocket::send`] of frames that were
/// received ([`BatchSocket::frame`]) or written ([`BatchSocket::slot`]), then
/// [`BatchSocket::flush`].
pub struct BatchSocket {
    socket: Arc<Socket>,
    offload: Offload,
    /// Received frames, then slots.
    memory: Box<[u8]>,
    slots_at: usize,
    /// Position of the next slot.
    slot_at: usize,
    frame_len_max: usize,
    receiver: Receiver,
    /// Number of batches received by the last `receive`.
    batches_received: usize,
    sender: Sender,
    destinations: Vec<Destination>,
    /// Destinations with queued frames.
    active: Vec<usize>,
    /// Received frames are queued to be forwarded in place.
    has_forwarded: bool,
    event_fd: Arc<EventFd>,
    stats: Stats,
}

struct Destination {
    address: Option<SockAddr>,
    queue: GsoQueue,
    is_active: bool,
}

/// Maximum number of ranges queued for one destination if there are few: a call's worth of full
/// batches whose frames are not contiguous.
const RANGES_MAX: usize = 4096;
/// The same if there are many destinations: enough for a few batches.
const RANGES_MIN: usize = 256;
/// Number of ranges divided between all destinations: 24 bytes each, and as many batch headers.
const RANGES_ALL_MAX: usize = 1 << 18;

impl BatchSocket {
    /// Opens a socket that exchanges frames with `to` only: destination 0.
    ///
    /// # Errors
    /// The system's; a configuration out of range.
    pub fn connect(to: SocketAddr, config: &Config) -> io::Result<Self> {
        let (socket, offload) = socket::open(config, to)?;
        socket.connect(&to.into())?;
        Self::new(socket, offload, config, 1, false)
    }

    /// Opens a socket bound to `config.bind` that receives from all addresses and sends to up to
    /// `destinations` addresses, set by [`BatchSocket::set_destination`].
    ///
    /// # Errors
    /// The system's; a configuration out of range or without an address.
    pub fn bind(config: &Config, destinations: usize) -> io::Result<Self> {
        let Some(bind) = config.bind else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no local address to bind to: set `bind`",
            ));
        };
        let (socket, offload) = socket::open(config, bind)?;
        socket::enable_error_queue(&socket);
        Self::new(socket, offload, config, destinations, true)
    }

    fn new(
        socket: Socket,
        offload: Offload,
        config: &Config,
        destinations: usize,
        wants_addresses: bool,
    ) -> io::Result<Self> {
        let batch_max = if offload == Offload::Plain { 1 } else { usize::MAX };
        let frames_max = if offload == Offload::Segment { FRAMES_MAX } else { 1 };
        let receiver = Receiver::new(batch_max, wants_addresses);
        let slots_at = receiver.memory_bytes();
        let bytes = slots_at + config.send_queue_bytes.max(config.frame_len_max);
        let ranges_max = (RANGES_ALL_MAX / destinations.max(1)).clamp(RANGES_MIN, RANGES_MAX);
        let destination = |_| Destination {
            address: None,
            queue: GsoQueue::new(frames_max, ranges_max),
            is_active: false,
        };
        Ok(Self {
            socket: Arc::new(socket),
            offload,
            memory: vec![0; bytes].into_boxed_slice(),
            slots_at,
            slot_at: slots_at,
            frame_len_max: config.frame_len_max,
            receiver,
            batches_received: 0,
            sender: Sender::new(batch_max),
            destinations: (0..destinations).map(destination).collect(),
            active: Vec::with_capacity(destinations),
            has_forwarded: false,
            event_fd: Arc::new(EventFd::new()?),
            stats: Stats::default(),
        })
    }

    /// The local address.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?;
        address.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// The offload in use, as far as the kernel supports it.
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Counters of this socket.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Sets or clears the address of a destination; drops frames queued for it.
    pub fn set_destination(&mut self, destination: usize, to: Option<SocketAddr>) {
        let destination = &mut self.destinations[destination];
        destination.address = to.map(SockAddr::from);
        destination.queue.clear();
    }

    /// Receives at most one call's worth of batches and returns their number. Invalidates frames
    /// received before; drops those that are still queued to be forwarded.
    pub fn receive(&mut self) -> usize {
        if self.has_forwarded {
            self.discard();
        }
        self.batches_received =
            self.receiver.receive(&self.socket, &mut self.memory[..self.slots_at]);
        self.stats.gro_batches_received += self.batches_received as u64;
        self.stats.receives += 1;
        self.batches_received
    }

    /// Returns the next address that refused a datagram, as reported by the kernel (ICMP port
    /// unreachable); each datagram may cause one report. Only for bound sockets; costs a system
    /// call only if there are reports.
    pub fn refused(&mut self) -> Option<SocketAddr> {
        while self.receiver.has_reports {
            match error_queue::next(&self.socket) {
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

    /// The source address of a batch of the last `receive`.
    pub fn source(&self, batch: usize) -> Option<SocketAddr> {
        self.receiver.source(batch)
    }

    /// The frames of a batch of the last `receive`; none of a truncated one.
    pub fn frames(&mut self, batch: usize) -> impl Iterator<Item = FrameRange> + use<> {
        debug_assert!(batch < self.batches_received);
        let received = self.receiver.batch(batch);
        let bytes = if received.is_truncated { 0 } else { received.bytes };
        self.stats.gro_batches_truncated += u64::from(received.is_truncated);
        let segment_bytes = received.segment_bytes.max(1);
        self.stats.frames_received += bytes.div_ceil(segment_bytes) as u64;
        let first = batch * BATCH_BYTES_MAX;
        (0..bytes).step_by(segment_bytes).map(move |segment| FrameRange {
            at: first + segment,
            bytes: segment_bytes.min(bytes - segment),
        })
    }

    /// The bytes of a frame.
    #[inline]
    pub fn frame(&mut self, range: FrameRange) -> &mut [u8] {
        &mut self.memory[range.at..range.at + range.bytes]
    }

    /// Memory for a frame of maximum length, or `None` while all of it is queued.
    #[inline]
    pub fn slot(&mut self) -> Option<FrameRange> {
        if self.memory.len() - self.slot_at < self.frame_len_max {
            self.flush();
            if self.memory.len() - self.slot_at < self.frame_len_max {
                return None;
            }
        }
        Some(FrameRange { at: self.slot_at, bytes: self.frame_len_max })
    }

    /// Keeps the first `bytes` bytes of the last slot: the next slot begins behind them.
    #[inline]
    pub fn keep(&mut self, slot: FrameRange, bytes: usize) -> FrameRange {
        debug_assert!(slot.at == self.slot_at && bytes <= slot.bytes);
        self.slot_at += bytes;
        FrameRange { at: slot.at, bytes }
    }

    /// Copies a frame, or returns `None` while all memory for that is queued, or if the frame is
    /// longer than this socket sends: a slot has no room for it.
    #[inline]
    pub fn copy(&mut self, frame: FrameRange) -> Option<FrameRange> {
        let slot = self.slot().filter(|slot| frame.bytes <= slot.bytes)?;
        self.memory.copy_within(frame.at..frame.at + frame.bytes, slot.at);
        Some(self.keep(slot, frame.bytes))
    }

    /// Queues a frame for `destination`. It must not be changed until flushed.
    #[inline]
    pub fn send(&mut self, destination: usize, frame: FrameRange) {
        let Some(to) = self.destinations.get_mut(destination) else {
            self.stats.frames_refused += 1;
            return;
        };
        if !to.queue.push(frame.at, frame.bytes) {
            self.flush();
            let to = &mut self.destinations[destination];
            if !to.queue.push(frame.at, frame.bytes) {
                self.stats.frames_overflowed += 1;
                return;
            }
            // The flush has released the slots of the other frames; this frame still needs its own.
            self.slot_at = self.slot_at.max(frame.at + frame.bytes);
        }
        self.has_forwarded |= frame.at < self.slots_at;
        let to = &mut self.destinations[destination];
        if !to.is_active {
            to.is_active = true;
            self.active.push(destination);
        }
    }

    /// Hands all queued frames to the kernel. Returns false when some of them wait for capacity in
    /// the socket's buffer.
    pub fn flush(&mut self) -> bool {
        loop {
            self.stage();
            if self.sender.is_empty() {
                break;
            }
            self.stats.sends += 1;
            // SAFETY: memory and addresses are owned by this socket, and were staged just now.
            let sent = unsafe { self.sender.send_batch(&self.socket) };
            match sent {
                Sent::Batches(count) => (0..count).for_each(|index| self.on_sent(index)),
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

    /// Drops all queued frames.
    pub fn discard(&mut self) {
        for &active in &self.active {
            let queue = &mut self.destinations[active].queue;
            let frames: usize = queue.queued().iter().map(|batch| batch.frames).sum();
            self.stats.frames_overflowed += frames as u64;
            queue.clear();
        }
        self.on_empty();
    }

    /// Whether frames queue up before this socket: the last call returned more than one batch, and
    /// the receive buffer is still more than a quarter full. Costs a system call if the first
    /// holds.
    pub fn is_backlogged(&mut self) -> bool {
        let is_backlogged = self.batches_received > 1
            && socket::backlog(&self.socket).is_some_and(|backlog| backlog.used > backlog.size / 4);
        self.stats.backlogs += u64::from(is_backlogged);
        is_backlogged
    }

    /// Number of datagrams that the kernel dropped because the receive buffer was full; `None`
    /// where it does not report them. Costs a system call.
    pub fn kernel_drops(&self) -> Option<u32> {
        socket::backlog(&self.socket).map(|backlog| backlog.drops)
    }

    /// Size of the receive buffer granted by the kernel, in bytes of kernel memory. Costs a system
    /// call.
    pub fn receive_buffer_bytes(&self) -> Option<u32> {
        socket::backlog(&self.socket).map(|backlog| backlog.size)
    }

    /// Blocks until a frame arrives, the doorbell is rung or `timeout_ns` have passed. May return
    /// early (spurious wake-up).
    pub fn wait(&mut self, timeout_ns: u64) {
        let fds = [self.socket.as_raw_fd(), self.event_fd.fd()];
        let ready = socket::poll(fds, timeout_ns);
        self.receiver.has_reports |= ready.has_errors;
        if ready.is_rung {
            self.event_fd.clear();
        }
    }

    /// Makes a handle to wait for a frame while another thread may use the socket. It has a
    /// doorbell of its own: another wait for the socket does not clear it.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn wait_handle(&self) -> io::Result<Arc<dyn Wait>> {
        let (socket, event_fd) = (Arc::clone(&self.socket), EventFd::new()?);
        Ok(Arc::new(SocketWait { socket, event_fd }))
    }

    /// Notes that a thread has waited by the handle, which does not report errors of the socket.
    pub fn end_wait(&mut self) {
        self.receiver.has_reports = true;
    }

    /// The handle that ends [`BatchSocket::wait`] from another thread.
    pub fn doorbell(&self) -> Doorbell {
        let event_fd: Arc<dyn Waker> = self.event_fd.clone();
        Doorbell::new(event_fd)
    }

    /// Simulates a path that does not support GSO.
    #[cfg(test)]
    pub(crate) fn reject_gso(&mut self) {
        self.sender.rejects_gso = true;
    }

    /// Prepares the next system call from the queues.
    fn stage(&mut self) {
        self.sender.clear();
        for &active in &self.active {
            let Destination { address, queue, .. } = &self.destinations[active];
            for batch in queue.queued() {
                let ranges = queue.ranges(batch);
                if !self.sender.stage(&self.memory, batch, ranges, active, address.as_ref()) {
                    return;
                }
            }
        }
    }

    /// Removes the batch that was staged at `index` and has been sent.
    fn on_sent(&mut self, index: usize) {
        let queue = &mut self.destinations[self.sender.destination(index)].queue;
        self.stats.frames_sent += queue.queued()[0].frames as u64;
        self.stats.bytes_sent += queue.queued()[0].bytes as u64;
        self.stats.gso_batches_sent += 1;
        queue.on_sent(1);
    }

    /// Handles the refusal of the first staged batch. The error may belong to an earlier datagram,
    /// or mean that this path does not support GSO: then the batch is sent in segments, else
    /// dropped.
    fn on_refused(&mut self, error: &io::Error) {
        self.receiver.has_reports = true;
        let destination = self.sender.destination(0);
        let Destination { address, queue, .. } = &mut self.destinations[destination];
        let batch = queue.queued()[0];
        let is_late_report = error.kind() == io::ErrorKind::ConnectionRefused;
        let is_gso_refusal = batch.frames > 1
            && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE));
        let sent = if is_gso_refusal || is_late_report {
            let ranges = queue.ranges(&batch);
            self.sender.send_segments(&self.socket, &self.memory, &batch, ranges, address.as_ref())
        } else {
            0
        };
        queue.on_sent(1);
        self.stats.frames_sent += sent as u64;
        self.stats.frames_refused += (batch.frames - sent) as u64;
        if is_gso_refusal && sent > 0 {
            self.offload = Offload::Batch;
            self.destinations.iter_mut().for_each(|to| to.queue.disable_gso());
        }
    }

    /// Resets the socket once all queues are empty.
    fn on_empty(&mut self) {
        while let Some(active) = self.active.pop() {
            self.destinations[active].is_active = false;
        }
        self.slot_at = self.slots_at;
        self.has_forwarded = false;
    }
}

/// Waits for a socket without borrowing it.
#[derive(Debug)]
struct SocketWait {
    socket: Arc<Socket>,
    event_fd: EventFd,
}

impl Wait for SocketWait {
    fn wait(&self, timeout_ns: u64) {
        let fds = [self.socket.as_raw_fd(), self.event_fd.fd()];
        if socket::poll(fds, timeout_ns).is_rung {
            self.event_fd.clear();
        }
    }

    fn ring(&self) {
        self.event_fd.ring();
    }
}

impl fmt::Debug for BatchSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchSocket")
            .field("socket", &self.socket)
            .field("offload", &self.offload)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
