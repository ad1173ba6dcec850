use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onepipe_base::{Incarnation, Port, ProcessId};
use onepipe_bulk::{Config, Event, Group, GroupId, Link, Member, Outcome, PIECE_FRONT_LEN};
use onepipe_transport_clock::SystemClock;

use crate::{GroupState, Listener, Rendezvous, RendezvousError, TcpGroupDriver, connect_members};

const TIMEOUT: Duration = Duration::from_secs(30);
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

/// The objects received, the outcome and the failures reported.
type MemberResult = (Vec<Vec<u8>>, Option<Outcome>, Vec<u32>);

/// Runs a member to the end of its group, or until it has received `leaves_after` objects.
fn run_member(
    mut driver: TcpGroupDriver<SystemClock>,
    mut unsent: Vec<Vec<u8>>,
    leaves_after: usize,
) -> MemberResult {
    unsent.reverse();
    let (mut got, mut ended, mut failed) = (Vec::new(), None, Vec::new());
    let is_root = driver.group().config().own == 0;
    while !driver.group().is_done() && got.len() < leaves_after {
        if is_root && ended.is_none() {
            while let Some(object) = unsent.pop() {
                if let Err(refused) = driver.group_mut().send(object) {
                    unsent.push(refused.memory);
                    break;
                }
            }
            if unsent.is_empty() || !driver.group().failures().is_empty() {
                driver.group_mut().close().expect("the root may send");
            }
        }
        let on_event = |group: &mut Group, event| match event {
            Event::Announced { object, bytes } => {
                group.provide(object, vec![0; bytes as usize]).expect("the object is wanted");
            }
            Event::Stable { memory, .. } => got.push(memory),
            Event::Closed(outcome) => ended = Some(outcome),
            Event::Failed(failure) => failed.push(failure.rank),
            _ => {}
        };
        driver.turn(WAIT_NS, on_event).expect("waiting succeeds");
    }
    (got, ended, failed)
}

/// Runs members in threads of their own; `leaves_after` gives how many objects each receives.
fn group(
    n: u32,
    objects: &[Vec<u8>],
    leaves_after: impl Fn(u32) -> usize,
) -> Vec<JoinHandle<MemberResult>> {
    let open = |_| {
        Listener::bind("127.0.0.1:0".parse().expect("a valid address")).expect("the listener binds")
    };
    let listeners: Vec<Listener> = (0..n).map(open).collect();
    let members: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    (0..n)
        .zip(listeners)
        .map(|(own, listener)| {
            let (members, unsent, leaves_after) =
                (members.clone(), objects.to_vec(), leaves_after(own));
            std::thread::spawn(move || {
                let rendezvous = Rendezvous { group: 1, members: &members, own, timeout: TIMEOUT };
                let streams = connect_members(&rendezvous, &listener).expect("all members connect");
                let group = Group::new(config(n, own)).expect("the configuration is valid");
                let driver = TcpGroupDriver::new(group, streams, SystemClock::calibrated())
                    .expect("sockets");
                run_member(driver, unsent, leaves_after)
            })
        })
        .collect()
}

#[test]
fn objects_of_every_size_reach_every_member() {
    let sizes = [0, 1, 59_999, 60_001, 3, 1 << 18, 5_000_001, 4_100, 0, 700_000];
    let objects: Vec<Vec<u8>> = (0..).zip(sizes).map(|(at, bytes)| object(at, bytes)).collect();
    for n in [1, 2, 5] {
        for member in group(n, &objects, |_| usize::MAX) {
            let (got, ended, failed) = member.join().expect("the thread does not panic");
            assert_eq!((ended, failed), (Some(Outcome::Complete), vec![]));
            assert!(got == objects, "all bytes at {n} members");
        }
    }
}

#[test]
fn departed_member_is_reported_and_survivors_agree() {
    let objects: Vec<Vec<u8>> = (0..30).map(|at| object(at, 1_000_000)).collect();
    let members = group(4, &objects, |rank| if rank == 2 { 3 } else { usize::MAX });
    let mut got: Vec<MemberResult> = members
        .into_iter()
        .map(|member| member.join().expect("the thread does not panic"))
        .collect();
    got.remove(2);
    for (own, ended, failed) in &got {
        assert_eq!((ended, &failed[..]), (&Some(Outcome::Failed), &[2][..]));
        assert!(own.len() >= 3 && own.len() == got[0].0.len());
        assert!(own == &objects[..own.len()]);
    }
}

#[test]
fn absent_member_is_named() {
    let listeners = [0, 1].map(|_| {
        Listener::bind("127.0.0.1:0".parse().expect("a valid address")).expect("the listener binds")
    });
    // Its port was just closed.
    let nobody = Listener::bind("127.0.0.1:0".parse().expect("a valid address"))
        .expect("the listener binds")
        .address();
    let members = [listeners[0].address(), listeners[1].address(), nobody];
    let both = [0, 1].map(|own: u32| {
        let listener = listeners[own as usize].clone();
        std::thread::spawn(move || {
            let timeout = Duration::from_millis(300);
            let rendezvous = Rendezvous { group: 1, members: &members, own, timeout };
            connect_members(&rendezvous, &listener).expect_err("one is missing")
        })
    });
    for member in both {
        let error = member.join().expect("the thread does not panic");
        assert_eq!(error.rank(), Some(2), "{error}");
        assert!(error.to_string().contains(&nobody.to_string()), "{error}");
    }
    // No member connects to the last one.
    let rendezvous =
        Rendezvous { group: 9, members: &members[..2], own: 1, timeout: Duration::ZERO };
    let error = connect_members(&rendezvous, &listeners[1]).expect_err("the root does not connect");
    assert!(matches!(error, RendezvousError::Member { rank: 0, .. }), "{error}");
}

#[test]
fn unknown_connections_are_ignored_and_app_ones_accepted() {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    let listener = Listener::bind("127.0.0.1:0".parse().expect("a valid address"))
        .expect("the listener binds");
    let mut unknown =
        TcpStream::connect(listener.address()).expect("the listener accepts connections");
    unknown.write_all(b"GET / HTTP/1.1\r\nHost: onepipe\r\n\r\n").expect("the id is taken");
    let _half = TcpStream::connect(listener.address()).expect("the listener accepts connections");
    let accept_app = Listener::connect_app(listener.address(), TIMEOUT)
        .expect("the listener accepts connections");
    (&accept_app).write_all(b"hello").expect("the id is taken");
    let mut accepted = listener
        .accept_app(Instant::now() + TIMEOUT)
        .expect("the listener binds")
        .expect("a connection of the application");
    let mut bytes = [0; 5];
    accepted.read_exact(&mut bytes).expect("the peer has sent its data");
    assert_eq!(&bytes, b"hello");
    assert_eq!(listener.accept_app(Instant::now()).expect("the listener binds").map(|_| ()), None);
}

#[test]
fn waiting_member_learns_the_group_state() {
    let listeners = [0, 1].map(|_| {
        Listener::bind("127.0.0.1:0".parse().expect("a valid address")).expect("the listener binds")
    });
    let members = [listeners[0].address(), listeners[1].address()];
    let come = |timeout_ms| {
        let timeout = Duration::from_millis(timeout_ms);
        let rendezvous = Rendezvous { group: 7, members: &members, own: 1, timeout };
        connect_members(&rendezvous, &listeners[1]).expect_err("the root does not connect")
    };
    let reported_state = |error: RendezvousError| match error {
        RendezvousError::GroupClosed { group: 7, group_state, by: 0, address }
            if address == members[0] =>
        {
            group_state
        }
        error => panic!("{error}"),
    };
    // A listener answers although no caller waits and no group runs. An abandoned group may only
    // have to be started again.
    assert_eq!(reported_state(come(700)), GroupState::Unknown);
    listeners[0].set_group_state(7, GroupState::Abandoned);
    assert_eq!(reported_state(come(700)), GroupState::Abandoned);
    // For these states waiting is pointless.
    for group_state in [GroupState::Running, GroupState::Ended] {
        listeners[0].set_group_state(7, group_state);
        assert_eq!(reported_state(come(60_000)), group_state);
    }
    listeners[0].end_group(8);
    let standings = (listeners[0].group_state(8), listeners[0].group_state(7));
    assert_eq!(standings, (GroupState::Unknown, GroupState::Ended));
    // A process that was a member of the group waits for the next one of its number.
    listeners[1].set_group_state(7, GroupState::Ended);
    assert_eq!(come(700).rank(), Some(0));
}

#[test]
fn listener_closes_with_its_last_clone() {
    use std::net::TcpStream;
    let listener = Listener::bind("127.0.0.1:0".parse().expect("a valid address"))
        .expect("the listener binds");
    let (address, other) = (listener.address(), listener.clone());
    // A connection without a handshake is held.
    let _idle = TcpStream::connect(address).expect("the listener accepts connections");
    drop(listener);
    assert!(TcpStream::connect(address).is_ok(), "the listener accepts connections");
    drop(other);
    assert!(TcpStream::connect(address).is_err(), "the listener is closed");
    Listener::bind(address).expect("the port is free");
}
