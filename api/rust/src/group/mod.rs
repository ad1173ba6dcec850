//! Bulk multicast: one object to all members of a group at the speed of one link.

mod embedded;
mod error;
mod file;
mod member_driver;
mod options;
mod shared;
mod thread;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;

use onepipe_transport_bulk::{ObjectBytes, PageMut, PagePool};
use onepipe_transport_driver::DriverThread;

pub use embedded::EmbeddedGroup;
pub use error::{GroupEnd, GroupError, GroupSendError, MemberFailure};
pub use file::{FileError, FileProgress, FileReport, FileSource};
pub use options::GroupOptions;

use member_driver::MemberDriver;
use shared::{Command, Shared};
use thread::Thread;

/// An object that all surviving members have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupObject {
    /// Its number, from 0 in the order of sending.
    pub number: u32,
    /// Its bytes, which may lie on a page that all members share. Offer private memory for reuse by
    /// [`Group::offer_buffer`].
    pub bytes: ObjectBytes,
}

/// The progress of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupProgress {
    /// By rank: number of complete objects, as far as known here. Exact at the root for all
    /// members, at other members for themselves.
    pub objects: Vec<u32>,
    /// The next object here: blocks received, and number of blocks if known.
    pub blocks: (u32, u32),
}

/// A member of a group in which the root, member 0 of a fixed list, multicasts objects of any size
/// to all other members. Members relay blocks to each other, so that sending to many takes little
/// longer than sending to one; when a member dies the survivors get missing blocks from each other.
/// Driven by a thread of its own.
///
/// ```
/// use onepipe::{Group, GroupOptions, Listener};
///
/// // Two members in one program here; usually each runs on a machine of its own.
/// let bind = || Listener::bind("127.0.0.1:0".parse().expect("a valid address"));
/// let listeners = [bind()?, bind()?];
/// let members = listeners.clone().map(|listener| listener.address());
/// let options = |own: usize| {
///     GroupOptions { listener: Some(listeners[own].clone()), ..Default::default() }
/// };
/// std::thread::scope(|scope| {
///     let receiver = scope.spawn(|| {
///         let mut group = Group::create(&members, 1, options(1)).expect("both members connect");
///         let object = group.recv().expect("no member fails").expect("an object is received");
///         assert!(object.bytes == vec![7; 5_000_000]);
///         assert_eq!(group.recv(), Ok(None), "the root has closed the group");
///     });
///     let mut root = Group::create(&members, 0, options(0)).expect("both members connect");
///     root.send(vec![7; 5_000_000]).expect("the root may send");
///     root.close().expect("all members have everything");
///     receiver.join().expect("the thread does not panic");
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Several groups of the same processes, for example with different roots, may run concurrently:
/// they share listeners and have different [`GroupOptions::group`]s.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    members: Vec<SocketAddr>,
    own: u32,
    objects_max: u32,
    block_len: u32,
    page_pool: Option<PagePool>,
    /// Leaves when it is dropped, unless the group has ended.
    thread: DriverThread,
}

impl Group {
    /// Becomes member `own` of a group, and waits until all others have connected. `members` lists
    /// the members' addresses, the root's first. No member connects to the root's address.
    ///
    /// # Errors
    /// [`GroupError`], which names a member that is absent. No member starts unless all have
    /// connected.
    pub fn create(
        members: &[SocketAddr],
        own: u32,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        let (objects_max, block_len) = (options.objects_max, options.block_len);
        let (group, idle) = (options.group, options.idle);
        let member_driver = MemberDriver::join(members, own, options)?;
        let (doorbell, shared) = (member_driver.doorbell(), Arc::clone(member_driver.shared()));
        let page_pool = member_driver.page_pool().cloned();
        let thread = Thread { member_driver, idle };
        let thread = DriverThread::start(format!("group-{group}-{own}"), thread, doorbell)
            .map_err(|source| GroupError::System { what: "start a thread", source })?;
        let members = members.to_vec();
        Ok(Self { shared, members, own, objects_max, block_len, page_pool, thread })
    }

    /// This member's rank.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// The members' addresses, the root's first.
    pub fn members(&self) -> &[SocketAddr] {
        &self.members
    }

    /// Sends an object to all other members, from the root, and returns its number. Waits while the
    /// maximum number of objects is in flight ([`GroupOptions::objects_max`]).
    ///
    /// # Errors
    /// [`GroupSendError`]. After a failure of a member, objects sent before go to the survivors,
    /// and no further object is accepted.
    pub fn send(&mut self, object: impl Into<ObjectBytes>) -> Result<u32, GroupSendError> {
        let object = object.into();
        error::check_send(self.own, object.len(), self.block_len)?;
        let mut state = self.shared.lock();
        loop {
            if let Some(end) = state.end_reason() {
                return Err(end.into());
            }
            if state.in_flight < self.objects_max {
                break;
            }
            state = self.shared.wait(state);
        }
        let number = state.enqueue(object);
        drop(state);
        self.thread.wake();
        Ok(number)
    }

    /// Returns the next object, once every surviving member has it; `None` after the last one, when
    /// the root has closed the group. The root receives only the end.
    ///
    /// # Errors
    /// [`GroupEnd`], after the last object that all survivors have.
    pub fn recv(&mut self) -> Result<Option<GroupObject>, GroupEnd> {
        let mut state = self.shared.lock();
        loop {
            if let Some(object) = state.take() {
                drop(state);
                // Memory was freed: objects may be waiting for it.
                self.thread.wake();
                return Ok(Some(object));
            }
            if let Some(ended) = &state.ended {
                return ended.clone().map(|()| None);
            }
            state = self.shared.wait(state);
        }
    }

    /// As [`Group::recv`], but copies as much of the object as fits into the caller's memory and
    /// returns the object's length. Costs one copy more than [`Group::offer_buffer`] and
    /// [`Group::recv`].
    ///
    /// # Errors
    /// As [`Group::recv`].
    pub fn recv_into(&mut self, memory: &mut [u8]) -> Result<Option<usize>, GroupEnd> {
        let Some(object) = self.recv()? else { return Ok(None) };
        let bytes = object.bytes.len();
        let fits = bytes.min(memory.len());
        memory[..fits].copy_from_slice(&object.bytes[..fits]);
        self.offer_buffer(object.bytes);
        Ok(Some(bytes))
    }

    /// Offers memory for objects to come; an object that fits is received into it. By default
    /// memory is allocated when an object is announced, which delays its first block; over shared
    /// memory objects are used in place, and nothing is copied.
    pub fn offer_buffer(&self, memory: impl Into<ObjectBytes>) {
        self.shared.lock().offer_buffer(memory);
    }

    /// Returns a buffer of the given length: one that was offered or used for a sent object, or a
    /// new one.
    pub fn alloc_buffer(&self, bytes: usize) -> Vec<u8> {
        let found = self.shared.lock().alloc_buffer(bytes as u64);
        found.unwrap_or_else(|| vec![0; bytes])
    }

    /// At the root, over shared memory ([`crate::Carrier::Shm`]): allocates a page that the others
    /// read in place. An object written to it is sent without a copy; any other one is copied to a
    /// page first. `None` elsewhere, or when there is no such memory now.
    pub fn alloc_page(&self, bytes: usize) -> Option<PageMut> {
        self.page_pool.as_ref()?.alloc(bytes)
    }

    /// The progress of the group.
    pub fn progress(&self) -> GroupProgress {
        self.shared.lock().progress.clone()
    }

    /// The members that have failed, in the order in which this member was notified.
    pub fn failures(&self) -> Vec<MemberFailure> {
        self.shared.lock().failures.clone()
    }

    /// Waits for the end of the group; the root ends it. Without error every member has every
    /// object, and all members know it. Objects not received yet are discarded.
    ///
    /// # Errors
    /// [`GroupEnd`].
    pub fn close(mut self) -> Result<(), GroupEnd> {
        self.shared.lock().command = Command::Close;
        self.thread.wake();
        // A panic was printed by the thread; the result is in the shared state.
        let _ = self.thread.join();
        let state = self.shared.lock();
        state.ended.clone().unwrap_or(Err(GroupEnd::Left))
    }

    /// Leaves before the end: the others are notified and go on, unless the root leaves.
    pub fn leave(self) {}
}
