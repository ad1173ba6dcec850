//! An endpoint of scheduled transfer without a thread.

use onepipe_arbiter::{
    ClientStats, ObjectId, ParamsMismatch, Transfer as Machine, TransferError, TransferEvent,
    TransferStats,
};
use onepipe_base::ProcessId;
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Doorbell, Driver, Progress};
use onepipe_transport_udp::{JoinFailure, UdpLink};

use super::{OpenError, TransferBuilder};

/// An endpoint of scheduled transfer driven by the caller's own thread; see [`crate::Transfer`].
///
/// Pieces are only sent, received and acknowledged in [`EmbeddedTransfer::poll`]: call it often. A
/// granted timeslot that has passed meanwhile is requested again.
#[derive(Debug)]
pub struct EmbeddedTransfer {
    driver: Driver<Machine, UdpLink, SystemClock>,
}

impl EmbeddedTransfer {
    /// Returns the settings; finish with [`TransferBuilder::embedded`].
    pub fn builder() -> TransferBuilder {
        TransferBuilder::new()
    }

    /// Submits an object for `to`; its pieces are sent in granted timeslots. Never blocks.
    ///
    /// # Errors
    /// [`TransferError`]; then nothing was accepted.
    pub fn send(&mut self, to: ProcessId, object: Vec<u8>) -> Result<ObjectId, TransferError> {
        self.driver.machine_mut().send(to, object)
    }

    /// Cancels an outgoing object and returns it; `None` if there is no such object. If all pieces
    /// have been sent, it may still be delivered.
    pub fn cancel(&mut self, id: ObjectId) -> Option<Vec<u8>> {
        self.driver.machine_mut().cancel(id)
    }

    /// Drives the endpoint once and hands out events. Never blocks.
    pub fn poll(&mut self, mut on_event: impl FnMut(TransferEvent)) -> Progress {
        self.driver.turn(|_, event| on_event(event))
    }

    /// Spins, yields or blocks by the idle strategy after a turn that did `progress`.
    pub fn rest(&mut self, progress: Progress) {
        self.driver.rest(progress);
    }

    /// Sets the maximum number of bytes of incoming objects; further objects are refused.
    pub fn set_receive_bytes_max(&mut self, bytes: u64) {
        self.driver.machine_mut().set_receive_bytes_max(bytes);
    }

    /// The handle that wakes the endpoint from another thread while it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.driver.doorbell()
    }

    /// Number of outgoing objects.
    pub fn sending(&self) -> usize {
        self.driver.machine().sending()
    }

    /// Counters of pieces and objects.
    pub fn stats(&self) -> &TransferStats {
        self.driver.machine().stats()
    }

    /// Counters of timeslots and control packets.
    pub fn endpoint_stats(&self) -> &ClientStats {
        self.driver.machine().client().stats()
    }

    /// Why the switch does not admit this endpoint any more, if that will not pass by itself: the
    /// switch was restarted with other settings, and nothing is sent or received.
    pub fn refusal(&self) -> Option<OpenError> {
        self.failure().map(OpenError::from)
    }

    pub(super) fn failure(&self) -> Option<JoinFailure> {
        self.driver.transport().failure()
    }

    /// The settings of an arbiter and of this endpoint, if their timeslots or endpoints differ:
    /// such an arbiter grants nothing. `None` once a matching arbiter has responded.
    pub fn params_mismatch(&self) -> Option<ParamsMismatch> {
        self.driver.machine().client().params_mismatch()
    }
}

impl TransferBuilder {
    /// Opens the endpoint without a thread: the caller drives it by calling it often.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn embedded(self) -> Result<EmbeddedTransfer, OpenError> {
        Ok(EmbeddedTransfer { driver: self.driver()? })
    }
}
