//! Observations that are fed to the checker of ordered scattering.

use onepipe_base::{ProcessId, Promises, Timestamp};
use onepipe_wire::Service;
use xxhash_rust::xxh3::xxh3_64;

use crate::outcome::Outcome;
use crate::tag::Tag;

/// An accepted scattering.
#[derive(Clone, Copy, Debug)]
pub struct Submitted<'a> {
    /// Service of the scattering.
    pub service: Service,
    /// Tag of the scattering.
    pub tag: Tag,
    /// For each message its receiver and the [`digest`] of its payload.
    pub messages: &'a [(ProcessId, u64)],
    /// Opaque value that is returned with each delivery, such as the instant of submission.
    pub submitted_at: u64,
}

/// A delivered message.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    /// Service of the message.
    pub service: Service,
    /// Timestamp of the message.
    pub stamp: Timestamp,
    /// Sender of the message.
    pub from: ProcessId,
    /// Index of the message in its scattering.
    pub index: u16,
    /// Tag found in the payload, if any.
    pub tag: Option<Tag>,
    /// [`digest`] of the payload.
    pub digest: u64,
}

/// A message that was reported to its sender as failed.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// Service of the message.
    pub service: Service,
    /// Tag of its scattering.
    pub tag: Tag,
    /// Index of the message in its scattering.
    pub index: u16,
    /// Receiver of the message.
    pub to: ProcessId,
    /// Timestamp of the message, if it was sent.
    pub stamp: Option<Timestamp>,
    /// Outcome that was reported.
    pub outcome: Outcome,
}

/// The externally visible state of a drained process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// The synchronised clock of the process, if a read may begin now: the process runs and has
    /// handled all frames that have arrived.
    pub now: Option<Timestamp>,
    /// All best-effort messages below this timestamp are delivered.
    pub barrier: Option<Timestamp>,
    /// All reliable messages below this timestamp are delivered.
    pub commit_barrier: Option<Timestamp>,
    /// Promises of the process.
    pub promises: Option<Promises>,
    /// Whether scatterings that are already stamped are still leaving. They hold the process's
    /// promise at their timestamps, which may be below later deliveries.
    pub is_sending: bool,
}

/// Returns the digest by which payloads are compared.
pub fn digest(payload: &[u8]) -> u64 {
    xxh3_64(payload)
}
