//! What is no frame of a neighbour: each kind has its verdict, and none has an effect.

use std::net::{Ipv4Addr, SocketAddrV4};

use onepipe_base::{Address, Instance, Port, ProcessId, Promises, WIRE_MODULUS};
use onepipe_dataplane_xdp::{
    Action, Command, Counters, DATAGRAM_HEADERS_LEN, Stamp, release_content,
};
use onepipe_wire::{HOPS_MAX, Header, Opcode, parse_header};

use crate::lab::{DEVICE, FIRST, Lab, Outcome, address, frame, packet, sealed};

fn counters(lab: &Lab) -> Counters {
    lab.kernel.counters().expect("the map is readable")
}

/// Two processes at ports 0 and 2 that have promised, and a switch at port 1.
fn lab() -> Option<Lab> {
    let mut lab = Lab::new(3, false, 1 << 40)?;
    for port in 0..3 {
        let bytes = good(&lab, port, 2 - port);
        lab.run_machine(port as u16, 0, &bytes);
        lab.copy_routes();
        lab.run_kernel(port as u16, 0, &bytes);
    }
    Some(lab)
}

fn good(lab: &Lab, src: u32, dst: u32) -> Vec<u8> {
    frame(Opcode::Data, src, dst, Promises::both(lab.now().sync), HOPS_MAX)
}

/// Runs a packet, and returns the counters that it has raised.
fn raised(lab: &mut Lab, packet: &[u8]) -> (Action, Vec<&'static str>) {
    let before = counters(lab).values();
    let registers = lab.kernel.registers().expect("the map is readable");
    let run = lab.kernel.test_run(DEVICE, packet, 1).expect("a packet that a device could bring");
    if run.action != Action::Redirect {
        let after = lab.kernel.registers().expect("the map is readable");
        let promises = |registers: &[(Port, onepipe_dataplane_xdp::Register)]| {
            registers.iter().map(|(_, known)| (known.barrier, known.commit)).collect::<Vec<_>>()
        };
        assert_eq!(promises(&after), promises(&registers), "a bad frame counts");
    }
    let names = Counters::NAMES.iter().zip(counters(lab).values()).zip(before);
    let raised = names.filter(|((_, after), before)| after > before).map(|((name, _), _)| *name);
    (run.action, raised.collect())
}

//= spec/ordering.md#R35
#[test]
fn each_bad_frame_has_its_verdict() {
    let Some(mut lab) = lab() else { return };
    lab.advance(5_000);
    let bytes = good(&lab, 0, 2);
    let whole = packet(address(0), 0, &bytes);
    assert_eq!(raised(&mut lab, &whole), (Action::Redirect, vec!["forwarded"]));
    let changed = |at: usize, value: u8| {
        let mut changed = whole.clone();
        changed[at] = value;
        changed
    };
    let frame_at = DATAGRAM_HEADERS_LEN;
    // A wrong tag, another version, a tag with a key.
    for at in [frame_at + 5, frame_at + 50, frame_at + 35, frame_at + 28] {
        let packet = changed(at, whole[at] ^ 4);
        assert_eq!(raised(&mut lab, &packet), (Action::Drop, vec!["dropped_malformed"]), "{at}");
    }
    for (at, value) in [(frame_at, 0x1f), (frame_at, 0x21), (frame_at + 3, 0x40 | HOPS_MAX)] {
        let packet = changed(at, value);
        assert_eq!(raised(&mut lab, &packet), (Action::Drop, vec!["dropped_malformed"]), "{at}");
    }
    // Lengths that contradict each other or the packet: IPv4, UDP, and the frame's own.
    for (at, value) in [(17, 1), (39, 1), (39, 0xff), (38, 0xff), (39, 7)] {
        let packet = changed(at, value);
        assert_eq!(raised(&mut lab, &packet), (Action::Drop, vec!["dropped_truncated"]), "{at}");
    }
    for len in [frame_at, frame_at + 1, frame_at + 37, frame_at + 55, whole.len() - 1] {
        let packet = packet(address(0), 0, &whole[frame_at..len]);
        assert_eq!(raised(&mut lab, &packet), (Action::Drop, vec!["dropped_truncated"]), "{len}");
        let (action, names) = raised(&mut lab, &whole[..len]);
        assert_eq!((action, names), (Action::Drop, vec!["dropped_truncated"]), "cut at {len}");
    }
    for len in 14..frame_at {
        assert_eq!(raised(&mut lab, &whole[..len]), (Action::Pass, vec![]), "cut at {len}");
    }
}

#[test]
fn other_traffic_passes_up_untouched() {
    let Some(mut lab) = lab() else { return };
    let whole = packet(address(0), 0, &good(&lab, 0, 2));
    // ARP, IPv6, IP options, TCP, a fragment, the rest of one; another host, another UDP port.
    for (at, value) in [(13, 6), (12, 0x86), (14, 0x46), (23, 6), (20, 0x20), (21, 1)] {
        let mut other = whole.clone();
        other[at] = value;
        assert_eq!(raised(&mut lab, &other), (Action::Pass, vec![]), "{at}");
        let run = lab.kernel.test_run(DEVICE, &other, 1).expect("a valid packet");
        assert_eq!(run.frame, other);
    }
    for at in [33, 37] {
        let mut other = whole.clone();
        other[at] ^= 1;
        assert_eq!(raised(&mut lab, &other), (Action::Pass, vec!["not_ours"]), "{at}");
        assert_eq!(lab.kernel.test_run(DEVICE, &other, 1).expect("a valid packet").frame, other);
    }
}

//= spec/ordering.md#R65
#[test]
fn strangers_and_impostors_pass_up_without_effect() {
    let Some(mut lab) = lab() else { return };
    lab.advance(9_000);
    let stranger = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 99), 1);
    let bytes = good(&lab, 0, 2);
    let stranger_sends = packet(stranger, 0, &bytes);
    assert_eq!(raised(&mut lab, &stranger_sends), (Action::Pass, vec!["unknown_link"]));
    // The address of process 0, and the identity of another one or another incarnation.
    let other = packet(address(0), 0, &good(&lab, 2, 1));
    assert_eq!(raised(&mut lab, &other), (Action::Pass, vec!["misattributed"]));
    let header =
        Header::new(Opcode::Data, ProcessId(0), ProcessId(2), onepipe_base::Incarnation(2));
    let promises = Promises::both(lab.now().sync);
    let header = header.stamped(promises.barrier, promises, onepipe_base::Psn(1));
    let later = packet(address(0), 0, &sealed(header, b"x", 3));
    assert_eq!(raised(&mut lab, &later), (Action::Pass, vec!["misattributed"]));
    // A switch passes frames of others.
    let passed = packet(address(1), 0, &good(&lab, 77, 2));
    assert_eq!(raised(&mut lab, &passed), (Action::Redirect, vec!["forwarded"]));
    // The device is a part of a link: the same address elsewhere is a stranger.
    lab.kernel.stop_link(Port(0)).expect("the map is writable");
    let dead = packet(address(0), 0, &bytes);
    assert_eq!(raised(&mut lab, &dead), (Action::Pass, vec!["unknown_link"]));
}

#[test]
fn frames_of_the_daemon_and_joins_pass_up() {
    let Some(mut lab) = lab() else { return };
    let promises = Promises::both(lab.now().sync);
    for opcode in [Opcode::Leave, Opcode::LeaveAck, Opcode::Hello, Opcode::Members, Opcode::Flood] {
        let bytes = packet(address(0), 0, &frame(opcode, 0, 0, promises, 0));
        assert_eq!(raised(&mut lab, &bytes), (Action::Pass, vec!["control"]), "{opcode:?}");
    }
    let stranger = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 50), 5_000);
    let join = packet(stranger, 0, &frame(Opcode::Join, 9, 0, promises, 1));
    assert_eq!(lab.kernel.joiner([DEVICE], stranger, None), None);
    assert_eq!(raised(&mut lab, &join), (Action::Pass, vec!["unknown_link"]));
    let instance = Instance { address: Address::Process(ProcessId(9)), incarnation: FIRST };
    let found = lab.kernel.joiner([7, DEVICE], stranger, Some(instance)).expect("it has asked");
    assert_eq!((found.ifindex, found.address, found.instance), (DEVICE, stranger, Some(instance)));
    assert_eq!((found.mac, found.own_mac), ([2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 2, 0]));
    assert_eq!(found.own, *crate::lab::LISTEN.ip());
}

/// Computes the tag of a header with timestamps, bit by bit.
fn hop_tag(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes[..28].iter().chain(&bytes[36..56]) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

#[test]
fn unknown_opcodes_and_far_promises_are_dropped() {
    let Some(mut lab) = lab() else { return };
    let mut bytes = good(&lab, 0, 2);
    bytes[1] = 0x3c;
    let tag = hop_tag(&bytes);
    bytes[32..36].copy_from_slice(&tag.to_be_bytes());
    let unknown = packet(address(0), 0, &bytes);
    assert_eq!(raised(&mut lab, &unknown), (Action::Drop, vec!["dropped_opcode"]));
    for ahead in [crate::lab::AHEAD_NS_MAX + 1, WIRE_MODULUS / 2 - 1] {
        let far = Promises::both(lab.now().sync.wrapping_add_ns(ahead));
        let far = packet(address(0), 0, &frame(Opcode::Data, 0, 2, far, 3));
        assert_eq!(raised(&mut lab, &far), (Action::Drop, vec!["dropped_ahead"]));
    }
}

//= spec/ordering.md#R52
#[test]
fn promises_wait_for_the_copies_of_a_shared_frame() {
    let Some(mut lab) = lab() else { return };
    // The daemon's own frames come from another device.
    lab.kernel.set_generator(2).expect("the map is writable");
    let start = lab.now().sync;
    let barrier = |lab: &Lab| lab.kernel.registers().expect("readable")[0].1.barrier;
    let before = barrier(&lab);
    let list = Header::new(Opcode::SharedData, ProcessId(0), ProcessId(u32::MAX), FIRST);
    let promises = Promises::both(start.wrapping_add_ns(50));
    let list = sealed(list.stamped(start, promises, onepipe_base::Psn(0)), &[0; 40], 32);
    let shared = packet(address(0), 0, &list);
    let mut passed = lab.kernel.test_run(DEVICE, &shared, 1).expect("a valid packet").frame;
    let stamp = Stamp::take(&mut passed[DATAGRAM_HEADERS_LEN..]).expect("long enough");
    assert_eq!(passed[DATAGRAM_HEADERS_LEN..], list, "otherwise as it arrived");
    assert_eq!(raised(&mut lab, &shared), (Action::Pass, vec!["detoured"]));
    let later = Promises::both(start.wrapping_add_ns(90));
    let next = packet(address(0), 0, &frame(Opcode::Data, 0, 2, later, 3));
    assert_eq!(raised(&mut lab, &next), (Action::Redirect, vec!["forwarded"]));
    assert_eq!(barrier(&lab), before, "a copy may still lie below");
    let of_frame = promises.barrier.as_ns() % WIRE_MODULUS;
    let release = |lab: &mut Lab, stamp: Stamp| {
        let mut release = vec![0; DATAGRAM_HEADERS_LEN];
        release.extend(release_content(of_frame, of_frame));
        let (headers, content) = release.split_first_chunk_mut().expect("long enough");
        Command::Release { port: Port(0), stamp }.write(content.len(), headers);
        let run = lab.kernel.test_run(2, &release, 1).expect("a valid packet");
        assert_eq!(run.action, Action::Drop);
        barrier(lab)
    };
    let second = Stamp { number: stamp.number + 1, ..stamp };
    for foreign in [
        Stamp { generation: stamp.generation + 1, ..stamp },
        Stamp { generation: 0, number: 0 },
        Stamp { number: second.number + 1, ..stamp },
        Stamp { number: stamp.number - 1, ..stamp },
    ] {
        assert_eq!(release(&mut lab, foreign), before, "{foreign:?} is no frame of the link");
    }
    // The promise of the first frame counts while copies of the second may still lie below others.
    assert_eq!(release(&mut lab, stamp), of_frame);
    assert_eq!(raised(&mut lab, &next).0, Action::Redirect);
    assert_eq!(barrier(&lab), of_frame);
    release(&mut lab, second);
    assert_eq!(raised(&mut lab, &next).0, Action::Redirect);
    assert_eq!(barrier(&lab), later.barrier.as_ns() % WIRE_MODULUS);
    // A frame that passes up without a link must not seem to have a number.
    let mut forged = list.clone();
    forged[28] = 1;
    let stranger = SocketAddrV4::new(Ipv4Addr::new(10, 0, 7, 7), 9);
    let forged = raised(&mut lab, &packet(stranger, 0, &forged));
    assert_eq!(forged, (Action::Drop, vec!["dropped_malformed"]));
}

/// A neighbour that returns at another port keeps its link when the old port is cleared.
#[test]
fn clearing_a_port_leaves_the_same_neighbour_at_another_one() {
    let Some(mut lab) = lab() else { return };
    lab.kernel.disconnect(Port(2)).expect("the map is writable");
    let moved = *lab.kernel.neighbour(Port(0)).expect("it is connected");
    lab.kernel.connect(Port(2), moved).expect("the map is writable");
    lab.kernel.disconnect(Port(0)).expect("the map is writable");
    let bytes = packet(address(0), 0, &good(&lab, 0, 1));
    let (_, names) = raised(&mut lab, &bytes);
    assert!(!names.contains(&"unknown_link"), "{names:?}");
}

/// A beacon of the daemon leaves with what the program has promised by then.
#[test]
fn beacons_of_the_daemon_carry_the_present_promise() {
    let Some(mut lab) = lab() else { return };
    lab.kernel.set_generator(2).expect("the map is writable");
    let old = Promises::both(lab.now().sync.saturating_sub_ns(900_000));
    let mut beacon = vec![0; DATAGRAM_HEADERS_LEN];
    beacon.extend(frame(Opcode::Beacon, 3, 0, old, 0));
    let len = beacon.len() - DATAGRAM_HEADERS_LEN;
    let (headers, _) = beacon.split_first_chunk_mut().expect("long enough");
    Command::Send(Port(2)).write(len, headers);
    let run = lab.kernel.test_run(2, &beacon, 1).expect("a valid packet");
    let Outcome::Forwarded { port, frame } = lab.outcome(&run) else { panic!("{run:?}") };
    let (header, opcode) = parse_header(&frame).expect("its tag was renewed");
    assert_eq!((port, opcode, header.hops()), (2, Opcode::Beacon, 0));
    assert_eq!(header.promises(lab.now().sync), Promises::both(lab.now().sync));
}

#[test]
fn test_run_stays_within_its_buffers() {
    let Some(lab) = lab() else { return };
    for len in [14, 60, 1_500, 3_000] {
        let packet = vec![0xa5; len];
        let run = lab.kernel.test_run(DEVICE, &packet, 3).expect("a valid packet");
        assert_eq!((run.action, run.frame), (Action::Pass, packet));
    }
    assert!(lab.kernel.test_run(DEVICE, &[0; 3], 1).is_err(), "shorter than an Ethernet header");
}
