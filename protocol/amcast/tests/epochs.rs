//! What members may send for an epoch that they have left.

mod world;

use onepipe_amcast::{GroupId, GroupSet, LogicalTime, MessageId};
use onepipe_base::{Machine, Port, ProcessId};
use onepipe_wire::{Amcast, Frame, Opcode};
use world::{Plan, World};

/// The first group; the members of the other one are 3 to 5.
const OWN: GroupId = GroupId(0);

fn hand(world: &mut World, (src, dst): (u32, u32), opcode: Opcode, body: &Amcast) {
    let mut frame = world.frame(ProcessId(src), ProcessId(dst), opcode, body);
    let now = world.time();
    let member = world.members[dst as usize].as_mut().expect("alive");
    member.handle_frame(now, Port(0), &mut frame);
}

/// Returns the last packet from `src` to `dst` with this opcode.
fn said(world: &mut World, (src, dst): (u32, u32), opcode: Opcode) -> Option<Amcast> {
    let (now, mut slot, mut last) = (world.time(), [0; 256], None);
    let member = world.members[src as usize].as_mut().expect("alive");
    while let Some(sent) = member.poll_transmit(now, &mut slot) {
        let frame = Frame::parse(&slot[..sent.bytes]).expect("sealed");
        if (frame.header.dst(), frame.opcode) == (ProcessId(dst), opcode) {
            let packets = Amcast::packets(opcode, frame.payload).map(|packet| packet.ok());
            last = packets.last().flatten().map(|(body, _)| body);
        }
    }
    last
}

/// A member that has promised a new epoch is asked about a message by the previous leader, and its
/// clock has risen meanwhile. If it reported that clock, the previous leader would let its replicas
/// deliver up to it, while the next leader, which only knows the clock of the promise, would
/// propose below it.
#[test]
fn a_clock_that_has_risen_since_a_promise_does_not_count_in_the_epoch_before() {
    let mut world = World::new(Plan { members: vec![3, 3], ..Plan::calm() });
    let client = world.groups.clients[0].0;
    let id = |sequence| MessageId { client: 0, sequence };
    let start = Amcast::new(OWN, 1).of(id(0), GroupSet::EMPTY.with(OWN));
    hand(&mut world, (client, 0), Opcode::Start, &start);
    let proposal = said(&mut world, (0, 1), Opcode::Prop).expect("it leads");
    hand(&mut world, (0, 1), Opcode::Prop, &proposal);
    let ask = Amcast { flags: Amcast::ASKS, ..Amcast::new(OWN, 2) };
    hand(&mut world, (2, 1), Opcode::NewLeader, &ask);
    let promise = said(&mut world, (1, 2), Opcode::AmcastPromise).expect("2 is later than 1");
    let both = GroupSet::EMPTY.with(OWN).with(GroupId(1));
    let far = Amcast::new(GroupId(1), 1).of(id(1), both);
    hand(&mut world, (3, 1), Opcode::Prop, &Amcast { timestamp: LogicalTime(10), ..far });
    let own = Amcast::new(OWN, 1).of(id(0), GroupSet::EMPTY.with(OWN));
    hand(&mut world, (0, 1), Opcode::Gap, &own);
    let answer = said(&mut world, (1, 0), Opcode::AmcastAck).expect("it knows the message");
    assert!(answer.epoch == 1 && answer.has(Amcast::DECIDED), "{answer:?}");
    hand(&mut world, (1, 0), Opcode::AmcastAck, &answer);
    assert!(said(&mut world, (0, 1), Opcode::Prop).is_none());
    let barrier = world.members[0].as_ref().expect("alive").barrier();
    assert!(barrier <= promise.clock, "{barrier:?} where the next leader knows of {promise:?}");
}

/// A deposed leader that did not know of its deposition learned of a decided position for which it
/// had proposed another message or none. It went on to propose messages of earlier positions again.
#[test]
fn who_hears_of_what_a_later_leader_has_decided_proposes_nothing_more() {
    for has_proposed in [true, false] {
        let mut world = World::new(Plan { members: vec![3, 3], ..Plan::calm() });
        let client = world.groups.clients[0].0;
        let of = |sequence| {
            let id = MessageId { client: 0, sequence };
            Amcast::new(OWN, 1).of(id, GroupSet::EMPTY.with(OWN))
        };
        if has_proposed {
            hand(&mut world, (client, 0), Opcode::Start, &of(0));
            assert!(said(&mut world, (0, 1), Opcode::Prop).is_some(), "it leads");
        }
        let decided = Amcast { flags: Amcast::MESSAGE | Amcast::DECIDED, epoch: 2, ..of(1) };
        let five = LogicalTime(5);
        let decided = Amcast { timestamp: five, barrier: five, count: 1, ..decided };
        hand(&mut world, (2, 0), Opcode::Prop, &decided);
        for sequence in [0, 2] {
            hand(&mut world, (client, 0), Opcode::Start, &of(sequence));
            let proposal = said(&mut world, (0, 1), Opcode::Prop);
            assert!(proposal.is_none(), "{has_proposed}: {proposal:?}");
        }
        // A decision that it knows is no evidence of a later leader.
        assert!(!world.members[0].as_ref().expect("alive").is_leader());
    }
}
