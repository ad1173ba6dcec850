//! Three processes on the loopback, and somebody in the tree's place.

use std::time::{Duration, Instant};

use onepipe_base::{Mono, Timestamp};

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

struct Tree {
    exchange: Exchange,
    address: SocketAddr,
    /// Where the frames came from, by process.
    at: Vec<Option<SocketAddr>>,
    /// Frames that were no questions or answers.
    carried: usize,
}

impl Tree {
    fn new(processes: usize) -> Self {
        let bind = Some("127.0.0.1:0".parse().expect("an address"));
        let config = Config { bind, ..Config::default() };
        let exchange = Exchange::bind(&config, processes).expect("the loopback is there");
        let address = exchange.local_addr().expect("it is bound");
        Self { exchange, address, at: vec![None; processes], carried: 0 }
    }

    /// Routes as a switch does.
    fn turn(&mut self) {
        for train in 0..self.exchange.receive() {
            let from = self.exchange.sender(train).expect("a bound socket is told");
            for place in self.exchange.frames(train) {
                let (header, opcode) = parse_header(self.exchange.frame(place)).expect("a frame");
                let (src, dst) = (header.src().index(), header.dst().index());
                self.carried += usize::from(opcode != Opcode::AddressAd);
                if self.at[src] != Some(from) {
                    self.at[src] = Some(from);
                    self.exchange.set_destination(src, Some(from));
                }
                self.exchange.send(dst, place);
            }
            self.exchange.flush();
        }
    }
}

fn now(began: Instant) -> Now {
    let ns = began.elapsed().as_nanos() as u64 + 1;
    Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) }
}

fn process(tree: &Tree, number: u32, here: Option<SocketAddr>) -> UdpOverlay {
    let own = Whoami { process: ProcessId(number), incarnation: Incarnation(1), processes_max: 3 };
    UdpOverlay::connect(tree.address, own, here, &Config::default()).expect("the loopback is there")
}

/// A frame for `to`, and one for the tree, which is for everybody.
fn speak(from: &mut UdpOverlay, now: Now, opcode: Opcode, to: u32) {
    from.begin_burst(now, None);
    let header = Header::new(opcode, from.own.process, ProcessId(to), Incarnation(1));
    let header = header.stamped(now.sync, Promises::both(now.sync), Psn::FIRST);
    let slot = from.slot().expect("there is room");
    let bytes = seal(slot, header, 0);
    let port = if opcode == Opcode::Ping { TREE } else { DIRECT };
    from.send(Transmit { port, bytes });
    from.end_burst(None);
}

/// Each shows the tree where it is.
fn join(all: &mut [UdpOverlay], began: Instant) {
    for end in all {
        let itself = end.own.process.0;
        speak(end, now(began), Opcode::Ping, itself);
    }
}

/// Receives on all until nothing has come for a moment. Answers by process what came on which port.
fn settle(tree: &mut Tree, all: &mut [UdpOverlay], began: Instant) -> Vec<Vec<(Port, u32)>> {
    let mut heard = vec![Vec::new(); all.len()];
    for _ in 0..50 {
        tree.exchange.wait(200_000);
        tree.turn();
        for (end, heard) in all.iter_mut().zip(&mut heard) {
            end.receive(now(began), |port, frame| {
                heard.push((port, parse_header(frame).expect("a frame").0.src().0));
                Verdict::Consumed
            });
            end.gone(|_| panic!("there is no link to lose"));
        }
    }
    heard
}

#[test]
fn messages_leave_the_tree_as_soon_as_a_way_is_open() {
    let began = Instant::now();
    let mut tree = Tree::new(3);
    let mut all = [0, 1, 2].map(|number| process(&tree, number, None));
    join(&mut all, began);
    settle(&mut tree, &mut all, began);
    assert_eq!(tree.carried, 3);

    speak(&mut all[0], now(began), Opcode::Data, 1);
    let heard = settle(&mut tree, &mut all, began);
    assert_eq!((&heard[1][..], tree.carried), (&[(TREE, 0)][..], 4), "by the tree at first");
    let way = all[1].exchange.local_addr().expect("bound").port();
    assert_eq!(all[0].direct(ProcessId(1)).map(|at| at.port()), Some(way));

    speak(&mut all[0], now(began), Opcode::Data, 1);
    speak(&mut all[0], now(began), Opcode::Data, 2);
    let heard = settle(&mut tree, &mut all, began);
    assert_eq!((&heard[1][..], &heard[2][..]), (&[(DIRECT, 0)][..], &[(TREE, 0)][..]));
    assert_eq!(tree.carried, 5);
    let stats = *all[0].overlay_stats();
    assert_eq!((stats.frames_direct, stats.frames_by_tree), (1, 2));
    // What the aggregator is told never leaves the tree.
    speak(&mut all[0], now(began), Opcode::Ping, 1);
    assert_eq!(settle(&mut tree, &mut all, began)[1], [(TREE, 0)]);
}

#[test]
fn who_cannot_be_reached_directly_is_reached_by_the_tree() {
    let began = Instant::now();
    let mut tree = Tree::new(3);
    // Nobody answers there, as behind a firewall.
    let deaf = UdpSocket::bind("127.0.0.1:0").expect("the loopback is there");
    let here = deaf.local_addr().ok();
    let mut all = [process(&tree, 0, None), process(&tree, 1, here)];
    join(&mut all, began);
    for _ in 0..3 {
        speak(&mut all[0], now(began), Opcode::Data, 1);
        assert_eq!(settle(&mut tree, &mut all, began)[1].last(), Some(&(TREE, 0)));
    }
    assert_eq!((all[0].direct_count(), all[0].overlay_stats().frames_by_tree), (0, 3));
    // It opens the way itself, from where it really is.
    speak(&mut all[1], now(began), Opcode::Data, 0);
    settle(&mut tree, &mut all, began);
    assert_eq!(all[1].direct_count(), 1);
    let started = Instant::now();
    while all[0].direct_count() == 0 {
        assert!(started.elapsed() < PATIENCE, "it was seen, and never asked");
        speak(&mut all[0], now(began), Opcode::Data, 1);
        settle(&mut tree, &mut all, began);
    }
}

#[test]
fn who_has_gone_is_looked_for_again() {
    let began = Instant::now();
    let mut tree = Tree::new(3);
    let mut all = vec![process(&tree, 0, None), process(&tree, 1, None)];
    join(&mut all, began);
    speak(&mut all[0], now(began), Opcode::Data, 1);
    settle(&mut tree, &mut all, began);
    assert_eq!(all[0].direct_count(), 1);
    all.pop();
    let started = Instant::now();
    while all[0].direct_count() == 1 {
        assert!(started.elapsed() < PATIENCE, "the kernel says nothing");
        speak(&mut all[0], now(began), Opcode::Data, 1);
        settle(&mut tree, &mut all, began);
    }
    speak(&mut all[0], now(began), Opcode::Data, 1);
    assert!(all[0].overlay_stats().frames_by_tree > 1);
}
