//! State of another member.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, Mono};
use onepipe_wire::BulkState;

use crate::control_queue::ControlQueue;
use crate::object::BlockId;
use crate::object_flow::ObjectFlows;
use crate::session::{Item, LinkSession};
use crate::transfers::{BlockTransfer, Order, Transfers};

/// Maximum number of blocks requested from a peer at a time, once the schedule is abandoned.
pub(crate) const REQUESTED_BLOCKS_MAX: usize = 4;

/// Another member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub session: LinkSession,
    pub incarnation: Option<Incarnation>,
    pub has_failed: bool,
    /// Whether the link accepts no frames now.
    pub is_blocked: bool,
    pub last_received: Mono,
    pub transfers: Transfers,
    /// Blocks requested from the peer.
    pub requested: Vec<BlockId>,
    pub control: ControlQueue,
    /// Counts in the header of the last frame received.
    pub advertised_stable: u32,
    pub advertised_failed: u16,
    /// Counts in the last state received.
    pub complete: u32,
    pub known: u32,
    pub resolved: u32,
    pub view: (u16, u64),
    pub flows: ObjectFlows,
}

impl Peer {
    pub fn new(session: LinkSession) -> Self {
        Self {
            session,
            incarnation: None,
            has_failed: false,
            is_blocked: false,
            last_received: Mono::from_ns(0),
            transfers: Transfers::default(),
            requested: Vec::new(),
            control: ControlQueue::default(),
            advertised_stable: 0,
            advertised_failed: 0,
            complete: 0,
            known: 0,
            resolved: 0,
            view: (0, 0),
            flows: ObjectFlows::default(),
        }
    }

    /// Returns the order of the next piece for the peer, if a frame of `bytes` bytes may be sent.
    /// `stable` is the first active object; `holds` returns whether this member holds a block.
    pub fn next_transfer(
        &mut self,
        bytes: usize,
        stable: u32,
        holds: impl Fn(BlockId) -> bool,
    ) -> Option<Order> {
        if !self.session.can_send(bytes) {
            return None;
        }
        let flows = &mut self.flows;
        let has_token = |due: &BlockTransfer| flows.get_mut(due.block.object).granted > due.ordinal;
        self.transfers.choose(stable, holds, has_token)
    }

    //= spec/bulk.md#R17
    /// Returns an object whose block waits for a token, if the peer must be offered the object.
    pub fn next_offer(&mut self, holds: impl Fn(BlockId) -> bool) -> Option<u32> {
        let block = self.transfers.next_scheduled()?.block;
        (holds(block) && self.flows.get_mut(block.object).must_offer()).then_some(block.object)
    }

    /// Queues a scheduled block. Returns its ordinal among the blocks of the object for this peer.
    pub fn queue_block(&mut self, block: BlockId, step: u64) -> u32 {
        debug_assert!(!self.has_failed, "a failure ends the schedule");
        let flow = self.flows.get_mut(block.object);
        let ordinal = flow.queued;
        flow.queued += 1;
        let order = Order { object: block.object, step };
        self.transfers.schedule(BlockTransfer::new(order, block, ordinal));
        ordinal
    }

    /// Handles the progress that the peer has reported.
    pub fn on_state(&mut self, state: &BulkState) {
        self.complete = self.complete.max(state.complete);
        self.known = self.known.max(state.known);
        self.resolved = self.resolved.max(state.resolved);
        if self.advertised_failed >= self.view.0 {
            self.view = (self.advertised_failed, state.view);
        }
    }

    /// Requests a block from the peer.
    pub fn request(&mut self, wanted: BlockId) {
        debug_assert!(!self.has_failed, "a failed member answers nothing");
        if !self.requested.contains(&wanted) {
            self.requested.push(wanted);
            self.control.queue_request(wanted);
        }
    }

    /// Handles the completion of a block at this member.
    pub fn on_block_complete(&mut self, complete: BlockId) {
        self.requested.retain(|requested| *requested != complete);
    }

    //= spec/bulk.md#R21
    /// Schedules the retransmission of the content of a lost frame.
    pub fn on_lost(&mut self, item: Item) {
        debug_assert!(!self.has_failed, "nothing is in flight to a failed member");
        match item {
            Item::Piece(piece) => self.transfers.on_lost(piece),
            Item::Offer { object } => self.flows.get_mut(object).has_offered = false,
            Item::State => self.control.queue_state(),
            Item::Failures { first } => self.control.on_failures_lost(first),
            Item::Have(from) => self.control.queue_haves_from(from),
            Item::Want(wanted) if self.requested.contains(&wanted) => {
                self.control.queue_request(wanted);
            }
            Item::Want(_) => {}
        }
    }

    /// Returns whether the peer has acknowledged the state of this member and all its `failures`.
    pub fn is_notified(&self, failures: usize) -> bool {
        self.session.is_idle() && self.control.has_sent(failures)
    }

    /// Returns the next deadline of the link.
    pub fn due_at(&self) -> Option<Mono> {
        match self.is_blocked {
            _ if self.has_failed => None,
            // Acknowledgements cannot be sent over a blocked link, so they are not due.
            true => self.session.probe_at(),
            false => self.session.due_at(),
        }
    }

    /// Panics if the queues of the peer contradict its state. `is_shared`: blocks are queued in
    /// their own order, not in that of the schedule.
    pub fn check_invariants(&self, failures: usize, is_shared: bool) {
        self.transfers.check_invariants(is_shared, self.has_failed);
        self.control.check_invariants(failures);
        self.flows.check_invariants();
        if self.has_failed {
            assert!(self.session.is_idle(), "nothing is in flight to a failed member");
            assert!(self.requested.is_empty(), "nothing is requested from a failed member");
        }
        self.session.check_invariants();
    }

    /// Drops all pending work after the peer has failed.
    pub fn close(&mut self) {
        self.session.close();
        self.has_failed = true;
        self.transfers.clear();
        self.requested.clear();
        self.control.clear();
        debug_assert!(self.session.is_idle(), "a closed session has nothing in flight");
    }
}
