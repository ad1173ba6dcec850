//! The world around the machine: one socket, a port for each neighbour, and faults.

use onepipe_base::{
    Incarnation, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp, Transmit, Verdict,
    WIRE_MODULUS,
};
use onepipe_transport_driver::{Doorbell, Transport};
use onepipe_transport_udp::{BatchSocket, FrameRange};
use onepipe_wire::{HEADER_LEN, Header, Opcode, mark_congestion, parse_header, seal_with_hops};

use crate::Stats;
use crate::egress::{Egress, QueueReport};
use crate::faults::{Fate, Trouble};
use crate::ports::Ports;
use crate::racks::Links;

/// How long the kernel may take to wake a thread whose time has come, in ns.
const WAKE_NS: u64 = 100_000;
/// After this many trains what waits is sent, so that a full batch does not wait for its last.
const TRAINS_A_FLUSH: usize = 4;
/// How often the processes below are announced above again, in ns: an announcement may be lost, and
/// the switch above may have been started anew.
const ANNOUNCE_INTERVAL_NS: u64 = 100_000_000;
/// What a join or a leave bears that is passed on: more hops than its process gives it, so that the
/// switch above does not take the process for its neighbour.
const PASSED_ON_HOPS: u8 = 2;

#[derive(Debug)]
pub(crate) struct Fabric {
    exchange: BatchSocket,
    ports: Ports,
    up: Option<Port>,
    processes_max: u32,
    trouble: Option<Trouble>,
    egress: Option<Egress>,
    links: Option<Links>,
    /// The time of the turn under way.
    now: Now,
    slot: Option<FrameRange>,
    /// The life of each process below that has announced itself, to be repeated above.
    joins: Vec<Option<Incarnation>>,
    announce_at: Mono,
    pub(crate) stats: Stats,
}

impl Fabric {
    pub(crate) fn new(
        exchange: BatchSocket,
        ports: Ports,
        up: Option<Port>,
        processes_max: u32,
        trouble: Option<Trouble>,
        egress: Option<Egress>,
        links: Option<Links>,
    ) -> Self {
        let joins = if up.is_some() { vec![None; processes_max as usize] } else { Vec::new() };
        Self {
            exchange,
            ports,
            up,
            processes_max,
            trouble,
            egress,
            links,
            now: Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(0) },
            slot: None,
            joins,
            announce_at: Mono::from_ns(0),
            stats: Stats::default(),
        }
    }

    pub(crate) fn exchange(&self) -> &BatchSocket {
        &self.exchange
    }

    pub(crate) fn processes_max(&self) -> u32 {
        self.processes_max
    }

    pub(crate) fn trouble(&mut self) -> &mut Option<Trouble> {
        &mut self.trouble
    }

    pub(crate) fn links(&self) -> Option<&Links> {
        self.links.as_ref()
    }

    pub(crate) fn links_mut(&mut self) -> Option<&mut Links> {
        self.links.as_mut()
    }

    /// A link has been silent for too long. Who sat behind it may start anew elsewhere: it is not
    /// announced above any more.
    pub(crate) fn on_lost(&mut self, port: Port) {
        for (process, announced) in self.ports.announced() {
            if let Some(join) = self.joins.get_mut(process.index())
                && announced == port
            {
                *join = None;
            }
        }
    }

    /// The port of whoever sent a train, a new one if need be.
    fn port_of(&mut self, train: usize, now: Mono) -> Option<Port> {
        let from = self.exchange.sender(train)?;
        if let Some(port) = self.ports.find(from, now) {
            return Some(port);
        }
        let first = self.exchange.frames(train).next()?;
        if parse_header(self.exchange.frame(first)).is_err() {
            self.stats.trains_foreign += 1;
            return None;
        }
        let Some(port) = self.ports.give(from, now) else {
            self.stats.trains_without_port += 1;
            if !self.ports.makes_room() {
                self.stats.turned_away = Some(from);
            }
            return None;
        };
        self.stats.ports_given += 1;
        self.exchange.set_destination(port.index(), Some(from));
        Some(port)
    }

    /// The machine has no use for a frame: there may be a reason that people should know.
    fn on_dropped(&mut self, place: FrameRange) {
        let Ok((header, _)) = parse_header(self.exchange.frame(place)) else { return };
        let ends = [header.src(), header.dst()];
        if let Some(beyond) = ends.iter().find(|process| process.0 >= self.processes_max) {
            self.stats.process_beyond = Some(*beyond);
        } else if ends[0] == ends[1] {
            self.stats.frames_to_self += 1;
        }
    }

    /// The machine has taken a frame that goes no further: it may tell who sits where.
    fn on_consumed(&mut self, port: Port, place: FrameRange) {
        let frame = self.exchange.frame(place);
        let Ok((header, opcode)) = parse_header(frame) else { return };
        let process = header.src();
        match opcode {
            // A controller greets instead of joining, and is to be found from above, too.
            Opcode::Join | Opcode::Hello if Some(port) != self.up => {
                let incarnation = header.incarnation();
                if let Some(join) = self.joins.get_mut(process.index())
                    && join.replace(incarnation).is_none()
                {
                    self.announce_at = Mono::from_ns(0);
                }
                self.ports.on_join(process, port);
            }
            Opcode::Leave => {
                let header = *header;
                self.ports.on_leave(process, port);
                self.pass_leave_up(&header);
            }
            _ => {}
        }
    }

    /// A process below has left for good: above, too, nobody shall look for it here.
    fn pass_leave_up(&mut self, leave: &Header) {
        if let (Some(up), Some(join)) = (self.up, self.joins.get_mut(leave.src().index())) {
            *join = None;
            // Only a process that was alone here takes the whole link with it.
            if self.ports.announced().next().is_none() {
                self.pass_on(up, leave);
            }
        }
    }

    /// Tells the switch above who sits below, with a promise that raises nothing: what this switch
    /// promises is told by its beacons.
    fn announce(&mut self, now: Now) {
        let Some(up) = self.up else { return };
        if now.mono < self.announce_at {
            return;
        }
        self.announce_at = now.mono.after_ns(ANNOUNCE_INTERVAL_NS);
        let nothing = Promises::both(now.sync.saturating_sub_ns(WIRE_MODULUS / 4));
        for index in 0..self.joins.len() {
            if let Some(incarnation) = self.joins[index] {
                let process = ProcessId(index as u32);
                let join = Header::new(Opcode::Join, process, process, incarnation);
                self.pass_on(up, &join.stamped(nothing.barrier, nothing, Psn::FIRST));
            }
        }
    }

    /// Passes a frame without payload on to the switch above.
    fn pass_on(&mut self, up: Port, header: &Header) {
        let Some(slot) = self.exchange.slot() else { return };
        let place = self.exchange.keep(slot, HEADER_LEN);
        seal_with_hops(self.exchange.frame(place), *header, 0, PASSED_ON_HOPS);
        self.exchange.send(up.index(), place);
    }

    /// A frame leaves, or meets its fate.
    #[inline]
    fn put_out(&mut self, port: Port, place: FrameRange) {
        let Some(trouble) = &mut self.trouble else {
            return self.send_on(port, place);
        };
        let frame = self.exchange.frame(place);
        match trouble.on_way_out(port, frame, &mut self.stats) {
            Fate::Lost | Fate::Overtaken => return,
            Fate::Pass => self.send_on(port, place),
            Fate::Twice => {
                self.send_on(port, place);
                self.send_on(port, place);
            }
        }
        let (exchange, egress, now) = (&mut self.exchange, &mut self.egress, self.now);
        let Some(trouble) = &mut self.trouble else { return };
        trouble.release(port, |held| match egress {
            Some(egress) => egress.put(port, now, held),
            None => send_copy(exchange, port, held),
        });
    }

    /// A frame leaves, or waits until its link is free.
    #[inline]
    fn send_on(&mut self, port: Port, place: FrameRange) {
        match &mut self.egress {
            Some(egress) => egress.put(port, self.now, self.exchange.frame(place)),
            None => self.exchange.send(port.index(), place),
        }
    }

    /// Sends what has left its queue by now.
    fn empty_queues(&mut self) {
        if let Some(egress) = &mut self.egress
            && !egress.is_empty()
        {
            let exchange = &mut self.exchange;
            egress.leave(self.now, |port, frame| send_copy(exchange, port, frame));
            exchange.flush();
        }
    }

    pub(crate) fn queues(&self) -> Option<QueueReport> {
        self.egress.as_ref().map(Egress::report)
    }
}

/// Sends a copy of a frame that is kept elsewhere.
fn send_copy(exchange: &mut BatchSocket, port: Port, frame: &[u8]) {
    if let Some(slot) = exchange.slot() {
        let place = exchange.keep(slot, frame.len());
        exchange.frame(place).copy_from_slice(frame);
        exchange.send(port.index(), place);
    }
}

impl Transport for Fabric {
    const IS_FIFO: bool = false;

    fn receive(&mut self, now: Now, mut take: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize {
        self.now = now;
        self.empty_queues();
        let trains = self.exchange.receive();
        // The queue of this switch is its receive buffer; what finds it long is marked.
        let is_backlogged = self.exchange.is_backlogged();
        let mut frames = 0;
        for train in 0..trains {
            if train > 0 && train % TRAINS_A_FLUSH == 0 {
                self.exchange.flush();
            }
            let Some(port) = self.port_of(train, now.mono) else { continue };
            for place in self.exchange.frames(train) {
                frames += 1;
                let frame = self.exchange.frame(place);
                if let Some(trouble) = &mut self.trouble
                    && !trouble.on_way_in(port, frame, &mut self.stats)
                {
                    continue;
                }
                if is_backlogged {
                    self.stats.frames_marked += 1;
                    mark_congestion(frame);
                }
                match take(port, frame) {
                    Verdict::Forward(output) => {
                        if let Some(links) = &mut self.links
                            && !links.pass(self.exchange.frame(place), &mut self.stats)
                        {
                            continue;
                        }
                        self.put_out(output, place);
                    }
                    Verdict::Consumed => self.on_consumed(port, place),
                    Verdict::Dropped => self.on_dropped(place),
                }
            }
        }
        frames
    }

    fn poll_links_down(&mut self, mut unlink: impl FnMut(Port)) {
        let (exchange, stats) = (&mut self.exchange, &mut self.stats);
        while let Some(address) = exchange.refused() {
            stats.neighbours_refused += 1;
            if let Some(up) = self.ports.on_refused(address) {
                unlink(up);
            }
        }
        self.ports.taken(|port| {
            stats.ports_taken += 1;
            exchange.set_destination(port.index(), None);
            unlink(port);
        });
    }

    fn begin_burst(&mut self, now: Now, _: Option<Promises>) {
        self.now = now;
        self.announce(now);
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.slot = self.exchange.slot();
        self.slot.map(|slot| self.exchange.frame(slot))
    }

    #[inline]
    fn send(&mut self, transmit: Transmit) {
        if let Some(slot) = self.slot.take() {
            let place = self.exchange.keep(slot, transmit.bytes);
            self.put_out(transmit.port, place);
        }
    }

    fn end_burst(&mut self, _: Option<Promises>) {
        self.exchange.flush();
    }

    fn wait(&mut self, timeout_ns: u64) {
        let due = self.egress.as_ref().and_then(Egress::due);
        match due.map_or(u64::MAX, |due| due.since_ns(self.now.mono)) {
            // The kernel would wake this thread too late.
            ..WAKE_NS => std::thread::yield_now(),
            due_ns => self.exchange.wait(timeout_ns.min(due_ns - WAKE_NS)),
        }
    }

    fn doorbell(&self) -> Doorbell {
        self.exchange.doorbell()
    }
}
