//! Malformed or hostile input is rejected, counted, and does not affect other endpoints.

use onepipe_arbiter::{Arbiter, Client, ClientConfig, Comm, CommConfig, EnqueueError, Timeslot};
use onepipe_base::{Incarnation, Machine, Port, ProcessId, Psn, Timestamp, Verdict};
use onepipe_wire::{
    Drops, FcpEncoding, FcpParams, FcpReset, FcpTotal, FcpWriter, Frame, Header, Loss, Opcode,
    SHORT_HEADER_LEN, Watchdog, seal,
};

use super::net::{Draws, SLOT_NS, TestNet, arbiter_config, client_config};

const MS: u64 = 1_000_000;

fn frame(opcode: Opcode, src: u32, dst: u32, write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    sequenced_frame(1, opcode, (src, dst), write)
}

fn sequenced_frame(
    number: u32,
    opcode: Opcode,
    (src, dst): (u32, u32),
    write: impl FnOnce(&mut [u8]) -> usize,
) -> Vec<u8> {
    let mut bytes = vec![0; 1_400];
    let length = write(&mut bytes[SHORT_HEADER_LEN..]);
    let header = Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(1));
    let promises = header.promises(Timestamp::from_ns(0));
    let header = header.stamped(Timestamp::from_ns(0), promises, Psn(number));
    let length = seal(&mut bytes, header, length);
    bytes.truncate(length);
    bytes
}

/// Derives the seed of checks from the time of a reset, as docs/wire-format.md defines it.
fn seed(time: Timestamp) -> u64 {
    let bits = time.as_ns().wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn params(slot_ns: u64, nodes: u32) -> FcpParams {
    FcpParams { slot_ns: slot_ns as u32, nodes: nodes as u16 }
}

/// Returns a control packet with a reset at the present time that requests these totals.
fn request(net: &TestNet, src: u32, wants: &[(u16, u16)]) -> Vec<u8> {
    let time = net.at().sync;
    frame(Opcode::Fcp, src, net.nodes(), |buffer| {
        let mut writer = FcpWriter::new(buffer, 0, u64::MAX).expect("a header fits");
        let params = params(SLOT_NS, net.nodes());
        assert!(writer.reset(FcpReset { time, epoch: 1, params }));
        for (dst, total) in wants {
            let total = FcpTotal { dst: *dst, total: *total };
            assert_eq!(writer.totals(FcpEncoding::List, &[total]), 1);
        }
        writer.finish(seed(time))
    })
}

fn put(net: &mut TestNet, bytes: &[u8]) -> Verdict {
    let (now, mut bytes) = (net.at(), bytes.to_vec());
    net.arbiters[0].handle_frame(now, Port(0), &mut bytes)
}

#[test]
fn requests_for_unknown_endpoints_are_counted() {
    let mut net = TestNet::new(4, 1, 1);
    net.run_for(MS);
    let bytes = request(&net, 1, &[(9, 1), (1, 1), (4, 1), (2, 3)]);
    assert_eq!(put(&mut net, &bytes), Verdict::Consumed);
    let stats = *net.arbiters[0].comm_stats();
    let comm = net.arbiters[0].comm();
    assert_eq!((stats.unknown_destinations, comm.pending(1)), (3, 3));
    let pairs = [(1, 2), (1, 4), (0, 6), (4, 0), (u32::MAX, 2)];
    let requested = pairs.map(|(src, dst)| comm.totals(src, dst).0);
    assert_eq!(requested, [3, 0, 0, 0, 0], "totals of pairs that exist");
    let stranger = request(&net, 5, &[(2, 3)]);
    assert_eq!(put(&mut net, &stranger), Verdict::Dropped);
    let stats = net.arbiters[0].comm_stats();
    assert_eq!((stats.unknown_destinations, stats.unknown_sources), (3, 1));
    let (now, mut slot) = (net.at(), [0; 1_472]);
    while let Some(transmit) = net.arbiters[0].poll_transmit(now, &mut slot) {
        let frame = Frame::parse(&slot[..transmit.bytes]).expect("sealed");
        assert_eq!(
            frame.header.dst(),
            ProcessId(1),
            "a sender that is no endpoint by its own parameters is not answered"
        );
    }
}

//= spec/arbiter.md#R4
/// A total modulo 2^8 is ambiguous behind a later packet, so it must be ignored when reordered.
#[test]
fn reordered_short_total_is_ignored_and_unacked() {
    let mut net = TestNet::new(4, 1, 1);
    net.run_for(MS);
    net.drop_filter = Box::new(|_, from, to, _| [from, to].contains(&ProcessId(1)));
    let (time, nodes) = (net.at().sync, net.nodes());
    let bytes = request(&net, 1, &[(3, 50)]);
    assert_eq!(put(&mut net, &bytes), Verdict::Consumed);
    let total_packet = |number, encoding, total| {
        sequenced_frame(number, Opcode::Fcp, (1, nodes), |buffer| {
            let mut writer = FcpWriter::new(buffer, 0, u64::MAX).expect("a header fits");
            assert_eq!(writer.totals(encoding, &[FcpTotal { dst: 3, total }]), 1);
            writer.finish(seed(time))
        })
    };
    let short = total_packet(2, FcpEncoding::ShortMap, 60);
    assert_eq!(put(&mut net, &total_packet(3, FcpEncoding::List, 300)), Verdict::Consumed);
    assert_eq!(net.arbiters[0].comm().pending(1), 300);
    // 60 must not be taken for 316, however often it is repeated.
    for _ in 0..2 {
        assert_eq!(put(&mut net, &short), Verdict::Dropped);
        assert_eq!(net.arbiters[0].comm().pending(1), 300);
    }
    assert_eq!(put(&mut net, &total_packet(4, FcpEncoding::ShortMap, 60)), Verdict::Consumed);
    assert_eq!(net.arbiters[0].comm().pending(1), 316, "accepted in order");
    assert_eq!(
        put(&mut net, &total_packet(2, FcpEncoding::List, 60)),
        Verdict::Consumed,
        "not received before"
    );
}

//= spec/arbiter.md#R3
#[test]
fn excessive_demand_is_capped_and_others_are_served() {
    let mut net = TestNet::new(4, 1, 1);
    net.run_for(MS);
    let bytes = request(&net, 1, &[(3, 32_767)]);
    put(&mut net, &bytes);
    let stats = *net.arbiters[0].comm_stats();
    assert_eq!((stats.capped, net.arbiters[0].comm().pending(1)), (32_767 - 16_384, 16_384));
    // A total that decreases by half of the number space.
    let bytes = request(&net, 2, &[(3, 32_768)]);
    put(&mut net, &bytes);
    assert_eq!(net.arbiters[0].comm_stats().backwards, 1);
    (0..100).for_each(|_| assert!(net.enqueue(0, 3, 200)));
    net.run_for(100_000 + 300 * SLOT_NS);
    net.assert_all_arrived();
}

//= spec/arbiter.md#R26
#[test]
fn demand_of_an_idle_endpoint_expires() {
    let mut net = TestNet::new(4, 1, 1);
    net.run_for(MS);
    net.drop_filter = Box::new(|_, from, _, _| from == ProcessId(1));
    let bytes = request(&net, 1, &[(3, 16_000), (2, 16_000)]);
    put(&mut net, &bytes);
    let from = Timeslot(net.timeslot());
    net.run_for(30 * MS);
    assert_eq!(net.arbiters[0].comm_stats().timed_out, 1);
    assert_eq!((net.arbiters[0].comm().pending(1), net.arbiters[0].allocator().wanted()), (0, 0));
    assert!(net.granted_to(1, from) < 21 * MS as usize / SLOT_NS as usize);
    // The endpoint sends again, and has no session for one round trip.
    net.drop_filter = Box::new(|_, _, _, _| false);
    assert!(net.enqueue(1, 3, 200));
    net.run_for(10 * MS);
    net.assert_all_arrived();
}

//= spec/arbiter.md#R3
#[test]
fn demand_beyond_pairs_max_waits_and_is_served() {
    let mut net = TestNet::new(6, 1, 1);
    let mut config = arbiter_config(0, 6, 1);
    config.allocator.pairs_max = 5;
    net.arbiters[0] = Arbiter::new(config).expect("right");
    for src in 0..6u32 {
        for dst in (0..6).filter(|dst| *dst != src) {
            (0..20).for_each(|_| assert!(net.enqueue(src, dst, 200)));
        }
    }
    net.run_for(3 * MS);
    assert!(net.arbiters[0].stats().refused > 0 && net.arbiters[0].allocator().pairs() <= 5);
    net.run_for(200 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
}

/// Demand is not polled meanwhile. What exceeds the queue is requested again.
#[test]
fn demands_beyond_the_queue_are_counted() {
    let nodes = 200;
    let mut comm = Comm::new(CommConfig::new(ProcessId(nodes), nodes)).expect("right");
    let now = TestNet::new(2, 1, 1).at();
    let wants = |src| (0..nodes as u16).filter(move |dst| u32::from(*dst) != src);
    for src in 0..40 {
        let bytes = frame(Opcode::Fcp, src, nodes, |buffer| {
            let mut writer = FcpWriter::new(buffer, 0, u64::MAX).expect("a header fits");
            let params = params(1_250, nodes);
            assert!(writer.reset(FcpReset { time: now.sync, epoch: 1, params }));
            let totals: Vec<_> = wants(src).map(|dst| FcpTotal { dst, total: 1 }).collect();
            assert_eq!(writer.totals(FcpEncoding::List, &totals), totals.len());
            writer.finish(seed(now.sync))
        });
        assert!(comm.handle_frame(now, &Frame::parse(&bytes).expect("sealed")));
    }
    let stats = *comm.stats();
    assert!(stats.demanded > 4_000 && stats.refused > 3_000, "{stats:?}");
    assert_eq!(stats.demanded + stats.refused, 40 * 199);
}

/// Timeslots have 48 bits on the wire, and the origin is less than that many timeslots ago.
#[test]
fn grant_before_timeslot_zero_is_rejected() {
    let arbiter = ProcessId(4);
    let mut client = Client::new(ClientConfig::new(ProcessId(0), 4, arbiter, 100_000)).unwrap();
    let now = TestNet::new(2, 1, 1).at();
    client.handle_timeout(now);
    let bytes = frame(Opcode::Fcp, 4, 0, |buffer| {
        let mut writer = FcpWriter::new(buffer, 0, u64::MAX).expect("a header fits");
        let time = now.sync.wrapping_add_ns(1);
        let params = params(100_000, 4);
        assert!(writer.reset(FcpReset { time, epoch: 1, params }));
        assert!(writer.grants((1 << 48) - 40, u64::MAX, |_| (1, 255)));
        writer.finish(seed(time))
    });
    assert_eq!(client.handle_frame(now, Port(0), &mut bytes.clone()), Verdict::Consumed);
    assert_eq!((client.pending_grants(), client.stats().late), (0, 64));
}

//= spec/arbiter.md#R6
#[test]
fn client_rejects_packets_beyond_its_queues() {
    let mut client = Client::new(client_config(0, 4, 1)).expect("right");
    let limit = 300 - SHORT_HEADER_LEN - 12 - 2;
    assert_eq!(client.enqueue(ProcessId(1), &vec![0; limit]), Ok(()));
    let bytes = limit + 1;
    let long = EnqueueError::TooLong { bytes, limit };
    assert_eq!(client.enqueue(ProcessId(1), &vec![0; bytes]), Err(long));
    for unknown in [0, 4, u32::MAX].map(ProcessId) {
        assert_eq!(client.enqueue(unknown, b"x"), Err(EnqueueError::Unknown(unknown)));
    }
    let taken = (0..300).take_while(|_| client.enqueue(ProcessId(1), &[0; 200]).is_ok()).count();
    assert_eq!((taken, client.queued(ProcessId(1))), (255, 256));
    assert_eq!(
        client.enqueue(ProcessId(2), b"x"),
        Ok(()),
        "other destinations have their own queues"
    );
    assert!(Client::new(client_config(4, 4, 1)).is_err(), "no endpoint");
    let long = ClientConfig { slot_ns: 5_000_000_000, ..client_config(0, 4, 1) };
    let error = Client::new(long).expect_err("too long");
    assert_eq!(error.to_string(), "slot_ns cannot be 5000000000", "not truncated");
    assert!(Client::new(client_config(0, 4, 0)).is_err(), "no arbiter");
}

//= spec/arbiter.md#R38
/// Frames with valid checks and arbitrary payloads, to both kinds of machines under load.
#[test]
fn corrupt_payloads_do_not_affect_other_endpoints() {
    for seed in 0..20 {
        let (mut net, mut draws) = (TestNet::new(4, 2, seed), Draws(seed));
        for _ in 0..400 {
            net.enqueue(draws.below(3) as u32, 3, 200);
            let opcode = [Opcode::Fcp, Opcode::Slot, Opcode::Watchdog, Opcode::Drops, Opcode::Data]
                [draws.below(5) as usize];
            let length = draws.below(60) as usize;
            let mut bytes = frame(opcode, draws.below(7) as u32, draws.below(6) as u32, |buffer| {
                buffer[..length].fill_with(|| draws.next() as u8);
                // Leaves epochs for later takeovers.
                buffer[0] = 0;
                length
            });
            let index = draws.below(6) as usize;
            let now = net.at();
            if opcode == Opcode::Watchdog || draws.one_in(2) {
                let drops = [Loss { src: draws.below(9) as u16, lost: 9, path: 1 }];
                bytes =
                    frame(Opcode::Drops, 1, 4, |buffer| Drops::write(buffer, drops.into_iter()));
            }
            match index {
                0..4 => net.clients[index].handle_frame(now, Port(0), &mut bytes),
                _ => net.arbiters[index - 4].handle_frame(now, Port(0), &mut bytes),
            };
            net.run_for(draws.below(10 * SLOT_NS));
        }
        net.run_for(40 * MS);
        net.assert_quiet();
        net.assert_all_arrived();
    }
}

/// A plausible claim of an endpoint for the other arbiter costs the takeover time, and no grant.
#[test]
fn false_claim_stops_an_arbiter_for_1_ms() {
    let mut net = TestNet::new(4, 2, 1);
    net.run_for(2 * MS);
    net.is_down[1] = true;
    assert_eq!(put(&mut net, &watchdog(1, 0, claim(4_000, PEER))), Verdict::Consumed);
    assert!(!net.arbiters[0].is_primary());
    assert!(net.enqueue(0, 3, 200));
    net.run_for(3 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
    assert_eq!((net.arbiters[0].is_primary(), net.arbiters[0].epoch()), (true, 4_001));
}

/// The other arbiter of four endpoints.
const PEER: ProcessId = ProcessId(5);

fn claim(epoch: u32, primary: ProcessId) -> Watchdog {
    Watchdog { epoch, primary }
}

fn watchdog(src: u32, named: u32, claim: Watchdog) -> Vec<u8> {
    let payload = |buffer: &mut [u8]| claim.write(buffer).expect("there is space");
    sequenced_frame(named, Opcode::Watchdog, (src, 4), payload)
}

/// One watchdog with the last incarnation once made the arbiter exit, and one with the last epoch
/// ended elections.
//= spec/arbiter.md#R39
#[test]
fn claims_that_cannot_be_are_refused() {
    let mut net = TestNet::new(4, 2, 1);
    net.run_for(2 * MS);
    let (own, stranger) = (ProcessId(4), ProcessId(9));
    let incarnation = net.arbiters[0].config().comm.incarnation.0;
    let far = incarnation + 60 * 8 + 1;
    let refused = [
        // An incarnation of this arbiter that starts in the future.
        (1, u32::MAX, claim(1, own)),
        (1, far, claim(1, own)),
        // An epoch that no change of the primary has led to, of an endpoint and of the peer.
        (1, 0, claim(u32::MAX, PEER)),
        (5, 0, claim(u32::MAX, PEER)),
        (1, 0, claim(u32::MAX, own)),
        // A process that is no arbiter, and a sender that is neither arbiter nor endpoint.
        (1, 0, claim(2, stranger)),
        (9, 0, claim(2, PEER)),
    ];
    for (nth, (src, named, claim)) in (1..).zip(refused) {
        assert_eq!(put(&mut net, &watchdog(src, named, claim)), Verdict::Dropped, "{claim:?}");
        let arbiter = &net.arbiters[0];
        assert_eq!((arbiter.is_primary(), arbiter.epoch()), (true, 1), "{claim:?}");
        assert_eq!(arbiter.stats().claims_refused, nth);
    }
    assert_eq!(put(&mut net, &watchdog(1, 0, claim(2, PEER))), Verdict::Consumed);
    assert!(!net.arbiters[0].is_primary());
}
