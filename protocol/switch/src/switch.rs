//! The composer: takes frames and time, asks the stages, and counts.

use onepipe_base::{
    Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp, Transmit, Verdict,
};
use onepipe_topology::{Next, PortRange, Route};
use onepipe_wire::{HEADER_OCTETS, Opcode, peek};

use crate::beacon::{Beacons, write_beacon};
use crate::clock::{Clock, no_promise};
use crate::event::Events;
use crate::form::chip;
use crate::halves::Halves;
use crate::liveness::Liveness;
use crate::port_set::PortSet;
use crate::{Config, ConfigError, Stats, SwitchEvent};

/// A switch in chip form: every frame that passes is rewritten to say what all inputs together
/// promise.
///
/// Before its first `handle_*` it has no idea of the time: `poll_timeout` is due at once, and the
/// driver's first `handle_timeout` starts it. For [`Config::start_wait_ns`] from there, or until it
/// has heard all inputs, it tells no barrier: it sends no beacons, and frames pass with a promise
/// that raises nothing anywhere.
///
/// # What one bad input can do
/// A minimum is only as good as its live inputs. An input that promises too little holds the
/// barrier until its link times out or it catches up. One that promises too much can raise a
/// barrier only where it is the only live input; but a barrier hours ahead would stop everybody's
/// clock for hours, so a frame with a promise beyond [`Config::ahead_ns_max`] is dropped whole and
/// its link not heard: it dies like a silent one. Clamping the promise instead would keep the link
/// alive and let messages from far in the future pile up at their receivers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    config: Config,
    clock: Clock,
    /// When it starts to tell barriers; `None` before the first call.
    speaks_at: Option<Mono>,
    speaks: bool,
    halves: Halves,
    /// Outputs that get beacons: all of a tree; of a table's lower ports the live ones.
    linked: PortSet,
    liveness: Liveness,
    /// Links found dead in the search under way; empty between calls.
    lost: PortSet,
    beacons: Beacons,
    /// Something was heard since eager beacons were last considered.
    has_news: bool,
    events: Events,
    stats: Stats,
}

impl Switch {
    /// A switch that has heard nothing.
    ///
    /// # Errors
    /// When the configuration is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let ports = config.lower_ports + config.upper_ports;
        let mut linked = PortSet::new(ports);
        let first = if config.route.is_learned() { config.lower_ports } else { 0 };
        (first..ports).for_each(|port| linked.insert(Port(port)));
        Ok(Self {
            clock: Clock::new(config.ahead_ns_max),
            speaks_at: None,
            speaks: false,
            halves: Halves::new(config.lower_ports, config.upper_ports),
            linked,
            liveness: Liveness::new(config.link_timeout_ns),
            lost: PortSet::new(ports),
            beacons: Beacons::new(config.beacon_interval_ns, ports),
            has_news: false,
            // One mutation changes each link at most once.
            events: Events::new(2 * usize::from(ports)),
            stats: Stats::default(),
            config,
        })
    }

    /// What it was set up with; a [`Route::Table`] as learned since.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether `port` takes part in the barriers.
    pub fn is_live(&self, port: Port) -> bool {
        port.index() < self.port_count() && self.halves.is_live(port)
    }

    /// Tells that `port` leads to nobody any more, and may lead to somebody else from now on: its
    /// promise, its route and what it was told are forgotten. Takes time in proportion to the route
    /// table.
    pub fn unplug(&mut self, port: Port) {
        if port.index() >= self.port_count() {
            return;
        }
        self.take_out(port, SwitchEvent::LinkLeft(port));
        self.halves.forget_told(port);
        if let Route::Table(table) = &mut self.config.route {
            table.forget_port(port);
        }
    }

    fn port_count(&self) -> usize {
        usize::from(self.config.lower_ports) + usize::from(self.config.upper_ports)
    }

    /// Notes the time; at the first call starts the timers.
    #[inline]
    fn on_now(&mut self, now: Now) -> Timestamp {
        if !self.speaks {
            let at = *self.speaks_at.get_or_insert_with(|| {
                self.beacons.start(now);
                now.mono.after_ns(self.config.start_wait_ns)
            });
            self.speaks = now.mono >= at || self.halves.has_heard_all();
        }
        self.clock.read(now)
    }

    #[inline]
    fn on_heard(&mut self, now: Mono, port: Port, promises: Promises) {
        self.has_news = true;
        if self.halves.hear(now, port, promises) {
            self.linked.insert(port);
            self.liveness.on_joined(now);
            self.notify(SwitchEvent::LinkJoined(port));
        }
    }

    /// Takes a link that may be live out of the barriers.
    fn take_out(&mut self, port: Port, event: SwitchEvent) {
        if self.halves.remove(port) {
            self.on_taken_out(port, event);
        }
    }

    fn on_taken_out(&mut self, port: Port, event: SwitchEvent) {
        self.has_news = true;
        if self.config.route.is_learned() && !self.halves.is_upper(port) {
            self.linked.remove(port);
        }
        self.notify(event);
    }

    fn notify(&mut self, event: SwitchEvent) {
        self.stats.events_lost += u64::from(!self.events.push(event));
    }

    /// Any frame shows where its sender sits. A process repeats its join only until it has heard
    /// something, so a switch that lost the join, or restarted with an empty table, must not depend
    /// on another one. The beacons of other switches bear no process and teach nothing.
    #[inline]
    fn learn(&mut self, port: Port, src: ProcessId) {
        if let Route::Table(table) = &mut self.config.route
            && port.0 < self.config.lower_ports
        {
            table.learn(src, port);
        }
    }

    /// A process says that it sits behind `port`. It is told the barrier at once, so that it can
    /// lift its floor: until then its old promise holds everybody.
    fn on_join(&mut self, port: Port, src: ProcessId) -> Verdict {
        let upper = self.halves.is_upper(port);
        let fits = !upper
            && match &mut self.config.route {
                Route::Table(table) => table.learn(src, port),
                Route::Tree(_) => leads_to(self.config.route.next(src), port),
            };
        if !fits {
            return drop_as(&mut self.stats.dropped_misplaced);
        }
        self.stats.joins_heard += 1;
        self.beacons.owe(port);
        Verdict::Consumed
    }

    /// A process takes its leave: its link waits for no timeout.
    fn on_leave(&mut self, port: Port, src: ProcessId) -> Verdict {
        let sits_there = leads_to(self.config.route.next(src), port);
        if !sits_there {
            return drop_as(&mut self.stats.dropped_misplaced);
        }
        if let Route::Table(table) = &mut self.config.route {
            table.forget(src, port);
        }
        self.stats.leaves_heard += 1;
        self.take_out(port, SwitchEvent::LinkLeft(port));
        Verdict::Consumed
    }

    #[inline]
    fn on_passing(
        &mut self,
        reference: Timestamp,
        input: Port,
        to: Passing,
        frame: &mut [u8],
    ) -> Verdict {
        let Some(next) = self.config.route.next(to.dst) else {
            return drop_as(&mut self.stats.dropped_unknown);
        };
        let Some(ways) = self.ways(next, input) else {
            return drop_as(&mut self.stats.dropped_back);
        };
        let output = self.choose(ways, to);
        let telling = if self.speaks { self.halves.tell(output) } else { None };
        debug_assert!(telling.is_some() || !self.speaks, "the frame's own input feeds its output");
        if !chip::pass(frame, telling.unwrap_or_else(|| no_promise(reference))) {
            return drop_as(&mut self.stats.dropped_hops);
        }
        if telling.is_some() {
            self.beacons.on_forwarded(output);
        } else {
            self.stats.forwarded_silent += 1;
        }
        self.stats.forwarded += 1;
        Verdict::Forward(output)
    }

    /// The ports that lead on without leading back: not to where the frame came from, and not up
    /// again once it has come down.
    #[inline]
    fn ways(&self, next: Next, input: Port) -> Option<PortRange> {
        match next {
            Next::Down(ways) => (!ways.contains(input)).then_some(ways),
            Next::Up if self.halves.is_upper(input) || self.config.upper_ports == 0 => None,
            Next::Up => {
                Some(PortRange::new(Port(self.config.lower_ports), self.config.upper_ports))
            }
        }
    }

    /// One of several equal ways: the spread's choice or, when that link is dead, the next live one
    /// behind it, so that the loss of one link of a bundle, or of one root, costs a timeout and not
    /// a share of all flows for good.
    #[inline]
    fn choose(&self, ways: PortRange, to: Passing) -> Port {
        let salt = self.config.switch.0;
        let chosen = self.config.spread.choose(ways, salt, (to.src, to.dst), to.psn);
        if ways.count() == 1 || self.halves.is_live(chosen) {
            return chosen;
        }
        let place = u32::from(chosen.0 - ways.first().0);
        let mut others = (1..u32::from(ways.count())).map(|step| ways.nth(place + step));
        others.find(|port| self.halves.is_live(*port)).unwrap_or(chosen)
    }

    /// Owes a beacon to every output that could be told more than it has been.
    fn owe_news(&mut self) {
        self.has_news = false;
        for port in self.linked.iter() {
            if self.halves.has_news(port) {
                self.beacons.owe(port);
            }
        }
    }
}

/// What the choice of the way needs of a header.
#[derive(Clone, Copy)]
struct Passing {
    src: ProcessId,
    dst: ProcessId,
    psn: Psn,
}

#[inline]
fn leads_to(next: Option<Next>, port: Port) -> bool {
    matches!(next, Some(Next::Down(ways)) if ways.contains(port))
}

#[cold]
fn drop_as(counter: &mut u64) -> Verdict {
    *counter += 1;
    Verdict::Dropped
}

impl Machine for Switch {
    type Event = SwitchEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let reference = self.on_now(now);
        if port.index() >= self.port_count() {
            return drop_as(&mut self.stats.dropped_port);
        }
        let Ok((header, opcode)) = peek(frame) else {
            return drop_as(&mut self.stats.dropped_malformed);
        };
        let Some(promises) = self.clock.promises(header, reference) else {
            return drop_as(&mut self.stats.dropped_ahead);
        };
        let to = Passing { src: header.src(), dst: header.dst(), psn: header.psn() };
        if opcode == Opcode::Leave {
            return self.on_leave(port, to.src);
        }
        self.on_heard(now.mono, port, promises);
        if opcode == Opcode::Join {
            return self.on_join(port, to.src);
        }
        self.learn(port, to.src);
        match opcode {
            Opcode::Beacon => {
                self.stats.beacons_heard += 1;
                Verdict::Consumed
            }
            _ => self.on_passing(reference, port, to, frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.on_now(now);
        if let Some(deadline) = self.liveness.search(now.mono) {
            self.halves.expire(deadline, |port| self.lost.insert(port));
            self.liveness.on_searched(now.mono, self.halves.oldest_heard());
            while let Some(port) = self.lost.pop() {
                self.on_taken_out(port, SwitchEvent::LinkLost(port));
            }
        }
        self.beacons.on_timeout(now, &self.linked);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.on_now(now);
        if !self.speaks {
            return None;
        }
        loop {
            while let Some(port) = self.beacons.pop() {
                // An output that no live input feeds has nothing to say; its neighbour shall find
                // the link silent.
                if let Some(promises) = self.halves.tell(port) {
                    self.stats.beacons_sent += 1;
                    debug_assert!(slot.len() >= HEADER_OCTETS);
                    return Some(Transmit { port, octets: write_beacon(slot, promises) });
                }
            }
            if !(self.config.eager_beacons && self.has_news) {
                return None;
            }
            self.owe_news();
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<SwitchEvent> {
        self.events.pop()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        if self.speaks_at.is_none() {
            return Some(Mono::from_ns(0));
        }
        let speaks_at = if self.speaks { None } else { self.speaks_at };
        let next = Mono::earlier(self.beacons.due(), self.liveness.due());
        Mono::earlier(next, speaks_at)
    }
}
