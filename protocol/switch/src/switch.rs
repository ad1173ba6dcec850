//! The switch machine: passes frames and time to its stages, and counts.

mod advertise;
mod bundling;
mod control;
mod demand;
mod invariants;
mod leave;
mod links;
mod replication;
mod restart;

use alloc::boxed::Box;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Cause, Machine, Mono, Now, PeerUpdate, Port, Timestamp, Transmit, Verdict};
use onepipe_reliability::BoundedQueue;
use onepipe_topology::{FlowKey, PortRange};
use onepipe_wire::{BundledAck, Flags, Opcode, header_unchecked, parse_header, pass_hop};

use crate::ack_bundles::AckBundles;
use crate::aggregator::Aggregator;
use crate::beacon::Beacons;
use crate::clock::{Clock, Time, no_promise};
use crate::control::Control;
use crate::demand::Demand;
use crate::form::Form;
use crate::joiners::Joiners;
use crate::leavers::Leavers;
use crate::links::Links;
use crate::liveness::Liveness;
use crate::start::Start;
use crate::stats::count_drop;
use crate::{Config, ConfigError, Stats, SwitchEvent};
use links::LinkCheck;
use replication::Replication;

/// What a frame is to a switch.
#[derive(Clone, Copy)]
enum Forwarding {
    /// A frame that leaves by one output at most.
    Whole,
    /// A copy of a frame that others get as well.
    Copy {
        /// The flow of its first receiver.
        flow: FlowKey,
        /// Whether the promise of the frame counts: no other copy follows.
        counts: bool,
    },
}

/// Why no output leads to a process.
enum NoOutput {
    /// No such process is known.
    Unknown,
    /// The path leads back to where the frame came from.
    Back,
}

/// A switch. In the form of a chip every passing frame is rewritten with what all inputs together
/// promise; in the other forms only beacons carry that: see [`Form`].
///
/// Before its first `handle_*` it does not know the time: `poll_timeout` is due at once, and the
/// driver's first `handle_timeout` starts it. For [`Config::start_wait_ns`] from there, or until
/// all inputs have promised, it advertises no barrier: it sends no beacons, and frames pass with a
/// promise that raises nothing anywhere.
///
/// # What one bad input can do
/// A minimum is only as good as its live inputs. An input that promises too little holds the
/// barrier until its link times out or it catches up. One that promises too much can raise a
/// barrier only where it is the only live input; but a barrier hours ahead would stop every clock
/// for hours, so a frame with a promise beyond [`Config::ahead_ns_max`] is dropped as a whole and
/// does not keep its link alive: it dies like an idle one. Clamping the promise instead would keep
/// the link alive and let messages from far in the future pile up at their receivers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    config: Config,
    clock: Clock,
    start: Start,
    aggregator: Aggregator,
    links: Links,
    joiners: Joiners,
    leavers: Leavers,
    liveness: Liveness,
    beacons: Beacons,
    demand: Demand,
    /// The frames with several receivers that are being copied, at most one from each input: the
    /// driver may pass a frame of another input in between.
    replications: Vec<Replication>,
    /// `None`: acknowledgements pass alone.
    ack_bundles: Option<Box<AckBundles>>,
    /// The acknowledgements of one bundle, between two of its stages; empty between calls.
    due_acks: Vec<BundledAck>,
    /// `None` without controllers: dead links are dropped, not frozen.
    control: Option<Box<Control>>,
    events: BoundedQueue<SwitchEvent>,
    stats: Stats,
}

impl Switch {
    /// Creates a switch without any state.
    ///
    /// # Errors
    /// When the configuration is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let ports = config.port_count();
        let timeout_ns = |ns| if makes(Mistake::DeadLinkRetained) { 0 } else { ns };
        Ok(Self {
            clock: Clock::new(config.ahead_ns_max),
            start: Start::new(config.start_wait_ns),
            aggregator: Aggregator::new(config.lower_ports, config.upper_ports),
            links: Links::new(&config),
            joiners: Joiners::new(&config),
            leavers: Leavers::new(ports),
            liveness: Liveness::new(timeout_ns(config.idle_timeout_ns())),
            beacons: Beacons::new(config.beacon_interval_ns, config.eager_beacons, ports),
            demand: Demand::new(
                ports,
                config.beacon_interval_ns,
                config.heartbeat_interval_ns,
                timeout_ns(config.link_timeout_ns),
            ),
            replications: Vec::new(),
            ack_bundles: (config.ack_bundle_ns > 0)
                .then(|| Box::new(AckBundles::new(config.ack_bundle_ns, config.frame_len_max))),
            due_acks: Vec::new(),
            control: Control::new(&config).map(Box::new),
            // One call changes each link at most once, with up to three events.
            events: BoundedQueue::new(3 * usize::from(ports) + 1),
            stats: Stats::default(),
            config,
        })
    }

    /// Returns the configuration; a [`onepipe_topology::Route::ForwardingTable`] as learned since.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    //= spec/ordering.md#R16
    /// Reads the clock; starts the timers at the first call.
    #[inline]
    fn observe_time(&mut self, now: Now) -> Time {
        if !self.start.is_advertising()
            && self.start.on_call(now.mono, self.aggregator.has_all_inputs())
        {
            self.beacons.start(now);
        }
        self.clock.read(now)
    }

    fn notify(&mut self, event: SwitchEvent) {
        self.stats.events_lost += u64::from(!self.events.push(event));
    }

    /// Returns the output for a frame from `input`, or for one of this switch.
    #[inline]
    fn output(&self, input: Option<Port>, flow: FlowKey) -> Result<Port, NoOutput> {
        let next = self.config.route.next(flow.dst).ok_or(NoOutput::Unknown)?;
        let next_hops = self.config.next_hops(next, input).ok_or(NoOutput::Back)?;
        Ok(self.choose(next_hops, flow))
    }

    #[inline]
    fn on_passing(
        &mut self,
        reference: Timestamp,
        input: Port,
        flow: FlowKey,
        frame: &mut [u8],
    ) -> Verdict {
        let output = match self.output(Some(input), flow) {
            Ok(output) => output,
            Err(NoOutput::Unknown) => return count_drop(&mut self.stats.dropped_unknown),
            Err(NoOutput::Back) => return count_drop(&mut self.stats.dropped_back),
        };
        if !self.config.form.counts_frames(self.aggregator.is_upper(output)) {
            return self.pass_without_promise(reference, output, frame);
        }
        let verdict = self.forward(reference, output, frame);
        debug_assert!(
            self.aggregator.advertised(output).is_some()
                || !self.start.is_advertising()
                || self.control.is_some()
                || self.aggregator.promised(input).is_none(),
            "the frame's own input feeds its output, if it is fed itself"
        );
        verdict
    }

    /// Forwards a frame with the promise of the output, if there is one.
    #[inline]
    fn forward(&mut self, reference: Timestamp, output: Port, frame: &mut [u8]) -> Verdict {
        let is_advertising = self.start.is_advertising();
        let advertised = if is_advertising { self.advertise(reference, output) } else { None };
        let promises = advertised.or_else(|| self.aggregator.advertised(output));
        //= spec/ordering.md#R12
        if !pass_hop(frame, Some(promises.unwrap_or_else(|| no_promise(reference)))) {
            return count_drop(&mut self.stats.dropped_hops);
        }
        if advertised.is_some() {
            self.beacons.on_forwarded(output);
        } else {
            self.stats.forwarded_without_promise += 1;
        }
        self.stats.forwarded += 1;
        Verdict::Forward(output)
    }

    /// Forwards a frame to a link on which only beacons carry promises.
    #[inline]
    fn pass_without_promise(
        &mut self,
        reference: Timestamp,
        output: Port,
        frame: &mut [u8],
    ) -> Verdict {
        // A receiver that takes the frame's promise for that of the link must not be misled by a
        // frame that leaves an edge.
        if self.config.form == Form::Edge && !pass_hop(frame, Some(no_promise(reference))) {
            return count_drop(&mut self.stats.dropped_hops);
        }
        self.stats.forwarded += 1;
        Verdict::Forward(output)
    }

    /// Chooses one of several equal next hops, the same for all flows of a process to one host: the
    /// spread's choice or, when that link is dead, the next live one after it, so that the loss of
    /// one link of a bundle, or of one root, costs a timeout and not a share of all flows
    /// permanently.
    #[inline]
    fn choose(&self, next_hops: PortRange, flow: FlowKey) -> Port {
        if next_hops.count() == 1 {
            return next_hops.first();
        }
        let flow = FlowKey { dst: self.config.route.first_of_host(flow.dst), ..flow };
        let chosen = self.config.spread.choose(next_hops, self.config.switch.0, flow);
        if self.aggregator.is_live(chosen) {
            return chosen;
        }
        let index = u32::from(chosen.0 - next_hops.first().0);
        let output = self.view().live_next_hop(next_hops, index);
        let is_live = |port: Port| self.aggregator.is_live(port);
        debug_assert!(is_live(output) || !next_hops.iter().any(is_live), "over a dead link");
        output
    }

    /// Requests a beacon for every output on which more could be advertised.
    fn request_updates(&mut self) {
        for port in self.links.linked().iter() {
            if self.aggregator.has_update(port, self.may_advertise_commit(port)) {
                self.beacons.request_rise(port);
            }
        }
    }

    /// Handles a frame, or a copy of one.
    #[inline]
    fn on_frame(
        &mut self,
        time: Time,
        port: Port,
        frame: &mut [u8],
        forwarding: Forwarding,
    ) -> Verdict {
        let Time { mono: now, reference } = time;
        let Ok((ref header, opcode)) = parse_header(frame) else {
            return count_drop(&mut self.stats.dropped_malformed);
        };
        //= spec/failure.md#R19
        if opcode.is_control() {
            return self.on_control(time, port, frame);
        }
        // The drivers of the two nodes take them.
        if matches!(opcode, Opcode::JoinAnswer | Opcode::Members) {
            return count_drop(&mut self.stats.dropped_misplaced);
        }
        let (flow, counts) = match forwarding {
            Forwarding::Whole => {
                (FlowKey { src: header.src(), dst: header.dst(), psn: header.psn() }, true)
            }
            Forwarding::Copy { flow, counts } => (flow, counts),
        };
        let carries_promise = self.config.form.counts_frames(self.aggregator.is_upper(port));
        if !carries_promise && !opcode.is_hop_only() {
            self.learn(port, header);
            return self.on_passing(reference, port, flow, frame);
        }
        let Some(promises) = self.clock.promises(header, reference) else {
            return count_drop(&mut self.stats.dropped_ahead);
        };
        let message_ts = header.message_ts(reference);
        let is_unfed = opcode.is_beacon() && header.has(Flags::UNFED);
        let holds_commits = header.has(Flags::HOLDS);
        let is_on_demand = header.has(Flags::ON_DEMAND);
        // A Join that was relayed says nothing about the mode of this link.
        if opcode.is_beacon() || (opcode == Opcode::Join && is_on_demand) {
            self.demand.set_on_demand(port, is_on_demand);
        }
        match opcode {
            Opcode::Leave if self.is_leave_repeated(port, header) => return Verdict::Consumed,
            Opcode::LeaveAck => return count_drop(&mut self.stats.dropped_misplaced),
            _ => {}
        }
        let mut is_accepted = true;
        if let Some(control) = &self.control {
            if control.is_declared_dead(header, opcode) {
                let speaker = header.sender().filter(|_| opcode.is_beacon());
                return self.on_declared_dead(port, speaker);
            }
            match self.check_link(now, port, header, opcode) {
                LinkCheck::Accepted => {}
                LinkCheck::Ignored => is_accepted = false,
                LinkCheck::Refused(verdict) => return verdict,
            }
        } else if let (true, Some(instance)) = (opcode.is_hop_only(), header.sender()) {
            let update = self.links.on_hello(port, instance, header);
            if let PeerUpdate::NewInstance(_) = update {
                self.demand.on_new_peer(port);
            }
        }
        if opcode == Opcode::Leave {
            let last = (is_accepted && self.control.is_some()).then_some(promises);
            return self.on_leave(now, port, header, last);
        }
        if !is_accepted {
            self.stats.ignored += 1;
        } else if is_unfed {
            self.on_unfed(now, port, promises, holds_commits);
        } else if counts {
            self.on_promises(now, port, promises);
        }
        if opcode == Opcode::Join {
            return self.on_join(port, header);
        }
        self.learn(port, header);
        match opcode {
            Opcode::Beacon => {
                self.stats.beacons_received += 1;
                if is_accepted {
                    self.aggregator.on_peer_report(port, message_ts);
                }
                Verdict::Consumed
            }
            Opcode::Solicit => {
                self.stats.beacons_received += 1;
                if is_accepted {
                    self.on_solicit(time, port, message_ts);
                }
                Verdict::Consumed
            }
            Opcode::ReliableAck
                if self.ack_bundles.is_some() && self.bundles_ack(now, port, flow, frame) =>
            {
                Verdict::Consumed
            }
            _ => {
                let awaits_barrier = opcode.has_messages() && !header.has(Flags::UNORDERED);
                let verdict = self.on_passing(reference, port, flow, frame);
                if let Verdict::Forward(output) = verdict
                    && awaits_barrier
                {
                    // The frame that ends a burst promises more than the burst's timestamps.
                    let last = message_ts.max(promises.barrier.saturating_sub_ns(1));
                    let is_process =
                        !self.aggregator.is_upper(output) && !self.links.is_switch_at(output);
                    self.demand.on_message(now, port, output, last, is_process);
                }
                verdict
            }
        }
    }
}

impl Machine for Switch {
    type Event = SwitchEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let time = self.observe_time(now);
        if port.0 >= self.config.port_count() {
            return count_drop(&mut self.stats.dropped_port);
        }
        let verdict = match header_unchecked(frame).is_some_and(|header| header.is_shared()) {
            true => self.on_shared(time, port, frame),
            false => self.on_frame(time, port, frame, Forwarding::Whole),
        };
        debug_assert_ne!(verdict, Verdict::Forward(port), "a frame is sent back");
        self.debug_check();
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.observe_time(now);
        let wait_ns = self.config.link_timeout_ns;
        if self.start.has_ended(now.mono, wait_ns) {
            self.joiners.on_uplink_ready();
        }
        if let Some(deadline) = self.liveness.check(now.mono) {
            let deadline = deadline.min(self.demand.deadline(now.mono));
            if self.control.is_none() {
                self.aggregator.expire(deadline, |port| self.links.on_found_dead(port));
            }
            while self.control.is_some()
                && let Some(port) = self.aggregator.idle_since(deadline)
            {
                self.take_down(port, Cause::TimedOut, SwitchEvent::LinkLost(port));
            }
            self.liveness.on_checked(now.mono, self.aggregator.oldest_update());
            while let Some(port) = self.links.pop_dead() {
                self.on_link_down(port, SwitchEvent::LinkLost(port));
            }
        }
        self.expire_unanswered(now.mono);
        self.on_control_timeout(now.mono);
        self.on_beacon_instant(now);
        self.debug_check();
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let time = self.observe_time(now);
        let reference = time.reference;
        if !self.start.is_advertising() {
            return None;
        }
        loop {
            if let Some(transmit) = self.poll_leave_ack(reference, slot) {
                return Some(transmit);
            }
            if let Some(transmit) = self.poll_solicit(reference, slot) {
                return Some(transmit);
            }
            if let Some(transmit) = self.poll_ack_bundle(time, slot) {
                return Some(transmit);
            }
            while let Some(port) = self.beacons.pop() {
                if let Some(transmit) = self.write_beacon(reference, port, None, slot) {
                    return Some(transmit);
                }
            }
            if let Some(transmit) = self.poll_control(time, slot) {
                return Some(transmit);
            }
            if self.demand.is_on_demand() {
                if !self.advance_demand(now) {
                    return None;
                }
                continue;
            }
            if !self.beacons.take_rise(&self.aggregator) {
                return None;
            }
            self.request_updates();
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<SwitchEvent> {
        self.events.pop()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        let links = Mono::earlier(self.liveness.due(), self.demand.due());
        let next = Mono::earlier(self.beacons.due(), links);
        let next = match &self.ack_bundles {
            Some(bundles) if self.start.is_advertising() => Mono::earlier(next, bundles.due()),
            _ => next,
        };
        let next = match &self.control {
            Some(control) if self.start.is_advertising() => Mono::earlier(next, control.due()),
            _ => next,
        };
        Mono::earlier(next, self.start.due())
    }
}
