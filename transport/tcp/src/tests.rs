use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onepipe_base::{Incarnation, Port, ProcessId};
use onepipe_bulk::{Config, Event, Group, GroupId, Link, Member, Outcome, PIECE_FRONT_LEN};
use onepipe_transport_clock::SystemClock;

use crate::{Door, End, MeetError, Meeting, Standing, meet};

const PATIENCE: Duration = Duration::from_secs(30);
const WAIT_NS: u64 = 10_000_000;

fn config(n: u32, own: u32) -> Config {
    let member = |rank: u32| Member {
        process: ProcessId(rank),
        port: Port(rank as u16),
        link: Link::Reliable,
    };
    let piece_len = 60_000;
    Config {
        piece_len,
        frame_len_max: PIECE_FRONT_LEN + piece_len as usize,
        block_len: 1 << 18,
        ..Config::new(GroupId(1), (0..n).map(member).collect(), own, Incarnation(1))
    }
}

fn object(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ number as u8)
        .collect()
}

/// What a member has got, and how it ended.
type Got = (Vec<Vec<u8>>, Option<Outcome>, Vec<u32>);

/// Lives through a group; a member may be told to go after so many objects.
fn live(mut end: End<SystemClock>, mut unsent: Vec<Vec<u8>>, goes_after: usize) -> Got {
    unsent.reverse();
    let (mut got, mut ended, mut failed) = (Vec::new(), None, Vec::new());
    let is_root = end.group().config().own == 0;
    while !end.group().is_done() && got.len() < goes_after {
        if is_root && ended.is_none() {
            while let Some(object) = unsent.pop() {
                if let Err(refused) = end.group_mut().send(object) {
                    unsent.push(refused.memory);
                    break;
                }
            }
            if unsent.is_empty() || !end.group().failures().is_empty() {
                end.group_mut().close().expect("it is the root");
            }
        }
        let on_event = |group: &mut Group, event| match event {
            Event::Announced { object, bytes } => {
                group.provide(object, vec![0; bytes as usize]).expect("it is wanted");
            }
            Event::Stable { memory, .. } => got.push(memory),
            Event::Closed(outcome) => ended = Some(outcome),
            Event::Failed(failure) => failed.push(failure.rank),
            _ => {}
        };
        end.turn(WAIT_NS, on_event).expect("the kernel waits");
    }
    (got, ended, failed)
}

/// Members in threads of their own; of each whether it goes early.
fn group(n: u32, objects: &[Vec<u8>], goes_after: impl Fn(u32) -> usize) -> Vec<JoinHandle<Got>> {
    let open = |_| Door::open("127.0.0.1:0".parse().expect("an address")).expect("a door");
    let doors: Vec<Door> = (0..n).map(open).collect();
    let members: Vec<SocketAddr> = doors.iter().map(Door::address).collect();
    (0..n)
        .zip(doors)
        .map(|(own, door)| {
            let (members, unsent, goes_after) =
                (members.clone(), objects.to_vec(), goes_after(own));
            std::thread::spawn(move || {
                let meeting = Meeting { group: 1, members: &members, own, patience: PATIENCE };
                let streams = meet(&meeting, &door).expect("all are here");
                let group = Group::new(config(n, own)).expect("a group");
                let end = End::new(group, streams, SystemClock::calibrated()).expect("sockets");
                live(end, unsent, goes_after)
            })
        })
        .collect()
}

#[test]
fn every_size_comes_to_everybody_over_sockets() {
    let sizes = [0, 1, 59_999, 60_001, 3, 1 << 18, 5_000_001, 4_100, 0, 700_000];
    let objects: Vec<Vec<u8>> = (0..).zip(sizes).map(|(at, bytes)| object(at, bytes)).collect();
    for n in [1, 2, 5] {
        for member in group(n, &objects, |_| usize::MAX) {
            let (got, ended, failed) = member.join().expect("it does not panic");
            assert_eq!((ended, failed), (Some(Outcome::Complete), vec![]));
            assert!(got == objects, "every byte of {n} members");
        }
    }
}

#[test]
fn whoever_goes_is_missed_and_the_others_have_all() {
    let objects: Vec<Vec<u8>> = (0..30).map(|at| object(at, 1_000_000)).collect();
    let members = group(4, &objects, |rank| if rank == 2 { 3 } else { usize::MAX });
    let mut got: Vec<Got> =
        members.into_iter().map(|member| member.join().expect("it does not panic")).collect();
    got.remove(2);
    for (own, ended, failed) in &got {
        assert_eq!((ended, &failed[..]), (&Some(Outcome::Failed), &[2][..]));
        assert!(own.len() >= 3 && own.len() == got[0].0.len());
        assert!(own == &objects[..own.len()]);
    }
}

#[test]
fn who_is_not_there_is_named() {
    let doors =
        [0, 1].map(|_| Door::open("127.0.0.1:0".parse().expect("an address")).expect("a door"));
    // Nobody listens there: it was just closed.
    let nobody = Door::open("127.0.0.1:0".parse().expect("an address")).expect("a door").address();
    let members = [doors[0].address(), doors[1].address(), nobody];
    let both = [0, 1].map(|own: u32| {
        let door = doors[own as usize].clone();
        std::thread::spawn(move || {
            let patience = Duration::from_millis(300);
            let meeting = Meeting { group: 1, members: &members, own, patience };
            meet(&meeting, &door).expect_err("one is missing")
        })
    });
    for member in both {
        let error = member.join().expect("it does not panic");
        assert_eq!(error.rank(), Some(2), "{error}");
        assert!(error.to_string().contains(&nobody.to_string()), "{error}");
    }
    // Nobody connects to the last one.
    let meeting = Meeting { group: 9, members: &members[..2], own: 1, patience: Duration::ZERO };
    let error = meet(&meeting, &doors[1]).expect_err("the root does not come");
    assert!(matches!(error, MeetError::Member { rank: 0, .. }), "{error}");
}

#[test]
fn strangers_at_the_door_are_ignored_and_guests_let_in() {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    let door = Door::open("127.0.0.1:0".parse().expect("an address")).expect("a door");
    let mut stranger = TcpStream::connect(door.address()).expect("it is open");
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: onepipe\r\n\r\n").expect("it is taken");
    let _half = TcpStream::connect(door.address()).expect("it is open");
    let guest = Door::visit(door.address(), PATIENCE).expect("it is open");
    (&guest).write_all(b"hello").expect("it is taken");
    let mut let_in = door.guest(Instant::now() + PATIENCE).expect("a door").expect("a guest");
    let mut bytes = [0; 5];
    let_in.read_exact(&mut bytes).expect("it has said so");
    assert_eq!(&bytes, b"hello");
    assert_eq!(door.guest(Instant::now()).expect("a door").map(|_| ()), None);
}

#[test]
fn who_waits_in_vain_is_told_how_the_group_stands() {
    let doors =
        [0, 1].map(|_| Door::open("127.0.0.1:0".parse().expect("an address")).expect("a door"));
    let members = [doors[0].address(), doors[1].address()];
    let come = |patience_ms| {
        let patience = Duration::from_millis(patience_ms);
        let meeting = Meeting { group: 7, members: &members, own: 1, patience };
        meet(&meeting, &doors[1]).expect_err("the root does not come")
    };
    let told = |error: MeetError| match error {
        MeetError::Late { group: 7, standing, by: 0, address } if address == members[0] => standing,
        error => panic!("{error}"),
    };
    // A door answers though nobody waits there and no group is at work. It may be that the others
    // only have to be started again.
    assert_eq!(told(come(700)), Standing::Unknown);
    doors[0].note(7, Standing::GivenUp);
    assert_eq!(told(come(700)), Standing::GivenUp);
    // Of these there is nothing to wait for.
    for standing in [Standing::Begun, Standing::Ended] {
        doors[0].note(7, standing);
        assert_eq!(told(come(60_000)), standing);
    }
    doors[0].note_end(8);
    let standings = (doors[0].standing(8), doors[0].standing(7));
    assert_eq!(standings, (Standing::Unknown, Standing::Ended));
    // Whoever has been in a group of the name itself waits for the next one.
    doors[1].note(7, Standing::Ended);
    assert_eq!(come(700).rank(), Some(0));
}

#[test]
fn a_door_is_closed_with_the_last_of_its_clones() {
    use std::net::TcpStream;
    let door = Door::open("127.0.0.1:0".parse().expect("an address")).expect("a door");
    let (address, other) = (door.address(), door.clone());
    // Somebody who says nothing is inside.
    let _silent = TcpStream::connect(address).expect("it is open");
    drop(door);
    assert!(TcpStream::connect(address).is_ok(), "it is open");
    drop(other);
    assert!(TcpStream::connect(address).is_err(), "nobody listens there");
    Door::open(address).expect("its port is free");
}
