use super::*;
use onepipe_base::{Cause, Incarnation, Promises, SwitchId, Timestamp};
use onepipe_wire::Header;

const CONTROLLERS: Option<Controllers> = Some(Controllers { first: ProcessId(6), count: 2 });
const CONTROLLER_TIMEOUT_NS: u64 = 100;
const MESH: LinkConfig = LinkConfig {
    kind: Links::Mesh,
    count: 8,
    controllers: CONTROLLERS,
    controller_timeout_ns: CONTROLLER_TIMEOUT_NS,
    beacon_interval_ns: 0,
    heartbeat_interval_ns: 0,
};

fn process(id: u32, incarnation: u32) -> Instance {
    Instance { address: Address::Process(ProcessId(id)), incarnation: Incarnation(incarnation) }
}

fn switch(incarnation: u32) -> Instance {
    Instance { address: Address::Switch(SwitchId(5)), incarnation: Incarnation(incarnation) }
}

fn own() -> Instance {
    process(1, 4)
}

fn uplink(controllers: Option<Controllers>) -> (LinkMonitor, Registers) {
    let config = LinkConfig { kind: Links::Uplink, count: 1, beacon_interval_ns: 10, ..MESH };
    (LinkMonitor::new(own(), LinkConfig { controllers, ..config }), Registers::new(1))
}

fn mesh() -> (LinkMonitor, Registers) {
    (LinkMonitor::new(own(), MESH), Registers::new(8))
}

fn frame(header: &Header, opcode: Opcode) -> Frame<'_> {
    Frame { header: *header, opcode, payload: &[] }
}

fn promises(ns: u64) -> Promises {
    Promises::both(Timestamp::from_ns(ns))
}

/// Receives a frame about its link and applies its promises as the returned event says.
fn send(
    (links, registers): &mut (LinkMonitor, Registers),
    (port, ns): (u16, u64),
    (opcode, instance, peer): (Opcode, Instance, Option<Instance>),
) -> LinkEvent {
    let header = Header::hop_only(opcode, instance, peer, promises(ns));
    let (now, port) = (Mono::from_ns(ns), Port(port));
    let event = links.on_frame(registers, now, port, &frame(&header, opcode));
    let counts = matches!(event, LinkEvent::Good | LinkEvent::Left | LinkEvent::Restarted(_));
    if counts && !opcode.is_control() {
        registers.update(now, port, promises(ns));
    }
    event
}

fn beacon(
    pair: &mut (LinkMonitor, Registers),
    ns: u64,
    instance: Instance,
    peer: Option<Instance>,
) -> LinkEvent {
    send(pair, (0, ns), (Opcode::Beacon, instance, peer))
}

fn announced(
    (links, registers): &(LinkMonitor, Registers),
) -> Vec<(u16, Option<Instance>, LinkState)> {
    links.announced(registers).map(|link| (link.port.0, link.instance, link.state)).collect()
}

//= spec/failure.md#R48
fn frozen(number: u32, ns: u64, cause: Cause) -> LinkState {
    LinkState::Frozen { number, commit: Timestamp::from_ns(ns), cause }
}

fn resolve(
    (links, registers): &mut (LinkMonitor, Registers),
    owner: Instance,
    number: u32,
) -> bool {
    links.resolve(registers, Resolved { owner, number })
}

//= spec/failure.md#R12
#[test]
fn restarted_switch_leaves_a_frozen_link() {
    let mut pair = uplink(CONTROLLERS);
    assert_eq!(beacon(&mut pair, 100, switch(1), None), LinkEvent::Good);
    assert_eq!(announced(&pair), [], "the link is not two-way yet");
    assert_eq!(pair.0.peer(&pair.1, Port(0)), Some(switch(1)));
    assert_eq!(beacon(&mut pair, 110, switch(1), Some(own())), LinkEvent::Good);
    assert_eq!(announced(&pair), [(0, Some(switch(1)), LinkState::Up)]);
    assert_eq!(beacon(&mut pair, 120, switch(2), None), LinkEvent::Restarted(switch(1)));
    assert_eq!(announced(&pair), [(0, Some(switch(1)), frozen(1, 110, Cause::Superseded))]);
    assert_eq!(beacon(&mut pair, 130, switch(1), Some(own())), LinkEvent::Refused);
    assert_eq!(beacon(&mut pair, 140, switch(2), Some(own())), LinkEvent::Good);
    let both = [
        (0, Some(switch(1)), frozen(1, 110, Cause::Superseded)),
        (0, Some(switch(2)), LinkState::Up),
    ];
    assert_eq!(announced(&pair), both);
    let commit =
        |pair: &(LinkMonitor, Registers)| pair.1.minimum().map(|minimum| minimum.commit.as_ns());
    assert_eq!(commit(&pair), Some(110));
    assert!(!resolve(&mut pair, process(1, 3), 1), "owned by a previous incarnation");
    assert!(!resolve(&mut pair, own(), 2), "unknown number");
    assert!(resolve(&mut pair, own(), 1) && !resolve(&mut pair, own(), 1));
    assert_eq!((commit(&pair), announced(&pair)), (Some(140), both[1..].to_vec()));
}

#[test]
fn link_dies_when_the_peer_stops_seeing_us() {
    let mut pair = uplink(CONTROLLERS);
    beacon(&mut pair, 100, switch(1), Some(own()));
    assert_eq!(beacon(&mut pair, 110, switch(1), None), LinkEvent::Dead);
    assert_eq!(announced(&pair), [(0, Some(switch(1)), frozen(1, 100, Cause::OneWay))]);
    assert_eq!(pair.0.peer(&pair.1, Port(0)), None);
    assert_eq!(beacon(&mut pair, 120, switch(1), None), LinkEvent::Refused);
    assert_eq!(beacon(&mut pair, 130, switch(1), Some(process(1, 3))), LinkEvent::Refused);
    assert_eq!(announced(&pair).len(), 1, "the link is still not two-way");
    assert_eq!(beacon(&mut pair, 140, switch(1), Some(own())), LinkEvent::Good);
    assert_eq!(announced(&pair).len(), 2);
}

#[test]
fn timeout_and_leave_freeze_alike() {
    for leaves in [false, true] {
        let mut pair = uplink(CONTROLLERS);
        beacon(&mut pair, 100, switch(1), Some(own()));
        assert!(pair.0.take_changed() && !pair.0.has_changed());
        if leaves {
            let leave = (Opcode::Leave, switch(1), Some(own()));
            assert_eq!(send(&mut pair, (0, 150), leave), LinkEvent::Left);
        }
        assert!(pair.0.on_link_down(&mut pair.1, Port(0), Cause::TimedOut));
        assert!(pair.0.has_changed(), "the change is to be announced");
        assert!(!pair.0.on_link_down(&mut pair.1, Port(0), Cause::TimedOut), "already dead");
        let last = if leaves { 150 } else { 100 };
        assert_eq!(announced(&pair), [(0, Some(switch(1)), frozen(1, last, Cause::TimedOut))]);
    }
}

//= spec/failure.md#R13
#[test]
fn nothing_freezes_without_controllers() {
    let mut pair = uplink(None);
    beacon(&mut pair, 100, switch(1), Some(own()));
    assert_eq!(beacon(&mut pair, 90, switch(2), None), LinkEvent::Restarted(switch(1)));
    assert_eq!(pair.1.minimum(), Some(promises(90)));
    assert!(pair.0.on_link_down(&mut pair.1, Port(0), Cause::TimedOut));
    assert_eq!((pair.1.minimum(), announced(&pair)), (None, Vec::new()));
}

#[test]
fn frozen_links_of_a_flapping_link_are_bounded() {
    let mut pair = uplink(CONTROLLERS);
    for incarnation in 1..100 {
        beacon(&mut pair, 100 + u64::from(incarnation), switch(incarnation), None);
    }
    let dead = announced(&pair);
    assert_eq!((dead.len(), dead[0]), (8, (0, Some(switch(1)), frozen(1, 101, Cause::Superseded))));
    assert_eq!(dead[7], (0, Some(switch(98)), frozen(98, 108, Cause::Superseded)));
}

#[test]
fn instance_declared_dead_is_ignored() {
    let mut pair = uplink(CONTROLLERS);
    beacon(&mut pair, 100, switch(2), Some(own()));
    let declare =
        |pair: &mut (LinkMonitor, Registers), instance| pair.0.declare_dead(&mut pair.1, instance);
    assert!(!declare(&mut pair, process(2, 9)) && !declare(&mut pair, switch(1)));
    assert_eq!(beacon(&mut pair, 105, switch(2), Some(own())), LinkEvent::Good);
    assert!(declare(&mut pair, switch(2)) && !declare(&mut pair, switch(2)));
    assert_eq!(announced(&pair), [(0, Some(switch(2)), frozen(1, 105, Cause::Fenced))]);
    assert_eq!(beacon(&mut pair, 110, switch(2), Some(own())), LinkEvent::Refused);
    assert_eq!(beacon(&mut pair, 120, switch(3), None), LinkEvent::Restarted(switch(2)));
    assert!(!declare(&mut pair, switch(1)), "an earlier incarnation is dead already");
    assert!(resolve(&mut pair, own(), 1));
    assert_eq!(beacon(&mut pair, 125, switch(2), None), LinkEvent::Refused, "permanently");
    assert_eq!(beacon(&mut pair, 130, switch(3), None), LinkEvent::Good);

    let mut pair = mesh();
    assert!(!declare(&mut pair, process(3, 2)), "not seen yet");
    let peer = |pair: &mut (LinkMonitor, Registers), incarnation| {
        let instance = process(3, incarnation);
        pair.0.on_peer_instance(&mut pair.1, Mono::from_ns(9), Port(3), instance)
    };
    assert_eq!((peer(&mut pair, 2), peer(&mut pair, 3)), (LinkEvent::Refused, LinkEvent::Good));
}

#[test]
fn any_mesh_frame_shows_its_senders_incarnation() {
    let mut pair = mesh();
    let from = |pair: &mut (LinkMonitor, Registers), ns, opcode, incarnation| {
        let (src, dst) = (ProcessId(3), ProcessId(1));
        let header = Header::new(opcode, src, dst, Incarnation(incarnation));
        let now = Mono::from_ns(ns);
        let event = pair.0.on_frame(&mut pair.1, now, Port(3), &frame(&header, opcode));
        if matches!(event, LinkEvent::Good | LinkEvent::Restarted(_)) {
            pair.1.update(now, Port(3), promises(ns));
        }
        event
    };
    assert_eq!(from(&mut pair, 10, Opcode::Data, 2), LinkEvent::Good);
    assert_eq!(from(&mut pair, 20, Opcode::ReliableAck, 2), LinkEvent::Good);
    assert_eq!(announced(&pair), [(3, Some(process(3, 2)), LinkState::Up)]);
    assert_eq!(from(&mut pair, 30, Opcode::Data, 3), LinkEvent::Restarted(process(3, 2)));
    assert_eq!(from(&mut pair, 40, Opcode::Data, 2), LinkEvent::Refused);
    let both = [
        (3, Some(process(3, 2)), frozen(1, 20, Cause::Superseded)),
        (3, Some(process(3, 3)), LinkState::Up),
    ];
    assert_eq!(announced(&pair), both);
    let (links, registers) = &mut pair;
    let event = links.on_peer_instance(registers, Mono::from_ns(50), Port(3), process(3, 4));
    assert_eq!(event, LinkEvent::Restarted(process(3, 3)));
    let oneself = links.on_peer_instance(registers, Mono::from_ns(50), Port(1), process(1, 4));
    assert_eq!(oneself, LinkEvent::Refused);
    let nowhere = links.on_peer_instance(registers, Mono::from_ns(50), Port(9), process(9, 4));
    assert_eq!(nowhere, LinkEvent::Refused);
}

#[test]
fn controller_link_is_up_while_hellos_arrive() {
    let mut pair = mesh();
    let hello = (Opcode::Hello, process(7, 1), None);
    assert_eq!(send(&mut pair, (7, 1_000), hello), LinkEvent::Good);
    assert_eq!(announced(&pair), [(7, Some(process(7, 1)), LinkState::Up)]);
    assert_eq!((pair.1.live_count(), pair.0.deadline()), (0, Some(Mono::from_ns(1_101))));
    assert!(pair.0.take_changed());
    pair.0.on_timeout(Mono::from_ns(1_100));
    assert!(!pair.0.has_changed());
    pair.0.on_timeout(Mono::from_ns(1_101));
    assert!(pair.0.has_changed() && announced(&pair).is_empty());
    send(&mut pair, (7, 1_200), hello);
    assert!(pair.0.on_link_down(&mut pair.1, Port(7), Cause::TimedOut), "unlinked");
    assert!(announced(&pair).is_empty() && pair.0.deadline().is_none());
}

//= spec/failure.md#R37
#[test]
fn beacons_repeat_the_peer_seen_on_the_uplink() {
    let mut pair = uplink(None);
    assert!(!pair.0.take_beacon(Mono::from_ns(5)) && pair.0.beacon_due().is_none());
    beacon(&mut pair, 100, switch(1), None);
    assert!(pair.0.wants_beacon() && pair.0.take_beacon(Mono::from_ns(100)));
    beacon(&mut pair, 101, switch(1), None);
    assert!(!pair.0.wants_beacon() && !pair.0.take_beacon(Mono::from_ns(101)));
    assert_eq!(pair.0.beacon_due(), Some(Mono::from_ns(110)), "the link is not two-way");
    assert!(pair.0.take_beacon(Mono::from_ns(110)) && !pair.0.wants_beacon());
    beacon(&mut pair, 112, switch(1), Some(own()));
    assert!(pair.0.wants_beacon() && pair.0.take_beacon(Mono::from_ns(112)));
    assert_eq!(pair.0.beacon_due(), Some(Mono::from_ns(272)), "confirming beacons continue");
}

#[test]
fn promises_count_only_on_an_identified_live_link() {
    let mut pair = uplink(CONTROLLERS);
    let header = Header::new(Opcode::Data, ProcessId(3), ProcessId(1), Incarnation(1));
    let switched = |pair: &mut (LinkMonitor, Registers)| {
        let frame = frame(&header, Opcode::Data);
        pair.0.on_frame(&mut pair.1, Mono::from_ns(1), Port(0), &frame)
    };
    assert_eq!(switched(&mut pair), LinkEvent::NoPromise);
    beacon(&mut pair, 100, switch(1), Some(own()));
    assert_eq!(switched(&mut pair), LinkEvent::Good);
    pair.0.on_link_down(&mut pair.1, Port(0), Cause::TimedOut);
    assert_eq!(switched(&mut pair), LinkEvent::NoPromise);
    assert_eq!(beacon(&mut pair, 110, switch(1), Some(own())), LinkEvent::Refused);
    assert_eq!(beacon(&mut pair, 120, switch(1), None), LinkEvent::Good);
    assert_eq!(switched(&mut pair), LinkEvent::Good);
    pair.0.declare_dead(&mut pair.1, switch(1));
    assert_eq!(switched(&mut pair), LinkEvent::NoPromise);
}

//= spec/failure.md#R39
#[test]
fn other_address_is_refused_while_the_link_is_up() {
    let mut pair = uplink(CONTROLLERS);
    let other = Instance { address: Address::Switch(SwitchId(6)), incarnation: Incarnation(1) };
    beacon(&mut pair, 100, switch(1), Some(own()));
    assert_eq!(beacon(&mut pair, 110, other, None), LinkEvent::Refused);
    pair.0.on_link_down(&mut pair.1, Port(0), Cause::TimedOut);
    assert_eq!(beacon(&mut pair, 120, other, None), LinkEvent::Restarted(switch(1)));
}

#[test]
fn anonymous_peer_is_accepted_only_without_controllers() {
    let anonymous = Header::new(Opcode::Beacon, ProcessId(u32::MAX), ProcessId(0), Incarnation(0));
    let receive = |pair: &mut (LinkMonitor, Registers), opcode| {
        pair.0.on_frame(&mut pair.1, Mono::from_ns(1), Port(0), &frame(&anonymous, opcode))
    };
    let mut pair = uplink(None);
    assert_eq!(receive(&mut pair, Opcode::Beacon), LinkEvent::Good);
    assert_eq!(receive(&mut pair, Opcode::Data), LinkEvent::Good);
    assert_eq!(receive(&mut pair, Opcode::Leave), LinkEvent::Left);
    beacon(&mut pair, 100, switch(1), None);
    assert_eq!(receive(&mut pair, Opcode::Beacon), LinkEvent::Refused);
    assert_eq!(receive(&mut uplink(CONTROLLERS), Opcode::Beacon), LinkEvent::Refused);
}

#[test]
fn floods_are_accepted_from_switches_or_controllers() {
    let (up, direct) = (uplink(CONTROLLERS).0, mesh().0);
    let accepts = |links: &LinkMonitor, instance| links.accepts_floods(instance);
    assert!(accepts(&up, Some(switch(1))) && !accepts(&direct, Some(switch(1))));
    assert!(accepts(&direct, Some(process(7, 1))) && !accepts(&direct, Some(process(3, 1))));
    assert!(!accepts(&up, None) && !accepts(&uplink(None).0, Some(process(7, 1))));
}

/// The switch waits for this beacon before its commit barriers count again.
#[test]
fn resolving_a_held_link_sends_a_beacon_at_once() {
    let mut pair = uplink(CONTROLLERS);
    beacon(&mut pair, 100, switch(1), Some(own()));
    beacon(&mut pair, 110, switch(2), Some(own()));
    assert!(pair.1.is_held(Port(0)) && pair.0.take_beacon(Mono::from_ns(110)));
    assert!(!pair.0.wants_beacon());
    assert!(resolve(&mut pair, own(), 1) && !pair.1.is_held(Port(0)));
    assert!(pair.0.wants_beacon() && pair.0.take_beacon(Mono::from_ns(111)));
}
