//! A switch dies in the middle and starts anew with empty registers: processes 0 and 1 below the
//! switch A, A below B, processes 2 and 3 below B.

mod rig;

use onepipe_base::{
    Address, Incarnation, Instance, Machine, Port, ProcessId, Promises, SwitchId, Verdict,
};
use onepipe_switch::{Config, Switch};
use onepipe_topology::{Route, Table};
use onepipe_wire::{HOPS_MAX, Header, Opcode, parse_header, seal_with_hops};
use rig::{Bytes, at, guarded, of_link, process, ts};

const STEP_NS: u64 = 500;
const A: usize = 0;
const B: usize = 1;

/// What a process does of its protocol here: promises, hears, and notes what it is told.
struct Driver {
    instance: Instance,
    /// The switch's life it hears; what that life's predecessors promised holds commits.
    heard: Option<Instance>,
    held: Option<u64>,
    commit: u64,
    told: Option<Promises>,
}

struct World {
    switches: [Switch; 2],
    drivers: Vec<Driver>,
    now: u64,
    /// Nothing below this was committed by process 1 when A died.
    held_at: Option<u64>,
}

fn switch(id: u32, incarnation: u32, upper: u16) -> Switch {
    let route = Route::Table(Table::new(64, upper > 0));
    Switch::new(Config {
        switch: SwitchId(id),
        incarnation: Incarnation(incarnation),
        upper_ports: upper,
        link_timeout_ns: 30_000,
        route,
        ..guarded(3)
    })
    .expect("valid")
}

/// Who is at the other end of a port: `Err` for a process.
fn peer(at_switch: usize, port: Port) -> Result<(usize, Port), usize> {
    match (at_switch, port.0) {
        (A, 3) => Ok((B, Port(2))),
        (B, 2) => Ok((A, Port(3))),
        (A, port) => Err(usize::from(port)),
        (_, port) => Err(2 + usize::from(port)),
    }
}

impl World {
    fn new() -> Self {
        let drivers = (0..4).map(|id| Driver {
            instance: process(id, 1),
            heard: None,
            held: None,
            commit: 0,
            told: None,
        });
        Self {
            switches: [switch(1, 1, 1), switch(2, 1, 0)],
            drivers: drivers.collect(),
            now: 0,
            held_at: None,
        }
    }

    fn give(&mut self, to: usize, port: Port, mut bytes: Bytes) {
        match self.switches[to].handle_frame(at(self.now), port, &mut bytes) {
            Verdict::Forward(output) => self.carry(to, output, bytes),
            Verdict::Consumed | Verdict::Dropped => {}
        }
    }

    fn carry(&mut self, from: usize, port: Port, bytes: Bytes) {
        match peer(from, port) {
            Ok((to, port)) => self.give(to, port, bytes),
            Err(driver) if port.0 < 2 => self.take(driver, &bytes),
            Err(_) => {}
        }
    }

    fn take(&mut self, driver: usize, bytes: &Bytes) {
        let (header, opcode) = parse_header(bytes).expect("well-formed");
        let promises = header.promises(ts(self.now));
        let driver = &mut self.drivers[driver];
        if opcode == Opcode::Beacon && driver.heard != header.sender() {
            if driver.heard.is_some() {
                driver.held = driver.told.map(|told| told.commit.as_ns());
            }
            driver.heard = header.sender();
        }
        let before = driver.told;
        // It does not tell the lives of passing frames apart: it must not need to.
        let commit = match driver.held {
            Some(held) => promises.commit.as_ns().min(held),
            None => promises.commit.as_ns(),
        };
        let commit = onepipe_base::Timestamp::from_ns(commit);
        let fresh = Promises { commit, ..promises };
        driver.told = Some(before.map_or(fresh, |before| before.max(fresh)));
        if let Some(held_at) = self.held_at {
            assert!(commit <= ts(held_at), "{commit:?} told past what is held at {held_at}");
        }
    }

    fn step(&mut self, is_stuck: bool) {
        self.now += STEP_NS;
        for id in 0..self.drivers.len() {
            let driver = &mut self.drivers[id];
            if !(is_stuck && id == 1) {
                driver.commit = self.now.saturating_sub(1_000);
            }
            let promises = Promises { barrier: ts(self.now), commit: ts(driver.commit) };
            let (to, port) = (id / 2, Port((id % 2) as u16));
            let beacon = of_link(Opcode::Beacon, driver.instance, driver.heard, promises);
            self.give(to, port, beacon);
            // Data on all ways, so that passing frames come before beacons do.
            let peer = ProcessId(((id + 2) % 4) as u32);
            let header = Header::new(Opcode::Data, ProcessId(id as u32), peer, Incarnation(1));
            let mut bytes = Bytes::from([0; 52]);
            let header = header.stamped(promises.barrier, promises, onepipe_base::Psn(0));
            seal_with_hops(&mut bytes, header, 0, HOPS_MAX);
            self.give(to, port, bytes);
        }
        for index in [A, B] {
            let now = at(self.now);
            if self.switches[index].poll_timeout().is_some_and(|due| due <= now.mono) {
                self.switches[index].handle_timeout(now);
            }
            let mut slot = [0; 1_472];
            while let Some(sent) = self.switches[index].poll_transmit(now, &mut slot) {
                if let Ok(bytes) = Bytes::try_from(&slot[..sent.bytes]) {
                    self.carry(index, sent.port, bytes);
                }
            }
            while self.switches[index].poll_event().is_some() {}
        }
    }
}

#[test]
fn what_a_former_life_held_no_later_life_lets_pass() {
    let mut world = World::new();
    for _ in 0..100 {
        world.step(false);
    }
    for driver in &world.drivers {
        let told = driver.told.expect("told");
        assert!(told.commit > ts(world.now - 12_000), "{told:?} at {}", world.now);
    }
    // Process 1 sticks: its scattering is not acknowledged. Then it dies, and A freezes its link.
    for _ in 0..10 {
        world.step(true);
    }
    let stuck = world.drivers[1].commit;
    world.switches[A].lose(Port(1));
    world.drivers[1].instance = process(1, 0);
    for _ in 0..20 {
        world.step(true);
    }
    // A starts anew, and remembers nothing.
    world.held_at = Some(stuck);
    let barriers: Vec<_> = world.drivers.iter().map(|driver| driver.told).collect();
    world.switches[A] = switch(1, 2, 1);
    for _ in 0..200 {
        world.step(true);
    }
    for (id, (driver, before)) in world.drivers.iter().zip(barriers).enumerate() {
        if id == 1 {
            continue;
        }
        let (now, before) = (driver.told.expect("told"), before.expect("told"));
        assert!(now.commit <= ts(stuck) && now.commit >= before.commit, "{id}: {now:?}");
        assert!(now.barrier > ts(world.now - 12_000), "{id}: {now:?}: barriers go on");
    }
    let stats = world.switches[B].stats();
    assert_eq!(stats.links_frozen, 1, "{stats:?}");
    let own = Address::Switch(SwitchId(1));
    let heard = world.drivers[0].heard.expect("a switch");
    assert_eq!((heard.address, heard.incarnation), (own, Incarnation(2)));
}
