//! Invalid calls and packets, lagging members and replicas, and crashed clients.

mod world;

use onepipe_amcast::{AmcastError, Client, Config, DeliveryPoint, GroupId, GroupSet};
use onepipe_base::Machine;
use onepipe_wire::{Amcast, Frame, Opcode};
use world::{Plan, World};

fn calm(messages: u32, window: u32) -> Plan {
    Plan { messages, window, members: vec![3, 3], ..Plan::calm() }
}

#[test]
fn what_cannot_be_sent_is_an_error_with_its_limit() {
    let world = World::new(calm(0, 2));
    let process = world.groups.clients[0];
    let config = |groups: &onepipe_amcast::Groups| Config::new(process, groups.clone());
    let mut client = Client::new(config(&world.groups)).expect("right");
    let (now, own) = (world.time(), GroupSet::EMPTY.with(GroupId(0)));
    assert_eq!(client.amcast(now, GroupSet::EMPTY, b""), Err(AmcastError::NoGroup));
    let unknown = client.amcast(now, own.with(GroupId(2)), b"");
    assert_eq!(unknown, Err(AmcastError::UnknownGroup(GroupId(2))));
    let limit = world.groups.message_len_max();
    let long = client.amcast(now, own, &vec![0; limit + 1]);
    assert_eq!(long, Err(AmcastError::TooLong { got: limit + 1, limit }));
    assert!(client.amcast(now, own, &vec![0; limit]).is_ok());
    assert!(client.amcast(now, own, b"").is_ok());
    assert_eq!(client.amcast(now, own, b""), Err(AmcastError::WindowFull(2)));
    let mut few = world.groups.clone();
    few.message_groups_max = 1;
    let mut client = Client::new(config(&few)).expect("right");
    let many = client.amcast(now, own.with(GroupId(1)), b"");
    assert_eq!(many, Err(AmcastError::TooManyGroups { got: 2, limit: 1 }));
}

#[test]
fn frames_of_strangers_and_of_nonsense_have_no_effect() {
    let mut world = World::new(calm(0, 2));
    let before = world.members[0].clone().expect("alive");
    let from_client = world.groups.clients[0];
    let replica = world.groups.groups[1].replicas[0];
    let id = onepipe_amcast::MessageId { client: 0, sequence: 0 };
    let own = GroupSet::EMPTY.with(GroupId(0));
    let start = Amcast::new(GroupId(0), 1).of(id, own);
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
        let mut frame = world.frame(src, world.groups.groups[0].members[0], opcode, &body);
        let (now, port) = (world.time(), onepipe_base::Port(0));
        let member = world.members[0].as_mut().expect("alive");
        member.handle_frame(now, port, &mut frame);
        assert_eq!((member.open(), member.epoch()), (before.open(), before.epoch()), "{opcode:?}");
    }
    let member = world.members[0].as_ref().expect("alive");
    assert_eq!(member.stats().foreign, 7);
}

/// Drops all frames to the second replica of the first group.
fn deaf(world: &World, frame: &Frame<'_>) -> bool {
    frame.header.dst() == world.groups.groups[0].replicas[1] && world.now < 30_000_000
}

#[test]
fn a_replica_that_lags_asks_for_what_it_missed_and_blocks_nobody() {
    let mut world = World::new(calm(200, 4));
    world.cuts = deaf;
    world.run_until(29_000_000);
    let others: Vec<usize> = world.delivered.iter().map(Vec::len).collect();
    assert!(others[0] > 100 && others[1] == 0 && others[2] > 100, "{others:?}");
    assert_eq!(world.run(), None);
    assert!(world.delivered[1].len() > 100);
}

#[test]
fn a_replica_joins_where_another_one_is_and_goes_on() {
    let mut world = World::new(calm(200, 4));
    world.run_until(300_000);
    world.replicas[1] = None;
    world.run_until(600_000);
    let point = world.replicas[0].as_ref().expect("alive").point().expect("it has delivered");
    // Encode and decode it, as it is stored with the state.
    assert_eq!(DeliveryPoint::from_bytes(point.to_bytes()), point);
    world.join(1, point, 0);
    let before = world.delivered[1].len();
    assert_eq!(world.run(), None);
    assert!(world.delivered[1].len() > before + 20, "{before}");
}

#[test]
fn a_replica_that_missed_more_than_is_kept_is_told_so() {
    let mut world = World::new(Plan { history: 4, ..calm(200, 4) });
    world.cuts = deaf;
    let wrong = world.run().expect("it cannot go on");
    assert!(wrong.starts_with("a replica is behind"), "{wrong}");
}

#[test]
fn a_busy_leader_refuses_and_nothing_is_lost() {
    let mut world = World::new(Plan { busy_threshold: 1, clients: 3, ..calm(60, 8) });
    assert_eq!(world.run(), None);
    let busy: u64 = world.clients.iter().flatten().map(|client| client.stats().busy).sum();
    assert!(busy > 50, "{busy}");
}

#[test]
fn a_client_that_dies_halfway_leaves_nothing_open() {
    // Only the leader of the first group receives from the client.
    fn halfway(world: &World, frame: &Frame<'_>) -> bool {
        frame.opcode == Opcode::Start && frame.header.dst() != world.groups.groups[0].members[0]
    }
    let mut world = World::new(calm(0, 4));
    world.cuts = halfway;
    assert!(world.send_one(0, GroupSet::from_bits(0b11)));
    world.run_until(1_000);
    world.clients[0] = None;
    assert_eq!(world.run(), None);
    assert!(world.delivered.iter().all(|all| all.len() == 1));
}
