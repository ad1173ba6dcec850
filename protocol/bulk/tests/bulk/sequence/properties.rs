//! Arbitrary sequences of frames, timeouts and commands: properties of a member that must hold for
//! any input. Shared with `verify/fuzz`.

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp};
use onepipe_bulk::{
    Algorithm, Config, Event, Group, GroupId, Link, Member, Memory, Placement, Plain,
};
use onepipe_wire::{
    BulkAck, BulkFailure, BulkFailures, BulkHave, BulkHeader, BulkPieceHeader, BulkRefused,
    BulkState, BulkWant, DETACHED_FRONT_LEN, Extent, Frame, Header, Opcode, SHORT_HEADER_LEN,
    open_detached, seal, seal_detached,
};

const MEMBERS: u32 = 5;
const FRAME_LEN: usize = 600;
const OBJECT_LEN_MAX: usize = 1 << 20;

/// Bytes that determine the next action; zeros after their end.
struct Script<'a> {
    rest: &'a [u8],
}

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn below(&mut self, limit: u64) -> u64 {
        u64::from(self.byte()) % limit
    }

    /// Returns a small number, or sometimes an arbitrary one.
    fn number(&mut self) -> u32 {
        match self.byte() {
            small @ 0..=239 => u32::from(small) % 8,
            240..=247 => u32::MAX - self.below(4) as u32,
            _ => (0..4).fold(0, |value, _| value << 8 | u32::from(self.byte())),
        }
    }

    fn extent(&mut self) -> Extent {
        let bytes = match self.byte() {
            small @ 0..=239 => u64::from(small) * 10,
            _ => u64::from(self.number()) << 12,
        };
        let block_len = self.number().max(1).saturating_mul(50);
        Extent { bytes, block_len, has_digests: self.below(2) == 1 }
    }
}

/// Memory of one member, or memory that all members can read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Bytes {
    Own(Vec<u8>),
    Shared(usize),
}

/// Content of the shared memory.
static SHARED: [u8; OBJECT_LEN_MAX] = [7; OBJECT_LEN_MAX];

impl Memory for Bytes {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => &SHARED[..*bytes],
        }
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Own(bytes) => Some(bytes),
            Self::Shared(_) => None,
        }
    }

    fn truncate(&mut self, bytes: usize) {
        match self {
            Self::Own(own) => own.truncate(bytes),
            Self::Shared(shared) => *shared = bytes.min(*shared),
        }
    }
}

/// Kind of memory of a group's objects.
trait Harness: Memory + Sized {
    const IS_SHARED: bool;
    fn of(script: &mut Script<'_>, bytes: usize) -> Self;
}

impl Harness for Vec<u8> {
    const IS_SHARED: bool = false;

    fn of(_: &mut Script<'_>, bytes: usize) -> Self {
        vec![0; bytes]
    }
}

impl Harness for Bytes {
    const IS_SHARED: bool = true;

    fn of(script: &mut Script<'_>, bytes: usize) -> Self {
        match script.below(2) {
            0 => Self::Own(vec![0; bytes]),
            _ => Self::Shared(bytes),
        }
    }
}

fn group<M: Harness>(own: u32, link: Link) -> Group<M> {
    let member = |rank: u32| Member { process: ProcessId(rank), port: Port(rank as u16), link };
    let members = (0..MEMBERS).map(member).collect();
    let mut config = Config {
        piece_len: 100,
        block_len: 150,
        frame_len_max: FRAME_LEN,
        object_len_max: OBJECT_LEN_MAX as u64,
        ..Config::new(GroupId(9), members, own, Incarnation(2))
    };
    if M::IS_SHARED {
        config.is_shared = true;
        config.algorithm = Algorithm::Plain(Plain::Sequential);
        config.lookahead_blocks = 1_024;
    }
    Group::with_memory(config).expect("a valid configuration")
}

/// Returns the plan in the frames of this group, from a frame of another member.
fn config_digest<M: Harness>() -> u32 {
    let now = Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1 << 50) };
    let mut slot = [0; FRAME_LEN];
    let mut other = group::<M>(1, Link::Lossy);
    let sent = other.poll_transmit(now, &mut slot).expect("a member sends its state to the root");
    let frame = Frame::parse(&slot[..sent.bytes]).expect("valid output");
    BulkHeader::parse(frame.payload).expect("a frame of a group").0.config_digest
}

/// Runs `bytes` as a script, against a member with links of any kind.
pub fn bulk(bytes: &[u8]) {
    let mut script = Script { rest: bytes };
    let own = script.below(MEMBERS.into()) as u32;
    let link = [Link::Lossy, Link::Reliable][script.below(2) as usize];
    play::<Vec<u8>>(script, (own, link), false);
}

/// Like `bulk`, but with detached payloads: mostly in shared memory, or scattered streams.
pub fn detached(bytes: &[u8]) {
    let mut script = Script { rest: bytes };
    let own = script.below(MEMBERS.into()) as u32;
    match script.below(4) {
        0 => play::<Vec<u8>>(script, (own, Link::Reliable), true),
        _ => play::<Bytes>(script, (own, Link::Reliable), true),
    }
}

fn play<M: Harness>(mut script: Script<'_>, (own, link): (u32, Link), is_detached: bool) {
    let (mut group, config_digest, mut ns) = (group::<M>(own, link), config_digest::<M>(), 1_000);
    let (mut over, mut placements) = (None, Vec::new());
    while !script.rest.is_empty() {
        let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) };
        match script.byte() {
            0..=199 => {
                let (from, mut bytes) = frame(&mut script, now, (own, config_digest), is_detached);
                match is_detached {
                    true => receive(&mut script, &mut group, (now, from), bytes, &mut placements),
                    false => {
                        group.handle_frame(now, Port(from as u16), &mut bytes);
                    }
                }
            }
            200..=229 => {
                let byte = u64::from(script.byte());
                ns += byte * byte * byte * 10;
            }
            230..=236 => {
                let bytes = script.below(200) as usize * 5;
                let memory = M::of(&mut script, bytes);
                let _ = group.send(memory);
            }
            237..=243 => {
                let bytes = script.below(200) as usize * 10;
                let memory = M::of(&mut script, bytes);
                let _ = group.provide(script.number(), memory);
            }
            244..=247 => {
                let bytes = script.below(200) as usize * 10;
                group.offer_memory(M::of(&mut script, bytes));
            }
            248 => group.decline(script.number()),
            249 => group.handle_link_down(script.number()),
            250 => group.leave(),
            _ => {
                let _ = group.close();
            }
        }
        let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) };
        if group.poll_timeout().is_some_and(|at| at <= now.mono) {
            group.handle_timeout(now);
        }
        drain(&mut script, &mut group, now, is_detached);
        group.check_invariants();
        // The outcome never changes.
        assert!(over.is_none() || over == group.outcome());
        over = group.outcome();
        assert!(group.failures().len() <= MEMBERS as usize);
    }
}

/// Delivers a frame. The payload of a piece may be placed, immediately or later, whether or not the
/// group still needs it.
fn receive<M: Harness>(
    script: &mut Script<'_>,
    group: &mut Group<M>,
    (now, from): (Now, u32),
    mut bytes: Vec<u8>,
    placements: &mut Vec<(u32, Placement)>,
) {
    if let Some(placement) =
        bytes.get(..DETACHED_FRONT_LEN).and_then(|front| group.begin_placement(front))
    {
        placements.push((from, placement));
        if script.below(4) > 0 {
            let at = script.below(placements.len() as u64) as usize;
            let (from, placement) = placements.swap_remove(at);
            position(script, group, (now, from), &placement);
        }
        return;
    }
    group.handle_frame(now, Port(from as u16), &mut bytes);
}

/// Completes or abandons a placement.
fn position<M: Harness>(
    script: &mut Script<'_>,
    group: &mut Group<M>,
    (now, from): (Now, u32),
    placement: &Placement,
) {
    let (object, at, bytes) = (placement.object(), placement.offset(), placement.piece_len());
    let memory = group.memory(object).map(|memory| memory.bytes().len());
    if let Some(space) = group.placement_mut(placement) {
        assert!(space.len() == bytes && memory.is_some_and(|memory| at + bytes <= memory));
        space.fill(SHARED[0]);
    }
    match script.below(8) {
        0 => group.abandon_placement(placement),
        _ => {
            group.handle_placed(now, Port(from as u16), placement);
        }
    }
}

/// Checks that the output ends and is valid.
fn drain<M: Harness>(script: &mut Script<'_>, group: &mut Group<M>, now: Now, is_detached: bool) {
    let mut slot = [0; FRAME_LEN];
    for sent in 0.. {
        let next = match is_detached {
            true => group.poll_gather(now, &mut slot).map(|sent| {
                let behind = group.payload(&sent).len();
                assert_eq!(behind, sent.payload_len(), "the payload has the announced length");
                (sent.header, behind)
            }),
            false => group.poll_transmit(now, &mut slot).map(|sent| (sent, 0)),
        };
        let Some((sent_to, behind)) = next else { break };
        let frame = &slot[..sent_to.bytes];
        let announced = open_detached(frame).map(|(_, _, behind)| behind);
        let is_front = announced == Ok(if M::IS_SHARED { 0 } else { behind });
        assert!(Frame::parse(frame).is_ok() || is_detached && is_front);
        assert!(u32::from(sent_to.port.0) < 2 * MEMBERS);
        assert!(sent < 20_000, "the output never ends");
    }
    while let Some(event) = group.poll_event() {
        match event {
            Event::Announced { .. } if group.config().own == 0 => {
                panic!("the root has all objects")
            }
            Event::Announced { object, bytes } if script.below(4) > 0 => {
                assert!(bytes <= OBJECT_LEN_MAX as u64);
                let memory = M::of(script, bytes as usize);
                group.provide(object, memory).expect("the object was announced");
            }
            Event::Delivered { object } => {
                let before = group.bytes(object).map(<[u8]>::len);
                assert_eq!(before.is_some(), group.progress(object).is_some());
            }
            Event::Stable { memory, .. } if M::IS_SHARED && group.config().own != 0 => {
                // All data in the shared memory is the same.
                assert!(memory.bytes().iter().all(|byte| *byte == SHARED[0]));
            }
            _ => {}
        }
    }
}

/// Returns a frame, valid or not.
fn frame(
    script: &mut Script<'_>,
    now: Now,
    (own, config_digest): (u32, u32),
    is_detached: bool,
) -> (u32, Vec<u8>) {
    let from = script.below(u64::from(MEMBERS) + 1) as u32;
    let config_digest = if script.byte() == 255 { !config_digest } else { config_digest };
    let (failed, stable) = (script.number() as u16, script.number());
    let front = BulkHeader { group: 9, config_digest, from: from as u16, failed, stable };
    let mut bytes = [SHARED[0]; FRAME_LEN];
    let space = front.write(&mut bytes[SHORT_HEADER_LEN..]).expect("the buffer fits the frame");
    let (opcode, written) = body(script, space);
    let incarnation = Incarnation(if script.byte() > 250 { script.number() } else { 1 });
    let header = Header::new(opcode, ProcessId(from), ProcessId(own), incarnation);
    let header = header.stamped(now.sync, Promises::both(now.sync), Psn(script.number()));
    let is_front = is_detached
        && opcode == Opcode::BulkPiece
        && written >= onepipe_wire::BULK_PIECE_HEADER_LEN
        && script.below(8) > 0;
    let length = match is_front {
        // The payload is not in the frame.
        true => {
            seal_detached(&mut bytes, header, written - onepipe_wire::BULK_PIECE_HEADER_LEN);
            DETACHED_FRONT_LEN
        }
        false => seal(&mut bytes, header, onepipe_wire::BULK_HEADER_LEN + written),
    };
    if script.byte() == 255 {
        let bit = (script.number() as usize) % (length * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    (from, bytes[..length].to_vec())
}

fn body(script: &mut Script<'_>, space: &mut [u8]) -> (Opcode, usize) {
    let fits = "the buffer fits the frame";
    match script.below(16) {
        0..=5 => {
            let header = BulkPieceHeader {
                object: script.number(),
                extent: script.extent(),
                digest: script.below(3),
                block: script.number(),
                offset: script.below(3) as u32 * 100,
                ordinal: script.number(),
                is_offer: script.byte() > 240,
            };
            header.write(space).expect(fits);
            let bytes = [100, 50, 0, script.below(120) as usize][script.below(4) as usize];
            (Opcode::BulkPiece, onepipe_wire::BULK_PIECE_HEADER_LEN + bytes)
        }
        6..=9 => {
            let state = BulkState {
                complete: script.number(),
                known: script.number(),
                resolved: script.number(),
                total: (script.byte() > 200).then(|| script.number()),
                digest: script.below(3),
                view: script.below(3),
                is_closed: script.byte() > 250,
                is_clean: false,
            };
            let tokens: Vec<u32> = (0..script.below(10)).map(|_| script.number()).collect();
            (Opcode::BulkState, state.write(space, tokens.into_iter()).expect(fits))
        }
        10 => {
            let ack = BulkAck {
                incarnation: Incarnation(2),
                largest: Psn(script.number()),
                marked: script.number(),
            };
            let words: Vec<u64> = (0..script.below(17)).map(|_| script.number().into()).collect();
            (Opcode::BulkAck, ack.write(space, words.into_iter()).expect(fits))
        }
        11 => {
            let failures: Vec<BulkFailure> = (0..script.below(2))
                .map(|_| BulkFailure {
                    rank: script.number() as u16,
                    by: script.number() as u16,
                    reason: script.byte(),
                })
                .collect();
            (Opcode::BulkFailures, BulkFailures::write(space, failures.into_iter()))
        }
        12 | 13 => {
            let extent = (script.byte() > 50).then(|| script.extent());
            let have = BulkHave {
                object: script.number(),
                extent,
                view: script.below(3),
                first: script.number(),
            };
            let count = if extent.is_some() { script.below(20) } else { 0 };
            let words: Vec<u64> = (0..count).map(|_| script.number().into()).collect();
            (Opcode::BulkHave, have.write(space, words.into_iter()).expect(fits))
        }
        14 => {
            let want = BulkWant { object: script.number(), block: script.number() };
            (Opcode::BulkWant, want.write(space).expect(fits))
        }
        _ if script.byte() > 250 => {
            (Opcode::BulkRefused, BulkRefused::Excluded.write(space).expect(fits))
        }
        _ => {
            let bytes = script.below(100) as usize;
            space[..bytes].fill_with(|| script.byte());
            ([Opcode::BulkPiece, Opcode::BulkHave][script.below(2) as usize], bytes)
        }
    }
}
