//! Invalid calls and packets, lagging members and replicas, and crashed clients.

use crate::harness;

use harness::{Harness, Plan};
use onepipe_amcast::{AmcastError, Client, Config, DeliveryPoint, GroupId, GroupSet};
use onepipe_base::Machine;
use onepipe_wire::{Amcast, Frame, Opcode};

fn calm(messages: u32, window: u32) -> Plan {
    Plan { messages, window, members: vec![3, 3], ..Plan::calm() }
}

//= spec/amcast.md#R29
//= spec/amcast.md#R34
#[test]
fn send_errors_report_limit() {
    let harness = Harness::new(calm(0, 2));
    let process = harness.groups.clients[0];
    let config = |groups: &onepipe_amcast::Groups| Config::new(process, groups.clone());
    let mut client = Client::new(config(&harness.groups)).expect("right");
    let (now, own) = (harness.time(), GroupSet::EMPTY.with(GroupId(0)));
    assert_eq!(client.amcast(now, GroupSet::EMPTY, b""), Err(AmcastError::NoGroup));
    let unknown = client.amcast(now, own.with(GroupId(2)), b"");
    assert_eq!(unknown, Err(AmcastError::UnknownGroup(GroupId(2))));
    let limit = harness.groups.message_len_max();
    let long = client.amcast(now, own, &vec![0; limit + 1]);
    assert_eq!(long, Err(AmcastError::TooLong { got: limit + 1, limit }));
    assert!(client.amcast(now, own, &vec![0; limit]).is_ok());
    assert!(client.amcast(now, own, b"").is_ok());
    assert_eq!(client.amcast(now, own, b""), Err(AmcastError::WindowFull(2)));
    let mut few = harness.groups.clone();
    few.message_groups_max = 1;
    let mut client = Client::new(config(&few)).expect("right");
    let many = client.amcast(now, own.with(GroupId(1)), b"");
    assert_eq!(many, Err(AmcastError::TooManyGroups { got: 2, limit: 1 }));
}

//= spec/amcast.md#R33
#[test]
fn unknown_and_invalid_frames_have_no_effect() {
    let mut harness = Harness::new(calm(0, 2));
    let before = harness.members[0].clone().expect("alive");
    let from_client = harness.groups.clients[0];
    let replica = harness.groups.groups[1].replicas[0];
    let id = onepipe_amcast::MessageId { client: 0, sequence: 0 };
    let own = GroupSet::EMPTY.with(GroupId(0));
    let start = Amcast::new(GroupId(0), 1).with_message(id, own);
    let cases = [
        // Another client's id, an unknown group, a group that is no destination.
        (replica, Opcode::Start, start),
        (from_client, Opcode::Start, Amcast { groups: own.with(GroupId(9)), ..start }),
        (
            from_client,
            Opcode::Start,
            Amcast { groups: own.with(GroupId(1)).without(GroupId(0)), ..start },
        ),
        // Packets of members, sent by a process that is none.
        (from_client, Opcode::Prop, start),
        (replica, Opcode::AmcastAck, start),
        (from_client, Opcode::NewLeader, Amcast::new(GroupId(0), 7)),
        (replica, Opcode::AmcastPromise, Amcast::new(GroupId(0), 7)),
    ];
    for (src, opcode, body) in cases {
        let mut frame = harness.frame(src, harness.groups.groups[0].members[0], opcode, &body);
        let (now, port) = (harness.time(), onepipe_base::Port(0));
        let member = harness.members[0].as_mut().expect("alive");
        member.handle_frame(now, port, &mut frame);
        assert_eq!((member.open(), member.epoch()), (before.open(), before.epoch()), "{opcode:?}");
    }
    let member = harness.members[0].as_ref().expect("alive");
    assert_eq!(member.stats().invalid, 7);
}

/// Drops all frames to the second replica of the first group.
fn drop_to_second_replica(harness: &Harness, frame: &Frame<'_>) -> bool {
    frame.header.dst() == harness.groups.groups[0].replicas[1] && harness.now < 30_000_000
}

//= spec/amcast.md#R31
#[test]
fn lagging_replica_catches_up_without_blocking_others() {
    let mut harness = Harness::new(calm(200, 4));
    harness.drop_filter = drop_to_second_replica;
    harness.run_until(29_000_000);
    let others: Vec<usize> = harness.delivered.iter().map(Vec::len).collect();
    assert!(others[0] > 100 && others[1] == 0 && others[2] > 100, "{others:?}");
    assert_eq!(harness.run(), None);
    assert!(harness.delivered[1].len() > 100);
}

//= spec/amcast.md#R32
#[test]
fn replica_joins_with_state_of_another() {
    let mut harness = Harness::new(calm(200, 4));
    harness.run_until(300_000);
    harness.replicas[1] = None;
    harness.run_until(600_000);
    let point =
        harness.replicas[0].as_ref().expect("alive").point().expect("the replica has delivered");
    // Encode and decode it, as it is stored with the state.
    assert_eq!(DeliveryPoint::from_bytes(point.to_bytes()), point);
    harness.join(1, point, 0);
    let before = harness.delivered[1].len();
    assert_eq!(harness.run(), None);
    assert!(harness.delivered[1].len() > before + 20, "{before}");
}

//= spec/amcast.md#R31
#[test]
fn replica_beyond_history_is_behind() {
    let mut harness = Harness::new(Plan { history: 4, ..calm(200, 4) });
    harness.drop_filter = drop_to_second_replica;
    let wrong = harness.run().expect("the replica cannot continue");
    assert!(wrong.starts_with("a replica is behind"), "{wrong}");
}

//= spec/amcast.md#R30
#[test]
fn busy_leader_refuses_without_loss() {
    let mut harness = Harness::new(Plan { busy_threshold: 1, clients: 3, ..calm(60, 8) });
    assert_eq!(harness.run(), None);
    let busy: u64 = harness.clients.iter().flatten().map(|client| client.stats().busy).sum();
    assert!(busy > 50, "{busy}");
}

//= spec/amcast.md#R3
#[test]
fn crashed_client_leaves_no_open_message() {
    // Only the leader of the first group receives from the client.
    fn halfway(harness: &Harness, frame: &Frame<'_>) -> bool {
        frame.opcode == Opcode::Start && frame.header.dst() != harness.groups.groups[0].members[0]
    }
    let mut harness = Harness::new(calm(0, 4));
    harness.drop_filter = halfway;
    assert!(harness.send_one(0, GroupSet::from_bits(0b11)));
    harness.run_until(1_000);
    harness.clients[0] = None;
    assert_eq!(harness.run(), None);
    assert!(harness.delivered.iter().all(|all| all.len() == 1));
}
