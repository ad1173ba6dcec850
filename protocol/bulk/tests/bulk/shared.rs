//! Groups in shared memory: frames carry no data of objects.

use std::collections::VecDeque;
use std::rc::Rc;

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp};
use onepipe_bulk::{
    Algorithm, Config, Event, Group, GroupId, Link, Member, Memory, Outcome, Plain,
};
use onepipe_wire::{
    BULK_HEADER_LEN, BULK_PIECE_HEADER_LEN, BulkHeader, BulkPieceHeader, DETACHED_FRONT_LEN,
    Extent, Frame, Header, Opcode, SHORT_HEADER_LEN, seal,
};

/// Memory of one member, or memory that all members can read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Bytes {
    Own(Vec<u8>),
    Shared(Rc<Vec<u8>>, usize),
}

impl Memory for Bytes {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes, count) => &bytes[..*count],
        }
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Own(bytes) => Some(bytes),
            Self::Shared(..) => None,
        }
    }

    fn truncate(&mut self, bytes: usize) {
        match self {
            Self::Own(own) => own.truncate(bytes),
            Self::Shared(_, count) => *count = bytes.min(*count),
        }
    }
}

struct Harness {
    groups: Vec<Option<Group<Bytes>>>,
    objects: Vec<Rc<Vec<u8>>>,
    queue: VecDeque<(usize, usize, Vec<u8>)>,
    ns: u64,
    /// Number of bytes copied, and where the next copy goes wrong.
    copied: usize,
    wrong_at: Option<usize>,
    got: Vec<Vec<Bytes>>,
    lost: Vec<Vec<u32>>,
}

impl Harness {
    fn new(n: usize, sizes: &[usize]) -> Self {
        let member = |rank: usize| Member {
            process: ProcessId(50 + rank as u32),
            port: Port(rank as u16),
            link: Link::Reliable,
        };
        let group = |own| {
            let members = (0..n).map(member).collect();
            let config = Config {
                is_shared: true,
                algorithm: Algorithm::Plain(Plain::Sequential),
                block_len: 1_000,
                frame_len_max: 512,
                lookahead_blocks: 1_024,
                ..Config::new(GroupId(7), members, own, Incarnation(3))
            };
            Some(Group::with_memory(config).expect("a group"))
        };
        let object = |(at, bytes): (usize, &usize)| {
            Rc::new((0..*bytes).map(|it| (it * 31 + at) as u8).collect::<Vec<u8>>())
        };
        Self {
            groups: (0..n as u32).map(group).collect(),
            objects: sizes.iter().enumerate().map(object).collect(),
            queue: VecDeque::new(),
            ns: 1_000,
            copied: 0,
            wrong_at: None,
            got: vec![Vec::new(); n],
            lost: vec![Vec::new(); n],
        }
    }

    fn now(&self) -> Now {
        Now { mono: Mono::from_ns(self.ns), sync: Timestamp::from_ns((1 << 50) + self.ns) }
    }

    fn drain_events(&mut self, at: usize) {
        while let Some(event) = self.groups[at].as_mut().and_then(Group::poll_event) {
            match event {
                Event::Announced { object, bytes } => {
                    let shared = &self.objects[object as usize];
                    assert_eq!(shared.len() as u64, bytes);
                    // Half of the members use the object in place, the others copy it.
                    let memory = match at % 2 {
                        0 => Bytes::Shared(Rc::clone(shared), shared.len()),
                        _ => Bytes::Own(vec![0; shared.len()]),
                    };
                    let group = self.groups[at].as_mut().expect("a live machine");
                    group.provide(object, memory).expect("the object was announced");
                }
                Event::Stable { memory, .. } => self.got[at].push(memory),
                Event::Lost { object } => self.lost[at].push(object),
                _ => {}
            }
        }
    }

    fn transmit(&mut self, at: usize) {
        self.drain_events(at);
        let (now, mut slot) = (self.now(), [0; 512]);
        while let Some(sent) =
            self.groups[at].as_mut().and_then(|it| it.poll_gather(now, &mut slot))
        {
            assert!(sent.header.bytes <= 512, "no bytes of objects");
            let to = usize::from(sent.header.port.0);
            self.queue.push_back((at, to, slot[..sent.header.bytes].to_vec()));
        }
    }

    fn receive(&mut self, from: usize, to: usize, mut frame: Vec<u8>) {
        let (now, port) = (self.now(), Port(from as u16));
        let front = frame.get(..DETACHED_FRONT_LEN).unwrap_or_default().to_vec();
        let Some(group) = &mut self.groups[to] else { return };
        let mut placement = group.begin_placement(&front);
        if placement.is_none() {
            self.drain_events(to);
            let group = self.groups[to].as_mut().expect("a live machine");
            placement = group.begin_placement(&front);
        }
        let group = self.groups[to].as_mut().expect("a live machine");
        let Some(placement) = placement else {
            group.handle_frame(now, port, &mut frame);
            return;
        };
        let range = placement.offset()..placement.offset() + placement.piece_len();
        if let Some(space) = group.placement_mut(&placement) {
            space.copy_from_slice(&self.objects[placement.object() as usize][range.clone()]);
            self.copied += space.len();
            if !space.is_empty() && self.wrong_at.is_some_and(|at| self.copied > at) {
                self.wrong_at = None;
                space[0] ^= 1;
            }
        }
        group.handle_placed(now, port, &placement);
    }

    /// Runs until all live members are done, while the root sends as much as it may. Returns the
    /// number of frames received. `kill` is called before each frame.
    fn run(&mut self, mut kill: impl FnMut(u64) -> Option<usize>) -> u64 {
        let (mut next, mut frames) = (0, 0);
        while self.groups.iter().flatten().any(|group| !group.is_done()) {
            if let Some(root) = &mut self.groups[0] {
                while let Some(object) = self.objects.get(next) {
                    let memory = Bytes::Shared(Rc::clone(object), object.len());
                    if root.send(memory).is_err() {
                        break;
                    }
                    next += 1;
                }
                if next == self.objects.len() || !root.failures().is_empty() {
                    root.close().expect("the member is the root");
                }
            }
            (0..self.groups.len()).for_each(|at| self.transmit(at));
            if let Some((from, to, frame)) = self.queue.pop_front() {
                frames += 1;
                if let Some(dies) = kill(frames) {
                    self.groups[dies] = None;
                    let link = |group: &mut Group<Bytes>| group.handle_link_down(dies as u32);
                    self.groups.iter_mut().flatten().for_each(link);
                }
                self.ns += 100;
                self.receive(from, to, frame);
                continue;
            }
            let due = self.groups.iter().flatten().filter_map(Group::poll_timeout).min();
            self.ns = self.ns.max(due.map_or(self.ns, |due| due.since_ns(Mono::from_ns(0)))) + 1;
            assert!(self.ns < 60_000_000_000, "a member waits for ever");
            let now = self.now();
            self.groups.iter_mut().flatten().for_each(|group| group.handle_timeout(now));
        }
        frames
    }
}

//= spec/bulk.md#R15
#[test]
fn shared_objects_are_mapped_or_copied() {
    let sizes = [0, 1, 999, 1_000, 1_001, 70_000, 3, 1_200_000];
    for n in [1, 2, 3, 8] {
        let mut harness = Harness::new(n, &sizes);
        harness.run(|_| None);
        for (rank, group) in harness.groups.iter().enumerate() {
            let group = group.as_ref().expect("a live machine");
            assert_eq!(group.outcome(), Some(Outcome::Complete));
            let (own, all): (Vec<_>, Vec<_>) =
                harness.got[rank].iter().partition(|got| matches!(got, Bytes::Own(_)));
            assert_eq!(own.len(), if rank % 2 == 1 { sizes.len() } else { 0 });
            assert_eq!(own.len() + all.len(), sizes.len());
            for (got, sent) in harness.got[rank].iter().zip(&harness.objects) {
                assert!(got.bytes() == &sent[..]);
            }
            let asked = group.stats().blocks_requested;
            assert!(asked <= sizes.len() as u64, "{asked} blocks had to be requested");
        }
        let copies = n / 2 * sizes.iter().sum::<usize>();
        assert_eq!(harness.copied, copies, "each block is copied once");
    }
}

//= spec/bulk.md#R15
#[test]
fn large_object_has_larger_blocks() {
    let mut harness = Harness::new(2, &[1 << 27]);
    let frames = harness.run(|_| None);
    assert_eq!(harness.got[1].len(), 1);
    assert!(frames < 2_000, "{frames} frames");
}

//= spec/bulk.md#R15
#[test]
fn corrupt_copy_is_repeated() {
    for wrong_at in [0, 5_000, 69_999] {
        let mut harness = Harness::new(4, &[70_000]);
        harness.wrong_at = Some(wrong_at);
        harness.run(|_| None);
        let groups = harness.groups.iter().flatten();
        let corrupt: u64 = groups.map(|group| group.stats().blocks_corrupt).sum();
        assert_eq!((corrupt, harness.wrong_at), (1, None));
        for got in &harness.got {
            assert!(got[0].bytes() == &harness.objects[0][..]);
        }
    }
}

#[test]
fn survivors_agree_after_crash_at_any_frame() {
    let sizes = [3_500, 1, 2_000];
    let frames = Harness::new(4, &sizes).run(|_| None);
    for dies in 0..4 {
        for when in 1..=frames {
            let mut harness = Harness::new(4, &sizes);
            harness.run(|frame| (frame == when).then_some(dies));
            let others: Vec<usize> = (0..4).filter(|rank| *rank != dies).collect();
            let outcome = |rank: usize| harness.groups[rank].as_ref().and_then(Group::outcome);
            let first = others[0];
            for rank in others.iter().copied() {
                assert!(outcome(rank).is_some(), "{dies} at {when}");
                assert_eq!(outcome(rank), outcome(first), "{dies} at {when}");
                let count = harness.got[rank].len();
                assert_eq!(count, harness.got[first].len(), "{dies} at {when}");
                for (got, sent) in harness.got[rank].iter().zip(&harness.objects) {
                    assert!(got.bytes() == &sent[..]);
                }
            }
        }
    }
}

//= spec/bulk.md#R15
#[test]
fn only_blocks_of_the_object_are_requested() {
    let mut harness = Harness::new(2, &[2_000]);
    harness.transmit(1);
    let (.., frame) = harness.queue.pop_front().expect("a member sends its state to the root");
    let frame = Frame::parse(&frame).expect("valid output");
    let digest = BulkHeader::parse(frame.payload).expect("a frame of a group").0.config_digest;
    // The piece has no data, as if it could not be placed.
    let piece = |block: u32, psn: u32| {
        let mut bytes = vec![0; 512];
        let header = BulkHeader { group: 7, config_digest: digest, from: 0, failed: 0, stable: 0 };
        let rest = header.write(&mut bytes[SHORT_HEADER_LEN..]).expect("it fits");
        let extent = Extent { bytes: 2_000, block_len: 1_000, has_digests: true };
        let (digest, ordinal) = (0, BulkPieceHeader::REQUESTED);
        let header = BulkPieceHeader {
            object: 0,
            extent,
            digest,
            block,
            offset: 0,
            ordinal,
            is_offer: false,
        };
        header.write(rest).expect("it fits");
        let now = Timestamp::from_ns(1 << 50);
        let header = Header::new(Opcode::BulkPiece, ProcessId(50), ProcessId(51), Incarnation(3));
        let header = header.stamped(now, Promises::both(now), Psn(psn));
        let len = seal(&mut bytes, header, BULK_HEADER_LEN + BULK_PIECE_HEADER_LEN);
        bytes.truncate(len);
        bytes
    };
    for (psn, block) in [1, 2, 1, 2, 3].into_iter().enumerate() {
        let now = harness.now();
        let group = harness.groups[1].as_mut().expect("a live machine");
        group.handle_frame(now, Port(0), &mut piece(block, psn as u32));
        harness.drain_events(1);
    }
    let group = harness.groups[1].as_ref().expect("a live machine");
    group.check_invariants();
    let stats = group.stats();
    assert_eq!((stats.frames_dropped, stats.violations, stats.frames_received), (1, 2, 4));
    assert!(stats.blocks_requested > 0, "block 1 is one of the object");
}
