//! Every member is the root of its own group over the same links, and nothing is allocated in the
//! steady state.

use std::collections::VecDeque;

use allocation_counter::measure;
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_bulk::{Config, Event, Group, GroupId, Groups, Link, Member, Outcome};
use onepipe_wire::{BulkHeader, BulkPiece, Frame, Opcode};

const BLOCKS: u32 = 600;

/// Creates a group of `n` members whose ranks are rotated by `root`.
fn group(n: u32, root: u32, process: u32, link: Link) -> Group {
    let member = |at: u32| {
        let process = (root + at) % n;
        Member { process: ProcessId(process), port: Port(process as u16), link }
    };
    let members = (0..n).map(member).collect();
    let own = (process + n - root) % n;
    let id = GroupId(100 + u64::from(root));
    let config = Config {
        block_len: 256,
        piece_len: 200,
        frame_len_max: 600,
        ..Config::new(id, members, own, Incarnation(1))
    };
    Group::new(config).expect("a group")
}

/// Frames in flight, in reusable buffers.
struct Wire {
    in_flight: VecDeque<(usize, usize, [u8; 600])>,
    spare: Vec<[u8; 600]>,
    now: u64,
}

impl Wire {
    fn clock(&self) -> Now {
        Now { mono: Mono::from_ns(self.now), sync: Timestamp::from_ns((1 << 50) + self.now) }
    }

    /// Lets every member send one frame, and delivers the frames before. Returns whether there were
    /// any.
    fn step(
        &mut self,
        all: &mut [Groups],
        mut on_event: impl FnMut(usize, GroupId, Event),
    ) -> bool {
        self.now += 2_000;
        let now = self.clock();
        for (from, groups) in all.iter_mut().enumerate() {
            groups.handle_timeout(now);
            let mut slot = self.spare.pop().expect("few frames are in flight");
            match groups.poll_transmit(now, &mut slot[..]) {
                Some(sent) => self.in_flight.push_back((from, sent.port.0.into(), slot)),
                None => self.spare.push(slot),
            }
        }
        let was_busy = !self.in_flight.is_empty();
        for _ in 0..self.in_flight.len() {
            let Some((from, to, mut frame)) = self.in_flight.pop_front() else { break };
            all[to].handle_frame(now, Port(from as u16), &mut frame[..]);
            self.spare.push(frame);
            while let Some((id, event)) = all[to].poll_event() {
                on_event(to, id, event);
            }
        }
        was_busy
    }
}

//= spec/bulk.md#R30
#[test]
fn many_groups_do_not_allocate_per_block() {
    for link in [Link::Reliable, Link::Lossy] {
        let n = 4;
        let mut all: Vec<Groups> = (0..n).map(|_| Groups::new()).collect();
        for (process, groups) in (0..n).zip(&mut all) {
            for root in 0..n {
                assert!(groups.insert(group(n, root, process, link)).is_none());
            }
        }
        let bytes = BLOCKS as usize * 256 - 7;
        let object = |root: u32| vec![root as u8 + 1; bytes];
        for root in 0..n {
            for process in (0..n).filter(|process| *process != root) {
                let id = GroupId(100 + u64::from(root));
                let member = all[process as usize].get_mut(id).expect("the group exists");
                member.offer_memory(vec![0; bytes]);
            }
            let id = GroupId(100 + u64::from(root));
            let root_group = all[root as usize].get_mut(id).expect("the group exists");
            root_group.send(object(root)).expect("the object is accepted");
            root_group.close().expect("this member is the root");
        }
        let mut wire = Wire {
            in_flight: VecDeque::with_capacity(64),
            spare: (0..64).map(|_| [0; 600]).collect(),
            now: 1,
        };
        let held = |all: &[Groups]| {
            let of = |groups: &Groups| {
                groups.iter().map(|group| group.progress(0).map_or(0, |it| it.0)).sum::<u32>()
            };
            all.iter().map(of).sum::<u32>() / (n * n)
        };
        // Let queues and rings reach their size, then measure a third of the transfer.
        while held(&all) < BLOCKS / 2 {
            wire.step(&mut all, |_, _, _| ());
        }
        let taken = measure(|| {
            while held(&all) < BLOCKS * 5 / 6 {
                wire.step(&mut all, |_, _, _| ());
            }
        });
        assert_eq!(taken.count_total, 0, "{link:?}");

        let (mut closed, mut whole) = (0, 0);
        while closed < n * n {
            wire.step(&mut all, |_, id, event| match event {
                Event::Stable { memory, .. } => {
                    assert!(memory == object(id.0 as u32 - 100));
                    whole += 1;
                }
                Event::Closed(outcome) => {
                    assert_eq!(outcome, Outcome::Complete);
                    closed += 1;
                }
                _ => {}
            });
            assert!(wire.now < 60_000_000_000, "{closed} are closed");
        }
        // The roots' own objects become stable as well.
        assert!(whole == n * n, "{whole}");
    }
}

#[test]
fn frame_of_unknown_group_is_dropped() {
    let mut wire = Wire { in_flight: VecDeque::new(), spare: vec![[0; 600]], now: 1 };
    let mut all = vec![Groups::new(), Groups::new()];
    all[1].insert(group(2, 0, 1, Link::Lossy));
    assert!(wire.step(&mut all, |_, _, _| ()));
    assert_eq!((all[0].unknown(), all[1].unknown()), (1, 0));
    assert!(all[1].remove(GroupId(100)).is_some() && all[1].remove(GroupId(100)).is_none());
    assert!(!wire.step(&mut all, |_, _, _| ()));
}

/// A frame, with its block and offset if it is a piece.
type SentFrame = (Vec<u8>, Option<(u32, u32)>);

/// Returns all output of a group.
fn poll_all(group: &mut Group, ns: u64) -> Vec<SentFrame> {
    let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) };
    let (mut slot, mut all) = ([0; 600], Vec::new());
    group.handle_timeout(now);
    while let Some(sent) = group.poll_transmit(now, &mut slot) {
        let frame = Frame::parse(&slot[..sent.bytes]).expect("valid output of a group");
        let is_piece = frame.opcode == Opcode::BulkPiece;
        let piece = is_piece.then(|| {
            let (_, rest) = BulkHeader::parse(frame.payload).expect("valid output of a group");
            let header = BulkPiece::parse(rest).expect("valid output of a group").header;
            (header.block, header.offset)
        });
        all.push((slot[..sent.bytes].to_vec(), piece));
    }
    all
}

//= spec/bulk.md#R19
#[test]
fn control_frames_and_lost_pieces_go_first() {
    let mut pair = [0, 1].map(|process| group(2, 0, process, Link::Reliable));
    pair[1].offer_memory(vec![0; 2_560]);
    pair[0].send(vec![7; 2_560]).expect("the object is accepted");
    let mut ns = 0;
    let mut exchange = |from: usize, lost: Option<(u32, u32)>| {
        ns += 1_000;
        let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) };
        let mut sent = poll_all(&mut pair[from], ns);
        for (frame, piece) in &mut sent {
            if piece.is_none() || *piece != lost {
                pair[1 - from].handle_frame(now, Port(from as u16), frame);
            }
        }
        sent.into_iter().map(|(_, piece)| piece).collect::<Vec<_>>()
    };
    exchange(1, None);
    // A block has two pieces. There is a token for the first block.
    let sent = exchange(0, Some((0, 0)));
    let controls = sent.iter().take_while(|piece| piece.is_none()).count();
    assert!(controls > 0 && sent[controls..] == [Some((0, 0)), Some((0, 200))], "{sent:?}");
    // The receiver reports the loss, and grants tokens for two blocks.
    exchange(1, None);
    let sent = exchange(0, None);
    let controls = sent.iter().take_while(|piece| piece.is_none()).count();
    assert_eq!(sent[controls..], [(0, 0), (1, 0), (1, 200)].map(Some));
}
