//! A cumulative acknowledgement covers all positions before it, in its own epoch only. Halves of a
//! majority in two epochs do not add up.

use crate::harness;

use harness::{Harness, Plan};
use onepipe_amcast::{GroupId, GroupSet, LogicalTime, MessageId};
use onepipe_base::{Machine, Port, ProcessId};
use onepipe_wire::{Amcast, Frame, Opcode};

/// The group under test; its first member leads first.
const OWN: GroupId = GroupId(0);
const ID: MessageId = MessageId { client: 0, sequence: 0 };

fn harness(members: &[usize]) -> Harness {
    Harness::new(Plan { members: members.to_vec(), ..Plan::calm() })
}

fn deliver_packet(harness: &mut Harness, (src, dst): (u32, u32), opcode: Opcode, body: Amcast) {
    let mut frame = harness.frame(ProcessId(src), ProcessId(dst), opcode, &body);
    let now = harness.time();
    let member = harness.members[dst as usize].as_mut().expect("alive");
    member.handle_frame(now, Port(0), &mut frame);
    member.handle_timeout(now);
}

/// Returns a cumulative acknowledgement of all positions before `until` in `epoch`.
fn cumulative_ack(group: GroupId, epoch: u32, until: u64) -> Amcast {
    Amcast { position: until, ..Amcast::new(group, epoch) }
}

/// Returns the first position of a group's log in an epoch.
fn first(group: GroupId, epoch: u32, groups: GroupSet) -> Amcast {
    Amcast {
        timestamp: LogicalTime(1),
        count: 1,
        ..Amcast::new(group, epoch).with_message(ID, groups)
    }
}

fn decided(harness: &Harness, member: usize) -> u64 {
    harness.members[member].as_ref().expect("alive").stats().decided
}

//= spec/amcast.md#R7
#[test]
fn ack_of_earlier_epoch_does_not_count_for_follower() {
    let (mut harness, own) = (harness(&[5]), GroupSet::EMPTY.with(OWN));
    // Member 1 has accepted the first position of an epoch that member 2 knows nothing else of.
    deliver_packet(&mut harness, (1, 2), Opcode::AmcastAck, cumulative_ack(OWN, 1, 1));
    deliver_packet(&mut harness, (0, 2), Opcode::NewLeader, Amcast::new(OWN, 2));
    deliver_packet(&mut harness, (0, 2), Opcode::Prop, first(OWN, 2, own));
    assert_eq!(decided(&harness, 2), 0, "the leader and this member are two of five");
    deliver_packet(&mut harness, (1, 2), Opcode::AmcastAck, cumulative_ack(OWN, 2, 1));
    assert_eq!(decided(&harness, 2), 1);
}

//= spec/amcast.md#R7
#[test]
fn ack_of_earlier_epoch_does_not_count_for_reelected_leader() {
    let (mut harness, own) = (harness(&[3]), GroupSet::EMPTY.with(OWN));
    let client = harness.groups.clients[0].0;
    deliver_packet(
        &mut harness,
        (client, 0),
        Opcode::Start,
        Amcast::new(OWN, 1).with_message(ID, own),
    );
    let now = harness.time();
    assert!(harness.members[0].as_mut().expect("alive").lead(now, 2));
    let promise = Amcast { timestamp: LogicalTime(1), ..Amcast::new(OWN, 2) };
    deliver_packet(&mut harness, (2, 0), Opcode::AmcastPromise, promise);
    assert!(harness.members[0].as_ref().expect("alive").is_leader());
    // An acknowledgement of the previous epoch arrives late.
    deliver_packet(&mut harness, (1, 0), Opcode::AmcastAck, cumulative_ack(OWN, 1, 1));
    assert_eq!(decided(&harness, 0), 0, "only the leader has accepted it in this epoch");
    deliver_packet(&mut harness, (1, 0), Opcode::AmcastAck, cumulative_ack(OWN, 2, 1));
    assert_eq!(decided(&harness, 0), 1);
}

//= spec/amcast.md#R7
//= spec/amcast.md#R8
#[test]
fn ack_of_other_group_in_earlier_epoch_does_not_count() {
    let other = GroupId(1);
    let (mut harness, both) = (harness(&[3, 3]), GroupSet::EMPTY.with(OWN).with(other));
    let client = harness.groups.clients[0].0;
    deliver_packet(
        &mut harness,
        (client, 0),
        Opcode::Start,
        Amcast::new(OWN, 1).with_message(ID, both),
    );
    deliver_packet(&mut harness, (1, 0), Opcode::AmcastAck, cumulative_ack(OWN, 1, 1));
    // Members 3 to 5 are the other group; its first position in epoch 1 is not known here.
    deliver_packet(&mut harness, (4, 0), Opcode::AmcastAck, cumulative_ack(other, 1, 1));
    deliver_packet(&mut harness, (3, 0), Opcode::AmcastAck, first(other, 2, both));
    assert_eq!(decided(&harness, 0), 0, "one of three has accepted it");
    deliver_packet(&mut harness, (4, 0), Opcode::AmcastAck, cumulative_ack(other, 2, 1));
    assert_eq!(decided(&harness, 0), 1);
}

/// Returns the acknowledgements that a member has queued for another one.
fn acks(harness: &mut Harness, (src, dst): (u32, u32)) -> Vec<Amcast> {
    let (now, mut slot, mut acks) = (harness.time(), [0; 256], Vec::new());
    let member = harness.members[src as usize].as_mut().expect("alive");
    while let Some(sent) = member.poll_transmit(now, &mut slot) {
        let frame = Frame::parse(&slot[..sent.bytes]).expect("sealed");
        if (frame.header.dst(), frame.opcode) == (ProcessId(dst), Opcode::AmcastAck) {
            let packets = Amcast::packets(frame.opcode, frame.payload);
            acks.extend(packets.map(|packet| packet.expect("sealed").0));
        }
    }
    acks
}

/// Returns the proposal of the message at a position in an epoch.
fn proposal(position: u64, epoch: u32) -> Amcast {
    let id = MessageId { client: 0, sequence: position as u32 };
    let body = Amcast::new(OWN, epoch).with_message(id, GroupSet::EMPTY.with(OWN));
    Amcast { timestamp: LogicalTime(position + 1), position, count: position + 1, ..body }
}

//= spec/amcast.md#R6
#[test]
fn one_ack_covers_batch_of_positions() {
    let mut harness = harness(&[3]);
    for position in 0..3 {
        let (leader, own) = (ProcessId(0), ProcessId(1));
        let mut frame = harness.frame(leader, own, Opcode::Prop, &proposal(position, 1));
        let now = harness.time();
        let member = harness.members[1].as_mut().expect("alive");
        member.handle_frame(now, Port(0), &mut frame);
    }
    let acks = acks(&mut harness, (1, 0));
    let [ack] = acks[..] else { panic!("one acknowledgement: {acks:?}") };
    assert_eq!((ack.has(Amcast::MESSAGE), ack.epoch, ack.position), (false, 1, 3));
}

//= spec/amcast.md#R6
#[test]
fn no_cumulative_ack_after_decision_of_later_epoch() {
    let mut harness = harness(&[3]);
    let decided = proposal(0, 2);
    let flags = decided.flags | Amcast::DECIDED;
    let decided = Amcast { flags, barrier: decided.timestamp, ..decided };
    deliver_packet(&mut harness, (2, 1), Opcode::Prop, decided);
    acks(&mut harness, (1, 0));
    deliver_packet(&mut harness, (0, 1), Opcode::Prop, proposal(1, 1));
    let acks = acks(&mut harness, (1, 0));
    let of_message = |ack: &Amcast| ack.has(Amcast::MESSAGE) && !ack.has(Amcast::BEFORE);
    assert!(acks.iter().any(|ack| of_message(ack) && ack.position == 1), "{acks:?}");
    assert!(acks.iter().all(|ack| of_message(ack) || ack.position == 0), "{acks:?}");
}

//= spec/amcast.md#R5
#[test]
fn timestamp_of_other_group_raises_clock() {
    let (mut harness, other) = (harness(&[3, 3]), GroupId(1));
    let both = GroupSet::EMPTY.with(OWN).with(other);
    let far = Amcast { timestamp: LogicalTime(10), ..first(other, 1, both) };
    deliver_packet(&mut harness, (3, 1), Opcode::AmcastAck, far);
    let acks = acks(&mut harness, (1, 2));
    assert!(acks.iter().any(|ack| ack.group == OWN && ack.clock == LogicalTime(10)), "{acks:?}");
}
