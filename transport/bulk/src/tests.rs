//! Groups in threads of one process, over real sockets.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use onepipe_bulk::{Event, Group, Outcome, Reason};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_udp::Exchange;

use crate::datagrams::Datagrams;
use crate::{Bytes, Carrier, Door, End, Meeting};

const PATIENCE: Duration = Duration::from_secs(30);
/// Whoever knows that all is over waits so long for others to have heard that it does: through the
/// weather nobody is told that they are gone.
const FAREWELL: Duration = Duration::from_millis(300);
const WAIT_NS: u64 = 10_000_000;

fn object(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ number as u8)
        .collect()
}

fn machine(carrier: Carrier, n: usize, own: u32) -> Group<Bytes> {
    let config = onepipe_bulk::Config {
        block_len: 1 << 16,
        dead_after_ns: 20_000_000_000,
        ..carrier.config(1, n, own)
    };
    Group::with_memory(config).expect("it can be")
}

/// What a member has got, how it ended, and whom it has heard to have failed.
type Got = (Vec<Bytes>, Option<Outcome>, Vec<(u32, Reason)>);

/// What is driven.
trait Drives {
    fn group(&mut self) -> &mut Group<Bytes>;
    fn turn(&mut self, on_event: impl FnMut(&mut Group<Bytes>, Event<Bytes>));
}

impl Drives for End<SystemClock> {
    fn group(&mut self) -> &mut Group<Bytes> {
        self.group_mut()
    }

    fn turn(&mut self, on_event: impl FnMut(&mut Group<Bytes>, Event<Bytes>)) {
        End::turn(self, WAIT_NS, on_event).expect("the kernel waits");
    }
}

impl Drives for Datagrams<SystemClock, Bytes> {
    fn group(&mut self) -> &mut Group<Bytes> {
        self.group_mut()
    }

    fn turn(&mut self, on_event: impl FnMut(&mut Group<Bytes>, Event<Bytes>)) {
        Datagrams::turn(self, WAIT_NS, on_event);
    }
}

/// Lives through a group; a member may be gone after so many objects, without a word.
fn live(mut end: impl Drives, objects: &[Vec<u8>], gone_after: usize) -> Got {
    let mut unsent = objects.to_vec();
    unsent.reverse();
    let (mut got, mut ended, mut failed) = (Vec::new(), None, Vec::new());
    let is_root = end.group().config().own == 0;
    let mut farewell = None;
    while !end.group().is_done()
        && got.len() < gone_after
        && farewell.is_none_or(|at: Instant| at.elapsed() < FAREWELL)
    {
        if is_root && ended.is_none() {
            while let Some(object) = unsent.pop() {
                if let Err(refused) = end.group().send(object.into()) {
                    unsent.push(refused.memory.into_vec());
                    break;
                }
            }
            if unsent.is_empty() || !end.group().failures().is_empty() {
                end.group().close().expect("it is the root");
            }
        }
        let on_event = |group: &mut Group<Bytes>, event| match event {
            Event::Announced { object, bytes } => {
                group.provide(object, vec![0; bytes as usize].into()).expect("it is wanted");
            }
            Event::Stable { memory, .. } => got.push(memory),
            Event::Closed(outcome) => ended = Some(outcome),
            Event::Failed(failure) => failed.push((failure.rank, failure.reason)),
            _ => {}
        };
        end.turn(on_event);
        if ended.is_some() {
            farewell.get_or_insert_with(Instant::now);
        }
    }
    (got, ended, failed)
}

/// Whoever goes without a word is found to be gone by its links, long before it counts as silent.
#[test]
fn who_is_gone_is_missed_at_once_over_every_carrier() {
    let objects: Vec<Vec<u8>> = (0..30).map(|at| object(at, 300_000)).collect();
    for carrier in Carrier::ALL.iter().copied() {
        let began = Instant::now();
        let open = |_| Door::open("127.0.0.1:0".parse().expect("an address")).expect("a door");
        let doors: Vec<Door> = (0..4).map(open).collect();
        let members: Vec<SocketAddr> = doors.iter().map(Door::address).collect();
        let live = |own: u32| {
            let meeting = Meeting { group: 1, members: &members, own, patience: PATIENCE };
            let group = machine(carrier, 4, own);
            let clock = SystemClock::calibrated();
            let end = End::join(carrier, group, &meeting, &doors[own as usize], clock);
            live(end.expect("all are here"), &objects, if own == 2 { 3 } else { usize::MAX })
        };
        let mut all: Vec<Got> = thread::scope(|scope| {
            let live = &live;
            let all: Vec<_> = (0..4).map(|own| scope.spawn(move || live(own))).collect();
            all.into_iter().map(|member| member.join().expect("it does not panic")).collect()
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

/// What a network does to frames.
#[derive(Debug)]
struct Weather {
    is_over: AtomicBool,
    frames: AtomicU64,
    harmed: AtomicU64,
}

/// Hands on what comes to a socket, and harms one frame in so many: it is lost, altered, doubled,
/// or overtaken by the next one.
fn forward(from: &UdpSocket, to: SocketAddr, weather: &Weather, one_in: u64) {
    from.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
    let mut kept: Option<Vec<u8>> = None;
    let mut word = u64::from(to.port());
    let mut frame = [0; 2048];
    let mut held = 0;
    while !weather.is_over.load(Ordering::Relaxed) {
        let Ok(bytes) = from.recv(&mut frame) else { continue };
        weather.frames.fetch_add(1, Ordering::Relaxed);
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chance = word >> 33;
        let frame = &mut frame[..bytes];
        let is_harmed = chance.is_multiple_of(one_in);
        weather.harmed.fetch_add(u64::from(is_harmed), Ordering::Relaxed);
        let times = match (chance / one_in) % 4 {
            _ if !is_harmed => 1,
            0 => 0,
            1 => {
                frame[(chance >> 8) as usize % bytes] ^= 1 << (chance & 7);
                1
            }
            2 => 2,
            _ => {
                kept = Some(frame.to_vec());
                held = 0;
                0
            }
        };
        for _ in 0..times {
            // What finds no room is lost, as in a network.
            let _ = from.send_to(frame, to);
        }
        held += 1;
        if held > 8
            && let Some(late) = kept.take()
        {
            let _ = from.send_to(&late, to);
        }
    }
}

/// Members of a group over UDP, and between each two a network that harms one frame in so many.
fn weathered(n: usize, objects: &[Vec<u8>], one_in: u64) -> (Vec<Got>, u64, u64) {
    let bind = || {
        let bind = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let config = onepipe_transport_udp::Config { bind, ..Default::default() };
        Exchange::bind(&config, n).expect("the loopback is there")
    };
    let ways: Vec<UdpSocket> =
        (0..n).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket")).collect();
    let weather = Arc::new(Weather {
        is_over: AtomicBool::new(false),
        frames: AtomicU64::new(0),
        harmed: AtomicU64::new(0),
    });
    let exchanges: Vec<Exchange> = (0..n).map(|_| bind()).collect();
    let at: Vec<SocketAddr> =
        exchanges.iter().map(|it| it.local_addr().expect("it is bound")).collect();
    let begin = Barrier::new(n);
    let got = thread::scope(|scope| {
        for (way, to) in ways.iter().zip(&at) {
            let weather = Arc::clone(&weather);
            scope.spawn(move || forward(way, *to, &weather, one_in));
        }
        let (ways, begin) = (&ways, &begin);
        let members: Vec<_> = exchanges
            .into_iter()
            .enumerate()
            .map(|(own, exchange)| {
                let peers: Vec<Option<SocketAddr>> = (0..n)
                    .map(|peer| (peer != own).then(|| ways[peer].local_addr().expect("bound")))
                    .collect();
                scope.spawn(move || {
                    let group = machine(Carrier::Udp, n, own as u32);
                    let clock = SystemClock::calibrated();
                    begin.wait();
                    let end = Datagrams::new(group, exchange, peers, clock);
                    live(end, objects, usize::MAX)
                })
            })
            .collect();
        let got = members.into_iter().map(|member| member.join().expect("it does not panic"));
        let got = got.collect();
        weather.is_over.store(true, Ordering::Relaxed);
        got
    });
    (got, weather.frames.load(Ordering::Relaxed), weather.harmed.load(Ordering::Relaxed))
}

#[test]
fn frames_that_are_lost_altered_doubled_or_overtaken_do_no_harm() {
    let sizes = [0, 1, 1_355, 1_357, 700_000, 65_536, 3, 250_001];
    let objects: Vec<Vec<u8>> = (0..).zip(sizes).map(|(at, bytes)| object(at, bytes)).collect();
    for n in [2, 5] {
        let (all, frames, harmed) = weathered(n, &objects, 20);
        assert!(frames > 700 && harmed > frames / 40, "{harmed} of {frames}");
        for (got, ended, failed) in all {
            assert_eq!((ended, failed), (Some(Outcome::Complete), vec![]));
            assert!(got == objects, "every byte of {n} members");
        }
    }
}

/// One small object after the other, each when the one before is everywhere. What comes behind the
/// word that an object is stable comes when its memory has been given back.
#[test]
fn memory_that_is_given_back_serves_for_the_next_object() {
    const OBJECTS: u32 = 300;
    for carrier in Carrier::ALL.iter().copied() {
        let open = |_| Door::open("127.0.0.1:0".parse().expect("an address")).expect("a door");
        let doors: Vec<Door> = (0..2).map(open).collect();
        let members: Vec<SocketAddr> = doors.iter().map(Door::address).collect();
        let join = |own: u32| {
            let meeting = Meeting { group: 1, members: &members, own, patience: PATIENCE };
            let clock = SystemClock::calibrated();
            let group = machine(carrier, 2, own);
            End::join(carrier, group, &meeting, &doors[own as usize], clock).expect("both are here")
        };
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut end = join(1);
                end.group_mut().offer_memory(vec![0].into());
                while !end.group().is_done() {
                    let on_event = |group: &mut Group<Bytes>, event| {
                        if let Event::Stable { memory, .. } = event {
                            group.offer_memory(memory);
                        }
                    };
                    end.turn(WAIT_NS, on_event).expect("the kernel waits");
                }
                assert_eq!(end.group().outcome(), Some(Outcome::Complete));
            });
            let mut end = join(0);
            for number in 0..OBJECTS {
                end.group_mut().send(vec![number as u8].into()).expect("nothing is under way");
                let mut is_stable = false;
                while !is_stable {
                    let on_event = |_: &mut Group<Bytes>, event| {
                        is_stable |= matches!(event, Event::Stable { .. });
                    };
                    end.turn(WAIT_NS, on_event).expect("the kernel waits");
                    let took = began.elapsed();
                    assert!(took < Duration::from_secs(20), "{carrier:?}: {number} in {took:?}");
                }
            }
            end.group_mut().close().expect("it is the root");
            while !end.group().is_done() {
                end.turn(WAIT_NS, |_, _| {}).expect("the kernel waits");
            }
        });
    }
}
