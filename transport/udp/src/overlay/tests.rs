//! Three processes on the loopback, and a fixture in place of the aggregator.

use std::time::{Duration, Instant};

use onepipe_base::{Mono, Timestamp};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

struct Tree {
    socket: BatchSocket,
    address: SocketAddr,
    /// Source addresses of frames, by process.
    at: Vec<Option<SocketAddr>>,
    /// Frames routed, except address advertisements.
    carried: usize,
}

impl Tree {
    fn new(processes: usize) -> Self {
        let bind = Some("127.0.0.1:0".parse().expect("a valid address"));
        let config = Config { bind, ..Config::default() };
        let socket = BatchSocket::bind(&config, processes).expect("the loopback is available");
        let address = socket.local_addr().expect("the socket is bound");
        Self { socket, address, at: vec![None; processes], carried: 0 }
    }

    /// Routes frames as a switch does.
    fn turn(&mut self) {
        for batch in 0..self.socket.receive() {
            let from = self.socket.source(batch).expect("a bound socket reports source addresses");
            for range in self.socket.frames(batch) {
                let (header, opcode) =
                    parse_header(self.socket.frame(range)).expect("an intact frame");
                let (src, dst) = (header.src().index(), header.dst().index());
                self.carried += usize::from(opcode != Opcode::AddressAd);
                if self.at[src] != Some(from) {
                    self.at[src] = Some(from);
                    self.socket.set_destination(src, Some(from));
                }
                self.socket.send(dst, range);
            }
            self.socket.flush();
        }
    }
}

fn now(began: Instant) -> Now {
    let ns = began.elapsed().as_nanos() as u64 + 1;
    Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) }
}

fn process(tree: &Tree, number: u32, advertised: Option<SocketAddr>) -> UdpOverlay {
    let own =
        LocalProcess { process: ProcessId(number), incarnation: Incarnation(1), processes_max: 3 };
    UdpOverlay::connect(tree.address, own, advertised, &Config::default())
        .expect("the loopback is available")
}

/// Sends one frame to `to`, through the tree for the opcode `Ping`.
fn send_frame(from: &mut UdpOverlay, now: Now, opcode: Opcode, to: u32) {
    from.begin_burst(now, None);
    let header = Header::new(opcode, from.own.process, ProcessId(to), Incarnation(1));
    let header = header.stamped(now.sync, Promises::both(now.sync), Psn::FIRST);
    let slot = from.slot().expect("there is capacity");
    let bytes = seal(slot, header, 0);
    let port = if opcode == Opcode::Ping { TREE } else { DIRECT };
    from.send(Transmit { port, bytes });
    from.end_burst(None);
}

/// Shows the tree the address of each process.
fn join(all: &mut [UdpOverlay], began: Instant) {
    for end in all {
        let itself = end.own.process.0;
        send_frame(end, now(began), Opcode::Ping, itself);
    }
}

/// Receives on all until the network is idle. Returns by process the ports and senders of frames.
fn run_to_quiet(tree: &mut Tree, all: &mut [UdpOverlay], began: Instant) -> Vec<Vec<(Port, u32)>> {
    let mut received = vec![Vec::new(); all.len()];
    for _ in 0..50 {
        tree.socket.wait(200_000);
        tree.turn();
        for (end, received) in all.iter_mut().zip(&mut received) {
            end.receive(now(began), |port, frame| {
                received.push((port, parse_header(frame).expect("an intact frame").0.src().0));
                Verdict::Consumed
            });
            end.poll_links_down(|_, _| panic!("an overlay reports no link as down"));
        }
    }
    received
}

#[test]
fn messages_go_direct_once_a_route_is_confirmed() {
    let began = Instant::now();
    let mut tree = Tree::new(3);
    let mut all = [0, 1, 2].map(|number| process(&tree, number, None));
    join(&mut all, began);
    run_to_quiet(&mut tree, &mut all, began);
    assert_eq!(tree.carried, 3);

    send_frame(&mut all[0], now(began), Opcode::Data, 1);
    let received = run_to_quiet(&mut tree, &mut all, began);
    assert_eq!(
        (&received[1][..], tree.carried),
        (&[(TREE, 0)][..], 4),
        "the first frame goes by the tree"
    );
    let route = all[1].socket.local_addr().expect("bound").port();
    assert_eq!(all[0].direct(ProcessId(1)).map(|at| at.port()), Some(route));

    send_frame(&mut all[0], now(began), Opcode::Data, 1);
    send_frame(&mut all[0], now(began), Opcode::Data, 2);
    let received = run_to_quiet(&mut tree, &mut all, began);
    assert_eq!((&received[1][..], &received[2][..]), (&[(DIRECT, 0)][..], &[(TREE, 0)][..]));
    assert_eq!(tree.carried, 5);
    let stats = *all[0].overlay_stats();
    assert_eq!((stats.frames_direct, stats.frames_by_tree), (1, 2));
    // Frames for the aggregator always go by the tree.
    send_frame(&mut all[0], now(began), Opcode::Ping, 1);
    assert_eq!(run_to_quiet(&mut tree, &mut all, began)[1], [(TREE, 0)]);
}

#[test]
fn unreachable_peer_is_reached_by_the_tree() {
    let began = Instant::now();
    let mut tree = Tree::new(3);
    // A socket that is never read, as behind a firewall.
    let unreachable = UdpSocket::bind("127.0.0.1:0").expect("the loopback is available");
    let advertised = unreachable.local_addr().ok();
    let mut all = [process(&tree, 0, None), process(&tree, 1, advertised)];
    join(&mut all, began);
    for _ in 0..3 {
        send_frame(&mut all[0], now(began), Opcode::Data, 1);
        assert_eq!(run_to_quiet(&mut tree, &mut all, began)[1].last(), Some(&(TREE, 0)));
    }
    assert_eq!((all[0].direct_count(), all[0].overlay_stats().frames_by_tree), (0, 3));
    // It confirms the route itself, from its real address.
    send_frame(&mut all[1], now(began), Opcode::Data, 0);
    run_to_quiet(&mut tree, &mut all, began);
    assert_eq!(all[1].direct_count(), 1);
    let started = Instant::now();
    while all[0].direct_count() == 0 {
        assert!(started.elapsed() < TIMEOUT, "a peer's source address was never queried");
        send_frame(&mut all[0], now(began), Opcode::Data, 1);
        run_to_quiet(&mut tree, &mut all, began);
    }
}

#[test]
fn departed_peer_is_looked_up_again() {
    let began = Instant::now();
    let mut tree = Tree::new(3);
    let mut all = vec![process(&tree, 0, None), process(&tree, 1, None)];
    join(&mut all, began);
    send_frame(&mut all[0], now(began), Opcode::Data, 1);
    run_to_quiet(&mut tree, &mut all, began);
    assert_eq!(all[0].direct_count(), 1);
    all.pop();
    let started = Instant::now();
    while all[0].direct_count() == 1 {
        assert!(started.elapsed() < TIMEOUT, "the kernel reported no refusal");
        send_frame(&mut all[0], now(began), Opcode::Data, 1);
        run_to_quiet(&mut tree, &mut all, began);
    }
    send_frame(&mut all[0], now(began), Opcode::Data, 1);
    assert!(all[0].overlay_stats().frames_by_tree > 1);
}

/// One datagram of a stranger once sent it what was meant for another process, and one frame in the
/// name of a process was taken as its.
//= spec/ordering.md#R80
#[test]
fn stranger_gets_no_route_and_reaches_no_machine() {
    let began = Instant::now();
    let mut tree = Tree::new(3);
    let mut all = [process(&tree, 0, None), process(&tree, 1, None)];
    join(&mut all, began);
    send_frame(&mut all[0], now(began), Opcode::Data, 1);
    run_to_quiet(&mut tree, &mut all, began);
    let route = all[0].direct(ProcessId(1)).expect("a direct route");

    let stranger = UdpSocket::bind("127.0.0.1:0").expect("the loopback is available");
    stranger.set_nonblocking(true).expect("the system allows it");
    let own = stranger.local_addr().expect("bound");
    let to = all[0].socket.local_addr().expect("bound");
    for incarnation in [Incarnation(1), Incarnation(u32::MAX)] {
        for wants_reply in [true, false] {
            let imposter = LocalProcess { process: ProcessId(1), incarnation, processes_max: 3 };
            let ad = PendingAd { to: ProcessId(0), at: Some(to), wants_reply, nonce: 7, proof: 7 };
            let mut slot = [0; 256];
            let len = write_address_ad(&mut slot, imposter, now(began), (ad, own));
            stranger.send_to(&slot[..HEADER_LEN + len], to).expect("the loopback is available");
        }
        let header = Header::new(Opcode::Data, ProcessId(1), ProcessId(0), incarnation);
        let at = now(began).sync;
        let mut slot = [0; 256];
        let len = seal(&mut slot, header.stamped(at, Promises::both(at), Psn::FIRST), 0);
        stranger.send_to(&slot[..len], to).expect("the loopback is available");
    }
    let started = Instant::now();
    while all[0].overlay_stats().frames_unproved < 6 {
        assert!(started.elapsed() < TIMEOUT, "{:?}", all[0].overlay_stats());
        assert_eq!(run_to_quiet(&mut tree, &mut all, began)[0], [], "a frame of a stranger");
    }
    assert_eq!(all[0].direct(ProcessId(1)), Some(route));
    send_frame(&mut all[0], now(began), Opcode::Data, 1);
    assert_eq!(run_to_quiet(&mut tree, &mut all, began)[1], [(DIRECT, 0)]);
    let received = stranger.recv(&mut [0; 256]).map_err(|error| error.kind());
    assert_eq!(received, Err(io::ErrorKind::WouldBlock), "nothing is sent to the stranger");
}
