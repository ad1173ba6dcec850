//! The event loop of the fabric.

use std::collections::BTreeSet;

use onepipe_base::{
    Address, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp,
};
use onepipe_controller::{Config, Controller, Epoch, Event, Links, PersistError, Recovery, Store};
use onepipe_wire::{Announce, FloodAck, FloodView, Frame, HEADER_LEN, Header, Opcode, Side, seal};

use super::node::Peer;
use super::{BEACON_NS, Fabric, Item};

impl Fabric {
    pub(super) fn clock(&self) -> Now {
        Now { mono: Mono::from_ns(self.now), sync: Timestamp::from_ns(self.now) }
    }

    /// Starts a node.
    pub fn start(&mut self, node: usize) {
        self.nodes[node].restart(self.now);
        let incarnation = self.nodes[node].incarnation;
        self.started.insert(self.nodes[node].instance(), self.now);
        if self.nodes[node].is_process() {
            self.nodes[node].source = 1 << self.sources.len();
            self.sources.push(self.nodes[node].instance());
        }
        self.at(self.now, Item::Tick { node, incarnation });
    }

    /// Kills a node.
    pub fn kill(&mut self, node: usize) {
        let ended = &mut self.nodes[node];
        if ended.is_alive {
            ended.is_alive = false;
            let (instance, promise) = (ended.instance(), ended.promise);
            self.last_promise.insert(instance, promise);
            self.ended.insert(instance, self.now);
        }
    }

    /// Cuts or repairs the link at a port of a node.
    pub fn cut(&mut self, node: usize, port: usize, is_cut: bool) {
        let mut ends = vec![(node, port)];
        if let Peer::Node(other, there) = self.nodes[node].ports[port].peer {
            ends.push((other, there));
        }
        for end in ends {
            if is_cut {
                self.cut.insert(end);
            } else {
                self.cut.remove(&end);
            }
        }
    }

    /// Starts a controller, which only receives at first.
    pub fn start_replica(&mut self, replica: usize) {
        let entry = &mut self.replicas[replica];
        entry.incarnation += 1;
        let links = match entry.attached_to {
            Some(_) => Links::Uplink,
            None => Links::Mesh(self.nodes.len() as u16),
        };
        let config = Config {
            links,
            incarnation: Incarnation(entry.incarnation),
            recovery: if self.flat { Recovery::Flat } else { Recovery::Tree },
            freeze_after_ns: 300_000,
            inexact_after_ns: self.inexact_after_ns,
            restart_ns: 500_000,
            store_retry_ns: 50_000,
            // Three slow announcement intervals.
            link_timeout_ns: 1_000_000,
            ..Config::new(entry.process, self.controllers)
        };
        entry.machine = Some(Controller::new(config).expect("a valid configuration"));
        self.at(self.now, Item::Wake { replica });
    }

    /// Crashes a controller: it forgets everything.
    pub fn crash_replica(&mut self, replica: usize) {
        self.replicas[replica].machine = None;
        if self.active == Some(replica) {
            self.active = None;
            self.store.expire_lease();
        }
    }

    /// Makes a replica active, if it is running and no other one is.
    pub fn campaign(&mut self, replica: usize) {
        if self.replicas[replica].machine.is_none() {
            return;
        }
        let process = self.replicas[replica].process;
        let Ok(Some(epoch)) = self.store.campaign(process) else { return };
        self.activate(replica, epoch);
    }

    fn activate(&mut self, replica: usize, epoch: Epoch) {
        let records = self.store.load().expect("available");
        let now = self.clock();
        if let Some(machine) = &mut self.replicas[replica].machine {
            machine.activate(now, epoch, &records);
            self.active = Some(replica);
        }
        self.drain(replica);
    }

    /// Runs all events up to `until`.
    pub fn run(&mut self, until: u64) {
        while let Some(((when, _), item)) = self.queue.pop_first() {
            if when > until {
                let key = (when, 0);
                self.queue.insert(key, item);
                break;
            }
            self.now = when.max(self.now);
            self.step(item);
        }
        self.now = until;
    }

    fn step(&mut self, item: Item) {
        match item {
            Item::Tick { node, incarnation } => self.on_tick(node, incarnation),
            Item::Wake { replica } => self.on_wake(replica),
            Item::Beacon { node, port, from, ack, commit, sources } => {
                if self.is_intact(node, port) {
                    self.nodes[node].on_beacon(self.now, port, from, ack, commit, sources);
                    self.check_barrier(node);
                    self.send_death_notice(node, port, from);
                }
            }
            Item::DeathNotice { node, port, instance } => {
                if self.is_intact(node, port) && self.nodes[node].instance() == instance {
                    self.kill(node);
                    self.start(node);
                }
            }
            Item::Flood { node, port, payload } => {
                if self.is_intact(node, port) && self.nodes[node].is_up(port) {
                    self.on_flood(node, port, payload);
                }
            }
            Item::FloodAck { node, port, ack } => {
                if self.is_intact(node, port) {
                    self.on_flood_ack(node, port, ack);
                }
            }
            Item::ToController { from, replica, bytes } => {
                if self.connects(replica, from) {
                    let link = self.link_of(replica, from);
                    self.deliver(replica, link, bytes);
                }
            }
            Item::ToProcess { replica, process, bytes } => {
                let node = self.find(Address::Process(process));
                if self.connects(replica, node) {
                    self.on_controller_frame(node, replica, &bytes);
                }
            }
            Item::FromController { replica, link, bytes } => {
                self.on_from_controller(replica, link, &bytes);
            }
            Item::OverLink { replica, link, bytes } => self.deliver(replica, link, bytes),
        }
    }

    /// Sends a death notice to a switch that was declared dead but still sends beacons.
    pub(super) fn send_death_notice(&mut self, node: usize, port: usize, instance: Instance) {
        if let Peer::Node(other, there) = self.nodes[node].ports[port].peer
            && matches!(instance.address, Address::Switch(_))
            && self.nodes[node].is_declared_dead(instance)
        {
            self.send(Item::DeathNotice { node: other, port: there, instance });
        }
    }

    /// Whether frames get over the link to `port` of `node`.
    pub(super) fn is_intact(&self, node: usize, port: usize) -> bool {
        self.nodes[node].is_alive && !self.cut.contains(&(node, port))
    }

    /// Whether frames get from a controller to a running node and back.
    pub fn connects(&self, replica: usize, node: usize) -> bool {
        let is_linked = match self.replicas[replica].attached_to {
            Some((attached_to, _)) => self.has_path(attached_to, node),
            None => {
                let mut ports = self.nodes[node].ports.iter();
                let port =
                    ports.position(|port_state| port_state.peer == Peer::Controller(replica));
                port.is_some_and(|port| !self.cut.contains(&(node, port)))
            }
        };
        self.nodes[node].is_alive && is_linked
    }

    /// Returns the link on which the controller receives frames of a node.
    pub(super) fn link_of(&self, replica: usize, node: usize) -> usize {
        match (self.replicas[replica].attached_to, self.nodes[node].address) {
            (None, Address::Process(process)) => process.index(),
            _ => 0,
        }
    }

    /// Whether a path, up and then down, exists between a switch and a node.
    fn has_path(&self, start: usize, end: usize) -> bool {
        let mut seen = BTreeSet::new();
        let mut work = vec![(start, true)];
        while let Some((at, is_uphill)) = work.pop() {
            if !self.nodes[at].is_alive || !seen.insert((at, is_uphill)) {
                continue;
            }
            if at == end {
                return true;
            }
            if self.nodes[at].is_process() {
                continue;
            }
            for (port, port_state) in self.nodes[at].ports.iter().enumerate() {
                let Peer::Node(other, _) = port_state.peer else { continue };
                if self.cut.contains(&(at, port)) {
                    continue;
                }
                match port_state.side {
                    Side::Upper if is_uphill => work.push((other, true)),
                    Side::Lower => work.push((other, false)),
                    _ => {}
                }
            }
        }
        false
    }

    fn on_tick(&mut self, node: usize, incarnation: u32) {
        if !self.nodes[node].is_alive || self.nodes[node].incarnation != incarnation {
            return;
        }
        let now = self.now;
        self.nodes[node].expire(now);
        if self.nodes[node].is_process() && !self.nodes[node].known.is_excluded {
            // From time to time a scattering takes long.
            let is_free = self.nodes[node].known.is_welcome;
            let lag = if !is_free {
                0
            } else if self.draw(4) == 0 {
                self.draw(100_000)
            } else {
                self.draw(2_000)
            };
            let promise = &mut self.nodes[node].promise;
            *promise = (*promise).max(now - lag);
        }
        let is_up = |port| self.nodes[node].is_up(port);
        let ports = 0..self.nodes[node].ports.len();
        if !self.nodes[node].is_process()
            && !ports.clone().any(is_up)
            && self.nodes[node].ports.iter().any(|port_state| !port_state.frozen.is_empty())
        {
            // Cut off: it returns as a new incarnation.
            self.kill(node);
            return self.start(node);
        }
        let own = self.nodes[node].instance();
        for port in ports {
            let is_quiet = !self.nodes[node].is_process() && now < self.nodes[node].advertises_at;
            if self.nodes[node].known.is_excluded || is_quiet {
                break;
            }
            let Peer::Node(other, there) = self.nodes[node].ports[port].peer else { continue };
            let port_state = &self.nodes[node].ports[port];
            if port_state.instance.is_none()
                && port_state
                    .latest
                    .is_some_and(|instance| self.nodes[node].is_declared_dead(instance))
            {
                continue;
            }
            let commit = self.nodes[node].advertise(now, port);
            let ack = self.nodes[node].ports[port].instance;
            let sources = self.nodes[node].sources(port);
            let beacon = Item::Beacon { node: other, port: there, from: own, ack, commit, sources };
            if !self.cut.contains(&(node, port)) {
                self.send(beacon);
            }
        }
        if self.nodes[node].backoff.take(Mono::from_ns(now)) {
            self.announce(node);
        }
        self.retransmit_flood(node);
        self.at(now + BEACON_NS, Item::Tick { node, incarnation });
    }

    fn announce(&mut self, node: usize) {
        let links = self.nodes[node].links();
        let instance = self.nodes[node].instance();
        let total = links.len() as u16;
        for replica in 0..self.replicas.len() {
            let to = self.replicas[replica].process;
            let mut first = 0;
            loop {
                let generation = self.nodes[node].generation;
                let announce = Announce { generation, first, total, tip: None };
                // Few links per part, so that there are several parts.
                let mut slot = vec![0; HEADER_LEN + 12 + 3 * 24];
                let rest = links[usize::from(first)..].iter().copied();
                let (count, bytes) =
                    announce.write(&mut slot[HEADER_LEN..], rest).expect("the front fits");
                let src = ProcessId(instance.address.to_bits());
                let header = Header::new(Opcode::Announce, src, to, instance.incarnation);
                let length = seal(&mut slot, self.stamp(header), bytes);
                slot.truncate(length);
                self.send(Item::ToController { from: node, replica, bytes: slot });
                first += count;
                if first >= total {
                    break;
                }
            }
        }
    }

    pub(super) fn stamp(&self, header: Header) -> Header {
        let now = Timestamp::from_ns(self.now);
        header.stamped(now, Promises::both(now), Psn::FIRST)
    }

    fn on_from_controller(&mut self, replica: usize, link: usize, bytes: &[u8]) {
        let (node, port) = self.replicas[replica].attached_to.unwrap_or_else(|| {
            let node = self.find(Address::Process(ProcessId(link as u32)));
            let mut ports = self.nodes[node].ports.iter();
            (
                node,
                ports
                    .position(|port_state| port_state.peer == Peer::Controller(replica))
                    .expect("linked"),
            )
        });
        if !self.is_intact(node, port) {
            return;
        }
        let frame = Frame::parse(bytes).expect("sealed by a controller");
        match frame.opcode {
            Opcode::Hello => {
                let now = self.now;
                let instance = frame.header.sender();
                let port_state = &mut self.nodes[node].ports[port];
                let is_new = port_state.instance != instance;
                (port_state.instance, port_state.is_two_way, port_state.last_seen) =
                    (instance, true, now);
                if is_new {
                    self.nodes[node].on_change(now);
                }
            }
            Opcode::Flood => self.on_flood(node, port, frame.payload.to_vec()),
            _ => {
                let process = frame.header.dst();
                self.send(Item::ToProcess { replica, process, bytes: bytes.to_vec() });
            }
        }
    }

    /// Handles a frame of a controller at a process.
    fn on_controller_frame(&mut self, node: usize, replica: usize, bytes: &[u8]) {
        if self.nodes[node].known.is_unresponsive {
            return;
        }
        let frame = Frame::parse(bytes).expect("sealed by a controller");
        match frame.opcode {
            Opcode::AnnounceAck => {
                let has_commit = self.nodes[node].ports[0].commit.is_some();
                self.nodes[node].known.is_welcome |= has_commit;
                if has_commit {
                    self.welcome.insert(self.nodes[node].instance());
                }
            }
            Opcode::Notice => {
                self.apply_flood(node, frame.payload);
                let view = FloodView::parse(frame.payload).expect("written by a controller");
                let ack = FloodAck { id: view.id, kind: view.kind };
                self.send_to_controller(node, replica, Opcode::Completed, |buf| {
                    ack.write(buf).expect("fits")
                });
            }
            Opcode::Ping => self.send_to_controller(node, replica, Opcode::Pong, |_| 0),
            _ => {}
        }
    }

    /// Sends a frame from a process to a controller.
    pub fn send_to_controller(
        &mut self,
        node: usize,
        replica: usize,
        opcode: Opcode,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let instance = self.nodes[node].instance();
        let mut slot = vec![0; 1_500];
        let bytes = write(&mut slot[HEADER_LEN..]);
        let src = ProcessId(instance.address.to_bits());
        let to = self.replicas[replica].process;
        let header = Header::new(opcode, src, to, instance.incarnation);
        let length = seal(&mut slot, self.stamp(header), bytes);
        slot.truncate(length);
        if !self.nodes[node].known.is_excluded {
            self.send(Item::ToController { from: node, replica, bytes: slot });
        }
    }

    pub fn deliver(&mut self, replica: usize, link: usize, mut bytes: Vec<u8>) {
        let now = self.clock();
        if let Some(machine) = &mut self.replicas[replica].machine {
            machine.handle_frame(now, Port(link as u16), &mut bytes);
            self.drain(replica);
        }
    }

    fn on_wake(&mut self, replica: usize) {
        let now = self.clock();
        let entry = &mut self.replicas[replica];
        entry.wake_at = None;
        let Some(machine) = &mut entry.machine else { return };
        if machine.poll_timeout().is_some_and(|due| due <= now.mono) {
            machine.handle_timeout(now);
        }
        self.drain(replica);
    }

    /// Counts a step of the active controller. Returns whether it crashes now.
    fn take_crash_step(&mut self, replica: usize) -> bool {
        if self.active != Some(replica) {
            return false;
        }
        match &mut self.crash_after {
            Some(0) => {
                self.crash_after = None;
                self.crash_replica(replica);
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn drain(&mut self, replica: usize) {
        let now = self.clock();
        loop {
            let Some(machine) = &mut self.replicas[replica].machine else { return };
            if let Some((id, record)) = machine.poll_persist() {
                let Some(epoch) = machine.status().active else { continue };
                let result = self.store.append(epoch, &record);
                if result.is_ok() {
                    self.on_record(&record);
                }
                if self.take_crash_step(replica) {
                    return;
                }
                let result = result.map_err(PersistError::from);
                let machine = self.replicas[replica].machine.as_mut().expect("still running");
                machine.handle_persisted(now, id, result);
                continue;
            }
            let mut slot = vec![0; 1_500];
            if let Some(transmit) = machine.poll_transmit(now, &mut slot) {
                slot.truncate(transmit.bytes);
                let link = transmit.port.index();
                self.send(Item::FromController { replica, link, bytes: slot });
                if self.take_crash_step(replica) {
                    return;
                }
                continue;
            }
            break;
        }
        let Some(machine) = &mut self.replicas[replica].machine else { return };
        while let Some(event) = machine.poll_event() {
            if let Event::Deposed(_) = event
                && !machine.is_active()
                && self.active == Some(replica)
            {
                self.active = None;
            }
            self.events.push(event);
        }
        let due = machine.poll_timeout().map(|due| due.as_ns().max(self.now + 1));
        if let Some(due) = due
            && self.replicas[replica].wake_at.is_none_or(|at| at > due)
        {
            self.replicas[replica].wake_at = Some(due);
            self.at(due, Item::Wake { replica });
        }
    }
}
