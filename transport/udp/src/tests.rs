//! Real sockets on the loopback.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use onepipe_base::{Mono, Now, Port, Timestamp, Transmit, Verdict};
use onepipe_transport_driver::Transport;

use crate::{Config, Exchange, Offload, UdpLink};

const OFFLOADS: [Offload; 3] = [Offload::Plain, Offload::Batch, Offload::Segment];
const NOW: Now = Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1 << 50) };
/// What is sent has arrived long before this, or never will.
const PATIENCE: Duration = Duration::from_secs(10);

fn bound(ip: &str, offload: Offload) -> (Exchange, SocketAddr) {
    let bind = format!("{ip}:0").parse().expect("an address");
    let config = Config { bind: Some(bind), offload, ..Config::default() };
    let mut exchange = Exchange::bind(&config, 2).expect("the loopback is there");
    exchange.wait(0);
    let address = exchange.local_addr().expect("it is bound");
    (exchange, address)
}

fn connected(to: SocketAddr, offload: Offload) -> UdpLink {
    let config = Config { offload, send_room_bytes: 32 << 10, ..Config::default() };
    UdpLink::connect(to, &config).expect("the loopback is there")
}

/// Sends frames of these lengths in one burst: all bytes of the n-th are n.
fn burst(link: &mut UdpLink, lengths: &[usize]) {
    for (number, bytes) in lengths.iter().enumerate() {
        let slot = link.slot().expect("the kernel takes what fills the room");
        slot[..*bytes].fill(number as u8);
        link.send(Transmit { port: Port(0), bytes: *bytes });
    }
    link.end_burst(None);
}

/// Receives until `count` frames have arrived; they are sent back out of where they lie if `echo`.
fn receive(exchange: &mut Exchange, count: usize, echo: bool) -> Vec<Vec<u8>> {
    let started = Instant::now();
    let mut frames = Vec::new();
    while frames.len() < count {
        assert!(started.elapsed() < PATIENCE, "{} of {count} frames arrived", frames.len());
        exchange.wait(1_000_000);
        for train in 0..exchange.receive() {
            let from = exchange.sender(train).expect("a bound socket is told");
            exchange.set_destination(1, Some(from));
            for place in exchange.frames(train) {
                frames.push(exchange.frame(place).to_vec());
                if echo {
                    exchange.send(1, place);
                }
            }
            assert!(exchange.flush());
        }
    }
    frames
}

fn receive_echo(link: &mut UdpLink, count: usize) -> Vec<Vec<u8>> {
    let started = Instant::now();
    let mut frames = Vec::new();
    while frames.len() < count {
        assert!(started.elapsed() < PATIENCE, "{} of {count} frames came back", frames.len());
        link.wait(1_000_000);
        link.receive(NOW, |port, frame| {
            assert_eq!(port, Port(0));
            frames.push(frame.to_vec());
            Verdict::Consumed
        });
    }
    frames
}

fn check(frames: &[Vec<u8>], lengths: &[usize]) {
    assert_eq!(frames.len(), lengths.len());
    for (number, (frame, bytes)) in frames.iter().zip(lengths).enumerate() {
        assert!(frame.len() >= *bytes, "frame {number} is whole");
        assert!(frame[..*bytes].iter().all(|byte| *byte == number as u8), "frame {number}");
        assert!(frame[*bytes..].iter().all(|byte| *byte == 0), "frame {number} is padded");
    }
}

#[test]
fn every_offload_carries_every_mixture_there_and_back_in_order() {
    let mixtures: [&[usize]; 5] =
        [&[64; 100], &[52], &[1472; 30], &[1472, 700, 800, 52, 1000, 1472, 64, 64], &[1; 5]];
    for ip in ["127.0.0.1", "[::1]"] {
        for offload in OFFLOADS {
            let (mut exchange, address) = bound(ip, offload);
            let mut link = connected(address, offload);
            for lengths in mixtures {
                burst(&mut link, lengths);
                check(&receive(&mut exchange, lengths.len(), true), lengths);
                check(&receive_echo(&mut link, lengths.len()), lengths);
            }
            assert_eq!(link.stats().frames_sent, 144);
            assert_eq!(link.stats().frames_received, 144);
            assert_eq!(link.stats().frames_refused + link.stats().frames_overflowed, 0);
        }
    }
}

#[test]
fn a_frame_that_waits_while_others_leave_stays_as_it_is() {
    let (mut one, to) = bound("127.0.0.1", Offload::Segment);
    let (mut other, elsewhere) = bound("127.0.0.1", Offload::Segment);
    let bind = "127.0.0.1:0".parse().expect("an address");
    // With so many destinations 256 pieces may wait for each.
    let config = Config { bind: Some(bind), send_room_bytes: 1 << 20, ..Config::default() };
    let mut exchange = Exchange::bind(&config, 1_024).expect("the loopback is there");
    exchange.set_destination(0, Some(to));
    exchange.set_destination(1, Some(elsewhere));
    // By turns, so that no two of a destination lie together: the last frame of the first pair of
    // lengths finds no room, and the others leave. The longer ones would come to lie where it is.
    let lengths: Vec<usize> =
        [(100, 257), (300, 200)].iter().flat_map(|&(bytes, pairs)| vec![bytes; pairs]).collect();
    for (number, bytes) in lengths.iter().enumerate() {
        for destination in [0, 1] {
            let slot = exchange.slot().expect("there is room");
            let kept = exchange.keep(slot, *bytes);
            exchange.frame(kept).fill(number as u8);
            exchange.send(destination, kept);
        }
    }
    assert!(exchange.flush());
    check(&receive(&mut one, lengths.len(), false), &lengths);
    check(&receive(&mut other, lengths.len(), false), &lengths);
}

#[test]
fn the_kernel_cuts_and_joins_trains() {
    let (mut exchange, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    if link.offload() < Offload::Segment {
        return;
    }
    burst(&mut link, &[64; 60]);
    check(&receive(&mut exchange, 60, false), &[64; 60]);
    assert_eq!((link.stats().trains_sent, exchange.stats().trains_received), (1, 1));
}

#[test]
fn a_train_that_the_way_refuses_is_sent_apart() {
    let (mut exchange, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    if link.offload() < Offload::Segment {
        return;
    }
    link.exchange_mut().refuse_trains();
    let lengths = [1000, 900, 1000, 80, 300, 300];
    burst(&mut link, &lengths);
    check(&receive(&mut exchange, lengths.len(), false), &lengths);
    assert_eq!(link.offload(), Offload::Batch, "it does not try again");
    burst(&mut link, &[64; 10]);
    check(&receive(&mut exchange, 10, false), &[64; 10]);
    assert_eq!((link.stats().frames_sent, link.stats().frames_refused), (16, 0));
}

#[test]
fn what_is_forwarded_goes_back_from_where_it_lies() {
    let (mut exchange, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    burst(&mut link, &[80, 80]);
    receive(&mut exchange, 2, true);
    let started = Instant::now();
    let mut forwarded = 0;
    while forwarded < 2 {
        assert!(started.elapsed() < PATIENCE);
        link.wait(1_000_000);
        forwarded += link.receive(NOW, |_, frame| {
            frame[0] = 0xaa;
            Verdict::Forward(Port(0))
        });
    }
    let frames = receive(&mut exchange, 2, false);
    assert!(frames.iter().all(|frame| frame[0] == 0xaa));
}

#[test]
fn a_switch_that_is_not_there_yet_is_no_error() {
    let (exchange, address) = bound("127.0.0.1", Offload::Segment);
    drop(exchange);
    let mut link = connected(address, Offload::Segment);
    for _ in 0..5 {
        burst(&mut link, &[100, 100]);
        assert_eq!(link.receive(NOW, |_, _| Verdict::Consumed), 0);
        assert!(link.has_room(NOW));
    }
    let config = Config { bind: Some(address), ..Config::default() };
    let mut exchange = Exchange::bind(&config, 2).expect("the port is free again");
    burst(&mut link, &[100, 100]);
    check(&receive(&mut exchange, 2, false), &[100, 100]);
}

#[test]
fn frames_to_nowhere_are_counted() {
    let (_exchange, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    link.slot().expect("there is room")[..4].fill(1);
    link.send(Transmit { port: Port(3), bytes: 4 });
    link.end_burst(None);
    assert_eq!((link.stats().frames_refused, link.stats().frames_sent), (1, 0));
}

#[test]
fn what_waits_in_borrowed_memory_is_dropped_before_the_memory_is_used_again() {
    let (mut exchange, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    burst(&mut link, &[80]);
    let started = Instant::now();
    while exchange.receive() == 0 {
        assert!(started.elapsed() < PATIENCE);
    }
    let place = exchange.frames(0).next().expect("one frame");
    exchange.set_destination(0, Some(link.local_addr().expect("it is bound")));
    exchange.send(0, place);
    exchange.receive();
    assert_eq!(exchange.stats().frames_overflowed, 1);
    assert!(exchange.flush());
    assert_eq!(exchange.stats().frames_sent, 0);
}

#[test]
fn a_long_queue_is_noticed_and_so_is_what_it_could_not_hold() {
    let bind = Some("127.0.0.1:0".parse().expect("an address"));
    let config = Config { bind, socket_buffer_bytes: 64 << 10, ..Config::default() };
    let mut exchange = Exchange::bind(&config, 1).expect("the loopback is there");
    let mut link = connected(exchange.local_addr().expect("it is bound"), Offload::Segment);
    assert_eq!((exchange.kernel_drops(), exchange.is_backlogged()), (Some(0), false));
    let size = exchange.receive_buffer_bytes().expect("Linux tells") as usize;
    for _ in 0..size / 500 {
        burst(&mut link, &[1000]);
    }
    exchange.receive();
    assert!(exchange.is_backlogged());
    assert!(exchange.kernel_drops() > Some(0));
    while exchange.receive() > 0 {}
    assert!(!exchange.is_backlogged());
    assert_eq!(exchange.stats().backlogs, 1);
}

#[test]
fn the_doorbell_ends_a_wait() {
    let (_exchange, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    let started = Instant::now();
    let bell = link.doorbell();
    std::thread::scope(|scope| {
        scope.spawn(|| bell.ring());
        link.wait(2 * PATIENCE.as_nanos() as u64);
    });
    assert!(started.elapsed() < PATIENCE);
    let started = Instant::now();
    link.wait(5_000_000);
    assert!(started.elapsed() >= Duration::from_millis(5), "one ring ends one wait");
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    let to = "127.0.0.1:9".parse().expect("an address");
    let config = Config { frame_len_max: 100, ..Config::default() };
    assert!(UdpLink::connect(to, &config).is_err());
    assert!(Exchange::bind(&Config::default(), 1).is_err(), "no address to bind to");
}

/// What nobody takes is reported with its address, and what others send arrives meanwhile.
#[test]
fn where_nobody_listens_is_told() {
    for ip in ["127.0.0.1", "[::1]"] {
        let (mut exchange, here) = bound(ip, Offload::Segment);
        let (gone, there) = bound(ip, Offload::Batch);
        drop(gone);
        assert_eq!(exchange.refused(), None);
        exchange.set_destination(0, Some(there));
        let started = Instant::now();
        let told = loop {
            assert!(started.elapsed() < PATIENCE, "nobody says so");
            let slot = exchange.slot().expect("room");
            let frame = exchange.keep(slot, 100);
            exchange.send(0, frame);
            exchange.flush();
            exchange.wait(1_000_000);
            assert_eq!(exchange.receive(), 0);
            if let Some(told) = exchange.refused() {
                break told;
            }
        };
        assert_eq!(told, there);
        while exchange.refused().is_some() {}
        assert!(exchange.stats().refusals > 0);
        let mut link = connected(here, Offload::Segment);
        burst(&mut link, &[100, 100]);
        assert_eq!(receive(&mut exchange, 2, false).len(), 2);
        // Nothing is left that would keep a driver awake.
        let started = Instant::now();
        exchange.wait(20_000_000);
        assert!(started.elapsed() >= Duration::from_millis(15) && exchange.refused().is_none());
    }
}
