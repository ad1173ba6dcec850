//! What a controller is set up with.

use onepipe_base::{Controllers, Incarnation, Instance, ProcessId};
use onepipe_wire::{ANNOUNCE_HEADER_LEN, FAILURE_LEN, FLOOD_HEADER_LEN, HEADER_LEN, LINK_LEN};

/// How the controller is linked to its fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Links {
    /// Port 0 leads to a switch.
    Uplink,
    /// Port p leads to process p, for all below this many.
    Mesh(u16),
}

/// How processes are told of failures, and asked whether they have done what that needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// In a wave, from node to node. Takes as long as the network is deep.
    Tree,
    /// The paper's way: one by one. Kept for comparison (1Pipe section 5.2).
    Flat,
}

/// What a controller is set up with. All times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its own id, one of `controllers`.
    pub process: ProcessId,
    /// Its own life. A replica that starts again takes a higher one.
    pub incarnation: Incarnation,
    /// All replicas.
    pub controllers: Controllers,
    /// How it is linked to its fabric.
    pub links: Links,
    /// How news gets around.
    pub recovery: Recovery,
    /// The longest frame of the fabric, in bytes.
    pub frame_len_max: usize,
    /// Process ids at or above this are refused.
    pub processes_max: u32,
    /// Switch ids at or above this are refused.
    pub switches_max: u32,
    /// How often it says on its links that it sits there. Below the link timeout of the switches
    /// (ten beacon intervals of 3 us; 1Pipe section 6.1).
    pub hello_interval_ns: u64,
    /// A process of a mesh that the controller has not heard for so long is not linked to it any
    /// more. At least three slow announcements.
    pub link_timeout_ns: u64,
    /// How long nothing more must be reported before a failure is decided: reports of one event
    /// come in within a beacon interval and a crossing of the network.
    pub quiet_ns: u64,
    /// How long signs of life put a decision off: ten slow announcements, so that everybody has
    /// said anew how things stand.
    pub grace_ns: u64,
    /// How long correct nodes may hear what has no path to the controller, before they are told to
    /// freeze their links to it.
    pub freeze_after_ns: u64,
    /// How long a register that is needed may be missing, before the rest decides and the failure
    /// is counted as inexact.
    pub inexact_after_ns: u64,
    /// When unanswered news is repeated first; the pause doubles from there …
    pub retransmit_ns: u64,
    /// … up to this.
    pub retransmit_max_ns: u64,
    /// When news that nobody has answered for so long starts on new ways, as a new wave.
    pub restart_ns: u64,
    /// How long a process that was asked for a sign of life has to give one.
    pub ping_timeout_ns: u64,
    /// How long failures are told to newcomers and repeated in later notices.
    pub notice_retention_ns: u64,
    /// When a record is offered again that the store could not take.
    pub store_retry_ns: u64,
    /// When a replica that hears nothing at all says so.
    pub isolated_after_ns: u64,
    /// How many frames may wait to be sent, and records to be written; what exceeds them is
    /// dropped, and repeated by whoever wants it.
    pub queue_max: usize,
}

/// Why a configuration does not make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The process is none of the controllers.
    #[error("process {0} is none of the controllers")]
    NotAController(u32),
    /// A frame would not hold what a controller must be able to say.
    #[error("frames of {0} bytes hold no news")]
    FrameTooShort(usize),
    /// A duration or count is zero.
    #[error("{0} is zero")]
    Zero(&'static str),
}

impl Config {
    /// The defaults for replica `process`, behind a switch.
    pub fn new(process: ProcessId, controllers: Controllers) -> Self {
        Self {
            process,
            incarnation: Incarnation(0),
            controllers,
            links: Links::Uplink,
            recovery: Recovery::Tree,
            frame_len_max: 1500,
            processes_max: 1 << 20,
            switches_max: 1 << 20,
            hello_interval_ns: 10_000,
            link_timeout_ns: 30_000_000,
            quiet_ns: 10_000,
            grace_ns: 100_000_000,
            freeze_after_ns: 1_000_000,
            inexact_after_ns: 1_000_000_000,
            retransmit_ns: 20_000,
            retransmit_max_ns: 1_000_000,
            restart_ns: 10_000_000,
            ping_timeout_ns: 5_000_000,
            notice_retention_ns: 600_000_000_000,
            store_retry_ns: 10_000_000,
            isolated_after_ns: 1_000_000_000,
            queue_max: 4_096,
        }
    }

    /// Its own life.
    pub(crate) fn own(&self) -> Instance {
        let address = onepipe_base::Address::Process(self.process);
        Instance { address, incarnation: self.incarnation }
    }

    /// Bytes of payload that fit a frame.
    pub(crate) fn payload_len_max(&self) -> usize {
        self.frame_len_max - HEADER_LEN
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !self.controllers.contains(self.process) {
            return Err(ConfigError::NotAController(self.process.0));
        }
        let min_len =
            HEADER_LEN + (FLOOD_HEADER_LEN + FAILURE_LEN).max(ANNOUNCE_HEADER_LEN + LINK_LEN);
        if self.frame_len_max < min_len {
            return Err(ConfigError::FrameTooShort(self.frame_len_max));
        }
        let positive = [
            (self.hello_interval_ns, "hello_interval_ns"),
            (self.link_timeout_ns, "link_timeout_ns"),
            (self.retransmit_ns, "repeat_ns"),
            (self.restart_ns, "restart_ns"),
            (self.store_retry_ns, "store_retry_ns"),
            (self.queue_max as u64, "waiting_max"),
        ];
        match positive.into_iter().find(|(value, _)| *value == 0) {
            Some((_, name)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}
