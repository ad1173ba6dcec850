//! The part of [`Switch`] that handles Leaves: their links go down without a timeout.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Cause, Frozen, Mono, Port, Promises, Timestamp, Transmit, Verdict};
use onepipe_topology::Route;
use onepipe_wire::{Header, Opcode, seal_with_hops};

use crate::clock::no_promise;
use crate::stats::count_drop;
use crate::{Switch, SwitchEvent};

impl Switch {
    //= spec/ordering.md#R57
    /// Returns whether the sender of a Leave has left before, and has not come back.
    #[cold]
    pub(super) fn is_leave_repeated(&mut self, port: Port, header: &Header) -> bool {
        !self.aggregator.is_live(port) && self.leavers.is_repeated(port, header)
    }

    //= spec/failure.md#R16
    //= spec/ordering.md#R38
    //= spec/ordering.md#R57
    /// Handles the Leave of a process: its link goes down without a timeout. `last` is the promise
    /// of the Leave frame: scatterings acknowledged before it shall lie below the commit that is
    /// frozen. Without controllers a Leave is acknowledged in any case; with controllers only if
    /// its promise counts.
    pub(super) fn on_leave(
        &mut self,
        now: Mono,
        port: Port,
        header: &Header,
        last: Option<Promises>,
    ) -> Verdict {
        let src = header.src();
        if self.control.is_none() && self.config.route.next(src).is_none() {
            // The switch has restarted, or another instance has taken the route.
            self.leavers.on_left(port, header);
        }
        if !self.config.leads_to(src, port) {
            return count_drop(&mut self.stats.dropped_misplaced);
        }
        if let Route::ForwardingTable(table) = &mut self.config.route {
            table.forget(src, port);
        }
        self.stats.leaves_received += 1;
        let is_live = self.aggregator.is_live(port);
        if let (Some(last), true) = (last, is_live) {
            self.aggregator.update(now, port, last);
        }
        if self.control.is_none() || (last.is_some() && is_live) {
            self.leavers.on_left(port, header);
        }
        let cause = if makes(Mistake::LeaveCauseLost) { Cause::TimedOut } else { Cause::Left };
        let last_frozen = self.last_frozen();
        self.take_down(port, cause, SwitchEvent::LinkLeft(port));
        debug_assert!(!self.aggregator.is_live(port), "a process that has left counts");
        debug_assert!(
            self.last_frozen() == last_frozen
                || self.last_frozen().is_some_and(|frozen| frozen.cause == Cause::Left),
            "a leave is announced as a failure"
        );
        if let Some(control) = &mut self.control {
            control.on_gone(port);
        }
        Verdict::Consumed
    }

    /// Returns the link that was frozen last.
    fn last_frozen(&self) -> Option<Frozen> {
        self.control.as_ref()?.last_frozen()
    }

    /// Writes the next acknowledgement of a Leave.
    #[inline]
    pub(super) fn poll_leave_ack(
        &mut self,
        reference: Timestamp,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let (port, peer) = self.leavers.pop_ack()?;
        let nothing = no_promise(reference);
        let barrier = self.aggregator.advertised(port).map_or(nothing.barrier, |last| last.barrier);
        let promises = Promises { barrier, commit: nothing.commit };
        let header = Header::hop_only(Opcode::LeaveAck, self.config.instance(), peer, promises);
        Some(Transmit { port, bytes: seal_with_hops(slot, header, 0, 0) })
    }
}
