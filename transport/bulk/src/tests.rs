//! Groups in threads of one process, over real sockets.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use onepipe_base::{Incarnation, Machine, Mono, Now, ProcessId, Timestamp};
use onepipe_bulk::{Event, Group, Outcome, PIECE_FRONT_LEN, Reason};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_tcp::{connect_members, exchange_values};
use onepipe_transport_udp::{BatchSocket, Config as UdpConfig};
use onepipe_wire::{Header, Opcode, SHORT_HEADER_LEN, seal};

use crate::udp::UdpGroupDriver;
use crate::{Carrier, GroupDriver, JoinError, Listener, ObjectBytes, Rendezvous, RendezvousError};

const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a member that has seen the end waits for the others to see it: frames that announce the
/// end may be lost in the faulty network.
const LINGER: Duration = Duration::from_millis(300);
const WAIT_NS: u64 = 10_000_000;

fn object(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ number as u8)
        .collect()
}

fn machine(carrier: Carrier, n: usize, own: u32) -> Group<ObjectBytes> {
    let config = onepipe_bulk::Config {
        block_len: 1 << 16,
        dead_after_ns: 20_000_000_000,
        ..carrier.config(1, n, own)
    };
    Group::with_memory(config).expect("the configuration is valid")
}

/// The objects received, the outcome and the failures reported.
type MemberResult = (Vec<ObjectBytes>, Option<Outcome>, Vec<(u32, Reason)>);

/// A group driver under test.
trait GroupLike {
    fn group(&mut self) -> &mut Group<ObjectBytes>;
    fn turn(&mut self, on_event: impl FnMut(&mut Group<ObjectBytes>, Event<ObjectBytes>));
}

impl GroupLike for GroupDriver<SystemClock> {
    fn group(&mut self) -> &mut Group<ObjectBytes> {
        self.group_mut()
    }

    fn turn(&mut self, on_event: impl FnMut(&mut Group<ObjectBytes>, Event<ObjectBytes>)) {
        GroupDriver::turn(self, WAIT_NS, on_event).expect("waiting succeeds");
    }
}

impl GroupLike for UdpGroupDriver<SystemClock, ObjectBytes> {
    fn group(&mut self) -> &mut Group<ObjectBytes> {
        self.group_mut()
    }

    fn turn(&mut self, on_event: impl FnMut(&mut Group<ObjectBytes>, Event<ObjectBytes>)) {
        UdpGroupDriver::turn(self, WAIT_NS, on_event);
    }
}

/// Runs a member to the end of its group, or until it has received `leaves_after` objects.
fn run_member(
    mut driver: impl GroupLike,
    objects: &[Vec<u8>],
    leaves_after: usize,
) -> MemberResult {
    let mut unsent = objects.to_vec();
    unsent.reverse();
    let (mut got, mut ended, mut failed) = (Vec::new(), None, Vec::new());
    let is_root = driver.group().config().own == 0;
    let mut linger_since = None;
    while !driver.group().is_done()
        && got.len() < leaves_after
        && linger_since.is_none_or(|at: Instant| at.elapsed() < LINGER)
    {
        if is_root && ended.is_none() {
            while let Some(object) = unsent.pop() {
                if let Err(refused) = driver.group().send(object.into()) {
                    unsent.push(refused.memory.into_vec());
                    break;
                }
            }
            if unsent.is_empty() || !driver.group().failures().is_empty() {
                driver.group().close().expect("the root may send");
            }
        }
        let on_event = |group: &mut Group<ObjectBytes>, event| match event {
            Event::Announced { object, bytes } => {
                group
                    .provide(object, vec![0; bytes as usize].into())
                    .expect("the object is wanted");
            }
            Event::Stable { memory, .. } => got.push(memory),
            Event::Closed(outcome) => ended = Some(outcome),
            Event::Failed(failure) => failed.push((failure.rank, failure.reason)),
            _ => {}
        };
        driver.turn(on_event);
        if ended.is_some() {
            linger_since.get_or_insert_with(Instant::now);
        }
    }
    (got, ended, failed)
}

/// A member that exits is detected by its links, long before its timeout.
#[test]
fn departed_member_is_detected_at_once_over_every_carrier() {
    let objects: Vec<Vec<u8>> = (0..30).map(|at| object(at, 300_000)).collect();
    for carrier in Carrier::ALL.iter().copied() {
        let began = Instant::now();
        let open = |_| {
            Listener::bind("127.0.0.1:0".parse().expect("a valid address"))
                .expect("the listener binds")
        };
        let doors: Vec<Listener> = (0..4).map(open).collect();
        let members: Vec<SocketAddr> = doors.iter().map(Listener::address).collect();
        let run_member = |own: u32| {
            let rendezvous = Rendezvous { group: 1, members: &members, own, timeout: TIMEOUT };
            let group = machine(carrier, 4, own);
            let clock = SystemClock::calibrated();
            let driver =
                GroupDriver::join(carrier, group, &rendezvous, &doors[own as usize], clock);
            run_member(
                driver.expect("all members connect"),
                &objects,
                if own == 2 { 3 } else { usize::MAX },
            )
        };
        let mut all: Vec<MemberResult> = thread::scope(|scope| {
            let run_member = &run_member;
            let all: Vec<_> = (0..4).map(|own| scope.spawn(move || run_member(own))).collect();
            all.into_iter()
                .map(|member| member.join().expect("the thread does not panic"))
                .collect()
        });
        all.remove(2);
        for (got, ended, failed) in &all {
            assert_eq!((ended, failed.len()), (&Some(Outcome::Failed), 1), "{carrier:?}");
            assert_eq!(failed[0], (2, Reason::Link), "{carrier:?}");
            assert!(got.len() >= 3 && got[..] == objects[..all[0].0.len()], "{carrier:?}");
        }
        assert!(began.elapsed() < Duration::from_secs(15), "{carrier:?}");
    }
}

/// A network between sockets that injects faults.
#[derive(Debug)]
struct FaultyNetwork {
    is_over: AtomicBool,
    frames: AtomicU64,
    faulted: AtomicU64,
}

/// Relays frames and injects a fault into one of `one_in`: it is lost, altered, duplicated, or
/// delayed behind later ones.
fn forward(from: &UdpSocket, to: SocketAddr, network: &FaultyNetwork, one_in: u64) {
    from.set_read_timeout(Some(Duration::from_millis(20))).expect("the system opens a socket");
    let mut delayed: Option<Vec<u8>> = None;
    let mut word = u64::from(to.port());
    let mut frame = [0; 2048];
    let mut since_delayed = 0;
    while !network.is_over.load(Ordering::Relaxed) {
        let Ok(bytes) = from.recv(&mut frame) else { continue };
        network.frames.fetch_add(1, Ordering::Relaxed);
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chance = word >> 33;
        let frame = &mut frame[..bytes];
        let is_faulted = chance.is_multiple_of(one_in);
        network.faulted.fetch_add(u64::from(is_faulted), Ordering::Relaxed);
        let times = match (chance / one_in) % 4 {
            _ if !is_faulted => 1,
            0 => 0,
            1 => {
                frame[(chance >> 8) as usize % bytes] ^= 1 << (chance & 7);
                1
            }
            2 => 2,
            _ => {
                delayed = Some(frame.to_vec());
                since_delayed = 0;
                0
            }
        };
        for _ in 0..times {
            // A frame that the socket refuses is lost, as in a network.
            let _ = from.send_to(frame, to);
        }
        since_delayed += 1;
        if since_delayed > 8
            && let Some(late) = delayed.take()
        {
            let _ = from.send_to(&late, to);
        }
    }
}

/// Runs a group over UDP with a faulty network between each pair of members.
fn run_over_faulty_network(
    n: usize,
    objects: &[Vec<u8>],
    one_in: u64,
) -> (Vec<MemberResult>, u64, u64) {
    let bind = || {
        let bind = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let config = onepipe_transport_udp::Config { bind, ..Default::default() };
        BatchSocket::bind(&config, n).expect("the loopback is available")
    };
    let inner: Vec<UdpSocket> = (0..n)
        .map(|_| UdpSocket::bind("127.0.0.1:0").expect("the system opens a socket"))
        .collect();
    let network = Arc::new(FaultyNetwork {
        is_over: AtomicBool::new(false),
        frames: AtomicU64::new(0),
        faulted: AtomicU64::new(0),
    });
    let exchanges: Vec<BatchSocket> = (0..n).map(|_| bind()).collect();
    let at: Vec<SocketAddr> =
        exchanges.iter().map(|it| it.local_addr().expect("the socket is bound")).collect();
    let begin = Barrier::new(n);
    let got = thread::scope(|scope| {
        for (relay, to) in inner.iter().zip(&at) {
            let network = Arc::clone(&network);
            scope.spawn(move || forward(relay, *to, &network, one_in));
        }
        let (inner, begin) = (&inner, &begin);
        let members: Vec<_> = exchanges
            .into_iter()
            .enumerate()
            .map(|(own, socket)| {
                let peers: Vec<Option<SocketAddr>> = (0..n)
                    .map(|peer| (peer != own).then(|| inner[peer].local_addr().expect("bound")))
                    .collect();
                scope.spawn(move || {
                    let group = machine(Carrier::Udp, n, own as u32);
                    let clock = SystemClock::calibrated();
                    begin.wait();
                    let driver = UdpGroupDriver::new(group, socket, peers, clock);
                    run_member(driver, objects, usize::MAX)
                })
            })
            .collect();
        let got =
            members.into_iter().map(|member| member.join().expect("the thread does not panic"));
        let got = got.collect();
        network.is_over.store(true, Ordering::Relaxed);
        got
    });
    (got, network.frames.load(Ordering::Relaxed), network.faulted.load(Ordering::Relaxed))
}

#[test]
fn lost_altered_doubled_or_reordered_frames_do_no_harm() {
    let sizes = [0, 1, 1_355, 1_357, 700_000, 65_536, 3, 250_001];
    let objects: Vec<Vec<u8>> = (0..).zip(sizes).map(|(at, bytes)| object(at, bytes)).collect();
    for n in [2, 5] {
        let (all, frames, faulted) = run_over_faulty_network(n, &objects, 20);
        assert!(frames > 700 && faulted > frames / 40, "{faulted} of {frames}");
        for (got, ended, failed) in all {
            assert_eq!((ended, failed), (Some(Outcome::Complete), vec![]));
            assert!(got == objects, "all bytes at {n} members");
        }
    }
}

/// Sends small objects one by one, each once the previous one is stable. Frames that follow the
/// announcement of stability must find the memory of the previous object returned.
#[test]
fn returned_memory_receives_the_next_object() {
    const OBJECTS: u32 = 300;
    for carrier in Carrier::ALL.iter().copied() {
        let open = |_| {
            Listener::bind("127.0.0.1:0".parse().expect("a valid address"))
                .expect("the listener binds")
        };
        let doors: Vec<Listener> = (0..2).map(open).collect();
        let members: Vec<SocketAddr> = doors.iter().map(Listener::address).collect();
        let join = |own: u32| {
            let rendezvous = Rendezvous { group: 1, members: &members, own, timeout: TIMEOUT };
            let clock = SystemClock::calibrated();
            let group = machine(carrier, 2, own);
            GroupDriver::join(carrier, group, &rendezvous, &doors[own as usize], clock)
                .expect("both members connect")
        };
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut driver = join(1);
                driver.group_mut().offer_memory(vec![0].into());
                while !driver.group().is_done() {
                    let on_event = |group: &mut Group<ObjectBytes>, event| {
                        if let Event::Stable { memory, .. } = event {
                            group.offer_memory(memory);
                        }
                    };
                    driver.turn(WAIT_NS, on_event).expect("waiting succeeds");
                }
                assert_eq!(driver.group().outcome(), Some(Outcome::Complete));
            });
            let mut driver = join(0);
            for number in 0..OBJECTS {
                driver.group_mut().send(vec![number as u8].into()).expect("no object is in flight");
                let mut is_stable = false;
                while !is_stable {
                    let on_event = |_: &mut Group<ObjectBytes>, event| {
                        is_stable |= matches!(event, Event::Stable { .. });
                    };
                    driver.turn(WAIT_NS, on_event).expect("waiting succeeds");
                    let took = began.elapsed();
                    assert!(took < Duration::from_secs(20), "{carrier:?}: {number} in {took:?}");
                }
            }
            driver.group_mut().close().expect("the root may send");
            while !driver.group().is_done() {
                driver.turn(WAIT_NS, |_, _| {}).expect("waiting succeeds");
            }
        });
    }
}

/// Opens a listener for each of `n` members.
fn open_listeners(n: usize) -> Vec<Listener> {
    let address = "127.0.0.1:0".parse().expect("a valid address");
    (0..n).map(|_| Listener::bind(address).expect("the listener binds")).collect()
}

/// One of three members has begun with short frames: all use these. Otherwise all use long ones.
//= spec/bulk.md#R31
#[test]
fn members_agree_on_the_shortest_frame_over_udp() {
    let objects = [object(0, 200_000), object(1, 0), object(2, 1_400)];
    let short = Carrier::Udp.config(1, 3, 0).frame_len_max;
    for (begun, frame_len) in [(None, 61_440 + PIECE_FRONT_LEN), (Some(0), short), (Some(2), short)]
    {
        let listeners = open_listeners(3);
        let members: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
        let run = |own: u32| {
            let mut group = machine(Carrier::Udp, 3, own);
            if begun == Some(own) {
                group.handle_timeout(Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(0) });
            }
            let rendezvous = Rendezvous { group: 1, members: &members, own, timeout: TIMEOUT };
            let (listener, clock) = (&listeners[own as usize], SystemClock::calibrated());
            let driver = GroupDriver::join(Carrier::Udp, group, &rendezvous, listener, clock);
            let driver = driver.expect("all members connect");
            let config = driver.group().config();
            let piece_len = config.piece_len as usize;
            assert_eq!((config.frame_len_max, piece_len + PIECE_FRONT_LEN), (frame_len, frame_len));
            run_member(driver, &objects, usize::MAX)
        };
        thread::scope(|scope| {
            let run = &run;
            let all: Vec<_> = (0..3).map(|own| scope.spawn(move || run(own))).collect();
            for member in all {
                let (got, ended, failed) = member.join().expect("the thread does not panic");
                assert_eq!((ended, failed), (Some(Outcome::Complete), vec![]));
                assert!(got == objects, "{begun:?}");
            }
        });
    }
}

/// The peer sends what earlier versions do, a port alone, or a length alone.
//= spec/bulk.md#R31
#[test]
fn member_without_a_frame_length_is_refused() {
    for value in [40_000, 1_472 << 16] {
        let listeners = open_listeners(2);
        let members: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
        let rendezvous = |own| Rendezvous { group: 1, members: &members, own, timeout: TIMEOUT };
        thread::scope(|scope| {
            scope.spawn(|| {
                let streams = connect_members(&rendezvous(1), &listeners[1]).expect("it connects");
                exchange_values(&rendezvous(1), &streams, value).expect("the other sends a value");
            });
            let (group, clock) = (machine(Carrier::Udp, 2, 0), SystemClock::calibrated());
            let joined =
                GroupDriver::join(Carrier::Udp, group, &rendezvous(0), &listeners[0], clock);
            let Err(JoinError::Rendezvous(RendezvousError::Member { rank, source, .. })) = joined
            else {
                panic!("the member is refused")
            };
            assert_eq!((rank, source.kind()), (1, std::io::ErrorKind::InvalidData));
        });
    }
}

/// A stranger's frame in the name of a member is dropped once that member was received.
//= spec/bulk.md#R32
#[test]
fn stranger_cannot_speak_as_a_member() {
    let socket = || UdpSocket::bind("127.0.0.1:0").expect("the loopback is available");
    let (member, stranger) = (socket(), socket());
    let config = UdpConfig { bind: Some(([127, 0, 0, 1], 0).into()), ..UdpConfig::default() };
    let own = BatchSocket::bind(&config, 2).expect("the loopback is available");
    let to = own.local_addr().expect("bound");
    let peers = vec![None, member.local_addr().ok()];
    let group = machine(Carrier::Udp, 2, 0);
    let mut driver = UdpGroupDriver::new(group, own, peers, SystemClock::calibrated());
    let mut frame = [0; SHORT_HEADER_LEN];
    let header = Header::new(Opcode::BulkAck, ProcessId(1), ProcessId(0), Incarnation(1));
    let len = seal(&mut frame, header, 0);
    // Before the member was received, it may be one with several addresses.
    for (from, dropped) in [(&stranger, 0), (&member, 0), (&stranger, 1), (&member, 1)] {
        from.send_to(&frame[..len], to).expect("sent");
        let (began, before) = (Instant::now(), driver.frames_misattributed());
        while driver.turn(1_000_000, |_, _| {}).frames_received == 0
            && driver.frames_misattributed() == before
        {
            assert!(began.elapsed() < TIMEOUT, "the frame does not arrive");
        }
        assert_eq!(driver.frames_misattributed(), dropped);
    }
}
