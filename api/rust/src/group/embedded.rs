//! A member of a group without a thread.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use onepipe_transport_bulk::{ObjectBytes, PageMut};
use onepipe_transport_driver::Doorbell;

use super::error::check_send;
use super::member_driver::MemberDriver;
use super::shared::Command;
use crate::{
    GroupEnd, GroupError, GroupObject, GroupOptions, GroupProgress, GroupSendError, MemberFailure,
};

/// A member of a group driven by the caller's own thread; see [`crate::Group`].
///
/// Blocks are only sent, received, relayed and acknowledged in [`EmbeddedGroup::poll`] and
/// [`EmbeddedGroup::wait`]: call them often, until [`EmbeddedGroup::is_done`]. A member that is not
/// driven for [`GroupOptions::dead_after`] counts as failed, and delays the others until then. Only
/// connecting to the other members blocks.
///
/// ```
/// use onepipe::{EmbeddedGroup, GroupOptions, Listener};
/// use std::time::Duration;
///
/// let bind = || Listener::bind("127.0.0.1:0".parse().expect("a valid address"));
/// let listeners = [bind()?, bind()?];
/// let members = listeners.clone().map(|listener| listener.address());
/// let options = |own: usize| {
///     GroupOptions { listener: Some(listeners[own].clone()), ..Default::default() }
/// };
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let group = EmbeddedGroup::create(&members, 1, options(1));
///         let mut group = group.expect("both members connect");
///         let mut received = 0;
///         while !group.is_done() {
///             // Other work could be done here; there is none, so the thread may sleep.
///             group.wait(Duration::from_millis(100));
///             while let Some(object) = group.recv() {
///                 assert!(object.bytes == vec![object.number as u8; 1_000_000]);
///                 received += 1;
///             }
///         }
///         assert_eq!((received, group.ended()), (9, Some(Ok(()))));
///     });
///     let root = EmbeddedGroup::create(&members, 0, options(0));
///     let mut root = root.expect("both members connect");
///     let mut sent = 0;
///     while !root.is_done() {
///         root.wait(Duration::from_millis(100));
///         while sent < 9 && root.can_send() {
///             root.send(vec![sent as u8; 1_000_000]).expect("the root may send");
///             sent += 1;
///         }
///         if sent == 9 {
///             root.close();
///         }
///     }
///     assert_eq!(root.ended(), Some(Ok(())), "all members have everything");
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct EmbeddedGroup {
    member_driver: MemberDriver,
    own: u32,
    objects_max: u32,
    block_len: u32,
}

impl EmbeddedGroup {
    /// As [`crate::Group::create`]. [`GroupOptions::idle`] is not used here.
    ///
    /// # Errors
    /// As [`crate::Group::create`].
    pub fn create(
        members: &[SocketAddr],
        own: u32,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        let (objects_max, block_len) = (options.objects_max, options.block_len);
        let member_driver = MemberDriver::join(members, own, options)?;
        Ok(Self { member_driver, own, objects_max, block_len })
    }

    /// This member's rank.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// The members' addresses, the root's first.
    pub fn members(&self) -> &[SocketAddr] {
        self.member_driver.members()
    }

    /// Drives the member once. Never blocks. Returns whether any work was done.
    pub fn poll(&mut self) -> bool {
        self.member_driver.turn(0)
    }

    /// As [`EmbeddedGroup::poll`], but blocks for at most `at_most` until there is work to do.
    /// [`EmbeddedGroup::doorbell`] wakes it.
    pub fn wait(&mut self, at_most: Duration) -> bool {
        self.member_driver.turn(u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The handle that wakes the member from another thread while it waits.
    pub fn doorbell(&self) -> Doorbell {
        self.member_driver.doorbell()
    }

    /// Whether [`EmbeddedGroup::send`] accepts an object now.
    pub fn can_send(&self) -> bool {
        let state = self.member_driver.shared().lock();
        self.own == 0 && state.in_flight < self.objects_max && state.end_reason().is_none()
    }

    /// Submits an object for all other members, at the root, and returns its number. Never blocks.
    ///
    /// # Errors
    /// [`GroupSendError`]; [`GroupSendError::Full`] returns the object.
    pub fn send(&mut self, object: impl Into<ObjectBytes>) -> Result<u32, GroupSendError> {
        let object = object.into();
        check_send(self.own, object.len(), self.block_len)?;
        let mut state = self.member_driver.shared().lock();
        match state.end_reason() {
            Some(end) => Err(end.into()),
            None if state.in_flight >= self.objects_max => Err(GroupSendError::Full { object }),
            None => Ok(state.enqueue(object)),
        }
    }

    /// Returns the next object that all surviving members have, if there is one. Never blocks.
    pub fn recv(&mut self) -> Option<GroupObject> {
        self.member_driver.shared().lock().take()
    }

    /// Offers memory for objects to come, as [`crate::Group::offer_buffer`].
    pub fn offer_buffer(&mut self, memory: impl Into<ObjectBytes>) {
        self.member_driver.shared().lock().offer_buffer(memory);
    }

    /// Allocates memory that others read in place, as [`crate::Group::alloc_page`].
    pub fn alloc_page(&self, bytes: usize) -> Option<PageMut> {
        self.member_driver.page_pool()?.alloc(bytes)
    }

    /// At the root: ends the group once all members have all objects. At other members: discards
    /// further objects. Keep driving the member until [`EmbeddedGroup::is_done`].
    pub fn close(&mut self) {
        self.member_driver.shared().lock().command = Command::Close;
    }

    /// Leaves before the end: the others go on, unless the root leaves. Keep driving the member
    /// until [`EmbeddedGroup::is_done`], or the others are not notified.
    pub fn leave(&mut self) {
        self.member_driver.shared().lock().command = Command::Leave;
    }

    /// The result, once the group has ended: without error every member has every object. Objects
    /// may be left to be received.
    pub fn ended(&self) -> Option<Result<(), GroupEnd>> {
        self.member_driver.shared().lock().ended.clone()
    }

    /// Whether the group has ended and all members were notified: stop driving it.
    pub fn is_done(&self) -> bool {
        self.member_driver.is_over()
    }

    /// The progress of the group.
    pub fn progress(&self) -> GroupProgress {
        self.member_driver.shared().lock().progress.clone()
    }

    /// The members that have failed, in the order in which this member was notified.
    pub fn failures(&self) -> Vec<MemberFailure> {
        self.member_driver.shared().lock().failures.clone()
    }
}

impl fmt::Debug for EmbeddedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedGroup")
            .field("own", &self.own)
            .field("members", &self.member_driver.members())
            .finish_non_exhaustive()
    }
}
