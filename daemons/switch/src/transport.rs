//! The transport of the switch: one socket, a port for each neighbour, and faults.

mod controllers;
mod join;
mod kernel;

use onepipe_base::{
    Address, Cause, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Promises, Psn,
    Timestamp, Transmit, Verdict, WIRE_MODULUS,
};
use onepipe_join::Roster;
use onepipe_switch::SwitchEvent;
use onepipe_transport_driver::{Doorbell, Transport};
use onepipe_transport_udp::{BatchSocket, FrameRange, Handshake, JoinFailure, send_members};
use onepipe_wire::{HEADER_LEN, Header, Opcode, mark_congestion, parse_header, seal_with_hops};

use crate::Stats;
use crate::data_path::DataPath;
use crate::egress::{Egress, QueueReport};
use crate::faults::{FaultInjector, Outcome};
use crate::gate::Gate;
use crate::ports::PortTable;
use crate::racks::RackLinks;

/// Time that the kernel may take to wake a thread whose timer has expired, in ns.
const WAKEUP_LATENCY_NS: u64 = 100_000;
/// Frames are flushed after this many received batches, so that the first frames of a full receive
/// do not wait for its last.
const BATCHES_PER_FLUSH: usize = 4;
/// Interval at which the processes below are announced to the switch above, in ns: an announcement
/// may be lost, and that switch may have restarted.
const ANNOUNCE_INTERVAL_NS: u64 = 100_000_000;
/// Hop count of a relayed Join or Leave: higher than that of its process, so that the switch above
/// does not take the process for its neighbour.
const RELAYED_HOPS: u8 = 2;

#[derive(Debug)]
pub(crate) struct SwitchTransport {
    socket: BatchSocket,
    ports: PortTable,
    up: Option<Port>,
    /// The handshake with the switch above.
    up_handshake: Option<Handshake>,
    gate: Gate,
    /// The processes of the fabric.
    roster: Roster,
    /// The socket's destination for answers to joiners; its address is set for each one.
    one_shot: usize,
    processes_max: u32,
    fault_injector: Option<FaultInjector>,
    egress: Option<Egress>,
    links: Option<RackLinks>,
    /// The kernel's switch, where there is one.
    data_path: Option<DataPath>,
    /// The time of the turn in progress.
    now: Now,
    slot: Option<FrameRange>,
    /// The incarnation of each process below that has joined, to be announced above.
    joins: Vec<Option<Incarnation>>,
    announce_at: Mono,
    /// When this switch looks next whether its controllers are received.
    check_at: Mono,
    pub(crate) stats: Stats,
}

/// What a transport is made of.
pub(crate) struct Parts {
    /// With one destination more than there are ports.
    pub(crate) socket: BatchSocket,
    pub(crate) ports: PortTable,
    pub(crate) up: Option<Port>,
    pub(crate) up_handshake: Option<Handshake>,
    pub(crate) gate: Gate,
    pub(crate) roster: Roster,
    pub(crate) one_shot: usize,
    pub(crate) fault_injector: Option<FaultInjector>,
    pub(crate) egress: Option<Egress>,
    pub(crate) links: Option<RackLinks>,
    pub(crate) data_path: Option<DataPath>,
}

impl SwitchTransport {
    pub(crate) fn new(parts: Parts) -> Self {
        let processes_max = parts.gate.admission.terms().processes_max;
        let joins = match parts.up {
            Some(_) => vec![None; processes_max as usize],
            None => Vec::new(),
        };
        Self {
            socket: parts.socket,
            ports: parts.ports,
            up: parts.up,
            up_handshake: parts.up_handshake,
            gate: parts.gate,
            roster: parts.roster,
            one_shot: parts.one_shot,
            processes_max,
            fault_injector: parts.fault_injector,
            egress: parts.egress,
            links: parts.links,
            data_path: parts.data_path,
            now: Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(0) },
            slot: None,
            joins,
            announce_at: Mono::from_ns(0),
            check_at: Mono::from_ns(0),
            stats: Stats::default(),
        }
    }

    pub(crate) fn socket(&self) -> &BatchSocket {
        &self.socket
    }

    pub(crate) fn processes_max(&self) -> u32 {
        self.processes_max
    }

    pub(crate) fn fault_injector(&mut self) -> &mut Option<FaultInjector> {
        &mut self.fault_injector
    }

    pub(crate) fn links(&self) -> Option<&RackLinks> {
        self.links.as_ref()
    }

    pub(crate) fn links_mut(&mut self) -> Option<&mut RackLinks> {
        self.links.as_mut()
    }

    pub(crate) fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Returns why the switch above does not admit this one any more.
    pub(crate) fn refusal(&self) -> Option<JoinFailure> {
        let refusal = self.up_handshake.as_ref()?.refusal()?;
        let address = self.ports.address(self.up?)?;
        refusal.is_final().then(|| refusal.at(address))
    }

    /// Handles a change of a link in the last turn.
    pub(crate) fn on_link_event(&mut self, event: SwitchEvent) {
        self.update_data_path(event);
        match event {
            SwitchEvent::LinkJoined(port) => self.roster.set_up(self.now, port, true),
            SwitchEvent::LinkLost(port) => {
                self.roster.set_up(self.now, port, false);
                self.on_lost(port);
            }
            SwitchEvent::LinkLeft(port)
            | SwitchEvent::LinkOneWay(port)
            | SwitchEvent::LinkRestarted(port) => self.roster.set_up(self.now, port, false),
            SwitchEvent::Restarted => {
                // No link is live until its next frame; the ports of controllers are no links.
                for port in (0..self.ports.count()).map(Port) {
                    if self.ports.controller_unseen_ns(port, self.now.mono).is_none() {
                        self.roster.set_up(self.now, port, false);
                    }
                }
            }
            _ => {}
        }
    }

    /// Handles a link timeout. Its processes may restart elsewhere, so they are not announced above
    /// any more.
    fn on_lost(&mut self, port: Port) {
        for (process, joined_at) in self.ports.joined() {
            if let Some(join) = self.joins.get_mut(process.index())
                && joined_at == port
            {
                *join = None;
            }
        }
        self.ports.on_lost(port);
    }

    /// Records why the machine has dropped a frame, if an operator should know.
    fn on_dropped(&mut self, range: FrameRange) {
        let Ok((header, opcode)) = parse_header(self.socket.frame(range)) else { return };
        if opcode.is_hop_only() {
            // The source is an address, which may be a switch's, and no other process is named.
            if let Some(Instance { address: Address::Process(process), .. }) = header.sender()
                && process.0 >= self.processes_max
            {
                self.stats.process_out_of_range = Some(process);
            }
            return;
        }
        // A switch announces its links under its own address.
        let is_process =
            |end: &ProcessId| matches!(Address::from_bits(end.0), Some(Address::Process(_)));
        let ends = [header.src(), header.dst()];
        let mut processes = ends.into_iter().filter(is_process);
        if let Some(beyond) = processes.find(|process| process.0 >= self.processes_max) {
            self.stats.process_out_of_range = Some(beyond);
        } else if ends[0] == ends[1] {
            self.stats.frames_to_self += 1;
        }
    }

    /// Learns from a frame that the machine has consumed where its process is.
    fn on_consumed(&mut self, port: Port, range: FrameRange) {
        let frame = self.socket.frame(range);
        let Ok((header, opcode)) = parse_header(frame) else { return };
        let process = header.src();
        match opcode {
            // A controller sends Hello frames instead of a Join, and must be reachable from above,
            // too.
            Opcode::Join | Opcode::Hello if Some(port) != self.up => {
                let incarnation = header.incarnation();
                let is_newest = match self.is_controller(process) {
                    true => self.on_controller(self.now, port, (process, incarnation)),
                    false => self.ports.on_join(process, incarnation, port),
                };
                if is_newest
                    && let Some(join) = self.joins.get_mut(process.index())
                    && join.replace(incarnation).is_none()
                {
                    self.announce_at = Mono::from_ns(0);
                }
            }
            Opcode::Leave => {
                self.ports.on_leave(process, port, self.now.mono);
                self.relay_leave(&header);
            }
            _ => {}
        }
    }

    /// Handles the Leave of a process below: the switch above must not route to it any more.
    fn relay_leave(&mut self, leave: &Header) {
        if let (Some(up), Some(join)) = (self.up, self.joins.get_mut(leave.src().index())) {
            *join = None;
            // Only the Leave of the last process takes the whole link down.
            if self.ports.joined().next().is_none() {
                self.send_header(up, leave);
            }
        }
    }

    /// Announces the processes below to the switch above by Join frames, with a promise that raises
    /// nothing: the promises of this switch are in its beacons.
    fn announce(&mut self, now: Now) {
        let Some(up) = self.up else { return };
        if now.mono < self.announce_at {
            return;
        }
        self.announce_at = now.mono.after_ns(ANNOUNCE_INTERVAL_NS);
        let nothing = Promises::both(now.sync.saturating_sub_ns(WIRE_MODULUS / 4));
        for index in 0..self.joins.len() {
            let process = ProcessId(index as u32);
            // Its port may have been reclaimed.
            if self.ports.joined_at(process).is_none() {
                self.joins[index] = None;
            }
            if let Some(incarnation) = self.joins[index] {
                let join = Header::new(Opcode::Join, process, process, incarnation);
                self.send_header(up, &join.stamped(nothing.barrier, nothing, Psn::FIRST));
            }
        }
    }

    /// Sends a frame without payload to the switch above.
    fn send_header(&mut self, up: Port, header: &Header) {
        let Some(slot) = self.socket.slot() else { return };
        let range = self.socket.keep(slot, HEADER_LEN);
        seal_with_hops(self.socket.frame(range), *header, 0, RELAYED_HOPS);
        self.socket.send(up.index(), range);
    }

    /// Sends a frame that passes, unless a link between racks loses it.
    #[inline]
    fn forward(&mut self, output: Port, range: FrameRange) {
        if let Some(links) = &mut self.links
            && !links.carry(self.socket.frame(range), &mut self.stats)
        {
            return;
        }
        self.send_with_faults(output, range);
    }

    /// Sends a frame, subject to injected faults.
    #[inline]
    fn send_with_faults(&mut self, port: Port, range: FrameRange) {
        let Some(fault_injector) = &mut self.fault_injector else {
            return self.enqueue_or_send(port, range);
        };
        let frame = self.socket.frame(range);
        match fault_injector.on_egress(port, frame, &mut self.stats) {
            Outcome::Lost | Outcome::Overtaken => return,
            Outcome::Pass => self.enqueue_or_send(port, range),
            Outcome::Twice => {
                self.enqueue_or_send(port, range);
                self.enqueue_or_send(port, range);
            }
        }
        let (socket, egress, now) = (&mut self.socket, &mut self.egress, self.now);
        let Some(fault_injector) = &mut self.fault_injector else { return };
        fault_injector.release(port, |held| match egress {
            Some(egress) => egress.enqueue(port, now, held),
            None => send_copy(socket, port, held),
        });
    }

    /// Sends a frame, or queues it until its link is free.
    #[inline]
    fn enqueue_or_send(&mut self, port: Port, range: FrameRange) {
        if let Some(data_path) = &mut self.data_path
            && data_path.send(port, self.socket.frame(range))
        {
            return;
        }
        match &mut self.egress {
            Some(egress) => egress.enqueue(port, self.now, self.socket.frame(range)),
            None => self.socket.send(port.index(), range),
        }
    }

    /// Sends the frames that have left their queues by now.
    fn drain_queues(&mut self) {
        if let Some(egress) = &mut self.egress
            && !egress.is_empty()
        {
            let socket = &mut self.socket;
            egress.dequeue_due(self.now, |port, frame| send_copy(socket, port, frame));
            socket.flush();
        }
    }

    pub(crate) fn queues(&self) -> Option<QueueReport> {
        self.egress.as_ref().map(Egress::report)
    }
}

/// Sends a copy of a frame.
fn send_copy(socket: &mut BatchSocket, port: Port, frame: &[u8]) {
    if let Some(slot) = socket.slot() {
        let range = socket.keep(slot, frame.len());
        socket.frame(range).copy_from_slice(frame);
        socket.send(port.index(), range);
    }
}

impl Transport for SwitchTransport {
    const IS_FIFO: bool = false;

    fn receive(&mut self, now: Now, mut take: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize {
        self.now = now;
        self.gate.on_turn();
        self.drain_queues();
        let batches = self.socket.receive();
        if let Some(data_path) = self.data_path.as_mut().filter(|_| batches == 0) {
            data_path.note_empty(now);
        }
        // The queue of this switch is its receive buffer; frames that find it long are marked.
        let is_backlogged = self.socket.is_backlogged();
        let mut frames = 0;
        for batch in 0..batches {
            if batch > 0 && batch % BATCHES_PER_FLUSH == 0 {
                self.socket.flush();
            }
            let Some(from) = self.socket.source(batch) else { continue };
            let mut admitted = self.ports.find(from, now.mono);
            for range in self.socket.frames(batch) {
                let port = match admitted {
                    Some(port) if self.is_for_machine(port, range) => port,
                    known => {
                        let now_known = self.on_unadmitted(now, (from, known), range);
                        admitted = now_known.or_else(|| self.ports.find(from, now.mono));
                        continue;
                    }
                };
                frames += 1;
                let frame = self.socket.frame(range);
                if let Some(fault_injector) = &mut self.fault_injector
                    && !fault_injector.on_ingress(port, frame, &mut self.stats)
                {
                    continue;
                }
                if is_backlogged {
                    self.stats.frames_marked += 1;
                    mark_congestion(frame);
                }
                let detoured = self.take_stamp(port, range);
                let is_for_kernel = self.is_for_kernel(port, range);
                let mut verdict = take(port, self.socket.frame(range));
                while let Verdict::Replicate(output) = verdict {
                    if !is_for_kernel {
                        match self.socket.copy(range) {
                            Some(copy) => self.forward(output, copy),
                            None => self.stats.copies_lost += 1,
                        }
                    }
                    verdict = take(port, self.socket.frame(range));
                }
                match verdict {
                    Verdict::Forward(_) | Verdict::Replicate(_) if is_for_kernel => {
                        self.stats.frames_bypassed += 1;
                    }
                    Verdict::Forward(output) | Verdict::Replicate(output) => {
                        self.forward(output, range);
                    }
                    Verdict::Consumed => self.on_consumed(port, range),
                    Verdict::Dropped => self.on_dropped(range),
                }
                if let (Some(detoured), Some(data_path)) = (detoured, &mut self.data_path) {
                    data_path.release(port, detoured);
                }
            }
        }
        if let (Some(up), Some(handshake)) = (self.up, &mut self.up_handshake) {
            handshake.send(now, &mut self.socket, up.index());
        }
        if self.roster.wants_transmit(now.mono) {
            send_members(&mut self.roster, now, &mut self.socket, Port::index);
        }
        frames
    }

    fn poll_promises(&mut self, now: Now, on_promises: impl FnMut(Port, Promises)) {
        if let Some(data_path) = &mut self.data_path {
            data_path.poll_promises(now, on_promises);
        }
    }

    fn poll_links_down(&mut self, mut unlink: impl FnMut(Port, Cause)) {
        let (socket, stats) = (&mut self.socket, &mut self.stats);
        let (roster, now) = (&mut self.roster, self.now);
        let data_path = &mut self.data_path;
        while let Some(address) = socket.refused() {
            stats.neighbours_refused += 1;
            if let Some(up) = self.ports.on_refused(address) {
                unlink(up, Cause::Refused);
            }
        }
        self.ports.reclaim_left(self.now.mono);
        self.ports.drain_reclaimed(|port, cause| {
            stats.ports_reclaimed += 1;
            roster.close(now, port);
            socket.set_destination(port.index(), None);
            if let Some(data_path) = data_path {
                data_path.disconnect(port);
            }
            unlink(port, cause);
        });
    }

    fn begin_burst(&mut self, now: Now, _: Option<Promises>) {
        self.now = now;
        self.check_controllers(now);
        self.announce(now);
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.slot = self.socket.slot();
        self.slot.map(|slot| self.socket.frame(slot))
    }

    #[inline]
    fn send(&mut self, transmit: Transmit) {
        if let Some(slot) = self.slot.take() {
            let range = self.socket.keep(slot, transmit.bytes);
            self.send_with_faults(transmit.port, range);
        }
    }

    fn end_burst(&mut self, _: Option<Promises>) {
        self.socket.flush();
    }

    fn wait(&mut self, timeout_ns: u64) {
        let limit = |handshake: &Handshake| handshake.limit_wait(timeout_ns);
        let timeout_ns = self.up_handshake.as_ref().map_or(timeout_ns, limit);
        let until = |due: Mono| due.since_ns(self.now.mono);
        let timeout_ns = timeout_ns.min(self.roster.poll_timeout().map_or(u64::MAX, until));
        let due = self.egress.as_ref().and_then(Egress::due);
        match due.map_or(u64::MAX, |due| due.since_ns(self.now.mono)) {
            // The kernel would wake this thread too late.
            ..WAKEUP_LATENCY_NS => std::thread::yield_now(),
            due_ns => self.socket.wait(timeout_ns.min(due_ns - WAKEUP_LATENCY_NS)),
        }
    }

    fn doorbell(&self) -> Doorbell {
        self.socket.doorbell()
    }
}
