//! A switch dies and restarts with empty registers: processes 0 and 1 below switch A, A below B,
//! processes 2 and 3 below B.

use crate::harness;

use harness::{Bytes, at, guarded, of_link, process, ts};
use onepipe_base::{
    Address, Incarnation, Instance, Machine, Port, ProcessId, Promises, SwitchId, Verdict,
};
use onepipe_switch::{Config, Switch};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{HEADER_LEN, HOPS_MAX, Header, Opcode, parse_header, seal_with_hops};

const STEP_NS: u64 = 500;
const A: usize = 0;
const B: usize = 1;

/// A minimal process: promises, receives, and records what it is sent.
struct Process {
    instance: Instance,
    /// The instance of its switch; promises of earlier instances hold commits.
    switch_instance: Option<Instance>,
    held: Option<u64>,
    commit: u64,
    advertised: Option<Promises>,
}

struct Network {
    switches: [Switch; 2],
    processes: Vec<Process>,
    now: u64,
    /// Nothing below this was committed by process 1 when A died.
    held_at: Option<u64>,
}

fn switch(id: u32, incarnation: u32, upper: u16) -> Switch {
    let route = Route::ForwardingTable(ForwardingTable::new(64, upper > 0));
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

/// Returns the other end of a port: `Err` for a process.
fn peer(at_switch: usize, port: Port) -> Result<(usize, Port), usize> {
    match (at_switch, port.0) {
        (A, 3) => Ok((B, Port(2))),
        (B, 2) => Ok((A, Port(3))),
        (A, port) => Err(usize::from(port)),
        (_, port) => Err(2 + usize::from(port)),
    }
}

impl Network {
    fn new() -> Self {
        let processes = (0..4).map(|id| Process {
            instance: process(id, 1),
            switch_instance: None,
            held: None,
            commit: 0,
            advertised: None,
        });
        Self {
            switches: [switch(1, 1, 1), switch(2, 1, 0)],
            processes: processes.collect(),
            now: 0,
            held_at: None,
        }
    }

    fn deliver(&mut self, to: usize, port: Port, mut bytes: Bytes) {
        match self.switches[to].handle_frame(at(self.now), port, &mut bytes) {
            Verdict::Forward(output) => self.carry(to, output, bytes),
            Verdict::Consumed | Verdict::Dropped => {}
            Verdict::Replicate(_) => unreachable!("no frame is shared"),
        }
    }

    fn carry(&mut self, from: usize, port: Port, bytes: Bytes) {
        match peer(from, port) {
            Ok((to, port)) => self.deliver(to, port, bytes),
            Err(process_state) if port.0 < 2 => self.receive(process_state, &bytes),
            Err(_) => {}
        }
    }

    fn receive(&mut self, process_state: usize, bytes: &Bytes) {
        let (header, opcode) = parse_header(bytes).expect("well-formed");
        let promises = header.promises(ts(self.now));
        let process_state = &mut self.processes[process_state];
        if opcode == Opcode::Beacon && process_state.switch_instance != header.sender() {
            if process_state.switch_instance.is_some() {
                process_state.held =
                    process_state.advertised.map(|advertised| advertised.commit.as_ns());
            }
            process_state.switch_instance = header.sender();
        }
        let before = process_state.advertised;
        // A process does not distinguish the incarnations of passing frames: it must not need to.
        let commit = match process_state.held {
            Some(held) => promises.commit.as_ns().min(held),
            None => promises.commit.as_ns(),
        };
        let commit = onepipe_base::Timestamp::from_ns(commit);
        let fresh = Promises { commit, ..promises };
        process_state.advertised = Some(before.map_or(fresh, |before| before.max(fresh)));
        if let Some(held_at) = self.held_at {
            assert!(commit <= ts(held_at), "{commit:?} advertised above the hold at {held_at}");
        }
    }

    fn step(&mut self, is_stuck: bool) {
        self.now += STEP_NS;
        for id in 0..self.processes.len() {
            let process_state = &mut self.processes[id];
            if !(is_stuck && id == 1) {
                process_state.commit = self.now.saturating_sub(1_000);
            }
            let promises = Promises { barrier: ts(self.now), commit: ts(process_state.commit) };
            let (to, port) = (id / 2, Port((id % 2) as u16));
            let beacon = of_link(
                Opcode::Beacon,
                process_state.instance,
                process_state.switch_instance,
                promises,
            );
            self.deliver(to, port, beacon);
            // Data on all paths, so that passing frames arrive before beacons.
            let peer = ProcessId(((id + 2) % 4) as u32);
            let header = Header::new(Opcode::Data, ProcessId(id as u32), peer, Incarnation(1));
            let mut bytes = Bytes::from([0; HEADER_LEN]);
            let header = header.stamped(promises.barrier, promises, onepipe_base::Psn(0));
            seal_with_hops(&mut bytes, header, 0, HOPS_MAX);
            self.deliver(to, port, bytes);
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
fn restart_does_not_release_held_commits() {
    let mut network = Network::new();
    for _ in 0..100 {
        network.step(false);
    }
    for process_state in &network.processes {
        let advertised = process_state.advertised.expect("advertised");
        assert!(advertised.commit > ts(network.now - 12_000), "{advertised:?} at {}", network.now);
    }
    // Process 1 is stuck with an unacknowledged scattering. Then it dies, and A freezes its link.
    for _ in 0..10 {
        network.step(true);
    }
    let stuck = network.processes[1].commit;
    network.switches[A].mark_link_lost(Port(1));
    network.processes[1].instance = process(1, 0);
    for _ in 0..20 {
        network.step(true);
    }
    // A restarts without state.
    network.held_at = Some(stuck);
    let barriers: Vec<_> =
        network.processes.iter().map(|process_state| process_state.advertised).collect();
    network.switches[A] = switch(1, 2, 1);
    for _ in 0..200 {
        network.step(true);
    }
    for (id, (process_state, before)) in network.processes.iter().zip(barriers).enumerate() {
        if id == 1 {
            continue;
        }
        let (now, before) =
            (process_state.advertised.expect("advertised"), before.expect("advertised"));
        assert!(now.commit <= ts(stuck) && now.commit >= before.commit, "{id}: {now:?}");
        assert!(now.barrier > ts(network.now - 12_000), "{id}: {now:?}: barriers go on");
    }
    let stats = network.switches[B].stats();
    assert_eq!(stats.links_frozen, 1, "{stats:?}");
    let own = Address::Switch(SwitchId(1));
    let switch_instance = network.processes[0].switch_instance.expect("a switch");
    assert_eq!((switch_instance.address, switch_instance.incarnation), (own, Incarnation(2)));
}
