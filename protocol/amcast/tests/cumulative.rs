//! A cumulative acknowledgement covers all positions before it, in its own epoch only. Halves of a
//! majority in two epochs do not add up.

mod world;

use onepipe_amcast::{GroupId, GroupSet, LogicalTime, MessageId};
use onepipe_base::{Machine, Port, ProcessId};
use onepipe_wire::{Amcast, Opcode};
use world::{Plan, World};

/// The group under test; its first member leads first.
const OWN: GroupId = GroupId(0);
const ID: MessageId = MessageId { client: 0, sequence: 0 };

fn world(members: &[usize]) -> World {
    World::new(Plan { members: members.to_vec(), ..Plan::calm() })
}

fn hand(world: &mut World, (src, dst): (u32, u32), opcode: Opcode, body: Amcast) {
    let mut frame = world.frame(ProcessId(src), ProcessId(dst), opcode, &body);
    let now = world.time();
    let member = world.members[dst as usize].as_mut().expect("alive");
    member.handle_frame(now, Port(0), &mut frame);
    member.handle_timeout(now);
}

/// Returns a cumulative acknowledgement of all positions before `until` in `epoch`.
fn taken(group: GroupId, epoch: u32, until: u64) -> Amcast {
    Amcast { position: until, ..Amcast::new(group, epoch) }
}

/// Returns the first position of a group's log in an epoch.
fn first(group: GroupId, epoch: u32, groups: GroupSet) -> Amcast {
    Amcast { timestamp: LogicalTime(1), count: 1, ..Amcast::new(group, epoch).of(ID, groups) }
}

fn decided(world: &World, member: usize) -> u64 {
    world.members[member].as_ref().expect("alive").stats().decided
}

#[test]
fn what_was_taken_before_does_not_count_for_who_takes_it_in_a_later_epoch() {
    let (mut world, own) = (world(&[5]), GroupSet::EMPTY.with(OWN));
    // Member 1 has accepted the first position of an epoch that member 2 knows nothing else of.
    hand(&mut world, (1, 2), Opcode::AmcastAck, taken(OWN, 1, 1));
    hand(&mut world, (0, 2), Opcode::NewLeader, Amcast::new(OWN, 2));
    hand(&mut world, (0, 2), Opcode::Prop, first(OWN, 2, own));
    assert_eq!(decided(&world, 2), 0, "its leader and itself are two of five");
    hand(&mut world, (1, 2), Opcode::AmcastAck, taken(OWN, 2, 1));
    assert_eq!(decided(&world, 2), 1);
}

#[test]
fn what_was_taken_before_does_not_count_for_a_leader_that_leads_again() {
    let (mut world, own) = (world(&[3]), GroupSet::EMPTY.with(OWN));
    let client = world.groups.clients[0].0;
    hand(&mut world, (client, 0), Opcode::Start, Amcast::new(OWN, 1).of(ID, own));
    let now = world.time();
    assert!(world.members[0].as_mut().expect("alive").lead(now, 2));
    let promise = Amcast { timestamp: LogicalTime(1), ..Amcast::new(OWN, 2) };
    hand(&mut world, (2, 0), Opcode::AmcastPromise, promise);
    assert!(world.members[0].as_ref().expect("alive").is_leader());
    // An acknowledgement of the previous epoch arrives late.
    hand(&mut world, (1, 0), Opcode::AmcastAck, taken(OWN, 1, 1));
    assert_eq!(decided(&world, 0), 0, "it alone has it in this epoch");
    hand(&mut world, (1, 0), Opcode::AmcastAck, taken(OWN, 2, 1));
    assert_eq!(decided(&world, 0), 1);
}

#[test]
fn what_another_group_has_taken_before_does_not_count_for_what_its_next_leader_says() {
    let other = GroupId(1);
    let (mut world, both) = (world(&[3, 3]), GroupSet::EMPTY.with(OWN).with(other));
    let client = world.groups.clients[0].0;
    hand(&mut world, (client, 0), Opcode::Start, Amcast::new(OWN, 1).of(ID, both));
    hand(&mut world, (1, 0), Opcode::AmcastAck, taken(OWN, 1, 1));
    // Members 3 to 5 are the other group; its first position in epoch 1 is not known here.
    hand(&mut world, (4, 0), Opcode::AmcastAck, taken(other, 1, 1));
    hand(&mut world, (3, 0), Opcode::AmcastAck, first(other, 2, both));
    assert_eq!(decided(&world, 0), 0, "one of three has taken it there");
    hand(&mut world, (4, 0), Opcode::AmcastAck, taken(other, 2, 1));
    assert_eq!(decided(&world, 0), 1);
}
