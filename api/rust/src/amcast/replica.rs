//! The delivering side of agreed multicast.

use std::net::SocketAddr;
use std::time::Duration;

use onepipe_amcast::{DeliveryPoint, LogicalTime, MessageId, Replica, ReplicaEvent, ReplicaStats};
use onepipe_transport_amcast::{Directory, MeshDriver, OpenError, Options, open};
use onepipe_transport_driver::{Doorbell, Progress};

use super::drive_until;

/// A replica of a group of agreed multicast: it delivers every message for its group, in the order
/// common to all replicas of all groups. The caller's own thread drives it, by calling
/// [`AmcastReplica::poll`] or waiting.
///
/// A replica that is driven too rarely buffers what fits and requests the rest later; no other
/// process waits for it. A replica that has missed more than members retain needs a state transfer
/// ([`StateTransferRequired`]).
#[derive(Debug)]
pub struct AmcastReplica {
    mesh_driver: MeshDriver<Replica>,
    needs_state_transfer: bool,
}

/// The replica has missed more messages than members retain. It can only continue from the state of
/// another replica, at that replica's [`AmcastReplica::point`], as a new one
/// ([`AmcastReplica::join`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the replica has missed more messages than members retain: join with the state of another replica"
)]
pub struct StateTransferRequired;

impl AmcastReplica {
    /// Opens the replica that `directory` lists at the address `at`, from the first message on.
    ///
    /// # Errors
    /// [`OpenError`]. Members that do not respond are no error: the replica waits for them.
    pub fn open(directory: &Directory, at: SocketAddr) -> Result<Self, OpenError> {
        Self::open_with(directory, at, &Options::default())
    }

    /// As [`AmcastReplica::open`], with `options`.
    ///
    /// # Errors
    /// As [`AmcastReplica::open`].
    pub fn open_with(
        directory: &Directory,
        at: SocketAddr,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let mesh_driver = open(directory, (at, "replica"), options, Replica::new)?;
        Ok(Self { mesh_driver, needs_state_transfer: false })
    }

    /// As [`AmcastReplica::open`], for an application that has the state of another replica of the
    /// group at `point`.
    ///
    /// # Errors
    /// As [`AmcastReplica::open`].
    pub fn join(
        directory: &Directory,
        at: SocketAddr,
        point: DeliveryPoint,
    ) -> Result<Self, OpenError> {
        let make = |config| Replica::join(config, point);
        let mesh_driver = open(directory, (at, "replica"), &Options::default(), make)?;
        Ok(Self { mesh_driver, needs_state_transfer: false })
    }

    /// Drives the replica once and passes deliverable messages to `deliver`: each with its id and
    /// its timestamp in the order. Never blocks.
    ///
    /// # Errors
    /// [`StateTransferRequired`]; messages delivered before remain valid.
    pub fn poll(
        &mut self,
        mut deliver: impl FnMut(&[u8], MessageId, LogicalTime),
    ) -> Result<Progress, StateTransferRequired> {
        let needs_state_transfer = &mut self.needs_state_transfer;
        let progress = self.mesh_driver.turn(|machine, event| {
            *needs_state_transfer |= !deliver_event(machine, event, &mut deliver);
        });
        if self.needs_state_transfer { Err(StateTransferRequired) } else { Ok(progress) }
    }

    /// As [`AmcastReplica::poll`], but waits for a message, for at most `timeout`. Returns whether
    /// any was delivered.
    ///
    /// # Errors
    /// [`StateTransferRequired`]; messages delivered before remain valid.
    pub fn wait(
        &mut self,
        timeout: Duration,
        mut deliver: impl FnMut(&[u8], MessageId, LogicalTime),
    ) -> Result<bool, StateTransferRequired> {
        let needs_state_transfer = &mut self.needs_state_transfer;
        let has_delivered = drive_until(&mut self.mesh_driver, timeout, |machine, event| {
            *needs_state_transfer |= !deliver_event(machine, event, &mut deliver);
            true
        });
        if self.needs_state_transfer { Err(StateTransferRequired) } else { Ok(has_delivered) }
    }

    /// Spins, yields or blocks by the idle strategy after a turn that did `progress`.
    pub fn rest(&mut self, progress: Progress) {
        self.mesh_driver.rest(progress);
    }

    /// The position in the order that the application's state corresponds to; `None` before the
    /// first delivery.
    pub fn point(&self) -> Option<DeliveryPoint> {
        self.mesh_driver.machine().point()
    }

    /// The handle that wakes the replica from another thread while it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.mesh_driver.doorbell()
    }

    /// Counters of the replica.
    pub fn stats(&self) -> &ReplicaStats {
        self.mesh_driver.machine().stats()
    }
}

/// Delivers a message. Returns false for the event that a state transfer is required.
fn deliver_event(
    replica: &Replica,
    event: ReplicaEvent,
    deliver: &mut impl FnMut(&[u8], MessageId, LogicalTime),
) -> bool {
    let ReplicaEvent::Delivered(delivery) = event else { return false };
    deliver(replica.message(&delivery), delivery.id, delivery.timestamp);
    true
}
