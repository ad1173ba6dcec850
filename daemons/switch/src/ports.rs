//! The port table: neighbours are learned from the frames that they send.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use onepipe_base::{Cause, Incarnation, Mono, Port, ProcessId};
use onepipe_join::{Applicant, Rival};
use onepipe_wire::JoinRole;

/// Addresses of neighbours and the processes behind them.
#[derive(Debug)]
pub(crate) struct PortTable {
    neighbours: Vec<Neighbour>,
    by_address: HashMap<SocketAddr, Port>,
    /// For each process, the incarnation that has joined last, and its port.
    joined: Vec<Option<(Port, Incarnation)>>,
    timeout_ns: u64,
    /// The last lookup: frames arrive in batches.
    last: Option<(SocketAddr, Port)>,
    /// Reclaimed ports that the machine has not been notified of, and why; they are not assigned
    /// before.
    reclaimed: Vec<(Port, Cause)>,
    /// Ports whose processes have all left, with the address and the time, in order. They stay
    /// assigned for the link timeout, so that a repeated Leave is answered.
    left: VecDeque<(Port, Option<SocketAddr>, Mono)>,
}

#[derive(Clone, Debug)]
struct Neighbour {
    address: Option<SocketAddr>,
    /// As what it was admitted; `None` for the uplink.
    applicant: Option<Applicant>,
    /// Number of processes that have joined at this port, and not elsewhere since.
    processes: u32,
    last_seen: Mono,
    /// Whether it is the uplink, which is never reclaimed.
    is_uplink: bool,
    is_reclaimed: bool,
    /// Whether its link has timed out since its last frame.
    is_lost: bool,
}

impl PortTable {
    /// Creates a table with `lower` ports to be assigned, and one above them for `up`.
    pub(crate) fn new(
        lower: u16,
        up: Option<SocketAddr>,
        processes_max: u32,
        timeout_ns: u64,
    ) -> Self {
        let last_seen = Mono::from_ns(0);
        let free = Neighbour {
            address: None,
            applicant: None,
            processes: 0,
            last_seen,
            is_uplink: false,
            is_reclaimed: false,
            is_lost: false,
        };
        let mut neighbours = vec![free.clone(); usize::from(lower)];
        let mut by_address = HashMap::with_capacity(usize::from(lower) + 1);
        if let Some(up) = up {
            by_address.insert(up, Port(lower));
            neighbours.push(Neighbour { address: Some(up), is_uplink: true, ..free });
        }
        Self {
            neighbours,
            by_address,
            joined: vec![None; processes_max as usize],
            timeout_ns,
            last: None,
            reclaimed: Vec::new(),
            left: VecDeque::new(),
        }
    }

    /// Returns the port of a known neighbour, and notes that a frame of it was received.
    #[inline]
    pub(crate) fn find(&mut self, from: SocketAddr, now: Mono) -> Option<Port> {
        let port = match self.last {
            Some((last, port)) if last == from => port,
            _ => *self.by_address.get(&from)?,
        };
        self.last = Some((from, port));
        let neighbour = &mut self.neighbours[port.index()];
        (neighbour.last_seen, neighbour.is_lost) = (now, false);
        Some(port)
    }

    /// Returns as what the neighbour at `port` was admitted; `None` for the uplink.
    #[inline]
    pub(crate) fn applicant(&self, port: Port) -> Option<&Applicant> {
        self.neighbours[port.index()].applicant.as_ref()
    }

    /// Returns the number of ports, with the uplink's.
    pub(crate) fn count(&self) -> u16 {
        self.neighbours.len() as u16
    }

    /// Returns the address of the neighbour at `port`.
    pub(crate) fn address(&self, port: Port) -> Option<SocketAddr> {
        self.neighbours[port.index()].address
    }

    /// Returns the port of another neighbour that was admitted under the same id and in the same
    /// role as `applicant`, and how long ago its last frame was received.
    pub(crate) fn rival(
        &self,
        applicant: Applicant,
        from: SocketAddr,
        now: Mono,
    ) -> Option<(Port, Rival)> {
        let is_rival = |neighbour: &Neighbour| {
            let known = neighbour.applicant.map(|known| (known.role, known.instance.address));
            known == Some((applicant.role, applicant.instance.address))
                && neighbour.address.is_some_and(|address| address != from)
        };
        let index = self.neighbours.iter().position(is_rival)?;
        let neighbour = &self.neighbours[index];
        let unseen_ns = (!neighbour.is_lost).then(|| now.since_ns(neighbour.last_seen));
        Some((Port(index as u16), Rival { unseen_ns }))
    }

    /// Returns whether a port is free. Without one, reclaims the port of the neighbour that was
    /// idle longest, if that was long enough; it is free after [`PortTable::drain_reclaimed`].
    pub(crate) fn has_free(&mut self, now: Mono) -> bool {
        let has_free = self.first_free().is_some();
        if !has_free {
            self.reclaim_stalest(now);
        }
        has_free
    }

    fn first_free(&self) -> Option<usize> {
        let is_free =
            |neighbour: &Neighbour| neighbour.address.is_none() && !neighbour.is_reclaimed;
        self.neighbours.iter().position(is_free)
    }

    /// Assigns a free port to a new neighbour.
    pub(crate) fn assign(
        &mut self,
        to: SocketAddr,
        applicant: Applicant,
        now: Mono,
    ) -> Option<Port> {
        let free = self.first_free()?;
        let port = Port(free as u16);
        self.neighbours[free] = Neighbour {
            address: Some(to),
            applicant: Some(applicant),
            processes: 0,
            last_seen: now,
            is_uplink: false,
            is_reclaimed: false,
            is_lost: false,
        };
        self.by_address.insert(to, port);
        Some(port)
    }

    /// Whether a port is about to become free.
    pub(crate) fn is_reclaiming(&self) -> bool {
        !self.reclaimed.is_empty()
    }

    /// Handles the Join of a process behind `port`. If an earlier incarnation was alone behind
    /// another port, that neighbour is gone: the process has restarted elsewhere. Returns false,
    /// and changes nothing, if a later incarnation has joined.
    pub(crate) fn on_join(
        &mut self,
        process: ProcessId,
        incarnation: Incarnation,
        port: Port,
    ) -> bool {
        let Some(joined) = self.joined.get_mut(process.index()) else { return false };
        let is_superseded = |(at, known): (Port, Incarnation)| {
            at != port && incarnation < known && !self.neighbours[at.index()].is_lost
        };
        if joined.is_some_and(is_superseded) {
            return false;
        }
        let previous = joined.replace((port, incarnation)).map(|(previous, _)| previous);
        if previous != Some(port) {
            self.neighbours[port.index()].processes += 1;
            previous.into_iter().for_each(|previous| self.on_gone(previous, Cause::Superseded));
        }
        true
    }

    /// Handles a controller that has announced itself, or was announced by a switch, behind
    /// `port`. No other port is reclaimed: that of a switch is in use, and a controller that is not
    /// received any more loses its port to another neighbour. Returns false if the id is out of
    /// range.
    pub(crate) fn on_controller(
        &mut self,
        controller: ProcessId,
        incarnation: Incarnation,
        port: Port,
    ) -> bool {
        let Some(joined) = self.joined.get_mut(controller.index()) else { return false };
        let previous = joined.replace((port, incarnation)).map(|(previous, _)| previous);
        if previous != Some(port) {
            self.neighbours[port.index()].processes += 1;
            if let Some(previous) = previous {
                let neighbour = &mut self.neighbours[previous.index()];
                neighbour.processes = neighbour.processes.saturating_sub(1);
            }
        }
        true
    }

    /// Returns the port and the incarnation of a process that has joined.
    pub(crate) fn joined_at(&self, process: ProcessId) -> Option<(Port, Incarnation)> {
        self.joined.get(process.index()).copied().flatten()
    }

    /// Returns how long ago the last frame of the controller at `port` was received, in ns; `None`:
    /// no controller was admitted there.
    pub(crate) fn controller_unseen_ns(&self, port: Port, now: Mono) -> Option<u64> {
        let neighbour = &self.neighbours[port.index()];
        let is_controller =
            neighbour.applicant.is_some_and(|known| known.role == JoinRole::Controller);
        is_controller.then(|| now.since_ns(neighbour.last_seen))
    }

    /// Handles the Leave of a process.
    pub(crate) fn on_leave(&mut self, process: ProcessId, port: Port, now: Mono) {
        let Some(joined) = self.joined.get_mut(process.index()) else { return };
        if joined.is_some_and(|(at, _)| at == port) {
            *joined = None;
            let neighbour = &mut self.neighbours[port.index()];
            neighbour.processes = neighbour.processes.saturating_sub(1);
            if neighbour.processes == 0 {
                self.left.push_back((port, neighbour.address, now));
            }
        }
    }

    /// Reclaims the ports of neighbours that left at least a link timeout ago.
    pub(crate) fn reclaim_left(&mut self, now: Mono) {
        while let Some(&(.., at)) = self.left.front()
            && now.since_ns(at) >= self.timeout_ns
        {
            self.reclaim_next_left();
        }
    }

    fn reclaim_next_left(&mut self) -> bool {
        let Some((port, address, _)) = self.left.pop_front() else { return false };
        let neighbour = &self.neighbours[port.index()];
        if neighbour.address == address && neighbour.processes == 0 {
            self.reclaim(port, Cause::Left);
        }
        true
    }

    /// Handles the kernel's report that no socket listens at `address`: reclaims its port. Returns
    /// the port if it is not reclaimable, because it is the uplink.
    pub(crate) fn on_refused(&mut self, address: SocketAddr) -> Option<Port> {
        let port = *self.by_address.get(&address)?;
        if self.neighbours[port.index()].is_uplink {
            return Some(port);
        }
        self.reclaim(port, Cause::Refused);
        None
    }

    /// Handles the loss of the link at `port`: until a frame of that neighbour arrives, any
    /// incarnation of its processes may join elsewhere.
    pub(crate) fn on_lost(&mut self, port: Port) {
        self.neighbours[port.index()].is_lost = true;
    }

    /// Passes all ports reclaimed since the last call to `on_reclaimed`; they may be assigned from
    /// now on.
    pub(crate) fn drain_reclaimed(&mut self, mut on_reclaimed: impl FnMut(Port, Cause)) {
        while let Some((port, cause)) = self.reclaimed.pop() {
            self.neighbours[port.index()].is_reclaimed = false;
            on_reclaimed(port, cause);
        }
    }

    /// Returns the joined processes, with their ports.
    pub(crate) fn joined(&self) -> impl Iterator<Item = (ProcessId, Port)> + '_ {
        let known = self.joined.iter().enumerate();
        known.filter_map(|(process, joined)| Some((ProcessId(process as u32), (*joined)?.0)))
    }

    fn on_gone(&mut self, port: Port, cause: Cause) {
        let neighbour = &mut self.neighbours[port.index()];
        neighbour.processes = neighbour.processes.saturating_sub(1);
        if neighbour.processes == 0 {
            self.reclaim(port, cause);
        }
    }

    fn reclaim_stalest(&mut self, now: Mono) {
        if self.reclaim_next_left() {
            return;
        }
        let is_candidate = |(_, neighbour): &(usize, &Neighbour)| {
            neighbour.address.is_some()
                && !neighbour.is_uplink
                && now.since_ns(neighbour.last_seen) > self.timeout_ns
        };
        let candidates = self.neighbours.iter().enumerate().filter(is_candidate);
        if let Some((stalest, _)) = candidates.min_by_key(|(_, neighbour)| neighbour.last_seen) {
            self.reclaim(Port(stalest as u16), Cause::TimedOut);
        }
    }

    /// Takes the port of a neighbour away; it is free after [`PortTable::drain_reclaimed`].
    pub(crate) fn reclaim(&mut self, port: Port, cause: Cause) {
        let neighbour = &mut self.neighbours[port.index()];
        if neighbour.is_uplink || neighbour.is_reclaimed {
            return;
        }
        if let Some(address) = neighbour.address.take() {
            neighbour.is_reclaimed = true;
            neighbour.applicant = None;
            neighbour.processes = 0;
            self.by_address.remove(&address);
            self.last = None;
            self.reclaimed.push((port, cause));
            for joined in &mut self.joined {
                if joined.is_some_and(|(at, _)| at == port) {
                    *joined = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Incarnation = Incarnation(1);

    fn address(udp_port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], udp_port))
    }

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    /// Assigns a port as for a request: what must be reclaimed first is.
    fn assign(ports: &mut PortTable, to: SocketAddr, now: Mono) -> Option<Port> {
        let address = onepipe_base::Address::Process(ProcessId(5));
        let instance = onepipe_base::Instance { address, incarnation: FIRST };
        let applicant = Applicant { instance, role: onepipe_wire::JoinRole::Process };
        if ports.has_free(now) { ports.assign(to, applicant, now) } else { None }
    }

    fn drain_reclaimed(ports: &mut PortTable) -> Vec<Port> {
        let mut reclaimed = Vec::new();
        ports.drain_reclaimed(|port, _| reclaimed.push(port));
        reclaimed
    }

    #[test]
    fn restarted_process_frees_its_previous_port() {
        let mut ports = PortTable::new(2, None, 8, 1_000);
        assert_eq!(assign(&mut ports, address(1), at(0)), Some(Port(0)));
        ports.on_join(ProcessId(5), FIRST, Port(0));
        ports.on_join(ProcessId(5), FIRST, Port(0));
        assert_eq!(assign(&mut ports, address(2), at(1)), Some(Port(1)));
        ports.on_join(ProcessId(5), FIRST, Port(1));
        assert_eq!(ports.find(address(1), at(2)), None);
        // Not before the machine was notified.
        assert_eq!(assign(&mut ports, address(3), at(2)), None);
        assert_eq!(drain_reclaimed(&mut ports), [Port(0)]);
        assert_eq!(assign(&mut ports, address(3), at(2)), Some(Port(0)));
        ports.on_leave(ProcessId(5), Port(0), at(0));
        assert_eq!(drain_reclaimed(&mut ports), [], "it joined elsewhere");
        ports.on_leave(ProcessId(5), Port(1), at(0));
        ports.reclaim_left(at(999));
        assert_eq!(drain_reclaimed(&mut ports), [], "a repeated Leave is answered");
        ports.reclaim_left(at(1_000));
        assert_eq!(drain_reclaimed(&mut ports), [Port(1)]);
    }

    #[test]
    fn earlier_incarnation_does_not_free_the_port_of_the_later() {
        let mut ports = PortTable::new(3, None, 8, 1_000);
        let (process, second) = (ProcessId(5), Incarnation(2));
        assert_eq!(assign(&mut ports, address(1), at(0)), Some(Port(0)));
        assert_eq!(assign(&mut ports, address(2), at(0)), Some(Port(1)));
        assert!(ports.on_join(process, FIRST, Port(0)));
        assert!(ports.on_join(process, second, Port(1)));
        assert_eq!(drain_reclaimed(&mut ports), [Port(0)]);
        // The earlier one joins again.
        assert_eq!(assign(&mut ports, address(1), at(1)), Some(Port(0)));
        assert!(!ports.on_join(process, FIRST, Port(0)));
        assert_eq!(drain_reclaimed(&mut ports), []);
        assert_eq!(ports.find(address(2), at(2)), Some(Port(1)));
        // Its link is lost, and it is received again; then it is lost permanently.
        ports.on_lost(Port(1));
        ports.find(address(2), at(3));
        assert!(!ports.on_join(process, FIRST, Port(0)));
        ports.on_lost(Port(1));
        assert!(ports.on_join(process, FIRST, Port(0)));
    }

    #[test]
    fn refused_neighbour_frees_its_port_except_the_uplink() {
        let mut ports = PortTable::new(2, Some(address(9)), 8, 1_000);
        assign(&mut ports, address(1), at(0));
        ports.on_join(ProcessId(5), FIRST, Port(0));
        assert_eq!(ports.on_refused(address(7)), None);
        assert_eq!(
            (ports.on_refused(address(9)), drain_reclaimed(&mut ports)),
            (Some(Port(2)), vec![])
        );
        assert_eq!(
            (ports.on_refused(address(1)), drain_reclaimed(&mut ports)),
            (None, vec![Port(0)])
        );
        assert_eq!(ports.joined().count(), 0);
        assert_eq!(ports.on_refused(address(1)), None, "a repeated report");
        assert_eq!(drain_reclaimed(&mut ports), []);
    }

    #[test]
    fn successor_of_a_leaver_keeps_its_port() {
        let mut ports = PortTable::new(1, None, 8, 1_000);
        assign(&mut ports, address(1), at(0));
        ports.on_join(ProcessId(1), FIRST, Port(0));
        ports.on_leave(ProcessId(1), Port(0), at(0));
        ports.on_refused(address(1));
        assert_eq!(drain_reclaimed(&mut ports), [Port(0)]);
        // A controller sends no Join that is counted.
        assert_eq!(assign(&mut ports, address(2), at(500)), Some(Port(0)));
        ports.reclaim_left(at(1_000));
        assert_eq!(drain_reclaimed(&mut ports), []);
    }

    #[test]
    fn lower_switch_keeps_its_port_while_processes_remain() {
        let mut ports = PortTable::new(3, None, 8, 1_000);
        assign(&mut ports, address(1), at(0));
        ports.on_join(ProcessId(1), FIRST, Port(0));
        ports.on_join(ProcessId(2), FIRST, Port(0));
        ports.on_leave(ProcessId(1), Port(0), at(0));
        assert_eq!(drain_reclaimed(&mut ports), []);
        assert_eq!(ports.joined().collect::<Vec<_>>(), [(ProcessId(2), Port(0))]);
        ports.on_leave(ProcessId(2), Port(0), at(0));
        ports.reclaim_left(at(1_000));
        assert_eq!(drain_reclaimed(&mut ports), [Port(0)]);
    }

    #[test]
    fn announced_controller_reclaims_no_port() {
        let mut ports = PortTable::new(3, None, 8, 1_000);
        let controller = ProcessId(7);
        assign(&mut ports, address(1), at(0));
        assign(&mut ports, address(2), at(0));
        ports.on_join(ProcessId(1), FIRST, Port(1));
        for (port, incarnation) in [(0, 3), (1, 4), (0, 2)] {
            assert!(ports.on_controller(controller, Incarnation(incarnation), Port(port)));
            let joined = Some((Port(port), Incarnation(incarnation)));
            assert_eq!(ports.joined_at(controller), joined);
        }
        assert_eq!(drain_reclaimed(&mut ports), []);
        ports.reclaim(Port(0), Cause::Superseded);
        assert_eq!(
            (ports.joined_at(controller), drain_reclaimed(&mut ports)),
            (None, vec![Port(0)])
        );
        assert!(!ports.on_controller(ProcessId(8), FIRST, Port(1)), "not below the limit");
    }

    #[test]
    fn longest_idle_port_is_reclaimed_but_never_the_uplink() {
        let mut ports = PortTable::new(2, Some(address(9)), 8, 1_000);
        assert_eq!(ports.find(address(9), at(0)), Some(Port(2)));
        assign(&mut ports, address(1), at(0));
        assign(&mut ports, address(2), at(500));
        assert_eq!(
            (assign(&mut ports, address(3), at(1_000)), ports.is_reclaiming()),
            (None, false)
        );
        assert_eq!(drain_reclaimed(&mut ports), [], "no neighbour was idle for long enough");
        assert_eq!(
            (assign(&mut ports, address(3), at(1_200)), ports.is_reclaiming()),
            (None, true)
        );
        assert_eq!(drain_reclaimed(&mut ports), [Port(0)]);
        assert_eq!(assign(&mut ports, address(3), at(1_200)), Some(Port(0)));
        assert_eq!(ports.find(address(2), at(1_300)), Some(Port(1)));
        ports.on_join(ProcessId(99), FIRST, Port(0));
        ports.on_leave(ProcessId(99), Port(0), at(0));
    }
}
