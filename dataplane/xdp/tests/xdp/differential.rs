//! Random traces through both switches.

use std::collections::BTreeMap;

use onepipe_base::{Promises, Timestamp, WIRE_MODULUS};
use onepipe_wire::{HOPS_MAX, Opcode, parse_header};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::lab::{AHEAD_NS_MAX, Lab, Outcome, frame, unfed_beacon};

/// Frames of a trace.
const STEPS: usize = 4_000;

struct Trace {
    random: Xoshiro256PlusPlus,
    lab: Lab,
    /// What each link has promised.
    promised: Vec<Promises>,
    /// What was last promised at each output, since its neighbour came.
    advertised: BTreeMap<u16, Promises>,
    lost: Vec<bool>,
    forwarded: usize,
}

impl Trace {
    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    /// Returns the next promises of the link at `port`, mostly higher ones.
    fn next_promises(&mut self, port: u16) -> Promises {
        let sync = self.lab.now().sync;
        let last = self.promised[usize::from(port)];
        let barrier = match self.below(10) {
            0 => last.barrier,
            // An overtaken frame.
            1 => last.barrier.saturating_sub_ns(self.random.next_u64() % 300),
            2..8 => last.barrier.wrapping_add_ns(self.random.next_u64() % 2_000),
            _ => last.barrier.max(sync.saturating_sub_ns(self.random.next_u64() % 5_000)),
        };
        let commit = last.commit.max(barrier.saturating_sub_ns(self.random.next_u64() % 3_000));
        let promises = Promises { barrier, commit };
        self.promised[usize::from(port)] = last.max(promises);
        promises
    }

    /// Returns a process behind `port`, as the sender of a frame.
    fn source(&mut self, port: u16) -> u32 {
        let own = u32::from(port);
        let above = self.lab.is_switch_at(port) && self.below(2) == 0;
        if above { own + 32 } else { own }
    }

    fn step(&mut self) {
        let advance = self.below(400);
        self.lab.advance(advance);
        let port = self.below(self.lab.ports.into()) as u16;
        if self.lost[usize::from(port)] {
            // The frame brings it back; the daemon sees that before the program counts it.
            self.lab.kernel.resume_link(onepipe_base::Port(port)).expect("a known neighbour");
            self.lost[usize::from(port)] = false;
        }
        let kind = self.below(100);
        if kind == 0 {
            self.lab.lose(port);
            self.lost[usize::from(port)] = true;
            return;
        }
        if kind == 1 && port < self.lab.lower_ports {
            self.lab.replace(port);
            self.advertised.remove(&port);
            return;
        }
        let src = self.source(port);
        let dst = self.below(u64::from(self.lab.ports) + 2) as u32 + 32 * self.below(2) as u32;
        let mut promises = self.next_promises(port);
        let mut hops = self.below(u64::from(HOPS_MAX) - 1) as u8 + 1;
        let opcode = match kind {
            2..12 => Opcode::Beacon,
            12..16 => Opcode::Join,
            16..18 => Opcode::Solicit,
            18..24 => Opcode::Foreign,
            24..28 => Opcode::Prop,
            28..40 => Opcode::ReliableData,
            40..50 => Opcode::Ack,
            _ => Opcode::Data,
        };
        if kind == 99 {
            hops = 0;
        }
        if kind == 98 {
            let ahead = AHEAD_NS_MAX + 1 + self.below(1_000_000);
            promises.barrier = self.lab.now().sync.wrapping_add_ns(ahead);
        }
        let bytes = match kind {
            95..97 => unfed_beacon(src, promises),
            _ => frame(opcode, src, dst, promises, hops),
        };
        let tos = if self.below(20) == 0 { 3 } else { 0 };
        self.check(port, tos, &bytes);
    }

    /// Passes a frame to both, and compares.
    fn check(&mut self, port: u16, tos: u8, bytes: &[u8]) {
        let before = *self.lab.machine.stats();
        let expected = self.lab.run_machine(port, tos, bytes);
        self.lab.copy_routes();
        let found = self.lab.run_kernel(port, tos, bytes);
        // What only the daemon can decide passes up to it.
        let after = self.lab.machine.stats();
        let is_up = after.dropped_unknown > before.dropped_unknown
            || after.dropped_misplaced > before.dropped_misplaced;
        let expected = if is_up { Outcome::PassedUp } else { expected };
        let sent = parse_header(bytes).expect("a valid frame");
        assert_eq!(found, expected, "{:?} of port {port}", sent.1);
        let Outcome::Forwarded { port: output, frame } = found else { return };
        self.forwarded += 1;
        let (header, opcode) = parse_header(&frame).expect("its tag was renewed");
        if opcode.is_control() {
            return;
        }
        let promises = header.promises(self.lab.now().sync);
        if let Some(last) = self.advertised.insert(output, promises) {
            assert!(promises.barrier >= last.barrier && promises.commit >= last.commit);
        }
    }
}

/// Runs a trace; returns false where programs cannot be loaded.
fn run(seed: u64, lower_ports: u16, has_upper: bool, origin_ns: u64) -> bool {
    let Some(lab) = Lab::new(lower_ports, has_upper, origin_ns) else { return false };
    let start = lab.now().sync;
    let first = Promises::both(start.saturating_sub_ns(20_000));
    let mut trace = Trace {
        random: Xoshiro256PlusPlus::seed_from_u64(seed),
        promised: vec![first; usize::from(lab.ports)],
        advertised: BTreeMap::new(),
        lost: vec![false; usize::from(lab.ports)],
        forwarded: 0,
        lab,
    };
    for _ in 0..STEPS {
        trace.step();
    }
    assert!(trace.forwarded > STEPS / 16, "only {} frames passed", trace.forwarded);
    let counters = trace.lab.kernel.counters().expect("the map is readable");
    assert_eq!(
        counters.forwarded + counters.forwarded_unfed,
        trace.forwarded as u64,
        "seed {seed}: {counters:?}"
    );
    true
}

/// Starts in both halves of the ring, at its origin, and before its end, which a trace crosses.
const ORIGINS_NS: [u64; 5] =
    [0, 1 << 47, (1 << 47) - 400_000, WIRE_MODULUS - 400_000, 0x1234_5678_9abc];

//= spec/ordering.md#R9
//= spec/ordering.md#R13
#[test]
fn kernel_forwards_as_the_machine_does() {
    for (index, origin_ns) in ORIGINS_NS.into_iter().enumerate() {
        for (lower_ports, has_upper) in [(2, false), (5, true), (32, false), (1, true)] {
            let seed = index as u64 * 100 + u64::from(lower_ports);
            if !run(seed, lower_ports, has_upper, origin_ns) {
                return;
            }
        }
    }
}

//= spec/ordering.md#R14
#[test]
fn promise_of_zero_counts_as_any_other() {
    let Some(mut lab) = Lab::new(2, false, 0) else { return };
    let zero = Timestamp::from_ns(9 * WIRE_MODULUS);
    for (port, promise) in [(0, zero), (1, zero.wrapping_add_ns(5)), (0, zero)] {
        let bytes = frame(Opcode::Data, port, 1 - port, Promises::both(promise), HOPS_MAX);
        lab.run_machine(port as u16, 0, &bytes);
        lab.copy_routes();
        lab.run_kernel(port as u16, 0, &bytes);
    }
    let registers = lab.kernel.registers().expect("the map is readable");
    let barriers: Vec<u64> = registers.iter().map(|(_, register)| register.barrier).collect();
    assert_eq!(barriers, [0, 5]);
    let bytes = frame(Opcode::Data, 1, 0, Promises::both(zero.wrapping_add_ns(9)), HOPS_MAX);
    assert_eq!(lab.run_kernel(1, 0, &bytes), lab.run_machine(1, 0, &bytes));
}
