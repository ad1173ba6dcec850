//! Who delivers.

use std::net::SocketAddr;
use std::time::Duration;

use onepipe_amcast::{DeliveryPoint, LogicalTime, MessageId, Replica, ReplicaEvent, ReplicaStats};
use onepipe_transport_amcast::{Directory, MeshDriver, OpenError, Options, open};
use onepipe_transport_driver::{Doorbell, Progress};

use super::drive_until;

/// A replica of a group of agreed multicast: it is handed every message for its group, in the order
/// in which all replicas of all groups are. The caller's own thread drives it, by calling
/// [`AmcastReplica::poll`] or waiting.
///
/// One that is driven too seldom keeps what it has room for and asks for the rest later; nobody
/// waits for it. One that has missed more than members keep is [`StateTransferRequired`].
#[derive(Debug)]
pub struct AmcastReplica {
    mesh_driver: MeshDriver<Replica>,
    needs_state_transfer: bool,
}

/// It has missed more than members keep: it can go on only with the state of another replica, at
/// that one's [`AmcastReplica::point`], as a new one ([`AmcastReplica::join`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the replica has missed more than members keep: it must join from another one's state")]
pub struct StateTransferRequired;

impl AmcastReplica {
    /// The replica that `directory` names at `at`, from the first message on.
    ///
    /// # Errors
    /// [`OpenError`]. That members do not answer is none: they are waited for.
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

    /// Drives it once, and hands what can be delivered to `deliver`: each message with its id and
    /// its place in the order. Never blocks.
    ///
    /// # Errors
    /// [`StateTransferRequired`]; what was handed out before stands.
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

    /// As [`AmcastReplica::poll`], but waits until there is something to deliver, for `timeout` at
    /// most. Answers whether there was.
    ///
    /// # Errors
    /// [`StateTransferRequired`]; what was handed out before stands.
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

    /// Rests as the idle strategy says after a turn that did `progress`.
    pub fn rest(&mut self, progress: Progress) {
        self.mesh_driver.rest(progress);
    }

    /// Where it is, once it has delivered anything: what the application's state belongs to.
    pub fn point(&self) -> Option<DeliveryPoint> {
        self.mesh_driver.machine().point()
    }

    /// What wakes it when it rests.
    pub fn doorbell(&self) -> Doorbell {
        self.mesh_driver.doorbell()
    }

    /// What it has done.
    pub fn stats(&self) -> &ReplicaStats {
        self.mesh_driver.machine().stats()
    }
}

/// Hands out a message. Answers false if it was none, but the news that it is behind.
fn deliver_event(
    replica: &Replica,
    event: ReplicaEvent,
    deliver: &mut impl FnMut(&[u8], MessageId, LogicalTime),
) -> bool {
    let ReplicaEvent::Delivered(delivery) = event else { return false };
    deliver(replica.message(&delivery), delivery.id, delivery.timestamp);
    true
}
