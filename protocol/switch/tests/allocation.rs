//! The steady state takes nothing from the heap.

mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use onepipe_base::{Machine, Port};
use onepipe_switch::{Config, Switch};
use onepipe_topology::{Node, Shape, Topology};
use onepipe_wire::Opcode;
use rig::{at, both, frame, star};

std::thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: hands every call on to the system's allocator, unchanged; the count is a plain
// thread-local integer that needs no allocation of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn drive(switch: &mut Switch, ports: u16, processes: u32, rounds: u64) {
    let mut slot = [0; 256];
    for round in 0..rounds {
        let now = at(1_000 + round * 700);
        for port in 0..ports {
            let opcode = match (round + u64::from(port)) % 16 {
                0 => Opcode::Beacon,
                1 => Opcode::Leave,
                2 => Opcode::Join,
                _ => Opcode::Data,
            };
            let dst = (round as u32 + u32::from(port) * 7) % processes;
            let mut octets = frame(opcode, port.into(), dst, both(1_000 + round * 700));
            switch.handle_frame(now, Port(port), &mut octets);
        }
        switch.handle_timeout(now);
        while switch.poll_transmit(now, &mut slot).is_some() {}
        while switch.poll_event().is_some() {}
    }
}

#[test]
fn no_frame_beacon_join_leave_or_timeout_allocates() {
    let topology = Topology::new(Shape::testbed(), 2).expect("small");
    let tor = topology.route(Node::Switch(onepipe_base::SwitchId(0)));
    for (config, ports, processes) in [
        (Config { eager_beacons: true, beacon_interval_ns: 3_000, ..star(40) }, 40, 60),
        (Config::new(8, 8, tor), 16, 64),
    ] {
        let mut switch = Switch::new(config).expect("valid");
        let before = TAKEN.get();
        drive(&mut switch, ports, processes, 2_000);
        assert_eq!(TAKEN.get() - before, 0, "allocations in 2000 rounds");
        let stats = switch.stats();
        assert!(stats.forwarded > 10_000 && stats.beacons_sent > 1_000, "{stats:?}");
    }
    let before = TAKEN.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(TAKEN.get() - before, 1, "the counter counts");
}
