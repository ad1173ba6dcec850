//! Members with a link of its own between each two: what the formulas of the paper are about
//! (RDMC section 4.5), without any fabric between them.

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp, Transmit};
use onepipe_bulk::{
    Algorithm, Config, Event, Group, GroupId, Groups, Link, Member, PIECE_FRONT_LEN, Plain,
};
use onepipe_sim_engine::{Instant, NANOSECOND, Queue, SECOND, Span};
use onepipe_wire::{BulkHeader, BulkPiece, HEADER_LEN, Opcode, parse_header};

/// A clock begins here, so that no timestamp is zero.
const CLOCK_BEGIN_NS: u64 = 1 << 50;
/// A run that has not come to its end by then never will.
const END: Instant = Instant::from_ps(600 * SECOND);

/// Who is there, what is sent, and what befalls them.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// How many.
    pub members: usize,
    /// How many of them send, each as the root of a group of its own over all, the lists rotated.
    pub senders: usize,
    /// How blocks travel.
    pub algorithm: Algorithm,
    /// What each sender sends: so many objects …
    pub objects: u32,
    /// … of so many bytes, one behind the other.
    pub bytes: usize,
    /// Bytes of a block.
    pub block_len: u32,
    /// Bytes of a piece.
    pub piece_len: u32,
    /// What a member can send, and take, in bits/s; all its links together.
    pub rate_bits_per_s: u64,
    /// From one end of a link to the other, in ns.
    pub latency_ns: u64,
    /// A member sends, and takes, no two frames within this, in ns.
    pub frame_ns: u64,
    /// One link, in both directions, that carries only so many bits/s.
    pub slow: Option<(usize, usize, u64)>,
    /// A member that stands still: which, when and for how long, in ns.
    pub stall: Option<(usize, u64, u64)>,
}

impl Mesh {
    /// One object of `bytes` in a pipeline, over links of 100 Gbit/s and 1 us.
    pub fn new(members: usize, bytes: usize, block_len: u32) -> Self {
        Self {
            members,
            senders: 1,
            algorithm: Algorithm::Plain(Plain::Pipeline),
            objects: 1,
            bytes,
            block_len,
            piece_len: 8_192,
            rate_bits_per_s: 100_000_000_000,
            latency_ns: 1_000,
            frame_ns: 0,
            slow: None,
            stall: None,
        }
    }

    /// How long the bytes of a block take on a link, with the headers of its frames, in ns.
    pub fn block_ns(&self) -> f64 {
        let pieces = f64::from(self.block_len.div_ceil(self.piece_len));
        let bytes = f64::from(self.block_len) + pieces * PIECE_FRONT_LEN as f64;
        bytes * 8e9 / self.rate_bits_per_s as f64
    }

    /// Lets everything be sent.
    ///
    /// # Panics
    /// When no group can be made of this, when it does not come to an end, or when a member has
    /// got anything else than was sent.
    pub fn run(&self) -> Flow {
        let mut run = Run::new(self);
        run.run_to_completion();
        run.flow
    }

    fn frame_len_max(&self) -> usize {
        (PIECE_FRONT_LEN + self.piece_len as usize).max(1_400)
    }
}

/// How one block came to one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// From whom.
    pub from: usize,
    /// When its first piece began to leave there, in ns.
    pub sent_ns: u64,
    /// When it was whole.
    pub complete_ns: u64,
    /// How long the link took for its pieces.
    pub busy_ns: u64,
    pieces: u32,
}

/// What has travelled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// When the last object of all was whole at the last member, in ns.
    pub last_ns: u64,
    /// By member, then by block: of the first object of the first sender; the root has none.
    pub hops: Vec<Vec<Hop>>,
}

impl Flow {
    /// The mean slack of a send in the steady state (RDMC section 4.5): how many steps of `step_ns`
    /// lie between its own and that in which the block came. The root's have none.
    pub fn slack(&self, step_ns: f64) -> f64 {
        let blocks = self.hops.last().map_or(0, Vec::len);
        let fill = self.hops.len().ilog2() as f64;
        let steady = step_ns * fill..step_ns * (blocks as f64 - fill);
        let hops = self.hops.iter().flat_map(|hops| hops.iter().enumerate());
        let is_steady = |hop: &Hop| hop.from != 0 && steady.contains(&(hop.sent_ns as f64));
        let (mut sum, mut count) = (0.0, 0);
        for (block, hop) in hops.filter(|(_, hop)| is_steady(hop)) {
            let had_ns = self.hops[hop.from][block].complete_ns as f64;
            sum += (hop.sent_ns as f64 - had_ns) / step_ns + 1.0;
            count += 1;
        }
        sum / f64::from(count)
    }
}

#[derive(Clone, Copy, Debug)]
enum MeshEvent {
    /// A frame has come: where its bytes lie, and how long a link took for them.
    Frame {
        to: usize,
        from: usize,
        bytes: usize,
        busy_ns: u64,
    },
    Wake(usize),
}

struct Run<'a> {
    mesh: &'a Mesh,
    members: Vec<Groups>,
    queue: Queue<MeshEvent>,
    now: Instant,
    /// By member, in ns: until when it sends, and takes; when it is woken.
    sends_until: Vec<u64>,
    takes_until: Vec<u64>,
    wakes_at: Vec<u64>,
    slow_until: [u64; 2],
    /// By sender: what it has sent.
    sent: Vec<u32>,
    /// How often an object is still to be delivered.
    missing: u64,
    slot: Vec<u8>,
    /// The bytes of frames under way, and places that are free.
    frames: Vec<Vec<u8>>,
    free: Vec<usize>,
    flow: Flow,
}

impl<'a> Run<'a> {
    fn new(mesh: &'a Mesh) -> Self {
        let n = mesh.members;
        let blocks = mesh.bytes.div_ceil(mesh.block_len as usize).max(1);
        let objects = mesh.senders as u64 * u64::from(mesh.objects);
        Self {
            mesh,
            members: (0..n).map(|at| groups(mesh, at)).collect(),
            queue: Queue::new(Span::FABRIC),
            now: Instant::START,
            sends_until: vec![0; n],
            takes_until: vec![0; n],
            wakes_at: vec![u64::MAX; n],
            slow_until: [0; 2],
            sent: vec![0; mesh.senders],
            missing: objects * (n as u64 - 1),
            slot: vec![0; mesh.frame_len_max()],
            frames: Vec::new(),
            free: Vec::new(),
            flow: Flow { last_ns: 0, hops: vec![vec![Hop::default(); blocks]; n] },
        }
    }

    fn run_to_completion(&mut self) {
        (0..self.mesh.senders).for_each(|sender| self.send_objects(sender));
        (0..self.mesh.members).for_each(|at| self.drain(at));
        while self.missing > 0 {
            let next = self.queue.next_until(END);
            let (at, what) = next.expect("a transfer without faults comes to its end");
            self.now = at;
            self.handle_event(what);
        }
    }

    /// Hands a sender's group as many objects as it takes.
    fn send_objects(&mut self, sender: usize) {
        while self.sent[sender] < self.mesh.objects {
            let object = content(sender, self.sent[sender], self.mesh.bytes);
            let root = self.members[sender].get_mut(GroupId(sender as u64));
            if root.expect("its own group").send(object).is_err() {
                return;
            }
            self.sent[sender] += 1;
        }
    }

    /// Until when a member stands still, if it does.
    fn stalled_until(&self, at: usize) -> Option<u64> {
        let (member, from, ns) = self.mesh.stall?;
        let is_stalled = member == at && (from..from + ns).contains(&self.now.as_ns());
        is_stalled.then_some(from + ns)
    }

    fn handle_event(&mut self, what: MeshEvent) {
        let at = match what {
            MeshEvent::Frame { to, .. } => to,
            MeshEvent::Wake(at) => at,
        };
        if let Some(until) = self.stalled_until(at) {
            self.queue.schedule(Instant::from_ps(until * NANOSECOND), what);
            return;
        }
        let now = self.clock();
        match what {
            MeshEvent::Frame { to, from, bytes: slot, busy_ns } => {
                let mut bytes = std::mem::take(&mut self.frames[slot]);
                self.note_piece(to, &bytes, busy_ns);
                self.members[to].handle_frame(now, Port(from as u16), &mut bytes);
                self.frames[slot] = bytes;
                self.free.push(slot);
            }
            MeshEvent::Wake(at) => {
                self.wakes_at[at] = u64::MAX;
                self.members[at].handle_timeout(now);
            }
        }
        self.drain(at);
    }

    fn clock(&self) -> Now {
        let ns = self.now.as_ns();
        Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(CLOCK_BEGIN_NS + ns) }
    }

    /// Drains a member, as far as its interface is free.
    fn drain(&mut self, at: usize) {
        while let Some((group, event)) = self.members[at].poll_event() {
            self.on_event(at, group, event);
        }
        let (now, ns) = (self.clock(), self.now.as_ns());
        while self.sends_until[at] <= ns {
            let mut slot = std::mem::take(&mut self.slot);
            let sent = self.members[at].poll_transmit(now, &mut slot);
            if let Some(sent) = sent {
                self.transmit(at, sent, &slot[..sent.bytes]);
            }
            self.slot = slot;
            if sent.is_none() {
                break;
            }
        }
        let due = self.members[at].poll_timeout().map(|due| due.as_ns().max(ns + 1));
        let free = Some(self.sends_until[at]).filter(|until| *until > ns);
        // Who is busy sending has nobody to tell that something is due.
        let next = free.or(due).filter(|next| *next < self.wakes_at[at]);
        if let Some(next) = next {
            self.wakes_at[at] = next;
            self.queue.schedule(Instant::from_ps(next * NANOSECOND), MeshEvent::Wake(at));
        }
    }

    fn on_event(&mut self, at: usize, id: GroupId, event: Event) {
        let group = self.members[at].get_mut(id).expect("it has spoken");
        match event {
            Event::Announced { object, bytes } => {
                group.provide(object, vec![0; bytes as usize]).expect("it was asked for");
            }
            Event::Delivered { .. } => {
                self.missing -= 1;
                self.flow.last_ns = self.now.as_ns();
            }
            Event::Stable { object, memory } => {
                let sender = id.0 as usize;
                assert!(memory == content(sender, object, self.mesh.bytes), "K: {id:?} {object}");
                if at == sender {
                    self.send_objects(sender);
                }
            }
            event => panic!("nothing fails here: {event:?}"),
        }
    }

    /// A frame leaves `from`, and comes to the other end of its link.
    fn transmit(&mut self, from: usize, sent: Transmit, bytes: &[u8]) {
        let (mesh, to, ns) = (self.mesh, usize::from(sent.port.0), self.now.as_ns());
        let takes = |rate: u64| (bytes.len() as u64 * 8_000_000_000).div_ceil(rate);
        let busy_ns = takes(mesh.rate_bits_per_s).max(mesh.frame_ns);
        self.note_departure(from, to, bytes);
        let mut left = ns + busy_ns;
        self.sends_until[from] = left;
        if let Some((one, other, rate)) = mesh.slow
            && let Some(direction) =
                [(one, other), (other, one)].iter().position(|link| *link == (from, to))
        {
            left = left.max(self.slow_until[direction] + takes(rate));
            self.slow_until[direction] = left;
        }
        // Who takes frames from several takes one behind the other.
        let takes_until = &mut self.takes_until[to];
        *takes_until = (left + mesh.latency_ns).max(*takes_until + busy_ns);
        let arrives = Instant::from_ps(*takes_until * NANOSECOND);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.frames.push(Vec::new());
            self.frames.len() - 1
        });
        self.frames[slot].clear();
        self.frames[slot].extend_from_slice(bytes);
        self.queue.schedule(arrives, MeshEvent::Frame { to, from, bytes: slot, busy_ns });
    }

    fn note_departure(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let Some(block) = first_piece(bytes) else { return };
        let hop = &mut self.flow.hops[to][block.0];
        if block.1 == 0 {
            (hop.from, hop.sent_ns) = (from, self.now.as_ns());
        }
    }

    fn note_piece(&mut self, to: usize, bytes: &[u8], busy_ns: u64) {
        let Some((block, _)) = first_piece(bytes) else { return };
        let hop = &mut self.flow.hops[to][block];
        hop.pieces += 1;
        hop.busy_ns += busy_ns;
        hop.complete_ns = self.now.as_ns();
    }
}

/// The block and the offset of a piece, if the frame is one of the first sender's first object.
fn first_piece(frame: &[u8]) -> Option<(usize, u32)> {
    let (header, opcode) = parse_header(frame).ok()?;
    if opcode != Opcode::BulkPiece {
        return None;
    }
    let payload = frame.get(HEADER_LEN..HEADER_LEN + header.length())?;
    let (front, rest) = BulkHeader::parse(payload).ok()?;
    let piece = BulkPiece::parse(rest).ok()?.header;
    let is_first = front.group == 0 && piece.object == 0 && !piece.offers;
    is_first.then_some((piece.block as usize, piece.offset))
}

/// What a sender's object holds.
fn content(sender: usize, object: u32, bytes: usize) -> Vec<u8> {
    vec![(sender as u32 * 31 + object * 7 + 1) as u8; bytes]
}

/// A member's groups, one for each sender.
fn groups(mesh: &Mesh, at: usize) -> Groups {
    let n = mesh.members;
    let mut groups = Groups::new();
    for sender in 0..mesh.senders {
        let nodes = (0..n).map(|rank| (sender + rank) % n);
        let member = |node: usize| Member {
            process: ProcessId(node as u32),
            port: Port(node as u16),
            link: Link::Reliable,
        };
        let own = ((at + n - sender) % n) as u32;
        let members = nodes.map(member).collect();
        let config = Config {
            algorithm: mesh.algorithm.clone(),
            block_len: mesh.block_len,
            piece_len: mesh.piece_len,
            frame_len_max: mesh.frame_len_max(),
            ..Config::new(GroupId(sender as u64), members, own, Incarnation(1))
        };
        groups.insert(Group::new(config).expect("the settings are in range"));
    }
    groups
}
