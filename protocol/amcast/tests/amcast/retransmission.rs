//! What a leader retransmits to whom after its timeout.

use std::collections::BTreeSet;

use onepipe_amcast::{GroupId, GroupSet, MessageId};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId};
use onepipe_wire::{Amcast, Frame, Opcode};

use crate::harness::{Harness, Plan};

const OWN: GroupId = GroupId(0);
const ID: MessageId = MessageId { client: 0, sequence: 0 };

/// Members of the group; the leader is process 0.
const MEMBERS: u32 = 5;

/// Passes a packet to the leader.
fn deliver(harness: &mut Harness, src: u32, opcode: Opcode, body: Amcast) {
    let mut frame = harness.frame(ProcessId(src), ProcessId(0), opcode, &body);
    let now = harness.time();
    let leader = harness.members[0].as_mut().expect("alive");
    leader.handle_frame(now, Port(0), &mut frame);
    leader.handle_timeout(now);
}

/// Returns what the leader sends at a time: destinations and opcodes.
fn sent(harness: &mut Harness, now: Now) -> Vec<(u32, Opcode)> {
    let (mut slot, mut sent) = ([0; 1_472], Vec::new());
    let leader = harness.members[0].as_mut().expect("alive");
    while let Some(transmit) = leader.poll_transmit(now, &mut slot) {
        let frame = Frame::parse(&slot[..transmit.bytes]).expect("sealed");
        sent.push((frame.header.dst().0, frame.opcode));
    }
    sent
}

/// Returns the members to which frames of an opcode were sent; replicas are behind them.
fn to(sent: &[(u32, Opcode)], opcode: Opcode) -> BTreeSet<u32> {
    sent.iter()
        .filter(|(dst, found)| *found == opcode && *dst < MEMBERS)
        .map(|(dst, _)| *dst)
        .collect()
}

//= spec/amcast.md#R27
#[test]
fn leader_retransmits_proposal_to_members_that_have_not_acked() {
    let mut harness = Harness::new(Plan { members: vec![MEMBERS as usize], ..Plan::calm() });
    let client = harness.groups.clients[0].0;
    let start = Amcast::new(OWN, 1).with_message(ID, GroupSet::EMPTY.with(OWN));
    deliver(&mut harness, client, Opcode::Start, start);
    let now = harness.time();
    let first = sent(&mut harness, now);
    assert_eq!(to(&first, Opcode::Prop), BTreeSet::from([1, 2, 3, 4]));
    // Member 1 has accepted the position: with the leader two of five.
    deliver(&mut harness, 1, Opcode::AmcastAck, Amcast { position: 1, ..Amcast::new(OWN, 1) });
    let _ = sent(&mut harness, now);
    let leader = harness.members[0].as_mut().expect("alive");
    let due: Mono = leader.poll_timeout().expect("the message is not decided");
    let now = Now { mono: due, ..now };
    leader.handle_timeout(now);
    let again = sent(&mut harness, now);
    assert_eq!(to(&again, Opcode::Prop), BTreeSet::from([2, 3, 4]), "member 1 has it");
}
