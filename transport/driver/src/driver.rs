//! One machine, one transport, one clock.

use std::sync::atomic::{AtomicBool, Ordering};

use onepipe_base::{Now, Promises};
use onepipe_transport_clock::{Clock, reduce_wakeup_latency};

use crate::idle::{IdleAction, Idler};
use crate::{Doorbell, DrivenMachine, Duty, Idle, Transport};

/// How a driver behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What to do when there is nothing to do. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
    /// A burst of sending is cut off after this many frames, so that receiving gets its turn.
    /// Default 128.
    pub burst_frames_max: u32,
    /// After so many events what comes of them leaves, before more are handed out. Default 1024. A
    /// window that is given back only when all of it has been handed out makes both ends wait in
    /// turns: between two processes over shared memory 128 to 2048 do alike, and without a limit a
    /// reliable message takes a third longer.
    pub burst_events_max: u32,
    /// The longest single wait, in ns. Default 100 ms: a stop flag that nobody rings the doorbell
    /// for is seen within that.
    pub wait_max_ns: u64,
    /// A turn longer than this counts as long, in ns. Default 1 ms.
    pub turn_threshold_ns: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            idle: Idle::ADAPTIVE,
            burst_frames_max: 128,
            burst_events_max: 1024,
            wait_max_ns: 100_000_000,
            turn_threshold_ns: 1_000_000,
        }
    }
}

/// What one turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Frames handed to the machine.
    pub frames_received: usize,
    /// Frames that the machine sent.
    pub frames_sent: usize,
    /// Events handed out.
    pub events: usize,
    /// Whether a deadline had been reached.
    pub is_timeout: bool,
    /// Whether there is more to send than there was room for.
    pub is_blocked: bool,
}

impl Progress {
    /// Whether the turn did nothing at all.
    pub fn is_idle(&self) -> bool {
        self.frames_received + self.frames_sent + self.events == 0 && !self.is_timeout
    }

    /// Whether the turn did nothing but what its timer told it to: no reason to expect more soon.
    fn is_quiet(&self) -> bool {
        let is_beacon = self.frames_sent == 0 || self.is_timeout;
        self.frames_received + self.events == 0 && is_beacon
    }
}

/// Drives a machine over a transport. See the crate for the rules it keeps.
#[derive(Debug)]
pub struct Driver<M, T, C> {
    machine: M,
    transport: T,
    clock: C,
    config: Config,
    idler: Idler,
    duty: Duty,
    now: Option<Now>,
    /// The last burst was cut off: the next turn must go on with it, or end it.
    is_burst_cut: bool,
    /// Somebody had the machine in hand since the last turn.
    is_commanded: bool,
}

impl<M: DrivenMachine, T: Transport, C: Clock> Driver<M, T, C> {
    /// A driver that has not read the clock yet.
    pub fn new(machine: M, transport: T, clock: C, config: Config) -> Self {
        let idler = Idler::new(config.idle);
        Self {
            machine,
            transport,
            clock,
            config,
            idler,
            duty: Duty::new(),
            now: None,
            is_burst_cut: false,
            is_commanded: false,
        }
    }

    /// The machine, to ask it.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to command it. The next turn drains what comes of it (rule D2).
    pub fn machine_mut(&mut self) -> &mut M {
        self.is_commanded = true;
        &mut self.machine
    }

    /// What time it is, for commands that want to know.
    pub fn now(&mut self) -> Now {
        self.read_clock()
    }

    /// The transport, for its counters.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The transport, for its faults.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Counters of the turns.
    pub fn duty(&self) -> &Duty {
        &self.duty
    }

    /// What wakes this driver when it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.transport.doorbell()
    }

    /// Sends what was commanded since the last turn, takes what has arrived, runs what is due,
    /// hands out events, sends what comes of all that. Never blocks. `on_event` may command the
    /// machine; what comes of it leaves in this turn.
    pub fn turn(&mut self, mut on_event: impl FnMut(&mut M, M::Event)) -> Progress {
        let mut progress = Progress::default();
        let now = self.transmit_commanded(&mut progress).unwrap_or_else(|| self.read_clock());
        self.duty.on_turn(now.mono, self.config.turn_threshold_ns);

        let machine = &mut self.machine;
        self.transport.set_awaiting_promises(machine.is_waiting());
        let take = |port, frame: &mut [u8]| machine.handle_frame(now, port, frame);
        progress.frames_received = self.transport.receive(now, take);
        self.transport.poll_peers(|port, incarnation| machine.handle_peer(now, port, incarnation));
        self.transport
            .poll_promises(now, |port, promises| machine.handle_promises(now, port, promises));
        self.transport.poll_links_down(|port| machine.handle_link_down(port));
        if machine.poll_timeout().is_some_and(|due| due <= now.mono) {
            machine.handle_timeout(now);
            progress.is_timeout = true;
        }
        self.deliver_events(now, &mut progress, &mut on_event);
        if progress.is_timeout || self.may_send(&progress) {
            self.transmit(now, &mut progress);
            // What was sent may have settled something, and what came of that must not wait for the
            // next frame (rule D2).
            self.deliver_events(now, &mut progress, &mut on_event);
        }
        self.transport.hold_commits(self.machine.oldest_open());
        if !progress.is_idle() {
            self.duty.turns_busy += 1;
        }
        progress
    }

    /// Rests as the idle strategy says, given what the last turn did.
    pub fn rest(&mut self, progress: Progress) {
        if !progress.is_quiet() {
            self.idler.on_busy();
            return;
        }
        let is_blocked = progress.is_blocked || self.is_burst_cut;
        let may_block = !is_blocked && !self.machine.is_waiting();
        match self.idler.on_idle(may_block) {
            // No pause: the turn itself takes as long as one, and a frame would wait for it.
            IdleAction::Spin => {}
            IdleAction::Yield => {
                std::thread::yield_now();
                self.duty.on_rest();
            }
            IdleAction::Block => self.block(),
        }
    }

    /// Turns and rests until `stop` is set, and once more after that. Ring the doorbell after
    /// setting it.
    pub fn run(&mut self, stop: &AtomicBool, mut on_event: impl FnMut(&mut M, M::Event)) {
        reduce_wakeup_latency();
        loop {
            let is_stopping = stop.load(Ordering::Acquire);
            let progress = self.turn(&mut on_event);
            if is_stopping {
                return;
            }
            self.rest(progress);
        }
    }

    /// Blocks until there is something to do.
    fn block(&mut self) {
        let Some(now) = self.now else { return };
        let due_ns = self.machine.poll_timeout().map_or(u64::MAX, |due| due.since_ns(now.mono));
        let timeout_ns = due_ns.min(self.config.wait_max_ns);
        if timeout_ns > 0 {
            self.duty.waits += 1;
            self.transport.wait(timeout_ns);
            self.duty.on_rest();
        }
    }

    /// Hands out all events, burst by burst; what comes of one leaves before the next.
    fn deliver_events(
        &mut self,
        now: Now,
        progress: &mut Progress,
        on_event: &mut impl FnMut(&mut M, M::Event),
    ) {
        loop {
            let events = self.drain_events(on_event);
            progress.events += events;
            if events < self.config.burst_events_max as usize {
                return;
            }
            if self.may_send(progress) {
                self.transmit(now, progress);
            }
        }
    }

    /// Hands out events, a burst at most.
    fn drain_events(&mut self, on_event: &mut impl FnMut(&mut M, M::Event)) -> usize {
        let mut events = 0;
        while events < self.config.burst_events_max as usize
            && let Some(event) = self.machine.poll_event()
        {
            on_event(&mut self.machine, event);
            events += 1;
        }
        events
    }

    /// Whether there is something to send. A burst that was cut off in this turn goes on in the
    /// next one: receiving had its turn.
    fn may_send(&self, progress: &Progress) -> bool {
        let is_blocked = self.is_burst_cut || progress.is_blocked;
        !is_blocked && self.machine.wants_transmit()
    }

    /// Sends what was commanded between turns: it need not wait until the clock has been read for
    /// what has arrived, and that been looked for. Answers the reading of the clock that stamped
    /// it, while that is as good as new.
    fn transmit_commanded(&mut self, progress: &mut Progress) -> Option<Now> {
        let before = self.now?;
        let is_commanded = std::mem::take(&mut self.is_commanded);
        let wants_to = self.is_burst_cut || (is_commanded && self.machine.wants_transmit());
        if !wants_to {
            return None;
        }
        let now = self.transmit(before, progress)?;
        (progress.frames_sent <= 1).then_some(now)
    }

    /// Sends what there is to send. Answers the reading of the clock that stamped it; `None` when
    /// there was no room to begin. `before` is the last reading.
    fn transmit(&mut self, before: Now, progress: &mut Progress) -> Option<Now> {
        progress.is_blocked = !self.transport.can_begin_burst(before);
        if progress.is_blocked {
            return None;
        }
        self.transport.begin_burst(before, self.machine.promises());
        let now = self.read_clock();
        let mut rest: Option<Promises> = None;
        loop {
            let is_cut_off = progress.frames_sent >= self.config.burst_frames_max as usize;
            let slot = if is_cut_off { None } else { self.transport.slot() };
            let Some(slot) = slot else {
                // A machine that is cut off must be able to say what its rest will be above. One
                // that knows no promises answers `None`, and nobody listens to its promises.
                rest = self.machine.promises();
                progress.is_blocked = true;
                break;
            };
            let Some(transmit) = self.machine.poll_transmit(now, slot) else { break };
            self.transport.send(transmit);
            progress.frames_sent += 1;
            if progress.frames_sent == 1 && !self.machine.wants_transmit() {
                // Most likely the only one: nobody need wait until the machine has said so.
                self.transport.flush();
            }
        }
        self.is_burst_cut = progress.is_blocked;
        // Before anybody can see that the burst is over.
        self.transport.hold_commits(self.machine.oldest_open());
        self.transport.end_burst(rest);
        Some(now)
    }

    /// Both clocks, once a batch; `mono` never goes back (rule D1).
    fn read_clock(&mut self) -> Now {
        let mut now = self.clock.read();
        if let Some(before) = self.now
            && now.mono < before.mono
        {
            self.duty.clock_held += 1;
            now.mono = before.mono;
        }
        self.now = Some(now);
        now
    }
}
