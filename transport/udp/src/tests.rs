//! Real sockets on the loopback.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use onepipe_base::{Mono, Now, Port, Timestamp, Transmit, Verdict};
use onepipe_transport_driver::Transport;

use crate::{BatchSocket, Config, Offload, UdpLink};

const OFFLOADS: [Offload; 3] = [Offload::Plain, Offload::Batch, Offload::Segment];
const NOW: Now = Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1 << 50) };
/// Frames on the loopback take microseconds; this bound only fails hanging tests.
const TIMEOUT: Duration = Duration::from_secs(10);

fn bound(ip: &str, offload: Offload) -> (BatchSocket, SocketAddr) {
    let bind = format!("{ip}:0").parse().expect("a valid address");
    let config = Config { bind: Some(bind), offload, ..Config::default() };
    let mut socket = BatchSocket::bind(&config, 2).expect("the loopback is available");
    socket.wait(0);
    let address = socket.local_addr().expect("the socket is bound");
    (socket, address)
}

fn connected(to: SocketAddr, offload: Offload) -> UdpLink {
    let config = Config { offload, send_queue_bytes: 32 << 10, ..Config::default() };
    UdpLink::connect(to, &config).expect("the loopback is available")
}

/// Sends frames of these lengths in one burst: all bytes of the n-th are n.
fn burst(link: &mut UdpLink, lengths: &[usize]) {
    for (number, bytes) in lengths.iter().enumerate() {
        let slot = link.slot().expect("the kernel accepts frames that fill the queue");
        slot[..*bytes].fill(number as u8);
        link.send(Transmit { port: Port(0), bytes: *bytes });
    }
    link.end_burst(None);
}

/// Receives until `count` frames have arrived; sends them back in place if `send_back`.
fn receive(socket: &mut BatchSocket, count: usize, send_back: bool) -> Vec<Vec<u8>> {
    let started = Instant::now();
    let mut frames = Vec::new();
    while frames.len() < count {
        assert!(started.elapsed() < TIMEOUT, "{} of {count} frames arrived", frames.len());
        socket.wait(1_000_000);
        for batch in 0..socket.receive() {
            let from = socket.source(batch).expect("a bound socket reports source addresses");
            socket.set_destination(1, Some(from));
            for range in socket.frames(batch) {
                frames.push(socket.frame(range).to_vec());
                if send_back {
                    socket.send(1, range);
                }
            }
            assert!(socket.flush());
        }
    }
    frames
}

fn receive_returned(link: &mut UdpLink, count: usize) -> Vec<Vec<u8>> {
    let started = Instant::now();
    let mut frames = Vec::new();
    while frames.len() < count {
        assert!(started.elapsed() < TIMEOUT, "{} of {count} frames came back", frames.len());
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
fn every_offload_round_trips_frames_in_order() {
    let mixtures: [&[usize]; 5] =
        [&[64; 100], &[52], &[1472; 30], &[1472, 700, 800, 52, 1000, 1472, 64, 64], &[1; 5]];
    for ip in ["127.0.0.1", "[::1]"] {
        for offload in OFFLOADS {
            let (mut socket, address) = bound(ip, offload);
            let mut link = connected(address, offload);
            for lengths in mixtures {
                burst(&mut link, lengths);
                check(&receive(&mut socket, lengths.len(), true), lengths);
                check(&receive_returned(&mut link, lengths.len()), lengths);
            }
            assert_eq!(link.stats().frames_sent, 144);
            assert_eq!(link.stats().frames_received, 144);
            assert_eq!(link.stats().frames_refused + link.stats().frames_overflowed, 0);
        }
    }
}

#[test]
fn queued_frame_is_unchanged_while_others_are_sent() {
    let (mut one, to) = bound("127.0.0.1", Offload::Segment);
    let (mut other, elsewhere) = bound("127.0.0.1", Offload::Segment);
    let bind = "127.0.0.1:0".parse().expect("a valid address");
    // With that many destinations each may queue 256 ranges.
    let config = Config { bind: Some(bind), send_queue_bytes: 1 << 20, ..Config::default() };
    let mut socket = BatchSocket::bind(&config, 1_024).expect("the loopback is available");
    socket.set_destination(0, Some(to));
    socket.set_destination(1, Some(elsewhere));
    // Alternating destinations make frames of one destination non-contiguous: the last frame of the
    // first lengths finds its queue full, and the others are sent. Later frames must not overwrite
    // it.
    let lengths: Vec<usize> =
        [(100, 257), (300, 200)].iter().flat_map(|&(bytes, pairs)| vec![bytes; pairs]).collect();
    for (number, bytes) in lengths.iter().enumerate() {
        for destination in [0, 1] {
            let slot = socket.slot().expect("there is capacity");
            let frame = socket.keep(slot, *bytes);
            socket.frame(frame).fill(number as u8);
            socket.send(destination, frame);
        }
    }
    assert!(socket.flush());
    check(&receive(&mut one, lengths.len(), false), &lengths);
    check(&receive(&mut other, lengths.len(), false), &lengths);
}

#[test]
fn kernel_segments_and_coalesces_batches() {
    let (mut socket, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    if link.offload() < Offload::Segment {
        return;
    }
    burst(&mut link, &[64; 60]);
    check(&receive(&mut socket, 60, false), &[64; 60]);
    assert_eq!((link.stats().gso_batches_sent, socket.stats().gro_batches_received), (1, 1));
}

#[test]
fn batch_rejected_by_the_path_is_sent_in_segments() {
    let (mut socket, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    if link.offload() < Offload::Segment {
        return;
    }
    link.socket_mut().reject_gso();
    let lengths = [1000, 900, 1000, 80, 300, 300];
    burst(&mut link, &lengths);
    check(&receive(&mut socket, lengths.len(), false), &lengths);
    assert_eq!(link.offload(), Offload::Batch, "GSO stays disabled");
    burst(&mut link, &[64; 10]);
    check(&receive(&mut socket, 10, false), &[64; 10]);
    assert_eq!((link.stats().frames_sent, link.stats().frames_refused), (16, 0));
}

#[test]
fn forwarded_frames_are_not_copied() {
    let (mut socket, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    burst(&mut link, &[80, 80]);
    receive(&mut socket, 2, true);
    let started = Instant::now();
    let mut forwarded = 0;
    while forwarded < 2 {
        assert!(started.elapsed() < TIMEOUT);
        link.wait(1_000_000);
        forwarded += link.receive(NOW, |_, frame| {
            frame[0] = 0xaa;
            Verdict::Forward(Port(0))
        });
    }
    let frames = receive(&mut socket, 2, false);
    assert!(frames.iter().all(|frame| frame[0] == 0xaa));
}

#[test]
fn frame_longer_than_a_slot_is_not_copied() {
    let short = Config { frame_len_max: 1_472, ..Config::default() };
    let bind = Some("127.0.0.1:0".parse().expect("an address"));
    let mut switch = BatchSocket::bind(&Config { bind, ..short }, 1).expect("a free port");
    let to = switch.local_addr().expect("it is bound");
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    sender.send_to(&[7; 60_000], to).expect("loopback takes it");
    switch.wait(10_000_000_000);
    assert_eq!(switch.receive(), 1);
    let range = switch.frames(0).next().expect("a frame");
    assert_eq!(range.bytes(), 60_000);
    assert!((0..100).all(|_| switch.copy(range).is_none()));
}

#[test]
fn absent_switch_is_no_error() {
    let (socket, address) = bound("127.0.0.1", Offload::Segment);
    drop(socket);
    let mut link = connected(address, Offload::Segment);
    for _ in 0..5 {
        burst(&mut link, &[100, 100]);
        assert_eq!(link.receive(NOW, |_, _| Verdict::Consumed), 0);
        assert!(link.can_begin_burst(NOW));
    }
    let config = Config { bind: Some(address), ..Config::default() };
    let mut socket = BatchSocket::bind(&config, 2).expect("the port is free again");
    burst(&mut link, &[100, 100]);
    check(&receive(&mut socket, 2, false), &[100, 100]);
}

/// A beacon "of the switch" and a flood that cuts off all once made a process exit.
#[test]
fn link_takes_frames_of_its_switch_alone() {
    let (mut socket, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    let to = link.local_addr().expect("the socket is bound");
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("the loopback is available");
    burst(&mut link, &[64]);
    for _ in 0..10 {
        stranger.send_to(&[9; 64], to).expect("the loopback is available");
    }
    // The loopback delivers in order: the frame of the switch is the last one.
    check(&receive(&mut socket, 1, true), &[64]);
    check(&receive_returned(&mut link, 1), &[64]);
    assert_eq!(link.stats().frames_received, 1);
}

#[test]
fn frames_without_destination_are_counted() {
    let (_exchange, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    link.slot().expect("there is capacity")[..4].fill(1);
    link.send(Transmit { port: Port(3), bytes: 4 });
    link.end_burst(None);
    assert_eq!((link.stats().frames_refused, link.stats().frames_sent), (1, 0));
}

#[test]
fn unsent_forwards_are_dropped_by_the_next_receive() {
    let (mut socket, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    burst(&mut link, &[80]);
    let started = Instant::now();
    while socket.receive() == 0 {
        assert!(started.elapsed() < TIMEOUT);
    }
    let range = socket.frames(0).next().expect("one frame");
    socket.set_destination(0, Some(link.local_addr().expect("the socket is bound")));
    socket.send(0, range);
    socket.receive();
    assert_eq!(socket.stats().frames_overflowed, 1);
    assert!(socket.flush());
    assert_eq!(socket.stats().frames_sent, 0);
}

#[test]
fn backlog_and_kernel_drops_are_reported() {
    let bind = Some("127.0.0.1:0".parse().expect("a valid address"));
    let config = Config { bind, socket_buffer_bytes: 64 << 10, ..Config::default() };
    let mut socket = BatchSocket::bind(&config, 1).expect("the loopback is available");
    let mut link = connected(socket.local_addr().expect("the socket is bound"), Offload::Segment);
    assert_eq!((socket.kernel_drops(), socket.is_backlogged()), (Some(0), false));
    let size = socket.receive_buffer_bytes().expect("Linux reports its size") as usize;
    for _ in 0..size / 500 {
        burst(&mut link, &[1000]);
    }
    socket.receive();
    assert!(socket.is_backlogged());
    assert!(socket.kernel_drops() > Some(0));
    while socket.receive() > 0 {}
    assert!(!socket.is_backlogged());
    assert_eq!(socket.stats().backlogs, 1);
}

#[test]
fn doorbell_ends_a_wait() {
    let (_exchange, address) = bound("127.0.0.1", Offload::Segment);
    let mut link = connected(address, Offload::Segment);
    let started = Instant::now();
    let event_fd = link.doorbell();
    std::thread::scope(|scope| {
        scope.spawn(|| event_fd.ring());
        link.wait(2 * TIMEOUT.as_nanos() as u64);
    });
    assert!(started.elapsed() < TIMEOUT);
    let started = Instant::now();
    link.wait(5_000_000);
    assert!(started.elapsed() >= Duration::from_millis(5), "one ring must end one wait only");
}

#[test]
fn invalid_configuration_is_refused() {
    let to = "127.0.0.1:9".parse().expect("a valid address");
    let config = Config { frame_len_max: 100, ..Config::default() };
    assert!(UdpLink::connect(to, &config).is_err());
    assert!(
        BatchSocket::bind(&Config::default(), 1).is_err(),
        "no local address to bind to: set `bind`"
    );
}

/// A refused datagram is reported with its address, and other senders' frames still arrive.
#[test]
fn refused_datagrams_are_reported() {
    for ip in ["127.0.0.1", "[::1]"] {
        let (mut socket, here) = bound(ip, Offload::Segment);
        let (closed, there) = bound(ip, Offload::Batch);
        drop(closed);
        assert_eq!(socket.refused(), None);
        socket.set_destination(0, Some(there));
        let started = Instant::now();
        let refused = loop {
            assert!(started.elapsed() < TIMEOUT, "no refusal was reported");
            let slot = socket.slot().expect("there is capacity");
            let frame = socket.keep(slot, 100);
            socket.send(0, frame);
            socket.flush();
            socket.wait(1_000_000);
            assert_eq!(socket.receive(), 0);
            if let Some(refused) = socket.refused() {
                break refused;
            }
        };
        assert_eq!(refused, there);
        while socket.refused().is_some() {}
        assert!(socket.stats().refusals > 0);
        let mut link = connected(here, Offload::Segment);
        burst(&mut link, &[100, 100]);
        assert_eq!(receive(&mut socket, 2, false).len(), 2);
        // No report is left that would keep a driver awake.
        let started = Instant::now();
        socket.wait(20_000_000);
        assert!(started.elapsed() >= Duration::from_millis(15) && socket.refused().is_none());
    }
}
