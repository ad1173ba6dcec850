//! A cumulative acknowledgement covers all positions before it, in its own epoch only. Halves of a
//! majority in two epochs do not add up.

mod harness;

use harness::{Harness, Plan};
use onepipe_amcast::{GroupId, GroupSet, LogicalTime, MessageId};
use onepipe_base::{Machine, Port, ProcessId};
use onepipe_wire::{Amcast, Opcode};

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
    Amcast { timestamp: LogicalTime(1), count: 1, ..Amcast::new(group, epoch).of(ID, groups) }
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
    deliver_packet(&mut harness, (client, 0), Opcode::Start, Amcast::new(OWN, 1).of(ID, own));
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
    deliver_packet(&mut harness, (client, 0), Opcode::Start, Amcast::new(OWN, 1).of(ID, both));
    deliver_packet(&mut harness, (1, 0), Opcode::AmcastAck, cumulative_ack(OWN, 1, 1));
    // Members 3 to 5 are the other group; its first position in epoch 1 is not known here.
    deliver_packet(&mut harness, (4, 0), Opcode::AmcastAck, cumulative_ack(other, 1, 1));
    deliver_packet(&mut harness, (3, 0), Opcode::AmcastAck, first(other, 2, both));
    assert_eq!(decided(&harness, 0), 0, "one of three has accepted it");
    deliver_packet(&mut harness, (4, 0), Opcode::AmcastAck, cumulative_ack(other, 2, 1));
    assert_eq!(decided(&harness, 0), 1);
}
