//! Who sends.

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

/// A client of agreed multicast: its messages are delivered by all replicas of all groups that each
/// is for, in one order, or by none. The caller's own thread drives it, by calling
/// [`Amcast::poll`] or waiting.
///
/// A message is *over* when a member of each of its groups has said that it can be delivered; until
/// then it is sent again. Sending it again costs nothing but packets: each is delivered once. As
/// many as the directory's window may be open.
///
/// ```no_run
/// use onepipe::{Amcast, Directory};
/// use std::time::Duration;
///
/// let directory = Directory::read(&std::fs::read_to_string("lab.toml")?)?;
/// let mut client = Amcast::open(&directory, "10.0.0.9:4700".parse()?)?;
/// let id = client.amcast(&[0, 1], b"to both groups")?;
/// let place = client.wait(id, Duration::from_secs(1))?.timestamp;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Amcast {
    mesh_driver: MeshDriver<Client>,
    /// What is over and was not asked for yet.
    over: VecDeque<Completed>,
}

/// Why waiting was in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// A majority of one of its groups does not answer, or not yet. It goes on being sent.
    #[error("the message is still under way")]
    Timeout,
    /// It is not open: it was never sent, or its end was told already.
    #[error("no such message is under way")]
    Unknown,
}

impl Amcast {
    /// The client that `directory` names at `at`.
    ///
    /// # Errors
    /// [`OpenError`]. That members do not answer is none: they are waited for.
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
        Ok(Self { mesh_driver, over: VecDeque::new() })
    }

    /// Begins a message for all replicas of `groups`. Never blocks.
    ///
    /// # Errors
    /// [`AmcastError`]: no group, an unknown one, a message that does not fit a packet, or a window
    /// that is full; nothing was sent then.
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

    /// Drives it once, and hands out what is over. Never blocks.
    pub fn poll(&mut self, mut on_over: impl FnMut(Completed)) -> Progress {
        self.over.drain(..).for_each(&mut on_over);
        self.mesh_driver.turn(|_, over| on_over(over))
    }

    /// Rests as the idle strategy says after a turn that did `progress`.
    pub fn rest(&mut self, progress: Progress) {
        self.mesh_driver.rest(progress);
    }

    /// Drives it until `message` is over, for `timeout` at most. What else is over meanwhile is
    /// kept for [`Amcast::poll`].
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait(&mut self, message: MessageId, timeout: Duration) -> Result<Completed, WaitError> {
        let until = Deadline::after(timeout);
        loop {
            if let Some(at) = self.over.iter().position(|over| over.id == message) {
                return self.over.remove(at).ok_or(WaitError::Unknown);
            }
            if !self.mesh_driver.machine().is_open(message) {
                return Err(WaitError::Unknown);
            }
            let left = until.remaining().ok_or(WaitError::Timeout)?;
            let over = &mut self.over;
            drive_until(&mut self.mesh_driver, left, |_, event| {
                over.push_back(event);
                event.id == message
            });
        }
    }

    /// Messages under way.
    pub fn open_messages(&self) -> usize {
        self.mesh_driver.machine().open()
    }

    /// The longest message, in bytes.
    pub fn message_len_max(&self) -> usize {
        self.mesh_driver.machine().config().groups.message_len_max()
    }

    /// What wakes it when it rests.
    pub fn doorbell(&self) -> Doorbell {
        self.mesh_driver.doorbell()
    }

    /// What it has done.
    pub fn stats(&self) -> &ClientStats {
        self.mesh_driver.machine().stats()
    }
}
