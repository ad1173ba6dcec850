//! A host: processes behind a virtual switch.

use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};

use crate::ready_set::ReadySet;

/// An event of one of the parts of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostEvent<P, S> {
    /// From the process at this port of the virtual switch.
    Process(Port, P),
    /// From the virtual switch.
    Switch(S),
}

/// A host with `n` processes: they are at ports `0..n` of the virtual switch, the network card is
/// at port `n`.
///
/// The host itself has one port, the network card, which keeps the number `n`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host<S, P> {
    switch: S,
    /// `None`: no process runs at this port.
    processes: Vec<Option<P>>,
    card: Port,
    /// Processes that may have a frame to send. Their entries in `deadlines` may be stale.
    may_send: ReadySet,
    switch_may_send: bool,
    /// Processes that may have an event.
    may_have_event: ReadySet,
    switch_may_have_event: bool,
    /// The process to poll first next time (round robin).
    next_process: usize,
    /// `poll_timeout` of each process when it was last drained.
    deadlines: Vec<Option<Mono>>,
    /// Frames refused by a process of this host.
    refused: u64,
}

impl<S: Machine, P: Machine> Host<S, P> {
    /// Returns a host of these processes. The virtual switch must have a lower port for each, and
    /// one upper port after them.
    pub fn new(switch: S, processes: Vec<P>) -> Self {
        let count = processes.len();
        Self {
            switch,
            processes: processes.into_iter().map(Some).collect(),
            card: Port(u16::try_from(count).expect("a switch has no more ports")),
            may_send: ReadySet::all(count),
            switch_may_send: true,
            may_have_event: ReadySet::all(count),
            switch_may_have_event: true,
            next_process: 0,
            deadlines: alloc::vec![None; count],
            refused: 0,
        }
    }

    /// Returns the virtual switch.
    pub fn switch(&self) -> &S {
        &self.switch
    }

    /// Returns the process at `port`, if one runs there.
    pub fn process(&self, port: Port) -> Option<&P> {
        self.processes.get(port.index())?.as_ref()
    }

    /// Returns the process at `port`, for commands. The driver must drain the host afterwards (D2).
    pub fn process_mut(&mut self, port: Port) -> Option<&mut P> {
        let process = self.processes.get_mut(port.index())?.as_mut()?;
        self.may_send.set(port.index());
        self.may_have_event.set(port.index());
        Some(process)
    }

    /// Stops the process at `port` at once, as in a crash, and returns its machine.
    pub fn stop(&mut self, port: Port) -> Option<P> {
        self.processes.get_mut(port.index())?.take()
    }

    /// Starts `process` at `port`, replacing any process there.
    ///
    /// # Panics
    /// If the host has no such port.
    pub fn start(&mut self, port: Port, process: P) {
        self.processes[port.index()] = Some(process);
        self.may_send.set(port.index());
        self.may_have_event.set(port.index());
    }

    /// Returns the number of frames refused by the processes; the virtual switch counts its own.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Delivers a frame to the process at `port`.
    #[inline]
    fn deliver(&mut self, now: Now, port: Port, frame: &mut [u8]) {
        let Some(Some(process)) = self.processes.get_mut(port.index()) else {
            self.refused += 1;
            return;
        };
        if process.handle_frame(now, Port(0), frame) == Verdict::Dropped {
            self.refused += 1;
        }
        self.may_send.set(port.index());
        self.may_have_event.set(port.index());
    }

    /// Returns the deadline of the process at `index`; from the cache if the process was not called
    /// since it was last drained.
    #[inline]
    fn deadline(&self, index: usize) -> Option<Mono> {
        match &self.processes[index] {
            Some(process) if self.may_send.has(index) => process.poll_timeout(),
            Some(_) => self.deadlines[index],
            None => None,
        }
    }

    /// Polls the virtual switch for the next frame to the network card. Delivers frames to local
    /// processes on the way.
    fn poll_switch(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        while let Some(transmit) = self.switch.poll_transmit(now, slot) {
            if transmit.port == self.card {
                return Some(transmit);
            }
            self.deliver(now, transmit.port, &mut slot[..transmit.bytes]);
        }
        self.switch_may_send = false;
        None
    }

    /// Polls the process at `index` for a frame, and passes it through the virtual switch. Returns
    /// it if it leaves through the network card.
    #[inline]
    fn poll_process(&mut self, now: Now, slot: &mut [u8], index: usize) -> Option<Transmit> {
        let process = self.processes[index].as_mut();
        let polled = process.and_then(|process| process.poll_transmit(now, slot));
        // The poll may have produced an event: a message to the process itself, or a failure.
        self.may_have_event.set(index);
        let Some(transmit) = polled else {
            self.may_send.clear(index);
            self.deadlines[index] = self.processes[index].as_ref().and_then(P::poll_timeout);
            return None;
        };
        let frame = &mut slot[..transmit.bytes];
        let verdict = self.switch.handle_frame(now, Port(index as u16), frame);
        (self.switch_may_send, self.switch_may_have_event) = (true, true);
        match verdict {
            Verdict::Forward(port) if port == self.card => Some(Transmit { port, ..transmit }),
            Verdict::Forward(port) => {
                self.deliver(now, port, frame);
                None
            }
            Verdict::Consumed | Verdict::Dropped => None,
        }
    }
}

impl<S: Machine, P: Machine> Machine for Host<S, P> {
    type Event = HostEvent<P::Event, S::Event>;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        if port != self.card {
            return Verdict::Dropped;
        }
        (self.switch_may_send, self.switch_may_have_event) = (true, true);
        match self.switch.handle_frame(now, port, frame) {
            Verdict::Forward(port) => {
                self.deliver(now, port, frame);
                Verdict::Consumed
            }
            verdict => verdict,
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        let is_due = |deadline: Option<Mono>| deadline.is_some_and(|due| due <= now.mono);
        if is_due(self.switch.poll_timeout()) {
            self.switch.handle_timeout(now);
            (self.switch_may_send, self.switch_may_have_event) = (true, true);
        }
        for index in 0..self.processes.len() {
            if is_due(self.deadline(index)) {
                if let Some(process) = &mut self.processes[index] {
                    process.handle_timeout(now);
                }
                self.may_send.set(index);
                self.may_have_event.set(index);
            }
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        loop {
            if self.switch_may_send
                && let Some(transmit) = self.poll_switch(now, slot)
            {
                return Some(transmit);
            }
            let index = self.may_send.next(self.next_process)?;
            // Round robin, whether or not the process had a frame.
            self.next_process = if index + 1 < self.processes.len() { index + 1 } else { 0 };
            if let Some(transmit) = self.poll_process(now, slot, index) {
                return Some(transmit);
            }
        }
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        while let Some(index) = self.may_have_event.next(0) {
            match self.processes[index].as_mut().and_then(P::poll_event) {
                Some(event) => return Some(HostEvent::Process(Port(index as u16), event)),
                None => self.may_have_event.clear(index),
            }
        }
        if !self.switch_may_have_event {
            return None;
        }
        let event = self.switch.poll_event();
        self.switch_may_have_event = event.is_some();
        event.map(HostEvent::Switch)
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let processes = (0..self.processes.len()).filter_map(|index| self.deadline(index));
        processes.chain(self.switch.poll_timeout()).min()
    }
}
