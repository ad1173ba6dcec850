//! What members may send for an epoch that they have left.

use crate::harness;

use harness::{Harness, Plan};
use onepipe_amcast::{GroupId, GroupSet, LogicalTime, MessageId};
use onepipe_base::{Machine, Port, ProcessId};
use onepipe_wire::{Amcast, Frame, Opcode};

/// The first group; the members of the other one are 3 to 5.
const OWN: GroupId = GroupId(0);

fn deliver_packet(harness: &mut Harness, (src, dst): (u32, u32), opcode: Opcode, body: &Amcast) {
    let mut frame = harness.frame(ProcessId(src), ProcessId(dst), opcode, body);
    let now = harness.time();
    let member = harness.members[dst as usize].as_mut().expect("alive");
    member.handle_frame(now, Port(0), &mut frame);
}

/// Returns the last packet from `src` to `dst` with this opcode.
fn last_packet(harness: &mut Harness, (src, dst): (u32, u32), opcode: Opcode) -> Option<Amcast> {
    let (now, mut slot, mut last) = (harness.time(), [0; 256], None);
    let member = harness.members[src as usize].as_mut().expect("alive");
    while let Some(sent) = member.poll_transmit(now, &mut slot) {
        let frame = Frame::parse(&slot[..sent.bytes]).expect("sealed");
        if (frame.header.dst(), frame.opcode) == (ProcessId(dst), opcode) {
            let packets = Amcast::packets(opcode, frame.payload).map(|packet| packet.ok());
            last = packets.last().flatten().map(|(body, _)| body);
        }
    }
    last
}

//= spec/amcast.md#R14
/// A member that has promised a new epoch is asked about a message by the previous leader, and its
/// clock has risen meanwhile. If it reported that clock, the previous leader would let its replicas
/// deliver up to it, while the next leader, which only knows the clock of the promise, would
/// propose below it.
#[test]
fn clock_raised_after_promise_does_not_count_before() {
    let mut harness = Harness::new(Plan { members: vec![3, 3], ..Plan::calm() });
    let client = harness.groups.clients[0].0;
    let id = |sequence| MessageId { client: 0, sequence };
    let start = Amcast::new(OWN, 1).with_message(id(0), GroupSet::EMPTY.with(OWN));
    deliver_packet(&mut harness, (client, 0), Opcode::Start, &start);
    let proposal = last_packet(&mut harness, (0, 1), Opcode::Prop).expect("the member leads");
    deliver_packet(&mut harness, (0, 1), Opcode::Prop, &proposal);
    let ask = Amcast { flags: Amcast::WANTS_REPLY, ..Amcast::new(OWN, 2) };
    deliver_packet(&mut harness, (2, 1), Opcode::NewLeader, &ask);
    let promise =
        last_packet(&mut harness, (1, 2), Opcode::AmcastPromise).expect("2 is later than 1");
    let both = GroupSet::EMPTY.with(OWN).with(GroupId(1));
    let far = Amcast::new(GroupId(1), 1).with_message(id(1), both);
    deliver_packet(
        &mut harness,
        (3, 1),
        Opcode::Prop,
        &Amcast { timestamp: LogicalTime(10), ..far },
    );
    let own = Amcast::new(OWN, 1).with_message(id(0), GroupSet::EMPTY.with(OWN));
    deliver_packet(&mut harness, (0, 1), Opcode::Gap, &own);
    let answer =
        last_packet(&mut harness, (1, 0), Opcode::AmcastAck).expect("the member knows the message");
    assert!(answer.epoch == 1 && answer.has(Amcast::DECIDED), "{answer:?}");
    deliver_packet(&mut harness, (1, 0), Opcode::AmcastAck, &answer);
    assert!(last_packet(&mut harness, (0, 1), Opcode::Prop).is_none());
    let barrier = harness.members[0].as_ref().expect("alive").barrier();
    assert!(barrier <= promise.clock, "{barrier:?} where the next leader knows of {promise:?}");
}

//= spec/amcast.md#R26
/// A deposed leader that did not know of its deposition learned of a decided position for which it
/// had proposed another message or none. It went on to propose messages of earlier positions again.
#[test]
fn deposed_leader_stops_on_later_decision() {
    for has_proposed in [true, false] {
        let mut harness = Harness::new(Plan { members: vec![3, 3], ..Plan::calm() });
        let client = harness.groups.clients[0].0;
        let of = |sequence| {
            let id = MessageId { client: 0, sequence };
            Amcast::new(OWN, 1).with_message(id, GroupSet::EMPTY.with(OWN))
        };
        if has_proposed {
            deliver_packet(&mut harness, (client, 0), Opcode::Start, &of(0));
            assert!(last_packet(&mut harness, (0, 1), Opcode::Prop).is_some(), "the member leads");
        }
        let decided = Amcast { flags: Amcast::MESSAGE | Amcast::DECIDED, epoch: 2, ..of(1) };
        let five = LogicalTime(5);
        let decided = Amcast { timestamp: five, barrier: five, count: 1, ..decided };
        deliver_packet(&mut harness, (2, 0), Opcode::Prop, &decided);
        for sequence in [0, 2] {
            deliver_packet(&mut harness, (client, 0), Opcode::Start, &of(sequence));
            let proposal = last_packet(&mut harness, (0, 1), Opcode::Prop);
            assert!(proposal.is_none(), "{has_proposed}: {proposal:?}");
        }
        // A decision that it knows is no evidence of a later leader.
        assert!(!harness.members[0].as_ref().expect("alive").is_leader());
    }
}

//= spec/amcast.md#R37
/// Epochs do not wrap: after the last one no leader can be elected. One packet once sufficed, of a
/// member of the group or of another group.
#[test]
fn epochs_beyond_any_election_are_dropped() {
    let mut harness = Harness::new(Plan { members: vec![3, 3], ..Plan::calm() });
    let last = |group| Amcast::new(group, u32::MAX);
    let far = Amcast { position: 7, ..last(GroupId(1)) };
    let packets = [
        (1, Opcode::NewLeader, last(OWN)),
        (1, Opcode::Gap, last(OWN)),
        (1, Opcode::AmcastAck, last(OWN)),
        (4, Opcode::AmcastAck, far),
    ];
    for (src, opcode, body) in packets {
        deliver_packet(&mut harness, (src, 0), opcode, &body);
    }
    let member = harness.members[0].as_ref().expect("alive");
    assert_eq!((member.epoch(), member.stats().epochs_ahead), (1, 4));
    // As far as elections can have led, they are followed.
    let near = Amcast::new(OWN, 1 << 16);
    deliver_packet(&mut harness, (1, 0), Opcode::NewLeader, &near);
    assert_eq!(harness.members[0].as_ref().expect("alive").epoch(), 1 << 16);
}

//= spec/amcast.md#R22
/// A coordinator with an older copy of its store appointed another leader for an epoch whose
/// candidate had the promise of one member already: that member gave it to both, and both led.
#[test]
fn epoch_is_promised_to_one_candidate_only() {
    let mut harness = Harness::new(Plan { members: vec![3, 3], ..Plan::calm() });
    let ask = |epoch| Amcast { flags: Amcast::WANTS_REPLY, ..Amcast::new(OWN, epoch) };
    let mut promise = |from, epoch| {
        deliver_packet(&mut harness, (from, 1), Opcode::NewLeader, &ask(epoch));
        last_packet(&mut harness, (1, from), Opcode::AmcastPromise).map(|promise| promise.epoch)
    };
    assert_eq!(promise(2, 2), Some(2));
    assert_eq!(promise(0, 2), None, "2 has the promise");
    assert_eq!(promise(2, 2), Some(2), "the first one was lost");
    assert_eq!(promise(0, 3), Some(3));
    assert_eq!(promise(2, 3), None, "0 has the promise");
}
