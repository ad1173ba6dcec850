//! Random histories against a naive model of the formula, and against its purpose.

use crate::harness;

use harness::{at, events, frame, promises_of, put, sent, ts};
use onepipe_base::{Machine, Mono, Promises, Verdict};
use onepipe_switch::{Config, Eager, Switch, SwitchEvent};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{Flags, Opcode};
use proptest::collection::vec;
use proptest::prelude::*;

const LOWER: usize = 4;
const PORTS: usize = 6;
const INTERVAL_NS: u64 = 300;
const TIMEOUT_NS: u64 = 3_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A frame for the process behind a lower port, or, from 4 on, for one above.
    Frame {
        from: usize,
        to: u32,
    },
    Beacon {
        from: usize,
    },
    Join {
        from: usize,
    },
    Leave {
        from: usize,
    },
    Wait {
        ns: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<(Step, u64, u64)>> {
    let port = || 0..PORTS;
    let step = prop_oneof![
        8 => (port(), 0..6u32).prop_map(|(from, to)| Step::Frame { from, to }),
        6 => port().prop_map(|from| Step::Beacon { from }),
        2 => (0..LOWER).prop_map(|from| Step::Join { from }),
        1 => (0..LOWER).prop_map(|from| Step::Leave { from }),
        2 => (1..2 * TIMEOUT_NS).prop_map(|ns| Step::Wait { ns }),
    ];
    // Followed by how far the barrier and the commit promise lie behind the clock.
    vec((step, 0..2_000u64, 0..4_000u64), 1..200)
}

/// The formula of `docs/design/ordering.md`, with no thought of speed.
#[derive(Default)]
struct Model {
    inputs: [Option<Promises>; PORTS],
    last_update: [u64; PORTS],
    advertised: [Option<Promises>; PORTS],
    /// What each output had been sent when each input came up.
    base: [[Option<Promises>; PORTS]; PORTS],
    busy: [bool; PORTS],
    /// Outputs that were last advertised as unfed.
    unfed: [bool; PORTS],
}

impl Model {
    fn update(&mut self, now: u64, port: usize, promises: Promises) -> bool {
        let is_new = self.inputs[port].is_none();
        if is_new {
            self.base[port] = self.advertised;
        }
        self.inputs[port] = Some(self.inputs[port].map_or(promises, |held| held.max(promises)));
        self.last_update[port] = now;
        is_new
    }

    fn minimum(&self, output: usize) -> Option<Promises> {
        let feeds = |input: &usize| match (*input < LOWER, output < LOWER) {
            (true, true) => *input != output,
            (true, false) | (false, true) => true,
            (false, false) => false,
        };
        let fed = (0..PORTS).filter(feeds).filter_map(|input| self.inputs[input]);
        let fed = fed.reduce(Promises::min);
        if output < LOWER { fed.or(self.inputs[output]) } else { fed }
    }

    fn advertise(&mut self, output: usize) -> Option<Promises> {
        let fresh = self.minimum(output)?;
        let advertised = self.advertised[output].map_or(fresh, |advertised| advertised.max(fresh));
        self.unfed[output] = false;
        self.advertised[output] = Some(advertised);
        Some(advertised)
    }

    /// The purpose: a live input sends nothing that lies below a barrier which an output got after
    /// the input came up.
    fn assert_not_late(&self, input: usize, output: usize, sent: Promises) {
        let (base, advertised) = (self.base[input][output], self.advertised[output]);
        let Some(advertised) = advertised else { return };
        for of in [|held: Promises| held.barrier, |held: Promises| held.commit] {
            let rose = base.is_none_or(|base| of(advertised) > of(base));
            assert!(!rose || of(sent) >= of(advertised), "{sent:?} below {advertised:?}");
        }
    }
}

struct Harness {
    switch: Switch,
    model: Model,
    now: u64,
    pending: [bool; PORTS],
    /// What each sender has promised so far; senders never lower a promise.
    senders: [Option<Promises>; PORTS],
}

impl Harness {
    fn new(eager: bool) -> Self {
        let config = Config {
            beacon_interval_ns: INTERVAL_NS,
            link_timeout_ns: TIMEOUT_NS,
            start_wait_ns: 0,
            eager_beacons: if eager { Eager::Always } else { Eager::Never },
            ..Config::new(LOWER as u16, 2, Route::ForwardingTable(ForwardingTable::new(8, true)))
        };
        let mut switch = Switch::new(config).expect("valid");
        switch.handle_timeout(at(0));
        Self {
            switch,
            model: Model::default(),
            now: 0,
            pending: [false; PORTS],
            senders: [None; PORTS],
        }
    }

    /// Time advances, and timers fire when they are due.
    fn wait(&mut self, ns: u64) {
        let end = self.now + ns;
        while let Some(due) = self.switch.poll_timeout().filter(|due| *due <= Mono::from_ns(end)) {
            assert!(due.as_ns() > self.now || self.now == 0, "a timer that is always due");
            self.now = due.as_ns();
            self.switch.handle_timeout(at(self.now));
            self.take_events();
            if (harness::OFFSET_NS + self.now).is_multiple_of(INTERVAL_NS) {
                for port in 0..PORTS {
                    let linked = port >= LOWER || self.model.inputs[port].is_some();
                    self.pending[port] |= linked && !self.model.busy[port];
                    self.model.busy[port] = false;
                }
            }
            self.take_beacons();
        }
        self.now = end;
    }

    fn take_events(&mut self) {
        for event in events(&mut self.switch) {
            let SwitchEvent::LinkLost(port) = event else { panic!("unexpected {event:?}") };
            let port = port.index();
            assert!(self.model.inputs[port].is_some(), "a dead link timed out");
            assert!(self.now - self.model.last_update[port] > TIMEOUT_NS, "timed out too early");
            self.model.inputs[port] = None;
        }
        for port in 0..PORTS {
            let idle_ns = self.now - self.model.last_update[port];
            let bound_ns = TIMEOUT_NS + TIMEOUT_NS / 8 + 2;
            assert!(self.model.inputs[port].is_none() || idle_ns <= bound_ns, "timed out too late");
        }
    }

    fn take_beacons(&mut self) {
        let is_eager = self.switch.config().eager_beacons == Eager::Always;
        for sent in sent(&mut self.switch, at(self.now)) {
            if sent.opcode == Opcode::LeaveAck {
                continue;
            }
            let port = usize::from(sent.port);
            let (before, promises) =
                (self.model.advertised[port], sent.header.promises(at(self.now).sync));
            if sent.header.has(Flags::UNFED) {
                assert_eq!((self.model.minimum(port), port >= LOWER), (None, true));
                let is_again = self.model.unfed[port];
                let is_above = |before: Promises| promises.barrier > before.barrier || is_again;
                assert!(before.is_none_or(is_above), "{promises:?} after {before:?}");
                assert!(
                    before.is_none_or(|before| before.max(promises) == promises),
                    "the mark fell"
                );
                (self.model.advertised[port], self.model.unfed[port]) = (Some(promises), true);
                continue;
            }
            assert_eq!(self.model.advertise(port), Some(promises));
            let was_pending = core::mem::take(&mut self.pending[port]);
            assert!(
                was_pending || (is_eager && before != Some(promises)),
                "a beacon that was not requested"
            );
        }
        for port in 0..PORTS {
            let minimum = self.model.minimum(port);
            assert!(!self.pending[port] || minimum.is_none(), "port {port} did not get its beacon");
            let advertised = self.model.advertised[port];
            let linked = port >= LOWER || self.model.inputs[port].is_some();
            let has_update = minimum.is_some_and(|fresh| {
                advertised.is_none_or(|advertised| advertised.max(fresh) != advertised)
            });
            assert!(
                !(is_eager && linked && has_update),
                "port {port} did not get the risen barrier"
            );
        }
        self.pending = [false; PORTS];
    }

    fn promise(&mut self, from: usize, behind: u64, commit_behind: u64) -> Promises {
        let barrier = ts((self.now + 10_000).saturating_sub(behind));
        let commit = ts((self.now + 10_000).saturating_sub(commit_behind));
        let promises = Promises { barrier, commit };
        let promises = self.senders[from].map_or(promises, |held| held.max(promises));
        self.senders[from] = Some(promises);
        promises
    }

    fn step(&mut self, step: Step, behind: u64, commit_behind: u64) {
        let (from, opcode, to) = match step {
            Step::Wait { ns } => return self.wait(ns),
            Step::Frame { from, to } => (from, Opcode::Data, to),
            Step::Beacon { from } => (from, Opcode::Beacon, 0),
            Step::Join { from } => (from, Opcode::Join, 0),
            Step::Leave { from } => (from, Opcode::Leave, 0),
        };
        self.wait(1);
        let promises = self.promise(from, behind, commit_behind);
        let mut bytes = frame(opcode, from as u32, to, promises);
        let port = onepipe_base::Port(from as u16);
        let verdict = self.switch.handle_frame(at(self.now), port, &mut bytes);
        if opcode != Opcode::Leave && self.model.update(self.now, from, promises) {
            assert_eq!(self.switch.poll_event(), Some(SwitchEvent::LinkJoined(port)));
        }
        match verdict {
            Verdict::Forward(output) => {
                let output = output.index();
                self.model.assert_not_late(from, output, promises);
                assert_eq!(Some(promises_of(&bytes, at(self.now))), self.model.advertise(output));
                assert!(output != from && (from < LOWER || output < LOWER));
                self.model.busy[output] = true;
            }
            Verdict::Consumed if opcode == Opcode::Join => self.pending[from] = true,
            Verdict::Consumed if opcode == Opcode::Leave => {
                let was_live = self.model.inputs[from].take().is_some();
                let event = was_live.then_some(SwitchEvent::LinkLeft(port));
                assert_eq!(self.switch.poll_event(), event);
            }
            Verdict::Consumed => assert_eq!(opcode, Opcode::Beacon),
            Verdict::Dropped => assert!(matches!(opcode, Opcode::Data | Opcode::Leave)),
            Verdict::Replicate(_) => unreachable!("no frame is shared"),
        }
        self.take_beacons();
    }
}

/// Port, opcode, source, destination, both promises.
fn wild() -> impl Strategy<Value = (u16, usize, u32, u32, [u64; 2])> {
    (0u16..9, 0usize..11, 0u32..20, 0u32..20, any::<[u64; 2]>())
}

proptest! {
    #[test]
    fn advertised_barriers_match_the_model(steps in steps(), eager in any::<bool>()) {
        let mut harness = Harness::new(eager);
        for (step, behind, commit_behind) in steps {
            harness.step(step, behind, commit_behind);
        }
        let stats = *harness.switch.stats();
        prop_assert_eq!(stats.events_lost, 0);
        let expected = stats.dropped_unknown + stats.dropped_back + stats.dropped_misplaced;
        prop_assert_eq!(stats.dropped(), expected);
    }

    #[test]
    fn random_bytes_do_not_panic(frames in vec((0u16..9, vec(any::<u8>(), 0..120)), 0..50)) {
        let mut harness = Harness::new(true);
        for (port, mut bytes) in frames {
            let verdict = harness.switch.handle_frame(at(5), onepipe_base::Port(port), &mut bytes);
            prop_assert_eq!(verdict, Verdict::Dropped);
        }
    }

    /// Well-formed headers with random contents: any opcode, any addresses, any promise.
    #[test]
    fn random_headers_do_not_panic(frames in vec(wild(), 0..80)) {
        let mut harness = Harness::new(true);
        for (port, opcode, src, dst, [barrier, commit]) in frames {
            let promises = Promises { barrier: ts(barrier >> 16), commit: ts(commit >> 16) };
            let opcode = Opcode::ALL[opcode % Opcode::ALL.len()];
            put(&mut harness.switch, at(5), port, frame(opcode, src, dst, promises));
            sent(&mut harness.switch, at(5));
        }
    }
}
