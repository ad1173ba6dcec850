//! Members connected by a full mesh of links: the model of the paper's formulas (RDMC section 4.5).

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp, Transmit};
use onepipe_bulk::{
    Algorithm, Config, Event, Group, GroupId, Groups, Link, Member, PIECE_FRONT_LEN, Plain,
};
use onepipe_sim_engine::{Instant, NANOSECOND, Queue, SECOND, Span};
use onepipe_wire::{BulkHeader, BulkPiece, Opcode, SHORT_HEADER_LEN, parse_header};

/// Initial value of the clocks, so that no timestamp is zero.
const CLOCK_BEGIN_NS: u64 = 1 << 50;
/// Limit of the virtual time.
const END: Instant = Instant::from_ps(600 * SECOND);

/// Mesh of members, its load and its faults.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// Number of members.
    pub members: usize,
    /// Number of senders: each is the root of a group of all members, in a rotated order.
    pub senders: usize,
    /// Algorithm of the schedules.
    pub algorithm: Algorithm,
    /// Number of objects per sender.
    pub objects: u32,
    /// Length of an object in bytes.
    pub bytes: usize,
    /// Length of a block in bytes.
    pub block_len: u32,
    /// Length of a piece in bytes.
    pub piece_len: u32,
    /// Rate of a member's interface in each direction, in bits/s.
    pub rate_bits_per_s: u64,
    /// Latency of a link in ns.
    pub latency_ns: u64,
    /// Minimum time per frame at an interface, in each direction, in ns.
    pub frame_ns: u64,
    /// A slow link: its two ends, and its rate in each direction in bits/s.
    pub slow: Option<(usize, usize, u64)>,
    /// A stalled member: its index, the start and the duration of the stall in ns.
    pub stall: Option<(usize, u64, u64)>,
    /// Whether members move in steps (RDMC section 4.5): each sends at most one block in a step, of
    /// those that it has at the beginning, and a step ends when all its blocks have arrived.
    /// Otherwise each member sends a block as soon as its interface is free.
    pub has_strict_steps: bool,
}

impl Mesh {
    /// Returns a mesh that sends one object in a pipeline over links of 100 Gbit/s and 1 us.
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
            has_strict_steps: false,
        }
    }

    /// Returns the time that a block with the headers of its frames takes on a link, in ns.
    pub fn block_ns(&self) -> f64 {
        let pieces = f64::from(self.block_len.div_ceil(self.piece_len));
        let bytes = f64::from(self.block_len) + pieces * PIECE_FRONT_LEN as f64;
        bytes * 8e9 / self.rate_bits_per_s as f64
    }

    /// Runs the mesh.
    ///
    /// # Panics
    /// If the configuration is invalid, the transfer does not finish, or an object delivered
    /// differs from what was sent.
    pub fn run(&self) -> Flow {
        let mut run = Run::new(self);
        run.run_to_completion();
        run.flow
    }

    fn frame_len_max(&self) -> usize {
        (PIECE_FRONT_LEN + self.piece_len as usize).max(1_400)
    }
}

/// Arrival of a block at a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Member that sent the block.
    pub from: usize,
    /// Start of the transmission of the first piece, in ns.
    pub sent_ns: u64,
    /// Arrival of the last piece, in ns.
    pub complete_ns: u64,
    /// Time that the pieces occupied the link, in ns.
    pub busy_ns: u64,
    pieces: u32,
}

/// Trace of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Time of the last delivery in ns.
    pub last_ns: u64,
    /// Hops by member and block, of the first object of the first sender; empty for the root.
    pub hops: Vec<Vec<Hop>>,
}

impl Flow {
    /// Returns the mean slack of transfers in the steady state (RDMC section 4.5): the number of
    /// steps of `step_ns` between the arrival of a block and its transmission. Excludes the root's.
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
    /// Arrival of a frame: its buffer, and the time it occupied the link.
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
    /// Per member, in ns: until when its interface is busy sending and receiving, and its next
    /// wake.
    sends_until: Vec<u64>,
    receives_until: Vec<u64>,
    wakes_at: Vec<u64>,
    slow_until: [u64; 2],
    /// Number of objects sent by each sender.
    sent: Vec<u32>,
    /// Number of outstanding deliveries.
    missing: u64,
    slot: Vec<u8>,
    /// Buffers of the frames in flight, and free buffers.
    frames: Vec<Vec<u8>>,
    free: Vec<usize>,
    /// Frames in flight.
    in_flight: usize,
    /// Per member: the first frame of a block that waits for the next step.
    held: Vec<Option<(Transmit, Vec<u8>)>>,
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
            receives_until: vec![0; n],
            wakes_at: vec![u64::MAX; n],
            slow_until: [0; 2],
            sent: vec![0; mesh.senders],
            missing: objects * (n as u64 - 1),
            slot: vec![0; mesh.frame_len_max()],
            frames: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            held: vec![None; n],
            flow: Flow { last_ns: 0, hops: vec![vec![Hop::default(); blocks]; n] },
        }
    }

    fn run_to_completion(&mut self) {
        (0..self.mesh.senders).for_each(|sender| self.send_objects(sender));
        (0..self.mesh.members).for_each(|at| self.drain(at));
        self.end_step();
        while self.missing > 0 {
            let next = self.queue.next_until(END);
            let (at, what) = next.expect("a transfer without faults comes to its end");
            self.now = at;
            self.handle_event(what);
        }
        self.members.iter().for_each(Groups::check_invariants);
    }

    /// Sends as many objects as a sender's group accepts.
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

    /// Returns the end of a member's stall, if it is stalled.
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
                self.in_flight -= 1;
            }
            MeshEvent::Wake(at) => {
                self.wakes_at[at] = u64::MAX;
                self.members[at].handle_timeout(now);
            }
        }
        self.drain(at);
        self.end_step();
    }

    /// Begins the next step if all blocks of the current one have arrived.
    fn end_step(&mut self) {
        let is_over = self.in_flight == 0 && self.held.iter().any(Option::is_some);
        if !self.mesh.has_strict_steps || !is_over {
            return;
        }
        // All blocks of the step are known before the first one leaves.
        for at in 0..self.mesh.members {
            if let Some((sent, frame)) = self.held[at].take() {
                self.transmit(at, sent, &frame);
            }
        }
        (0..self.mesh.members).for_each(|at| self.drain(at));
    }

    fn clock(&self) -> Now {
        let ns = self.now.as_ns();
        Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(CLOCK_BEGIN_NS + ns) }
    }

    /// Drains the output of a member until its interface is busy.
    fn drain(&mut self, at: usize) {
        while let Some((group, event)) = self.members[at].poll_event() {
            self.on_event(at, group, event);
        }
        let (now, ns) = (self.clock(), self.now.as_ns());
        while self.sends_until[at] <= ns && self.held[at].is_none() {
            let mut slot = std::mem::take(&mut self.slot);
            let sent = self.members[at].poll_transmit(now, &mut slot);
            if let Some(sent) = sent {
                let frame = &slot[..sent.bytes];
                match self.mesh.has_strict_steps && begins_block(frame) {
                    true => self.held[at] = Some((sent, frame.to_vec())),
                    false => self.transmit(at, sent, frame),
                }
            }
            self.slot = slot;
            if sent.is_none() {
                break;
            }
        }
        let due = self.members[at].poll_timeout().map(|due| due.as_ns().max(ns + 1));
        let free = Some(self.sends_until[at]).filter(|until| *until > ns);
        // While the interface is busy, the wake at its end covers earlier deadlines.
        let next = free.or(due).filter(|next| *next < self.wakes_at[at]);
        if let Some(next) = next {
            self.wakes_at[at] = next;
            self.queue.schedule(Instant::from_ps(next * NANOSECOND), MeshEvent::Wake(at));
        }
    }

    fn on_event(&mut self, at: usize, id: GroupId, event: Event) {
        let group = self.members[at].get_mut(id).expect("an existing group");
        match event {
            Event::Announced { object, bytes } => {
                group.provide(object, vec![0; bytes as usize]).expect("the object was announced");
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

    /// Sends a frame to the other end of its link.
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
            left = left.max(self.slow_until[direction].max(ns) + takes(rate));
            self.slow_until[direction] = left;
        }
        // The interface of the receiver takes one frame at a time.
        let receives_until = &mut self.receives_until[to];
        *receives_until = (left + mesh.latency_ns).max(*receives_until + busy_ns);
        let arrives = Instant::from_ps(*receives_until * NANOSECOND);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.frames.push(Vec::new());
            self.frames.len() - 1
        });
        self.frames[slot].clear();
        self.frames[slot].extend_from_slice(bytes);
        self.in_flight += 1;
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

/// Returns block and offset of a frame's piece if it is of the first sender's first object.
fn first_piece(frame: &[u8]) -> Option<(usize, u32)> {
    let (header, opcode) = parse_header(frame).ok()?;
    if opcode != Opcode::BulkPiece {
        return None;
    }
    let payload = frame.get(SHORT_HEADER_LEN..SHORT_HEADER_LEN + header.length())?;
    let (front, rest) = BulkHeader::parse(payload).ok()?;
    let piece = BulkPiece::parse(rest).ok()?.header;
    let is_first = front.group == 0 && piece.object == 0 && !piece.is_offer;
    is_first.then_some((piece.block as usize, piece.offset))
}

/// Whether a frame holds the first piece of a block.
fn begins_block(frame: &[u8]) -> bool {
    first_piece(frame).is_some_and(|(_, offset)| offset == 0)
}

/// Returns the content of an object.
fn content(sender: usize, object: u32, bytes: usize) -> Vec<u8> {
    vec![(sender as u32 * 31 + object * 7 + 1) as u8; bytes]
}

/// Creates a member's groups, one for each sender.
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
