use super::*;
use onepipe_base::{Incarnation, Promises, SwitchId, Timestamp};

const CONTROLLERS: Option<Controllers> = Some(Controllers { first: ProcessId(6), count: 2 });
const SILENCE_NS: u64 = 100;

fn process(id: u32, incarnation: u32) -> Instance {
    Instance { address: Address::Process(ProcessId(id)), incarnation: Incarnation(incarnation) }
}

fn switch(incarnation: u32) -> Instance {
    Instance { address: Address::Switch(SwitchId(5)), incarnation: Incarnation(incarnation) }
}

fn own() -> Instance {
    process(1, 4)
}

fn uplink(controllers: Option<Controllers>) -> (OwnLinks, Registers) {
    let links = OwnLinks::new(own(), (Links::Uplink, 1), controllers, SILENCE_NS, 10);
    (links, Registers::new(1))
}

fn mesh() -> (OwnLinks, Registers) {
    let links = OwnLinks::new(own(), (Links::Mesh, 8), CONTROLLERS, SILENCE_NS, 0);
    (links, Registers::new(8))
}

fn promises(ns: u64) -> Promises {
    Promises::both(Timestamp::from_ns(ns))
}

/// A frame that speaks of its link; its promises count as the news say.
fn say(
    (links, registers): &mut (OwnLinks, Registers),
    (port, ns): (u16, u64),
    (opcode, instance, echo): (Opcode, Instance, Option<Instance>),
) -> LinkNews {
    let header = Header::hop_only(opcode, instance, echo, promises(ns));
    let (now, port) = (Mono::from_ns(ns), Port(port));
    let news = links.on_frame(registers, now, (port, &header, opcode));
    let counts = matches!(news, LinkNews::Good | LinkNews::Left | LinkNews::Reborn(_));
    if counts && !opcode.is_control() {
        registers.update(now, port, promises(ns));
    }
    news
}

fn beacon(
    pair: &mut (OwnLinks, Registers),
    ns: u64,
    instance: Instance,
    echo: Option<Instance>,
) -> LinkNews {
    say(pair, (0, ns), (Opcode::Beacon, instance, echo))
}

fn announced(
    (links, registers): &(OwnLinks, Registers),
) -> Vec<(u16, Option<Instance>, LinkState)> {
    links.announced(registers).map(|link| (link.port.0, link.instance, link.state)).collect()
}

fn frozen(number: u32, ns: u64) -> LinkState {
    LinkState::Frozen { number, commit: Timestamp::from_ns(ns) }
}

fn resolve((links, registers): &mut (OwnLinks, Registers), owner: Instance, number: u32) -> bool {
    links.resolve(registers, Resolved { owner, number })
}

#[test]
fn a_switch_that_restarts_leaves_a_frozen_link_beside_the_new_one() {
    let mut pair = uplink(CONTROLLERS);
    assert_eq!(beacon(&mut pair, 100, switch(1), None), LinkNews::Good);
    assert_eq!(announced(&pair), [], "it does not hear us yet");
    assert_eq!(pair.0.echo(&pair.1, Port(0)), Some(switch(1)));
    assert_eq!(beacon(&mut pair, 110, switch(1), Some(own())), LinkNews::Good);
    assert_eq!(announced(&pair), [(0, Some(switch(1)), LinkState::Up)]);
    assert_eq!(beacon(&mut pair, 120, switch(2), None), LinkNews::Reborn(switch(1)));
    assert_eq!(announced(&pair), [(0, Some(switch(1)), frozen(1, 110))]);
    assert_eq!(beacon(&mut pair, 130, switch(1), Some(own())), LinkNews::Refused);
    assert_eq!(beacon(&mut pair, 140, switch(2), Some(own())), LinkNews::Good);
    let both = [(0, Some(switch(1)), frozen(1, 110)), (0, Some(switch(2)), LinkState::Up)];
    assert_eq!(announced(&pair), both);
    let commit = |pair: &(OwnLinks, Registers)| pair.1.all().map(|all| all.commit.as_ns());
    assert_eq!(commit(&pair), Some(110));
    assert!(!resolve(&mut pair, process(1, 3), 1), "of a former life of ours");
    assert!(!resolve(&mut pair, own(), 2), "of no such number");
    assert!(resolve(&mut pair, own(), 1) && !resolve(&mut pair, own(), 1));
    assert_eq!((commit(&pair), announced(&pair)), (Some(140), both[1..].to_vec()));
}

#[test]
fn who_is_not_heard_any_more_treats_the_link_as_dead() {
    let mut pair = uplink(CONTROLLERS);
    beacon(&mut pair, 100, switch(1), Some(own()));
    assert_eq!(beacon(&mut pair, 110, switch(1), None), LinkNews::Dead);
    assert_eq!(announced(&pair), [(0, Some(switch(1)), frozen(1, 100))]);
    assert_eq!(pair.0.echo(&pair.1, Port(0)), None);
    assert_eq!(beacon(&mut pair, 120, switch(1), None), LinkNews::Refused);
    assert_eq!(beacon(&mut pair, 130, switch(1), Some(process(1, 3))), LinkNews::Refused);
    assert_eq!(announced(&pair).len(), 1, "still it does not hear us");
    assert_eq!(beacon(&mut pair, 140, switch(1), Some(own())), LinkNews::Good);
    assert_eq!(announced(&pair).len(), 2);
}

#[test]
fn silence_and_goodbye_freeze_alike() {
    for says_goodbye in [false, true] {
        let mut pair = uplink(CONTROLLERS);
        beacon(&mut pair, 100, switch(1), Some(own()));
        assert!(pair.0.take_changed() && !pair.0.has_changed());
        if says_goodbye {
            let leave = (Opcode::Leave, switch(1), Some(own()));
            assert_eq!(say(&mut pair, (0, 150), leave), LinkNews::Left);
        }
        assert!(pair.0.on_silence(&mut pair.1, Port(0)));
        assert!(pair.0.has_changed(), "another link may have come up meanwhile");
        assert!(!pair.0.on_silence(&mut pair.1, Port(0)), "dead already");
        let last = if says_goodbye { 150 } else { 100 };
        assert_eq!(announced(&pair), [(0, Some(switch(1)), frozen(1, last))]);
    }
}

#[test]
fn without_controllers_nothing_is_held() {
    let mut pair = uplink(None);
    beacon(&mut pair, 100, switch(1), Some(own()));
    assert_eq!(beacon(&mut pair, 90, switch(2), None), LinkNews::Reborn(switch(1)));
    assert_eq!(pair.1.all(), Some(promises(90)));
    assert!(pair.0.on_silence(&mut pair.1, Port(0)));
    assert_eq!((pair.1.all(), announced(&pair)), (None, Vec::new()));
}

#[test]
fn a_link_that_dies_again_and_again_takes_no_room() {
    let mut pair = uplink(CONTROLLERS);
    for incarnation in 1..100 {
        beacon(&mut pair, 100 + u64::from(incarnation), switch(incarnation), None);
    }
    let dead = announced(&pair);
    assert_eq!((dead.len(), dead[0]), (8, (0, Some(switch(1)), frozen(1, 101))));
    assert_eq!(dead[7], (0, Some(switch(98)), frozen(98, 108)));
}

#[test]
fn a_life_that_is_declared_dead_is_heard_no_more() {
    let mut pair = uplink(CONTROLLERS);
    beacon(&mut pair, 100, switch(2), Some(own()));
    let declare =
        |pair: &mut (OwnLinks, Registers), instance| pair.0.declare_dead(&mut pair.1, instance);
    assert!(!declare(&mut pair, process(2, 9)) && !declare(&mut pair, switch(1)));
    assert_eq!(beacon(&mut pair, 105, switch(2), Some(own())), LinkNews::Good);
    assert!(declare(&mut pair, switch(2)) && !declare(&mut pair, switch(2)));
    assert_eq!(announced(&pair), [(0, Some(switch(2)), frozen(1, 105))]);
    assert_eq!(beacon(&mut pair, 110, switch(2), Some(own())), LinkNews::Refused);
    assert_eq!(beacon(&mut pair, 120, switch(3), None), LinkNews::Reborn(switch(2)));
    assert!(!declare(&mut pair, switch(1)), "an earlier one is dead anyway");
    assert!(resolve(&mut pair, own(), 1));
    assert_eq!(beacon(&mut pair, 125, switch(2), None), LinkNews::Refused, "for good");
    assert_eq!(beacon(&mut pair, 130, switch(3), None), LinkNews::Good);

    let mut pair = mesh();
    assert!(!declare(&mut pair, process(3, 2)), "who was not heard yet");
    let peer = |pair: &mut (OwnLinks, Registers), incarnation| {
        let instance = process(3, incarnation);
        pair.0.on_peer(&mut pair.1, Mono::from_ns(9), Port(3), instance)
    };
    assert_eq!((peer(&mut pair, 2), peer(&mut pair, 3)), (LinkNews::Refused, LinkNews::Good));
}

#[test]
fn on_a_mesh_any_frame_tells_the_life_of_its_sender() {
    let mut pair = mesh();
    let from = |pair: &mut (OwnLinks, Registers), ns, opcode, incarnation| {
        let (src, dst) = (ProcessId(3), ProcessId(1));
        let header = Header::new(opcode, src, dst, Incarnation(incarnation));
        let now = Mono::from_ns(ns);
        let news = pair.0.on_frame(&mut pair.1, now, (Port(3), &header, opcode));
        if matches!(news, LinkNews::Good | LinkNews::Reborn(_)) {
            pair.1.update(now, Port(3), promises(ns));
        }
        news
    };
    assert_eq!(from(&mut pair, 10, Opcode::Data, 2), LinkNews::Good);
    assert_eq!(from(&mut pair, 20, Opcode::ReliableAck, 2), LinkNews::Good);
    assert_eq!(announced(&pair), [(3, Some(process(3, 2)), LinkState::Up)]);
    assert_eq!(from(&mut pair, 30, Opcode::Data, 3), LinkNews::Reborn(process(3, 2)));
    assert_eq!(from(&mut pair, 40, Opcode::Data, 2), LinkNews::Refused);
    let both = [(3, Some(process(3, 2)), frozen(1, 20)), (3, Some(process(3, 3)), LinkState::Up)];
    assert_eq!(announced(&pair), both);
    let (links, registers) = &mut pair;
    let news = links.on_peer(registers, Mono::from_ns(50), Port(3), process(3, 4));
    assert_eq!(news, LinkNews::Reborn(process(3, 3)));
    let oneself = links.on_peer(registers, Mono::from_ns(50), Port(1), process(1, 4));
    assert_eq!(oneself, LinkNews::Refused);
    let nowhere = links.on_peer(registers, Mono::from_ns(50), Port(9), process(9, 4));
    assert_eq!(nowhere, LinkNews::Refused);
}

#[test]
fn a_controller_on_a_link_of_its_own_is_up_while_it_says_hello() {
    let mut pair = mesh();
    let hello = (Opcode::Hello, process(7, 1), None);
    assert_eq!(say(&mut pair, (7, 1_000), hello), LinkNews::Good);
    assert_eq!(announced(&pair), [(7, Some(process(7, 1)), LinkState::Up)]);
    assert_eq!((pair.1.live(), pair.0.deadline()), (0, Some(Mono::from_ns(1_101))));
    assert!(pair.0.take_changed());
    pair.0.on_timeout(Mono::from_ns(1_100));
    assert!(!pair.0.has_changed());
    pair.0.on_timeout(Mono::from_ns(1_101));
    assert!(pair.0.has_changed() && announced(&pair).is_empty());
    say(&mut pair, (7, 1_200), hello);
    assert!(pair.0.on_silence(&mut pair.1, Port(7)), "unlinked");
    assert!(announced(&pair).is_empty() && pair.0.deadline().is_none());
}

#[test]
fn the_uplink_is_told_again_and_again_whom_this_end_hears() {
    let mut pair = uplink(None);
    assert!(!pair.0.take_beacon(Mono::from_ns(5)) && pair.0.beacon_due().is_none());
    beacon(&mut pair, 100, switch(1), None);
    assert!(pair.0.owes_beacon() && pair.0.take_beacon(Mono::from_ns(100)));
    beacon(&mut pair, 101, switch(1), None);
    assert!(!pair.0.owes_beacon() && !pair.0.take_beacon(Mono::from_ns(101)));
    assert_eq!(pair.0.beacon_due(), Some(Mono::from_ns(110)), "it does not hear us");
    assert!(pair.0.take_beacon(Mono::from_ns(110)) && !pair.0.owes_beacon());
    beacon(&mut pair, 112, switch(1), Some(own()));
    assert!(pair.0.owes_beacon() && pair.0.take_beacon(Mono::from_ns(112)));
    assert_eq!(pair.0.beacon_due(), Some(Mono::from_ns(272)), "it may not know that we hear it");
}

#[test]
fn nothing_is_heard_before_it_is_known_who_is_there_nor_while_the_link_is_lost() {
    let mut pair = uplink(CONTROLLERS);
    let frame = Header::new(Opcode::Data, ProcessId(3), ProcessId(1), Incarnation(1));
    let passed = |pair: &mut (OwnLinks, Registers)| {
        pair.0.on_frame(&mut pair.1, Mono::from_ns(1), (Port(0), &frame, Opcode::Data))
    };
    assert_eq!(passed(&mut pair), LinkNews::Unheard);
    beacon(&mut pair, 100, switch(1), Some(own()));
    assert_eq!(passed(&mut pair), LinkNews::Good);
    pair.0.on_silence(&mut pair.1, Port(0));
    assert_eq!(passed(&mut pair), LinkNews::Unheard);
    assert_eq!(beacon(&mut pair, 110, switch(1), Some(own())), LinkNews::Refused);
    assert_eq!(beacon(&mut pair, 120, switch(1), None), LinkNews::Good);
    assert_eq!(passed(&mut pair), LinkNews::Good);
    pair.0.declare_dead(&mut pair.1, switch(1));
    assert_eq!(passed(&mut pair), LinkNews::Unheard);
}

#[test]
fn another_address_is_refused_until_the_link_has_died() {
    let mut pair = uplink(CONTROLLERS);
    let other = Instance { address: Address::Switch(SwitchId(6)), incarnation: Incarnation(1) };
    beacon(&mut pair, 100, switch(1), Some(own()));
    assert_eq!(beacon(&mut pair, 110, other, None), LinkNews::Refused);
    pair.0.on_silence(&mut pair.1, Port(0));
    assert_eq!(beacon(&mut pair, 120, other, None), LinkNews::Reborn(switch(1)));
}

#[test]
fn who_does_not_say_who_it_is_is_believed_where_nothing_freezes_unless_one_has_said_so() {
    let nobody = Header::new(Opcode::Beacon, ProcessId(u32::MAX), ProcessId(0), Incarnation(0));
    let hear = |pair: &mut (OwnLinks, Registers), opcode| {
        pair.0.on_frame(&mut pair.1, Mono::from_ns(1), (Port(0), &nobody, opcode))
    };
    let mut pair = uplink(None);
    assert_eq!(hear(&mut pair, Opcode::Beacon), LinkNews::Good);
    assert_eq!(hear(&mut pair, Opcode::Data), LinkNews::Good);
    assert_eq!(hear(&mut pair, Opcode::Leave), LinkNews::Left);
    beacon(&mut pair, 100, switch(1), None);
    assert_eq!(hear(&mut pair, Opcode::Beacon), LinkNews::Refused);
    assert_eq!(hear(&mut uplink(CONTROLLERS), Opcode::Beacon), LinkNews::Refused);
}

#[test]
fn waves_come_from_switches_or_on_a_mesh_from_controllers() {
    let (up, direct) = (uplink(CONTROLLERS).0, mesh().0);
    let bear = |links: &OwnLinks, instance| links.may_bear_waves(instance);
    assert!(bear(&up, Some(switch(1))) && !bear(&direct, Some(switch(1))));
    assert!(bear(&direct, Some(process(7, 1))) && !bear(&direct, Some(process(3, 1))));
    assert!(!bear(&up, None) && !bear(&uplink(None).0, Some(process(7, 1))));
}

/// What the switch tells of commits counts from then on, so it waits to hear of that.
#[test]
fn the_uplink_is_told_at_once_that_a_former_life_holds_nothing_any_more() {
    let mut pair = uplink(CONTROLLERS);
    beacon(&mut pair, 100, switch(1), Some(own()));
    beacon(&mut pair, 110, switch(2), Some(own()));
    assert!(pair.1.is_held(Port(0)) && pair.0.take_beacon(Mono::from_ns(110)));
    assert!(!pair.0.owes_beacon());
    assert!(resolve(&mut pair, own(), 1) && !pair.1.is_held(Port(0)));
    assert!(pair.0.owes_beacon() && pair.0.take_beacon(Mono::from_ns(111)));
}
