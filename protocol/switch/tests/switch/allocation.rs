//! The steady state does not allocate.

use crate::harness;

use allocation_counter::measure;
use harness::{OWN, at, both, bytes_of, frame, guarded, of_link, process, star};
use onepipe_base::{Machine, Port};
use onepipe_switch::{Config, Eager, Switch};
use onepipe_topology::{Node, Shape, Topology};
use onepipe_wire::{
    Flags, Flood, FloodAck, FloodId, FloodKind, HEADER_LEN, Header, Opcode, Resolved,
    seal_with_hops,
};

fn drive(switch: &mut Switch, ports: u16, processes: u32, rounds: u64) {
    let mut slot = [0; 1_472];
    for round in 0..rounds {
        let now = at(1_000 + round * 700);
        for port in 0..ports {
            let opcode = match (round + u64::from(port)) % 16 {
                0 => Opcode::Beacon,
                1 => Opcode::Leave,
                2 => Opcode::Join,
                _ => Opcode::Data,
            };
            if let Some(controllers) = switch.config().controllers {
                if round.is_multiple_of(8) {
                    control(switch, round, port, controllers.first.0);
                }
                if port == 0 {
                    continue;
                }
                if round.is_multiple_of(16) {
                    // The frames here contradict each other about two-way links; a switch that
                    // loses a link often needs more and more frames to bring it up again.
                    switch.unplug(Port(port), onepipe_base::Cause::Left);
                }
            }
            let dst = (round as u32 + u32::from(port) * 7) % processes;
            let mut bytes = frame(opcode, port.into(), dst, both(1_000 + round * 700));
            if switch.config().heartbeat_interval_ns > 0 && opcode.is_hop_only() {
                let sender = process(port.into(), 1);
                let header = Header::hop_only(opcode, sender, None, both(1_000 + round * 700));
                bytes = bytes_of(header.flagged(Flags::ON_DEMAND));
            }
            switch.handle_frame(now, Port(port), &mut bytes);
        }
        switch.handle_timeout(now);
        while switch.poll_transmit(now, &mut slot).is_some() {}
        while switch.poll_event().is_some() {}
    }
}

/// Sends what controllers add: confirming beacons, Hello frames, floods and acknowledgements.
fn control(switch: &mut Switch, round: u64, port: u16, controller: u32) {
    let now = at(1_000 + round * 700);
    let instance = if port == 0 { process(controller, 1) } else { process(port.into(), 1) };
    let opcode = if port == 0 { Opcode::Hello } else { Opcode::Beacon };
    harness::put(
        switch,
        now,
        port,
        of_link(opcode, instance, Some(OWN), both(1_000 + round * 700)),
    );
    let mut bytes = [0; HEADER_LEN + 32];
    let id = FloodId { epoch: 1, sequence: round as u32 };
    let last = switch.stats().links_frozen as u32;
    let resolved = (0..2).map(|back| Resolved { owner: OWN, number: last.saturating_sub(back) });
    let (opcode, payload) = match port {
        odd if odd % 2 == 1 => return,
        0 => {
            let written = Flood { id }.write_resume(&mut bytes[HEADER_LEN..], resolved);
            (Opcode::Flood, written.expect("fits").1)
        }
        _ => {
            let ack_from = FloodAck { id, kind: FloodKind::Resume };
            (Opcode::FloodAck, ack_from.write(&mut bytes[HEADER_LEN..]).expect("fits"))
        }
    };
    let header = Header::hop_only(opcode, instance, Some(OWN), both(0));
    let length = seal_with_hops(&mut bytes, header, payload, 0);
    switch.handle_frame(now, Port(port), &mut bytes[..length]);
}

#[test]
fn steady_state_does_not_allocate() {
    let topology = Topology::new(Shape::testbed(), 2).expect("small");
    let tor = topology.route(Node::Switch(onepipe_base::SwitchId(0)));
    for (config, ports, processes) in [
        (Config { eager_beacons: Eager::Always, beacon_interval_ns: 3_000, ..star(40) }, 40, 60),
        (Config::new(8, 8, tor), 16, 64),
        (guarded(40), 40, 60),
        (Config { heartbeat_interval_ns: 100_000, beacon_interval_ns: 3_000, ..star(40) }, 40, 60),
    ] {
        let is_guarded = config.controllers.is_some();
        let is_on_demand = config.heartbeat_interval_ns > 0;
        let mut switch = Switch::new(config).expect("valid");
        if is_guarded {
            // The first deaths allocate the entries for what is held.
            drive(&mut switch, ports, processes, 64);
        }
        let taken = measure(|| drive(&mut switch, ports, processes, 2_000));
        assert_eq!(taken.count_total, 0, "allocations in 2000 rounds");
        let stats = switch.stats();
        assert!(stats.forwarded > 10_000 && stats.beacons_sent > 1_000, "{stats:?}");
        let controlled = [stats.announces_sent, stats.floods_sent, stats.links_resolved];
        assert!(!is_on_demand || stats.solicits_sent > 100, "{stats:?}");
        assert!(!is_guarded || controlled.iter().all(|count| *count > 20), "{stats:?}");
    }
    let taken = measure(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(taken.count_total, 1, "the counter counts");
}
