//! An end of scheduled transfer without a thread.

use onepipe_arbiter::{
    ClientStats, ObjectId, TermsMismatch, Transfer as Machine, TransferError, TransferEvent,
    TransferStats,
};
use onepipe_base::ProcessId;
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Doorbell, Driver, Progress};
use onepipe_transport_udp::UdpLink;

use super::TransferBuilder;

/// An end of scheduled transfer that its caller's own thread drives; see [`crate::Transfer`].
///
/// Nothing is sent, received or acknowledged but in [`EmbeddedTransfer::poll`]: call it often. A
/// granted timeslot that has passed meanwhile is asked for again.
#[derive(Debug)]
pub struct EmbeddedTransfer {
    driver: Driver<Machine, UdpLink, SystemClock>,
}

impl EmbeddedTransfer {
    /// Says who it is, where its switch and its arbiters are; end with
    /// [`TransferBuilder::embedded`].
    pub fn builder() -> TransferBuilder {
        TransferBuilder::new()
    }

    pub(super) fn new(driver: Driver<Machine, UdpLink, SystemClock>) -> Self {
        Self { driver }
    }

    /// Takes an object for `to`; its pieces leave in the timeslots that are granted. Never blocks.
    ///
    /// # Errors
    /// [`TransferError`]; nothing was taken then.
    pub fn send(&mut self, to: ProcessId, object: Vec<u8>) -> Result<ObjectId, TransferError> {
        self.driver.machine_mut().send(to, object)
    }

    /// Gives up an object that is on its way out, and hands it back; `None` if there is none. What
    /// has left has left: it may yet come whole.
    pub fn cancel(&mut self, id: ObjectId) -> Option<Vec<u8>> {
        self.driver.machine_mut().cancel(id)
    }

    /// Drives it once, and hands out what there is to tell. Never blocks.
    pub fn poll(&mut self, mut on_event: impl FnMut(TransferEvent)) -> Progress {
        self.driver.turn(|_, event| on_event(event))
    }

    /// Rests as the idle strategy says after a turn that did `progress`.
    pub fn rest(&mut self, progress: Progress) {
        self.driver.rest(progress);
    }

    /// Bytes of all objects that may be on their way in from now on; more are refused.
    pub fn set_receive_bytes_max(&mut self, bytes: u64) {
        self.driver.machine_mut().set_receive_bytes_max(bytes);
    }

    /// What wakes it when it rests.
    pub fn doorbell(&self) -> Doorbell {
        self.driver.doorbell()
    }

    /// Objects on their way out.
    pub fn sending(&self) -> usize {
        self.driver.machine().sending()
    }

    /// What it has done: pieces and objects.
    pub fn stats(&self) -> &TransferStats {
        self.driver.machine().stats()
    }

    /// What it has done: timeslots and control packets.
    pub fn endpoint_stats(&self) -> &ClientStats {
        self.driver.machine().client().stats()
    }

    /// What an arbiter is set up with, and this end, if their timeslots or endpoints differ: such
    /// an arbiter grants nothing. `None` once one has answered that suits.
    pub fn terms_mismatch(&self) -> Option<TermsMismatch> {
        self.driver.machine().client().terms_mismatch()
    }
}
