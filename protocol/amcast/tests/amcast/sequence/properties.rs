//! Arbitrary sequences of frames, timeouts and commands: properties of a member, a replica, a
//! client and a coordinator that must hold for any input. Shared with `verify/fuzz`.

use onepipe_amcast::{
    Client, Config, Coordinator, CoordinatorConfig, Decision, Group, GroupId, GroupSet, Groups,
    LogicalTime, Member, MessageId, Replica, ReplicaEvent,
};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{AMCAST_LEN, Amcast, Frame, Header, Opcode, SHORT_HEADER_LEN, seal};

/// Two groups of three members and two replicas each, two clients, a coordinator, and a stranger.
const REPLICAS: u32 = 6;
const CLIENTS: u32 = 10;
const COORDINATOR: u32 = 12;
const STRANGER: u32 = 13;
const WINDOW: u32 = 2;
const FRAME_LEN: usize = SHORT_HEADER_LEN + 4 * AMCAST_LEN;

/// Bytes that determine the next action; zeros after their end.
struct Script<'a> {
    rest: &'a [u8],
}

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn below(&mut self, limit: u32) -> u32 {
        u32::from(self.byte()) % limit
    }

    /// Returns a small number, or sometimes an arbitrary one.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=239 => u64::from(small) % 8,
            240..=247 => u64::MAX - u64::from(self.byte() % 4),
            _ => (0..8).fold(0, |value, _| value << 8 | u64::from(self.byte())),
        }
    }
}

fn groups() -> Groups {
    let ids = |first: u32, count: u32| (first..first + count).map(ProcessId).collect::<Vec<_>>();
    let group = |at: u32| Group { members: ids(3 * at, 3), replicas: ids(REPLICAS + 2 * at, 2) };
    Groups {
        groups: vec![group(0), group(1)],
        clients: ids(CLIENTS, 2),
        window: WINDOW,
        message_groups_max: 2,
        frame_len_max: FRAME_LEN,
    }
}

fn config(process: u32) -> Config {
    Config {
        coordinators: vec![ProcessId(COORDINATOR)],
        history: 4,
        busy_threshold: 3,
        outbox: 64,
        ..Config::new(ProcessId(process), groups())
    }
}

fn time(ns: u64) -> Now {
    Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) }
}

/// Returns a frame to `own`, valid or not.
fn frame(script: &mut Script<'_>, own: u32, now: Now) -> Vec<u8> {
    let opcode = [
        Opcode::Start,
        Opcode::Prop,
        Opcode::AmcastAck,
        Opcode::Deliver,
        Opcode::Busy,
        Opcode::Gap,
        Opcode::AmcastPromise,
        Opcode::NewLeader,
    ][script.below(8) as usize];
    let src = match (opcode, script.byte()) {
        (_, 240..) => script.below(STRANGER + 1),
        (Opcode::Start, byte) => CLIENTS + u32::from(byte) % 2,
        (Opcode::NewLeader, byte) if byte % 3 == 0 => COORDINATOR,
        (Opcode::Gap, byte) if byte % 3 == 0 => REPLICAS + u32::from(byte) % 2,
        (_, byte) => u32::from(byte) % 6,
    };
    // The message may exceed its maximum length.
    let mut bytes = [0; FRAME_LEN + AMCAST_LEN];
    let mut length = 0;
    let has_message = matches!(opcode, Opcode::Start | Opcode::Prop);
    for _ in 0..if has_message { 1 } else { 1 + script.below(3) } {
        let body = body(script, src);
        let space = &mut bytes[SHORT_HEADER_LEN + length..];
        length += body.write(space).expect("the buffer fits the frame");
    }
    if has_message {
        length += script.below(40) as usize * 5;
    }
    let header = Header::new(opcode, ProcessId(src), ProcessId(own), Incarnation(1));
    let header = header.stamped(now.sync, Promises::both(now.sync), Psn(0));
    let byte_count = seal(&mut bytes, header, length);
    let mut frame = bytes[..byte_count].to_vec();
    if script.byte() == 255 {
        let bit = script.number() as usize % (frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
    }
    frame
}

fn body(script: &mut Script<'_>, src: u32) -> Amcast {
    let group = match script.byte() {
        250.. => script.below(64) as u16,
        byte if src < REPLICAS && byte < 220 => (src / 3) as u16,
        byte => u16::from(byte % 2),
    };
    let mut body = Amcast {
        timestamp: LogicalTime(script.number()),
        clock: LogicalTime(script.number()),
        barrier: LogicalTime(script.number()),
        position: script.number(),
        count: script.number(),
        ..Amcast::new(GroupId(group), script.number() as u32)
    };
    if script.byte() < 160 {
        let id = MessageId {
            client: if src >= CLIENTS { src.saturating_sub(CLIENTS) } else { script.below(3) },
            sequence: script.number() as u32,
        };
        let bits = match script.byte() {
            250.. => script.number().max(1),
            byte => u64::from(byte % 3) + 1,
        };
        body = body.with_message(id, GroupSet::from_bits(bits));
    }
    let flags = [Amcast::WANTS_REPLY, Amcast::DECIDED, Amcast::FETCH, Amcast::BEHIND];
    for flag in flags {
        body.flags |= if script.byte() < 60 { flag } else { 0 };
    }
    body
}

/// Checks that the output ends, is valid, and is addressed to existing processes.
fn drain<M: Machine>(machine: &mut M, own: u32, now: Now) {
    let mut slot = [0; FRAME_LEN];
    for sent in 0.. {
        let Some(transmit) = machine.poll_transmit(now, &mut slot) else { break };
        let frame = Frame::parse(&slot[..transmit.bytes]).expect("valid output");
        assert!(frame.header.src() == ProcessId(own) && frame.header.dst().0 < STRANGER);
        let mut packets = Amcast::packets(frame.opcode, frame.payload);
        assert!(packets.all(|packet| packet.is_ok()));
        assert!(sent < 1_000, "the output never ends");
    }
}

/// Runs the script against a machine; `command` performs commands of the application.
fn play<M: Machine>(
    script: &mut Script<'_>,
    machine: &mut M,
    own: u32,
    mut command: impl FnMut(&mut Script<'_>, &mut M, Now),
) {
    let mut ns = 1_000;
    while !script.rest.is_empty() {
        let now = time(ns);
        match script.byte() {
            0..=199 => {
                let mut bytes = frame(script, own, now);
                machine.handle_frame(now, Port(0), &mut bytes);
            }
            200..=229 => {
                let byte = u64::from(script.byte());
                ns += byte * byte * byte * 10;
            }
            // A frame of arbitrary bytes.
            230 => {
                let mut bytes: Vec<u8> = (0..script.byte()).map(|_| script.byte()).collect();
                machine.handle_frame(now, Port(0), &mut bytes);
            }
            _ => command(script, machine, now),
        }
        let now = time(ns);
        if machine.poll_timeout().is_some_and(|due| due <= now.mono) {
            machine.handle_timeout(now);
        }
        // Output is processed once for several inputs.
        if script.byte() < 200 {
            drain(machine, own, now);
        }
        command(script, machine, now);
    }
}

fn member(script: &mut Script<'_>) {
    let own = script.below(3);
    let mut member = Member::new(config(own)).expect("a valid configuration");
    let (mut epoch, mut barrier) = (member.epoch(), member.barrier());
    play(script, &mut member, own, |script, member, now| {
        if script.byte() == 255 {
            let epoch = script.number() as u32;
            let may = epoch > member.epoch();
            assert_eq!(member.lead(now, epoch), may);
        }
        while member.poll_event().is_some() {}
        assert!(member.epoch() >= epoch && member.barrier() >= barrier);
        (epoch, barrier) = (member.epoch(), member.barrier());
        member.check_invariants();
        let space = member.config().groups.open_max() + member.config().history;
        assert!(member.open() <= space as u64);
    });
}

fn replica(script: &mut Script<'_>) {
    let own = REPLICAS + script.below(2);
    let mut replica = Replica::new(config(own)).expect("a valid configuration");
    // Lying members may break the order, but the replica must still deliver and count correctly.
    let mut delivered = 0;
    play(script, &mut replica, own, |script, replica, _| {
        while let Some(event) = replica.poll_event() {
            if let ReplicaEvent::Delivered(delivery) = event {
                assert!(replica.message(&delivery).len() <= groups().message_len_max());
                delivered += 1;
                assert_eq!(replica.stats().delivered, delivered);
            }
            if script.byte() > 250 {
                break;
            }
        }
        replica.check_invariants();
        if let Some(point) = replica.point().filter(|_| script.byte() == 255) {
            *replica = Replica::join(config(own), point).expect("a valid configuration");
            delivered = 0;
        }
    });
}

fn client(script: &mut Script<'_>) {
    let own = CLIENTS + script.below(2);
    let mut client = Client::new(config(own)).expect("a valid configuration");
    let mut open = Vec::new();
    play(script, &mut client, own, |script, client, now| {
        let bytes = script.below(60) as usize * 5;
        let bits = u64::from(script.byte() % 5);
        if let Ok(id) = client.amcast(now, GroupSet::from_bits(bits), &vec![0; bytes]) {
            open.push(id);
        }
        while let Some(over) = client.poll_event() {
            let at = open.iter().position(|id| *id == over.id);
            open.remove(at.expect("sent, and completed once"));
        }
        client.check_invariants();
        assert!(open.len() == client.open() && open.len() <= WINDOW as usize);
    });
}

fn coordinator(script: &mut Script<'_>) {
    let config = CoordinatorConfig::new(ProcessId(COORDINATOR), groups());
    let mut coordinator = Coordinator::new(config).expect("a valid configuration");
    let mut epochs = [1; 2];
    play(script, &mut coordinator, COORDINATOR, |script, coordinator, now| {
        match script.byte() {
            0..=20 => {
                let decision = Decision {
                    group: GroupId(script.below(3) as u16),
                    epoch: script.number() as u32,
                    leader: ProcessId(script.below(STRANGER)),
                };
                coordinator.activate(now, [decision]);
            }
            21..=30 => coordinator.deactivate(),
            _ => {}
        }
        while let Some(decision) = coordinator.poll_persist() {
            coordinator.handle_persisted(now, decision, script.byte() < 200);
        }
        while coordinator.poll_event().is_some() {}
        coordinator.check_invariants();
        for (at, known) in epochs.iter_mut().enumerate() {
            let leader = coordinator.leader(GroupId(at as u16)).expect("an existing group");
            assert!(leader.0.0 / 3 == at as u32 && leader.1 >= *known);
            *known = leader.1;
        }
    });
}

/// Runs `bytes` as a script.
pub fn amcast(bytes: &[u8]) {
    let mut script = Script { rest: bytes };
    match script.byte() {
        0..=127 => member(&mut script),
        128..=191 => replica(&mut script),
        192..=223 => client(&mut script),
        _ => coordinator(&mut script),
    }
}
