//! Drives one member's group over its connections.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use onepipe_base::{Machine, Mono, Now, Port};
use onepipe_bulk::{Event, Group, Memory};
use onepipe_transport_clock::Clock;
use onepipe_transport_driver::{Doorbell, Waker};
use rustix::event::{Timespec, epoll};

use crate::connection::Connection;
use crate::event_fd::EventFd;

/// The epoll token of the doorbell: not a rank.
const DOORBELL_TOKEN: u64 = u64::MAX;
/// Maximum number of events per epoll wait.
const READY_MAX: usize = 64;

/// The work done by one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Frames received.
    pub frames_received: usize,
    /// Frames sent or queued in front of their socket.
    pub frames_sent: usize,
    /// Events handed out.
    pub events: usize,
}

impl Progress {
    /// Whether the turn did no work.
    pub fn is_idle(&self) -> bool {
        self.frames_received + self.frames_sent + self.events == 0
    }
}

/// Drives one member over its connections. A thread calls [`TcpGroupDriver::turn`] in a loop, with
/// the time that it may wait.
///
/// The driver rules of [`Machine`] are kept: D1 the clock is read once before received frames and
/// once before sending, and `mono` is held if it goes back; D2 after every mutation events and
/// frames are drained before it waits; D3 the frames for a member leave in the order polled, and a
/// member whose socket is full is not polled for; D4 connections are FIFO:
/// [`onepipe_bulk::Link::Reliable`]; D5 timers run by the clock.
#[derive(Debug)]
pub struct TcpGroupDriver<C, M = Vec<u8>> {
    group: Group<M>,
    /// By rank.
    connections: Vec<Option<Connection>>,
    clock: C,
    last_mono: Option<Mono>,
    epoll: std::os::fd::OwnedFd,
    event_fd: Arc<EventFd>,
    ready: Vec<(u64, epoll::EventFlags)>,
    slot: Vec<u8>,
}

impl<C: Clock, M: Memory> TcpGroupDriver<C, M> {
    /// Makes the driver of a member with a connection to each other one, by rank
    /// ([`crate::connect_members`]). Each member's port must be its rank, and its link reliable.
    ///
    /// # Errors
    /// The system's.
    pub fn new(group: Group<M>, streams: Vec<Option<TcpStream>>, clock: C) -> io::Result<Self> {
        let members = &group.config().members;
        assert_eq!(streams.len(), members.len(), "streams must have one entry per member");
        debug_assert!((0..).zip(members).all(|(rank, member)| member.port == Port(rank)));
        let event_fd = Arc::new(EventFd::new()?);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            event_fd.fd(),
            epoll::EventData::new_u64(DOORBELL_TOKEN),
            epoll::EventFlags::IN,
        )?;
        let open = |stream: Option<TcpStream>| stream.map(Connection::new).transpose();
        let connections =
            streams.into_iter().map(open).collect::<io::Result<Vec<Option<Connection>>>>()?;
        for (rank, connection) in (0..).zip(&connections) {
            if let Some(connection) = connection {
                let (data, wanted) = (epoll::EventData::new_u64(rank), epoll::EventFlags::IN);
                epoll::add(&epoll, connection.stream(), data, wanted)?;
            }
        }
        let slot = vec![0; group.config().frame_len_max];
        let ready = Vec::with_capacity(READY_MAX);
        Ok(Self { group, connections, clock, last_mono: None, epoll, event_fd, ready, slot })
    }

    /// The group, for queries.
    pub fn group(&self) -> &Group<M> {
        &self.group
    }

    /// The group, for commands. The next turn sends their output (rule D2).
    pub fn group_mut(&mut self) -> &mut Group<M> {
        &mut self.group
    }

    /// The handle that ends a wait from another thread.
    pub fn doorbell(&self) -> Doorbell {
        let event_fd: Arc<dyn Waker> = self.event_fd.clone();
        Doorbell::new(event_fd)
    }

    /// Sends what was commanded; waits for at most `wait_ns` if there is nothing else to do;
    /// receives frames, runs expired timers, hands out events and sends the resulting output.
    ///
    /// # Errors
    /// The system's error of waiting. A connection that fails is reported to the group instead.
    pub fn turn(
        &mut self,
        wait_ns: u64,
        mut on_event: impl FnMut(&mut Group<M>, Event<M>),
    ) -> io::Result<Progress> {
        let mut progress = Progress::default();
        self.drain_output(&mut progress, &mut on_event);
        let is_busy =
            !progress.is_idle() || self.connections.iter().flatten().any(|it| it.has_more);
        self.wait_ready(if is_busy { 0 } else { wait_ns })?;
        let now = self.read_clock();
        self.receive(now, &mut progress);
        if self.group.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.group.handle_timeout(now);
        }
        self.drain_output(&mut progress, &mut on_event);
        Ok(progress)
    }

    /// Hands out events and sends frames until there are no more of either.
    fn drain_output(
        &mut self,
        progress: &mut Progress,
        on_event: &mut impl FnMut(&mut Group<M>, Event<M>),
    ) {
        loop {
            let before = *progress;
            while let Some(event) = self.group.poll_event() {
                on_event(&mut self.group, event);
                progress.events += 1;
            }
            self.transmit(progress);
            if *progress == before {
                return;
            }
        }
    }

    fn transmit(&mut self, progress: &mut Progress) {
        let now = self.read_clock();
        while let Some(sent) = self.group.poll_gather(now, &mut self.slot) {
            progress.frames_sent += 1;
            let rank = usize::from(sent.header.port.0);
            let Some(Some(connection)) = self.connections.get_mut(rank) else { continue };
            let (header, payload) = (&self.slot[..sent.header.bytes], self.group.payload(&sent));
            match connection.send(header, payload) {
                Err(_) => self.drop_connection(rank),
                Ok(true) => self.flush(rank),
                Ok(false) => {}
            }
        }
        for rank in 0..self.connections.len() {
            let connection = self.connections[rank].as_ref();
            if connection.is_some_and(|it| it.outbound.is_waiting() && !it.wants_write) {
                self.flush(rank);
            }
        }
    }

    /// Writes a connection's queue to its socket. Until the socket has taken all of it, the group
    /// is not polled for this member.
    fn flush(&mut self, rank: usize) {
        let Some(Some(connection)) = self.connections.get_mut(rank) else { return };
        let flushed = connection.flush();
        let is_waiting = connection.outbound.is_waiting();
        let has_changed = std::mem::replace(&mut connection.wants_write, is_waiting) != is_waiting;
        let updated = match has_changed {
            true => update_interest(&self.epoll, rank, connection),
            false => Ok(()),
        };
        if has_changed {
            self.group.set_blocked(rank as u32, is_waiting);
        }
        if flushed.and(updated).is_err() {
            self.drop_connection(rank);
        }
    }

    /// Waits until a frame arrives, a socket becomes writable, the doorbell is rung, a timer
    /// expires or the time is over.
    fn wait_ready(&mut self, wait_ns: u64) -> io::Result<()> {
        let due_ns = match (self.group.poll_timeout(), self.last_mono) {
            (Some(due), Some(before)) => due.since_ns(before),
            _ => u64::MAX,
        };
        let wait_ns = wait_ns.min(due_ns);
        let timeout = Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000) as _,
        };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; READY_MAX];
        self.ready.clear();
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((events, _)) => {
                self.ready.extend(events.iter().map(|event| (event.data.u64(), event.flags)));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn receive(&mut self, now: Now, progress: &mut Progress) {
        let ready = std::mem::take(&mut self.ready);
        for (token, flags) in &ready {
            if *token == DOORBELL_TOKEN {
                self.event_fd.clear();
                continue;
            }
            let rank = *token as usize;
            if flags.contains(epoll::EventFlags::OUT) {
                self.flush(rank);
            }
            if flags.intersects(!epoll::EventFlags::OUT)
                && let Some(Some(connection)) = self.connections.get_mut(rank)
            {
                connection.has_more = true;
            }
        }
        self.ready = ready;
        for rank in 0..self.connections.len() {
            let Some(connection) = self.connections[rank].as_mut().filter(|it| it.has_more) else {
                continue;
            };
            let port = Port(rank as u16);
            let group = &mut self.group;
            if connection.receive(now, port, group, &mut progress.frames_received).is_err() {
                self.drop_connection(rank);
            }
        }
    }

    /// Closes a broken connection and reports the lost link to the group.
    fn drop_connection(&mut self, rank: usize) {
        if let Some(Some(mut connection)) = self.connections.get_mut(rank).map(Option::take) {
            connection.inbound.end(&mut self.group);
            // Closing the socket removes it from epoll.
            drop(connection);
            self.group.set_blocked(rank as u32, false);
            self.group.handle_link_down(rank as u32);
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

/// Updates whether epoll reports that a connection is writable.
fn update_interest(
    epoll: &std::os::fd::OwnedFd,
    rank: usize,
    connection: &Connection,
) -> io::Result<()> {
    let mut wanted = epoll::EventFlags::IN;
    wanted.set(epoll::EventFlags::OUT, connection.wants_write);
    let data = epoll::EventData::new_u64(rank as u64);
    Ok(epoll::modify(epoll, connection.stream(), data, wanted)?)
}
