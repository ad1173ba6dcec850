//! Drives one member's group over memory shared with the other members.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_bulk::{Event, Group, Placement};
use onepipe_transport_clock::Clock;
use onepipe_transport_driver::{Doorbell, Transport};
use onepipe_transport_shm::{PAGE_LOCATION_LEN, PagePool, SegmentLost, Shm};
use onepipe_transport_tcp::Progress;
use onepipe_wire::DETACHED_FRONT_LEN;

use crate::join::PageRole;
use crate::location::{object_of, page_location};
use crate::{ObjectBytes, PageIndex, SharedLinks};

/// Interval of liveness checks of a waiting member: longer than any sleep of a process that would
/// wake it, and short compared with the failure timeout.
const LIVENESS_CHECK_NS: u64 = 20_000_000;
/// A piece of at least this many bytes is published before the next one is prepared, because its
/// digest takes a while to compute.
const FLUSH_BYTES: usize = 1 << 16;

/// Drives one member over memory shared with the other members. A thread calls
/// [`ShmGroupDriver::turn`] in a loop, with the time that it may wait.
///
/// The driver rules of [`Machine`] are kept: D1 the clock is read once before received frames and
/// once before sending, and `mono` is held if it goes back; D2 after every mutation events and
/// frames are drained before it waits; D3 rings are FIFO, and a full ring blocks all sending for a
/// bounded time; D4 [`onepipe_bulk::Link::Reliable`]: the group retransmits what a ring has
/// dropped; D5 timers run by the clock.
#[derive(Debug)]
pub struct ShmGroupDriver<C> {
    group: Group<ObjectBytes>,
    shm: Shm,
    role: PageRole,
    clock: C,
    last_mono: Option<Mono>,
    /// Some frames wait for capacity.
    is_blocked: bool,
}

impl<C: Clock> ShmGroupDriver<C> {
    /// Makes the driver of a member that shares memory with all others. The machine's configuration
    /// must come from [`crate::shared_memory_config`]; each member's port must be its rank, and its
    /// link reliable.
    pub fn new(group: Group<ObjectBytes>, links: SharedLinks, clock: C) -> Self {
        let SharedLinks { mut shm, role } = links;
        let config = group.config();
        debug_assert!((0..).zip(&config.members).all(|(rank, member)| member.port == Port(rank)));
        assert!(config.is_shared && config.frame_len_max <= shm.config().frame_len_max);
        // Bulk groups use no promises.
        shm.set_awaiting_promises(false);
        Self { group, shm, role, clock, last_mono: None, is_blocked: false }
    }

    /// The group, for queries.
    pub fn group(&self) -> &Group<ObjectBytes> {
        &self.group
    }

    /// The group, for commands. The next turn sends their output (rule D2). Objects that the root
    /// sends without a copy lie on pages of [`ShmGroupDriver::page_pool`].
    pub fn group_mut(&mut self) -> &mut Group<ObjectBytes> {
        &mut self.group
    }

    /// At the root: the memory pool for objects.
    pub fn page_pool(&self) -> Option<&PagePool> {
        match &self.role {
            PageRole::Root(page_pool, _) => Some(page_pool),
            PageRole::Receiver(_) => None,
        }
    }

    /// At receivers: the pages on which objects lie.
    pub fn page_index(&self) -> Option<&PageIndex> {
        match &self.role {
            PageRole::Root(..) => None,
            PageRole::Receiver(page_index) => Some(page_index),
        }
    }

    /// Why this member can take no further part, if so: another process has shortened the file of
    /// the segment or of the page pool. The other members count this one as failed.
    pub fn loss(&self) -> Option<SegmentLost> {
        self.shm.loss().or_else(|| match &self.role {
            PageRole::Root(page_pool, _) => page_pool.loss(),
            PageRole::Receiver(page_index) => page_index.loss(),
        })
    }

    /// The handle that ends a wait from another thread.
    pub fn doorbell(&self) -> Doorbell {
        self.shm.doorbell()
    }

    /// Sends what was commanded; waits for at most `wait_ns` if there is nothing else to do;
    /// receives frames, runs expired timers, hands out events and sends the resulting output.
    pub fn turn(
        &mut self,
        wait_ns: u64,
        mut on_event: impl FnMut(&mut Group<ObjectBytes>, Event<ObjectBytes>),
    ) -> Progress {
        let mut progress = Progress::default();
        self.drain_output(&mut progress, &mut on_event);
        if progress.is_idle() && !self.is_blocked && wait_ns > 0 {
            self.wait_idle(wait_ns);
        }
        let now = self.read_clock();
        self.receive(now, &mut progress, &mut on_event);
        if self.group.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.group.handle_timeout(now);
        }
        self.drain_output(&mut progress, &mut on_event);
        progress
    }

    /// Hands out events and sends frames until there are no more of either.
    fn drain_output(
        &mut self,
        progress: &mut Progress,
        on_event: &mut impl FnMut(&mut Group<ObjectBytes>, Event<ObjectBytes>),
    ) {
        loop {
            let before = *progress;
            deliver_events(&mut self.group, &mut self.role, progress, on_event);
            self.transmit(progress);
            if *progress == before {
                return;
            }
        }
    }

    fn transmit(&mut self, progress: &mut Progress) {
        let now = self.read_clock();
        self.is_blocked = !self.shm.can_begin_burst(now);
        if self.is_blocked {
            return;
        }
        self.shm.begin_burst(now, None);
        while let Some(slot) = self.shm.slot() {
            let Some(sent) = self.group.poll_gather(now, slot) else { break };
            progress.frames_sent += 1;
            let is_front = sent.header.bytes == DETACHED_FRONT_LEN;
            let front = slot.get(..DETACHED_FRONT_LEN).filter(|_| is_front);
            let Some(object) = front.and_then(object_of) else {
                self.shm.send(sent.header);
                continue;
            };
            let object_bytes = self.group.memory(object);
            let Some(location) = object_bytes.and_then(|bytes| self.role.location(object, bytes))
            else {
                // A receiver always knows the location of an object it has. At the root no memory
                // was left for a copy that others could read: the object cannot be sent.
                if self.page_pool().is_some() {
                    self.group.leave();
                }
                continue;
            };
            let bytes = sent.header.bytes + PAGE_LOCATION_LEN;
            slot[sent.header.bytes..bytes].copy_from_slice(&location.to_bytes());
            self.shm.send(Transmit { port: sent.header.port, bytes });
            if sent.payload_len() >= FLUSH_BYTES {
                // Preparing the next piece takes a while: let the receiver start on this one.
                self.shm.end_burst(None);
                self.shm.begin_burst(now, None);
            }
        }
        self.shm.end_burst(None);
    }

    /// Waits until a frame arrives, the doorbell is rung, a timer expires or the time is over.
    fn wait_idle(&mut self, wait_ns: u64) {
        let due_ns = match (self.group.poll_timeout(), self.last_mono) {
            (Some(due), Some(before)) => due.since_ns(before),
            _ => u64::MAX,
        };
        self.shm.wait(wait_ns.min(due_ns).min(LIVENESS_CHECK_NS));
    }

    fn receive(
        &mut self,
        now: Now,
        progress: &mut Progress,
        on_event: &mut impl FnMut(&mut Group<ObjectBytes>, Event<ObjectBytes>),
    ) {
        let Self { group, shm, role, .. } = self;
        let mut events = Progress::default();
        let frames = shm.receive(now, |port, frame| {
            let (PageRole::Receiver(page_index), Some((object, location))) =
                (&*role, page_location(frame))
            else {
                return group.handle_frame(now, port, frame);
            };
            page_index.insert(object, location);
            if group.has_events() {
                // The application may have offered memory that this piece belongs to.
                deliver_events(group, role, &mut events, on_event);
            }
            let front = &frame[..DETACHED_FRONT_LEN];
            let mut placement = group.begin_placement(front);
            if placement.is_none() && group.has_events() {
                // The piece may have announced its object: there is memory for it now.
                deliver_events(group, role, &mut events, on_event);
                placement = group.begin_placement(front);
            }
            match (placement, &*role) {
                (Some(placement), PageRole::Receiver(page_index)) => {
                    copy_piece(group, page_index, (now, port), &placement)
                }
                _ => group.handle_frame(now, port, frame),
            }
        });
        progress.frames_received += frames;
        progress.events += events.events;
        shm.poll_peers(|_, _| {});
        shm.poll_promises(now, |_, _| {});
        shm.poll_links_down(|port, _| group.handle_link_down(port.0.into()));
    }

    /// Reads both clocks; `mono` never goes back (rule D1).
    fn read_clock(&mut self) -> Now {
        let mut now = self.clock.read();
        now.mono = self.last_mono.map_or(now.mono, |before| before.max(now.mono));
        self.last_mono = Some(now.mono);
        now
    }
}

fn deliver_events(
    group: &mut Group<ObjectBytes>,
    role: &mut PageRole,
    progress: &mut Progress,
    on_event: &mut impl FnMut(&mut Group<ObjectBytes>, Event<ObjectBytes>),
) {
    while let Some(event) = group.poll_event() {
        if let Event::Stable { object, .. } | Event::Lost { object } = &event {
            role.remove(*object);
        }
        on_event(group, event);
        progress.events += 1;
    }
}

/// Copies a piece to its destination, unless the object is used in place.
fn copy_piece(
    group: &mut Group<ObjectBytes>,
    page_index: &PageIndex,
    (now, port): (Now, Port),
    placement: &Placement,
) -> Verdict {
    let (object, at, bytes) = (placement.object(), placement.offset(), placement.piece_len());
    if let Some(destination) = group.placement_mut(placement) {
        let Some(page) = page_index.page(object, at + bytes) else {
            // The region was reused, which the root does only after counting this member as failed.
            group.abandon_placement(placement);
            return Verdict::Dropped;
        };
        destination.copy_from_slice(&page[at..at + bytes]);
        if page.is_lost() {
            // Zeros may have been copied.
            group.abandon_placement(placement);
            return Verdict::Dropped;
        }
    }
    group.handle_placed(now, port, placement)
}
