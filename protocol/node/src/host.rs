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
    /// A frame with several receivers, and the process that it came from, between two of its copies
    /// through the network card.
    replicated: Option<Port>,
    /// The bytes of that frame.
    replicated_frame: Vec<u8>,
    /// The bytes of a copy for a process of this host.
    copy: Vec<u8>,
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
            replicated: None,
            replicated_frame: Vec::new(),
            copy: Vec::new(),
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
        self.pass(now, Port(index as u16), &mut slot[..transmit.bytes])
    }

    /// Passes a frame of a process through the virtual switch, to the next of its receivers that is
    /// reached through the network card.
    #[inline]
    fn pass(&mut self, now: Now, from: Port, frame: &mut [u8]) -> Option<Transmit> {
        (self.switch_may_send, self.switch_may_have_event) = (true, true);
        loop {
            let verdict = self.switch.handle_frame(now, from, frame);
            let is_replicated = matches!(verdict, Verdict::Replicate(_));
            match verdict {
                Verdict::Forward(port) | Verdict::Replicate(port) if port == self.card => {
                    if is_replicated {
                        self.replicated = Some(from);
                        self.replicated_frame.clear();
                        self.replicated_frame.extend_from_slice(frame);
                    }
                    return Some(Transmit { port, bytes: frame.len() });
                }
                Verdict::Replicate(port) => self.deliver_copy(now, port, frame),
                Verdict::Forward(port) => {
                    self.deliver(now, port, frame);
                    return None;
                }
                Verdict::Consumed | Verdict::Dropped => return None,
            }
        }
    }

    /// Delivers a copy of a frame, which the process may change, to the process at `port`.
    fn deliver_copy(&mut self, now: Now, port: Port, frame: &[u8]) {
        let mut copy = core::mem::take(&mut self.copy);
        copy.clear();
        copy.extend_from_slice(frame);
        self.deliver(now, port, &mut copy);
        self.copy = copy;
    }

    /// Continues to replicate a frame. Returns its next copy through the network card.
    #[cold]
    fn poll_replicated(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let from = self.replicated.take()?;
        let frame = &mut slot[..self.replicated_frame.len()];
        frame.copy_from_slice(&self.replicated_frame);
        self.pass(now, from, frame)
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
        loop {
            match self.switch.handle_frame(now, port, frame) {
                Verdict::Replicate(port) => self.deliver_copy(now, port, frame),
                Verdict::Forward(port) => {
                    self.deliver(now, port, frame);
                    return Verdict::Consumed;
                }
                verdict => return verdict,
            }
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
            if self.replicated.is_some()
                && let Some(transmit) = self.poll_replicated(now, slot)
            {
                return Some(transmit);
            }
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
