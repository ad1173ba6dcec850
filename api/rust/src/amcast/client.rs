//! The sending side of agreed multicast.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use onepipe_amcast::{
    AmcastError, Client, ClientStats, Completed, GROUPS_MAX, GroupId, GroupSet, MessageId,
};
use onepipe_transport_amcast::{Directory, MeshDriver, OpenError, Options, open};
use onepipe_transport_driver::{Doorbell, Progress};

use super::drive_until;
use crate::deadline::Deadline;

/// A client of agreed multicast: each of its messages is delivered by all replicas of all
/// destination groups, in one order, or by none. The caller's own thread drives it, by calling
/// [`Amcast::poll`] or waiting.
///
/// A message is *complete* when a member of each of its groups has acknowledged that it can be
/// delivered; until then it is retransmitted. Duplicates are filtered: each message is delivered
/// once. The directory's window bounds the number of messages in flight.
///
/// ```no_run
/// use onepipe::{Amcast, Directory};
/// use std::time::Duration;
///
/// let directory = Directory::read(&std::fs::read_to_string("lab.toml")?)?;
/// let mut client = Amcast::open(&directory, "10.0.0.9:4700".parse()?)?;
/// let id = client.amcast(&[0, 1], b"to both groups")?;
/// let timestamp = client.wait(id, Duration::from_secs(1))?.timestamp;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Amcast {
    mesh_driver: MeshDriver<Client>,
    /// Completions not yet handed out.
    completed: VecDeque<Completed>,
}

/// Why waiting for a message failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// A majority of one of its groups has not responded yet. The message is still retransmitted.
    #[error("the message is still in flight")]
    Timeout,
    /// The message is not in flight: it was never sent, or its completion was handed out already.
    #[error("the message is not in flight")]
    Unknown,
}

impl Amcast {
    /// Opens the client that `directory` lists at the address `at`.
    ///
    /// # Errors
    /// [`OpenError`]. Members that do not respond are no error: the client waits for them.
    pub fn open(directory: &Directory, at: SocketAddr) -> Result<Self, OpenError> {
        Self::open_with(directory, at, &Options::default())
    }

    /// As [`Amcast::open`], with `options`.
    ///
    /// # Errors
    /// As [`Amcast::open`].
    pub fn open_with(
        directory: &Directory,
        at: SocketAddr,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let mesh_driver = open(directory, (at, "client"), options, Client::new)?;
        Ok(Self { mesh_driver, completed: VecDeque::new() })
    }

    /// Submits a message for all replicas of `groups`. Never blocks.
    ///
    /// # Errors
    /// [`AmcastError`]: no group, an unknown group, a message that does not fit a packet, or a full
    /// window. Nothing is sent then.
    pub fn amcast(&mut self, groups: &[u16], message: &[u8]) -> Result<MessageId, AmcastError> {
        let mut set = GroupSet::EMPTY;
        for group in groups {
            if *group >= GROUPS_MAX {
                return Err(AmcastError::UnknownGroup(GroupId(*group)));
            }
            set = set.with(GroupId(*group));
        }
        let now = self.mesh_driver.now();
        self.mesh_driver.machine_mut().amcast(now, set, message)
    }

    /// Drives the client once and hands out completions. Never blocks.
    pub fn poll(&mut self, mut on_completed: impl FnMut(Completed)) -> Progress {
        self.completed.drain(..).for_each(&mut on_completed);
        self.mesh_driver.turn(|_, completed| on_completed(completed))
    }

    /// Spins, yields or blocks by the idle strategy after a turn that did `progress`.
    pub fn rest(&mut self, progress: Progress) {
        self.mesh_driver.rest(progress);
    }

    /// Drives the client until `message` is complete, for at most `timeout`. Other completions are
    /// kept for [`Amcast::poll`].
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait(&mut self, message: MessageId, timeout: Duration) -> Result<Completed, WaitError> {
        let until = Deadline::after(timeout);
        loop {
            if let Some(at) = self.completed.iter().position(|completed| completed.id == message) {
                return self.completed.remove(at).ok_or(WaitError::Unknown);
            }
            if !self.mesh_driver.machine().is_open(message) {
                return Err(WaitError::Unknown);
            }
            let left = until.remaining().ok_or(WaitError::Timeout)?;
            let completed = &mut self.completed;
            drive_until(&mut self.mesh_driver, left, |_, event| {
                completed.push_back(event);
                event.id == message
            });
        }
    }

    /// Number of messages in flight.
    pub fn open_messages(&self) -> usize {
        self.mesh_driver.machine().open()
    }

    /// Maximum length of a message, in bytes.
    pub fn message_len_max(&self) -> usize {
        self.mesh_driver.machine().config().groups.message_len_max()
    }

    /// The handle that wakes the client from another thread while it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.mesh_driver.doorbell()
    }

    /// Counters of the client.
    pub fn stats(&self) -> &ClientStats {
        self.mesh_driver.machine().stats()
    }
}
