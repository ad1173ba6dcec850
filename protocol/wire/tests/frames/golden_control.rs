//! The bodies of golden recall, link-state and failure frames.

use std::net::SocketAddr;

use onepipe_base::{Address, Cause, Incarnation, Instance, Port, ProcessId, SwitchId, Timestamp};
use onepipe_wire::{
    AddressAd, AnnounceView, DecisionTip, Failure, Flags, Flood, FloodAck, FloodId, FloodKind,
    FloodView, Frame, HEADER_LEN, Header, Link, LinkState, Recall, Recovery, RecoveryView,
    Resolved, Side, Undeliverable, seal,
};

use crate::golden::Golden;

/// Decodes an instance from two words of a file, independently of the code under test.
fn instance(address: u64, incarnation: u64) -> Option<Instance> {
    let incarnation = Incarnation(incarnation as u32);
    let address = match address as u32 {
        u32::MAX => return None,
        bits if bits >= 1 << 31 => Address::Switch(SwitchId(bits - (1 << 31))),
        bits => Address::Process(ProcessId(bits)),
    };
    Some(Instance { address, incarnation })
}

/// Expands 48 bits of a file: all of its times lie between the same two wraps.
fn time(golden: &Golden, bits: u64) -> Timestamp {
    let stretch = golden.time("near").as_ns() >> 48 << 48;
    Timestamp::from_ns(stretch + bits)
}

pub fn both_ends(golden: &Golden, frame: &Frame<'_>) {
    let (header, near) = (frame.header, golden.time("near"));
    let own = instance(golden.number("src"), golden.number("incarnation"));
    let peer = instance(golden.number("dst"), golden.number("psn"));
    assert_eq!((header.sender(), header.peer()), (own, peer), "{}", golden.name);
    let own = own.expect("has a sender");
    let again = Header::hop_only(frame.opcode, own, peer, header.promises(near))
        .with_counted(header.message_ts(near))
        .flagged(golden.number("flags") as u8);
    let is_unfed = header.has(Flags::UNFED | Flags::HOLDS);
    assert_eq!(is_unfed, golden.name == "beacon-unfed.hex");
    let mut written = vec![0; HEADER_LEN];
    written.extend_from_slice(frame.payload);
    seal(&mut written, again, frame.payload.len());
    assert_eq!(Frame::parse(&written).expect("sealed").header, header, "{}", golden.name);
}

pub fn recall(golden: &Golden, frame: &Frame<'_>) {
    let read = Recall::parse(frame.payload).expect("a golden recall");
    let timestamps: Vec<Timestamp> = read.timestamps(golden.time("near")).collect();
    let numbers = golden.numbers("timestamp").into_iter();
    assert_eq!(timestamps, numbers.map(|bits| time(golden, bits)).collect::<Vec<_>>());
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(Recall::write(&mut written, timestamps.into_iter()), frame.payload.len());
    assert_eq!(written, frame.payload);
}

pub fn ad(golden: &Golden, frame: &Frame<'_>) {
    let read = AddressAd::parse(frame.payload).expect("a golden address advertisement");
    assert_eq!(u64::from(read.wants_reply), golden.number("asks"));
    assert_eq!(u64::from(read.address.port()), golden.number("udp_port"));
    let SocketAddr::V4(address) = read.address else { panic!("it is an IPv4 address") };
    let ip = golden.bytes_of("ip")[0];
    assert_eq!((&ip[10..12], &ip[12..]), (&[0xff; 2][..], &address.ip().octets()[..]));
    // The form of earlier releases, which is read and not written, ends here.
    if frame.payload.len() < onepipe_wire::ADDRESS_AD_LEN {
        return assert_eq!((read.nonce, read.proof), (0, 0));
    }
    assert_eq!((read.nonce, read.proof), (golden.number("nonce"), golden.number("proof")));
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(read.write(&mut written), Some(written.len()));
    assert_eq!(written, frame.payload);
}

pub fn announce(golden: &Golden, frame: &Frame<'_>) {
    let read = AnnounceView::parse(frame.payload).expect("a golden announcement");
    let part = read.announce;
    assert_eq!(u64::from(part.generation), golden.number("generation"));
    assert_eq!(u64::from(part.first), golden.number("first"));
    assert_eq!(u64::from(part.total), golden.number("total"));
    let column = |label| golden.numbers(label);
    let links: Vec<Link> = read.links(golden.time("near")).collect();
    assert_eq!(links.len() as u64, golden.number("links"));
    for (at, link) in links.iter().enumerate() {
        let number = column("number")[at] as u32;
        let expected = Link {
            port: Port(column("port")[at] as u16),
            side: [Side::Lower, Side::Upper, Side::Direct][column("side")[at] as usize],
            instance: instance(column("address")[at], column("life")[at]),
            state: match column("state")[at] {
                0 => LinkState::Up,
                _ => LinkState::Frozen {
                    number,
                    commit: time(golden, column("last_commit")[at]),
                    cause: Cause::Unknown,
                },
            },
        };
        assert_eq!(*link, expected, "{}", golden.name);
    }
    assert_eq!(part.tip, tip(golden));
    let mut written = vec![0xff; frame.payload.len()];
    let (count, bytes) = part.write(&mut written, links.iter().copied()).expect("it fits");
    assert_eq!((usize::from(count), bytes), (links.len(), frame.payload.len()));
    assert_eq!(written, frame.payload);
}

/// Returns the tip of a file, if it has one.
fn tip(golden: &Golden) -> Option<DecisionTip> {
    let column = |label| golden.numbers(label).first().copied();
    Some(DecisionTip {
        epoch: column("tip_epoch")? as u32,
        replica: ProcessId(column("tip_replica")? as u32),
        incarnation: Incarnation(column("tip_incarnation")? as u32),
        decided: column("tip_decided")? as u32,
        digest: column("tip_digest")?,
    })
}

pub fn acked_tip(golden: &Golden, frame: &Frame<'_>) {
    let Some(tip) = tip(golden) else { return assert_eq!(frame.payload, [0u8; 0]) };
    assert_eq!(DecisionTip::parse(frame.payload), Ok(tip));
    let mut written = vec![0; frame.payload.len()];
    assert_eq!(tip.write(&mut written), Some(written.len()));
    assert_eq!(written, frame.payload);
}

fn flood_id(golden: &Golden) -> FloodId {
    let (epoch, sequence) = (golden.number("epoch"), golden.number("sequence"));
    FloodId { epoch: epoch as u32, sequence: sequence as u32 }
}

fn failures(golden: &Golden) -> Vec<Failure> {
    let column = |label| golden.numbers(label);
    let failure = |at| Failure {
        first: ProcessId(column("first")[at] as u32),
        count: column("count")[at] as u32,
        incarnation: Incarnation(column("up_to")[at] as u32),
        at: time(golden, column("failed_at")[at]),
        cause: Cause::Unknown,
    };
    (0..column("first").len()).map(failure).collect()
}

fn dead(golden: &Golden) -> Vec<Instance> {
    let instances = golden.numbers("address").into_iter().zip(golden.numbers("life"));
    instances
        .map(|(address, incarnation)| instance(address, incarnation).expect("has an address"))
        .collect()
}

fn resolved(golden: &Golden) -> Vec<Resolved> {
    let column = |label| golden.numbers(label);
    let resolved = |at| Resolved {
        owner: instance(column("address")[at], column("life")[at]).expect("has an address"),
        number: column("number")[at] as u32,
    };
    (0..column("address").len()).map(resolved).collect()
}

pub fn flood(golden: &Golden, frame: &Frame<'_>) {
    let read = FloodView::parse(frame.payload).expect("a golden flood");
    assert_eq!(read.id, flood_id(golden));
    assert_eq!(read.kind as u64, golden.number("kind"));
    let failed: Vec<Failure> = read.failures(golden.time("near")).collect();
    let links: Vec<Resolved> = read.resolved().collect();
    let instances: Vec<Instance> = read.dead().collect();
    let (expected, count) = match read.kind {
        FloodKind::Notice => ((failures(golden), vec![], vec![]), failed.len()),
        FloodKind::Resume => ((vec![], resolved(golden), vec![]), links.len()),
        FloodKind::Freeze => ((vec![], vec![], dead(golden)), instances.len()),
    };
    assert_eq!(count as u64, golden.number("entries"));
    assert_eq!((&failed, &links, &instances), (&expected.0, &expected.1, &expected.2));
    let (mut written, flood) = (vec![0xff; frame.payload.len()], Flood { id: read.id });
    let wrote = match read.kind {
        FloodKind::Notice => flood.write_notice(&mut written, failed.into_iter()),
        FloodKind::Resume => flood.write_resume(&mut written, links.into_iter()),
        FloodKind::Freeze => flood.write_freeze(&mut written, instances.into_iter()),
    };
    assert_eq!(wrote.map(|(_, bytes)| bytes), Some(frame.payload.len()));
    assert_eq!(written, frame.payload);
}

pub fn flood_ack(golden: &Golden, frame: &Frame<'_>) {
    let ack = FloodAck::parse(frame.payload).expect("a golden flood acknowledgement");
    assert_eq!((ack.id, ack.kind as u64), (flood_id(golden), golden.number("kind")));
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(ack.write(&mut written), Some(frame.payload.len()));
    assert_eq!(written, frame.payload);
}

pub fn relay(golden: &Golden, frame: &Frame<'_>) {
    assert_eq!([frame.payload], golden.bytes_of("frame")[..]);
    let inner = Frame::parse(frame.payload).expect("a frame of its own");
    assert!(!inner.opcode.is_control() && inner.opcode.service().is_some());
    assert_eq!(frame.payload.len(), HEADER_LEN + inner.payload.len());
}

pub fn undeliverable(golden: &Golden, frame: &Frame<'_>) {
    let near = golden.time("near");
    let read = Undeliverable::parse(frame.payload, near).expect("golden undeliverable recalls");
    let (to, instances) = (golden.numbers("to"), golden.numbers("life"));
    let timestamps = golden.numbers("timestamp");
    let read: Vec<Undeliverable> = read.collect();
    let entry = |at: usize| Undeliverable {
        to: ProcessId(to[at] as u32),
        incarnation: Incarnation(instances[at] as u32),
        timestamp: time(golden, timestamps[at]),
    };
    assert_eq!(read, (0..to.len()).map(entry).collect::<Vec<_>>());
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(Undeliverable::write(&mut written, read.into_iter()), frame.payload.len());
    assert_eq!(written, frame.payload);
}

pub fn recovery(golden: &Golden, frame: &Frame<'_>) {
    let near = golden.time("near");
    let read = RecoveryView::parse(frame.payload).expect("a golden recovery");
    let recovery = read.recovery(near);
    let expected = Recovery {
        complete: time(golden, golden.number("complete")),
        part: golden.number("part") as u16,
        parts: golden.number("parts") as u16,
    };
    assert_eq!(recovery, expected);
    assert_eq!(read.failures(near).collect::<Vec<_>>(), failures(golden));
    assert_eq!(read.failures(near).len() as u64, golden.number("failures"));
    let (senders, timestamps) = (golden.numbers("sender"), golden.numbers("timestamp"));
    let recall = |at: usize| (ProcessId(senders[at] as u32), time(golden, timestamps[at]));
    let recalls: Vec<_> = (0..senders.len()).map(recall).collect();
    assert_eq!(read.recalls(near).collect::<Vec<_>>(), recalls);
    assert_eq!(recalls.len() as u64, golden.number("recalls"));
    let mut written = vec![0xff; frame.payload.len()];
    let bytes = recovery.write(&mut written, read.failures(near), read.recalls(near));
    assert_eq!(bytes, Some(frame.payload.len()));
    assert_eq!(written, frame.payload);
}
