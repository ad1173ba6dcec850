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
use std::thread::JoinHandle;

use onepipe_transport_bulk::{ObjectBytes, PageMut, PagePool};
use onepipe_transport_driver::Doorbell;

pub use embedded::EmbeddedGroup;
pub use error::{GroupEnd, GroupError, GroupSendError, MemberFailure};
pub use file::{FileError, FileProgress, FileReport, FileSource};
pub use options::GroupOptions;

use member_driver::MemberDriver;
use shared::{Command, Shared};

/// An object that has come to every surviving member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupObject {
    /// Its number, from 0 in the order in which the root has sent.
    pub number: u32,
    /// Its bytes, which may lie on a page that all members share. Given back by [`Group::offer_buffer`],
    /// memory of our own serves for what comes next.
    pub bytes: ObjectBytes,
}

/// How far a group has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupProgress {
    /// By rank: how many objects are whole there, as far as is known here. The root knows it of
    /// all, others for certain of themselves.
    pub objects: Vec<u32>,
    /// Of the next object here: blocks that have come, and how many it has, if that is known.
    pub blocks: (u32, u32),
}

/// A member of a group in which one, the root, multicasts objects of any size to all others: member
/// 0 of a fixed list. Members hand blocks on to each other, so that an object takes little longer
/// to many than to one, and what a member lacks when another one dies it gets from the survivors. A
/// thread of its own drives it.
///
/// ```
/// use onepipe::{Door, Group, GroupOptions};
///
/// // Two members in one program here; as a rule each has a machine of its own.
/// let door = || Door::bind("127.0.0.1:0".parse().expect("an address"));
/// let doors = [door()?, door()?];
/// let members = doors.clone().map(|door| door.address());
/// let options = |own: usize| {
///     GroupOptions { door: Some(doors[own].clone()), ..Default::default() }
/// };
/// std::thread::scope(|scope| {
///     let receiver = scope.spawn(|| {
///         let mut group = Group::create(&members, 1, options(1)).expect("both are here");
///         let object = group.recv().expect("nobody fails").expect("there is one");
///         assert!(object.bytes == vec![7; 5_000_000]);
///         assert_eq!(group.recv(), Ok(None), "that was all");
///     });
///     let mut root = Group::create(&members, 0, options(0)).expect("both are here");
///     root.send(vec![7; 5_000_000]).expect("it is the root");
///     root.close().expect("everybody has everything");
///     receiver.join().expect("it does not panic");
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Several groups of the same processes, each with another root perhaps, run beside each other:
/// they share their doors and have different [`GroupOptions::group`]s.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    members: Vec<SocketAddr>,
    own: u32,
    objects_max: u32,
    block_len: u32,
    doorbell: Doorbell,
    page_pool: Option<PagePool>,
    thread: Option<JoinHandle<()>>,
}

impl Group {
    /// Becomes member `own` of a group, and waits until all others are there. `members` says where
    /// each is found, the root first. The root itself is never looked for.
    ///
    /// # Errors
    /// [`GroupError`]; a member that is not there is named. Nobody begins without all.
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
        let thread = std::thread::Builder::new()
            .name(format!("group-{group}-{own}"))
            .spawn(move || thread::run(member_driver, idle))
            .map_err(|source| GroupError::System { what: "start a thread", source })?;
        let (members, thread) = (members.to_vec(), Some(thread));
        Ok(Self { shared, members, own, objects_max, block_len, doorbell, page_pool, thread })
    }

    /// Our rank.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// Where the members are, the root first.
    pub fn members(&self) -> &[SocketAddr] {
        &self.members
    }

    /// Sends an object to all others, from the root. Waits while as many are under way as may be
    /// ([`GroupOptions::objects_max`]). Answers its number.
    ///
    /// # Errors
    /// [`GroupSendError`]; that a member has failed is one: what was sent before goes to the
    /// survivors, and nothing more is taken.
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
        self.doorbell.ring();
        Ok(number)
    }

    /// The next object, once every surviving member has it; `None` when the root has closed the
    /// group and that was all. The root receives nothing but the end.
    ///
    /// # Errors
    /// [`GroupEnd`], behind the last object that all survivors have.
    pub fn recv(&mut self) -> Result<Option<GroupObject>, GroupEnd> {
        let mut state = self.shared.lock();
        loop {
            if let Some(object) = state.take() {
                drop(state);
                // There may be room for what waits for it.
                self.doorbell.ring();
                return Ok(Some(object));
            }
            if let Some(ended) = &state.ended {
                return ended.clone().map(|()| None);
            }
            state = self.shared.wait(state);
        }
    }

    /// As [`Group::recv`], into memory of the caller's: as much of the object as fits. Answers how
    /// many bytes it has. One copy more than [`Group::offer_buffer`] and [`Group::recv`].
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

    /// Gives memory for objects to come: one that fits is received into it. Without, memory is
    /// taken from the heap when an object is announced, which its first block waits for; over
    /// shared memory the object is used where it lies, and nothing is copied.
    pub fn offer_buffer(&self, memory: impl Into<ObjectBytes>) {
        self.shared.lock().offer_buffer(memory);
    }

    /// Memory of so many bytes, from what was given or has come back from what was sent; or new.
    pub fn memory(&self, bytes: usize) -> Vec<u8> {
        let found = self.shared.lock().memory(bytes as u64);
        found.unwrap_or_else(|| vec![0; bytes])
    }

    /// At the root, over shared memory ([`crate::Carrier::Shm`]): a sheet of so many bytes that
    /// others read where it lies. An object that was written there is sent without a copy; any
    /// other one is copied there first. `None` elsewhere, or when there is no such memory now.
    pub fn alloc_page(&self, bytes: usize) -> Option<PageMut> {
        self.page_pool.as_ref()?.alloc(bytes)
    }

    /// How far it has come.
    pub fn progress(&self) -> GroupProgress {
        self.shared.lock().progress.clone()
    }

    /// Who has failed, in the order in which it was heard here.
    pub fn failures(&self) -> Vec<MemberFailure> {
        self.shared.lock().failures.clone()
    }

    /// Waits for the end of the group, which at the root begins now. Without error every object has
    /// reached every member, and all know it. What has come and was not received is forgotten.
    ///
    /// # Errors
    /// [`GroupEnd`].
    pub fn close(mut self) -> Result<(), GroupEnd> {
        self.command(Command::Close);
        self.join();
        let state = self.shared.lock();
        state.ended.clone().unwrap_or(Err(GroupEnd::Left))
    }

    /// Leaves before the end: the others are told and go on, if it is not the root who leaves.
    pub fn leave(mut self) {
        self.command(Command::Leave);
        self.join();
    }

    fn command(&self, command: Command) {
        self.shared.lock().command = command;
        self.doorbell.ring();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // It has nothing to say; if it panicked, that was printed.
            let _ = thread.join();
        }
    }
}

/// Leaves, unless the group is over.
impl Drop for Group {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.command(Command::Leave);
            self.join();
        }
    }
}
