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

/// A member of a group that its caller's own thread drives; see [`crate::Group`].
///
/// Nothing is sent, received, relayed or acknowledged but in [`EmbeddedGroup::poll`] and
/// [`EmbeddedGroup::wait`]: call them often, until [`EmbeddedGroup::is_done`]. Whoever is not
/// driven for [`GroupOptions::dead_after`] counts as dead, and holds up the others until then. Only
/// meeting the others blocks.
///
/// ```
/// use onepipe::{Door, EmbeddedGroup, GroupOptions};
/// use std::time::Duration;
///
/// let door = || Door::bind("127.0.0.1:0".parse().expect("an address"));
/// let doors = [door()?, door()?];
/// let members = doors.clone().map(|door| door.address());
/// let options = |own: usize| {
///     GroupOptions { door: Some(doors[own].clone()), ..Default::default() }
/// };
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let mut group = EmbeddedGroup::create(&members, 1, options(1)).expect("both are here");
///         let mut received = 0;
///         while !group.is_done() {
///             // One's own work could be done here; there is none, so it may sleep.
///             group.wait(Duration::from_millis(100));
///             while let Some(object) = group.recv() {
///                 assert!(object.bytes == vec![object.number as u8; 1_000_000]);
///                 received += 1;
///             }
///         }
///         assert_eq!((received, group.ended()), (9, Some(Ok(()))));
///     });
///     let mut root = EmbeddedGroup::create(&members, 0, options(0)).expect("both are here");
///     let mut sent = 0;
///     while !root.is_done() {
///         root.wait(Duration::from_millis(100));
///         while sent < 9 && root.has_room() {
///             root.send(vec![sent as u8; 1_000_000]).expect("it is the root");
///             sent += 1;
///         }
///         if sent == 9 {
///             root.close();
///         }
///     }
///     assert_eq!(root.ended(), Some(Ok(())), "everybody has everything");
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
    /// As [`crate::Group::create`]. [`GroupOptions::idle`] is of no meaning here.
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

    /// Our rank.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// Where the members are, the root first.
    pub fn members(&self) -> &[SocketAddr] {
        self.member_driver.members()
    }

    /// Drives it once. Never blocks. Answers whether anything was done.
    pub fn poll(&mut self) -> bool {
        self.member_driver.turn(0)
    }

    /// As [`EmbeddedGroup::poll`], and sleeps for `at_most` if there is nothing to do now, or until
    /// there is. [`EmbeddedGroup::doorbell`] wakes it.
    pub fn wait(&mut self, at_most: Duration) -> bool {
        self.member_driver.turn(u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX))
    }

    /// What wakes it when it waits, from another thread.
    pub fn doorbell(&self) -> Doorbell {
        self.member_driver.doorbell()
    }

    /// Whether [`EmbeddedGroup::send`] takes an object now.
    pub fn can_send(&self) -> bool {
        let state = self.member_driver.shared().lock();
        self.own == 0 && state.in_flight < self.objects_max && state.end_reason().is_none()
    }

    /// Takes an object for all others, at the root. Never blocks. Answers its number.
    ///
    /// # Errors
    /// [`GroupSendError`]; [`GroupSendError::Full`] gives the object back.
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

    /// The next object that has come to every surviving member, if there is one. Never blocks.
    pub fn recv(&mut self) -> Option<GroupObject> {
        self.member_driver.shared().lock().take()
    }

    /// Gives memory for objects to come, as [`crate::Group::offer_buffer`].
    pub fn offer_buffer(&mut self, memory: impl Into<ObjectBytes>) {
        self.member_driver.shared().lock().offer_buffer(memory);
    }

    /// Memory that others read where it lies, as [`crate::Group::sheet`].
    pub fn alloc_page(&self, bytes: usize) -> Option<PageMut> {
        self.member_driver.page_pool()?.alloc(bytes)
    }

    /// The root ends the group when all that was sent is everywhere; anybody else takes no more of
    /// what comes. Go on driving it until [`EmbeddedGroup::is_done`].
    pub fn close(&mut self) {
        self.member_driver.shared().lock().command = Command::Close;
    }

    /// Leaves before the end: the others go on, if it is not the root who leaves. Go on driving it
    /// until [`EmbeddedGroup::is_done`], or nobody hears of it.
    pub fn leave(&mut self) {
        self.member_driver.shared().lock().command = Command::Leave;
    }

    /// How it has ended, once it has: without error every object has reached every member. Objects
    /// may be left to be received.
    pub fn ended(&self) -> Option<Result<(), GroupEnd>> {
        self.member_driver.shared().lock().ended.clone()
    }

    /// Whether it has ended and everybody was told: it need not be driven any more.
    pub fn is_done(&self) -> bool {
        self.member_driver.is_over()
    }

    /// How far it has come.
    pub fn progress(&self) -> GroupProgress {
        self.member_driver.shared().lock().progress.clone()
    }

    /// Who has failed, in the order in which it was heard here.
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
