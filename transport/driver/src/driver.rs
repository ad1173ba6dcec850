//! The event loop of one machine over one transport with one clock.

use std::sync::atomic::{AtomicBool, Ordering};

use onepipe_base::{Now, Promises};
use onepipe_transport_clock::{Clock, reduce_wakeup_latency};

use crate::idle::{IdleAction, Idleness, Idler};
use crate::{Doorbell, DrivenMachine, Duty, Idle, SharedWait, Transport};

/// Settings of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What an idle turn does with the core. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
    /// Maximum number of frames in a burst of sends, so that receiving is not starved. Default 128.
    pub burst_frames_max: u32,
    /// Maximum number of events handed out before their output is sent. Default 1024. A
    /// flow-control window that is returned only after all of it was handed out makes both ends
    /// alternate: between two processes over shared memory 128 to 2048 perform alike; without a
    /// limit a reliable message takes a third longer.
    pub burst_events_max: u32,
    /// A turn that begins this many ns after it was due is counted as a pause, and logged: the
    /// thread was off its core. 0: none is. Default 250 ms, a quarter of the link timeout of real
    /// fabrics.
    pub pause_threshold_ns: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            idle: Idle::ADAPTIVE,
            burst_frames_max: 128,
            burst_events_max: 1024,
            pause_threshold_ns: 250_000_000,
        }
    }
}

/// Longest single wait, in ns: a stop flag set without ringing the doorbell is noticed within that
/// time.
const WAIT_NS_MAX: u64 = 100_000_000;

/// Turns longer than this many ns are counted as long.
const TURN_THRESHOLD_NS: u64 = 1_000_000;

/// Shortest pause that is worth a warning, in ns.
const PAUSE_NS_MIN: u64 = 100_000_000;

impl Config {
    /// Sets the threshold of pauses to a quarter of the link timeout, and at least 100 ms: a pause
    /// of four times as long makes the neighbours take the link for dead, and shorter ones are
    /// ordinary where processes share cores. 0: the threshold stays.
    #[must_use]
    pub fn warning_before(self, link_timeout_ns: u64) -> Self {
        match link_timeout_ns {
            0 => self,
            timeout_ns => Self { pause_threshold_ns: (timeout_ns / 4).max(PAUSE_NS_MIN), ..self },
        }
    }
}

/// The work done by one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Frames handed to the machine.
    pub frames_received: usize,
    /// Frames that the machine sent.
    pub frames_sent: usize,
    /// Events handed out.
    pub events: usize,
    /// Whether a deadline had expired.
    pub is_timeout: bool,
    /// Whether output is left that the transport has no capacity for.
    pub is_blocked: bool,
}

impl Progress {
    /// Whether the turn did no work.
    pub fn is_idle(&self) -> bool {
        self.frames_received + self.frames_sent + self.events == 0 && !self.is_timeout
    }

    /// Whether the turn did nothing but timer work, so that no more input is to be expected soon.
    fn is_quiet(&self) -> bool {
        let is_timer_output = self.frames_sent == 0 || self.is_timeout;
        self.frames_received + self.events == 0 && is_timer_output
    }
}

/// Drives a machine over a transport. The crate documentation lists the rules.
#[derive(Debug)]
pub struct Driver<M, T, C> {
    machine: M,
    transport: T,
    clock: C,
    config: Config,
    idler: Idler,
    duty: Duty,
    now: Option<Now>,
    /// How long after the last turn the next one is due, in ns: the time for which the driver
    /// blocks.
    due_in_ns: u64,
    /// The last burst was cut off: the next turn must continue or end it.
    is_burst_cut: bool,
    /// The machine was borrowed mutably since the last turn.
    is_commanded: bool,
}

impl<M: DrivenMachine, T: Transport, C: Clock> Driver<M, T, C> {
    /// Makes a driver that has not read the clock yet.
    pub fn new(machine: M, transport: T, clock: C, config: Config) -> Self {
        let idler = Idler::new(config.idle.over(T::POLLS_BY_SYSTEM_CALL));
        Self {
            machine,
            transport,
            clock,
            config,
            idler,
            duty: Duty::new(),
            now: None,
            due_in_ns: 0,
            is_burst_cut: false,
            is_commanded: false,
        }
    }

    /// The machine, for queries.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, for commands. The next turn sends their output (rule D2).
    pub fn machine_mut(&mut self) -> &mut M {
        self.is_commanded = true;
        &mut self.machine
    }

    /// Reads the clock, for commands that need the time.
    pub fn now(&mut self) -> Now {
        self.read_clock()
    }

    /// The transport, for its counters.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Returns the machine and the transport, which may look at it.
    pub fn parts_mut(&mut self) -> (&M, &mut T) {
        (&self.machine, &mut self.transport)
    }

    /// The transport, for fault injection.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// The clock reading of the last turn; `None` before the first one.
    pub fn last_now(&self) -> Option<Now> {
        self.now
    }

    /// Counters of the turns.
    pub fn duty(&self) -> &Duty {
        &self.duty
    }

    /// The handle that wakes this driver while it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.transport.doorbell()
    }

    /// Sends what was commanded since the last turn, receives frames, runs expired timers, hands
    /// out events and sends the resulting output. Never blocks. Output of commands given by
    /// `on_event` leaves in this turn.
    pub fn turn(&mut self, mut on_event: impl FnMut(&mut M, M::Event)) -> Progress {
        let mut progress = Progress::default();
        let last = self.now;
        let now = self.transmit_commanded(&mut progress).unwrap_or_else(|| self.read_clock());
        self.duty.on_turn(now.mono, TURN_THRESHOLD_NS);
        let due_in_ns = std::mem::take(&mut self.due_in_ns);
        let late_ns = last.map_or(0, |last| now.mono.since_ns(last.mono).saturating_sub(due_in_ns));
        if late_ns > self.config.pause_threshold_ns && self.config.pause_threshold_ns > 0 {
            self.on_pause(now, late_ns);
        }

        let machine = &mut self.machine;
        self.transport.set_awaiting_promises(machine.is_awaiting_promises());
        let on_frame = |port, frame: &mut [u8]| machine.handle_frame(now, port, frame);
        progress.frames_received = self.transport.receive(now, on_frame);
        self.idler.on_frames(progress.frames_received);
        self.transport.poll_peers(|port, incarnation| machine.handle_peer(now, port, incarnation));
        self.transport
            .poll_promises(now, |port, promises| machine.handle_promises(now, port, promises));
        self.transport.poll_links_down(|port, cause| machine.handle_link_down(port, cause));
        if machine.poll_timeout().is_some_and(|due| due <= now.mono) {
            machine.handle_timeout(now);
            progress.is_timeout = true;
        }
        self.deliver_events(now, &mut progress, &mut on_event);
        if progress.is_timeout || self.may_send(&progress) {
            self.transmit(now, &mut progress);
            // Sending may have completed something: its events must not wait for the next frame
            // (rule D2).
            self.deliver_events(now, &mut progress, &mut on_event);
        }
        self.transport.hold_commits(self.machine.oldest_open());
        if !progress.is_idle() {
            self.duty.busy_turn_count += 1;
        }
        progress
    }

    /// Spins, yields or blocks according to the idle strategy, given what the last turn did.
    pub fn rest(&mut self, progress: Progress) {
        let action = self.idle_action(progress);
        self.idle(action);
    }

    /// Returns how to idle, given what the last turn did.
    pub fn idle_action(&mut self, progress: Progress) -> IdleAction {
        let idleness = self.idleness(progress);
        self.idler.next(idleness)
    }

    /// Returns what a turn that did `progress` means for idling.
    pub fn idleness(&self, progress: Progress) -> Idleness {
        let is_blocked = progress.is_blocked || self.is_burst_cut;
        let polls_promises = || !T::PROMISES_WAKE && self.machine.is_awaiting_promises();
        match progress.is_quiet() {
            false => Idleness::Busy,
            true if is_blocked || polls_promises() => Idleness::Polls,
            true => Idleness::Waits,
        }
    }

    /// Idles as [`Driver::idle_action`] said.
    pub fn idle(&mut self, action: IdleAction) {
        match action {
            // No pause instruction: a turn takes as long as one, and would delay a frame.
            IdleAction::Spin => {}
            IdleAction::Yield => {
                std::thread::yield_now();
                self.duty.on_rest();
            }
            IdleAction::Block => self.block_for(u64::MAX),
        }
    }

    /// Blocks until input arrives, the doorbell is rung, the machine's deadline expires or `max_ns`
    /// have passed.
    pub fn block_for(&mut self, max_ns: u64) {
        let timeout_ns = self.wait_ns().min(max_ns);
        if timeout_ns > 0 {
            self.duty.waits += 1;
            self.due_in_ns = timeout_ns;
            self.transport.wait(timeout_ns);
            if self.idler.is_woken_by_stream() && T::POLLS_BY_SYSTEM_CALL {
                std::thread::yield_now();
            }
            self.duty.on_rest();
        }
    }

    /// Returns the time until the machine's deadline in ns, as of the last turn; at most the
    /// longest wait.
    fn wait_ns(&self) -> u64 {
        let Some(now) = self.now else { return 0 };
        let due_ns = self.machine.poll_timeout().map_or(u64::MAX, |due| due.since_ns(now.mono));
        due_ns.min(WAIT_NS_MAX)
    }

    /// Alternates turns and rests until `stop` is set, then takes one last turn. Ring the doorbell
    /// after setting `stop`.
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

    /// Hands out all events in bursts, and sends the output of a burst before the next one.
    fn deliver_events(
        &mut self,
        now: Now,
        progress: &mut Progress,
        on_event: &mut impl FnMut(&mut M, M::Event),
    ) {
        loop {
            let events_max = self.config.burst_events_max as usize;
            let events = self.machine.poll_events(events_max, on_event);
            progress.events += events;
            if events < events_max {
                return;
            }
            if self.may_send(progress) {
                self.transmit(now, progress);
            }
        }
    }

    /// Whether there is output to send. A burst cut off in this turn continues in the next one,
    /// after receiving.
    fn may_send(&self, progress: &Progress) -> bool {
        let is_blocked = self.is_burst_cut || progress.is_blocked;
        !is_blocked && self.machine.wants_transmit()
    }

    /// Sends what was commanded between turns, before any input is received, to save its latency.
    /// Returns the clock reading that stamped the burst while it is still recent enough to serve
    /// the batch received next (rule D1).
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

    /// Sends pending output. Returns the clock reading that stamped it, or `None` if the transport
    /// had no capacity. `before` is the previous reading.
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
                // The peers need a lower bound of what this machine has yet to send. A machine
                // without promises returns `None`, and its peers ignore promises.
                rest = self.machine.promises();
                progress.is_blocked = true;
                break;
            };
            let Some(transmit) = self.machine.poll_transmit(now, slot) else { break };
            self.transport.send(transmit);
            progress.frames_sent += 1;
            if progress.frames_sent == 1 && !self.machine.wants_transmit() {
                // Most likely the only frame: let it go without waiting for the machine's `None`.
                self.transport.flush();
            }
        }
        self.is_burst_cut = progress.is_blocked;
        // Before any peer can see that the burst is over.
        self.transport.hold_commits(self.machine.oldest_open());
        self.transport.end_burst(rest);
        Some(now)
    }

    //= spec/failure.md#R63
    /// Counts a pause, and warns of it.
    #[cold]
    fn on_pause(&mut self, now: Now, late_ns: u64) {
        let Some(pauses) = self.duty.on_pause(now.mono, late_ns) else { return };
        let seconds = pauses.max_ns as f64 / 1e9;
        match pauses.count {
            1 => tracing::warn!("was off its core for {seconds:.1} s"),
            count => tracing::warn!("was off its core {count} times, for up to {seconds:.1} s"),
        }
    }

    /// Reads both clocks, once per batch; `mono` never goes back (rule D1).
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

impl<M: DrivenMachine, T: SharedWait, C: Clock> Driver<M, T, C> {
    /// Announces that a thread waits by the transport's handle while others may take turns. Returns
    /// the longest time to wait, in ns; `None` if there is something to do at once.
    pub fn begin_wait(&mut self) -> Option<u64> {
        let timeout_ns = self.wait_ns();
        if timeout_ns == 0 || !self.transport.begin_wait() {
            return None;
        }
        self.duty.waits += 1;
        self.due_in_ns = timeout_ns;
        Some(timeout_ns)
    }

    /// Ends the announced wait. If that thread may still wait, ring its handle first.
    pub fn end_wait(&mut self) {
        self.transport.end_wait();
        self.duty.on_rest();
    }
}
