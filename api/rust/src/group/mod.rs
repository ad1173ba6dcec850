//! Bulk multicast: one object to all members of a group at the speed of one link.

mod error;
mod file;
mod options;
mod shared;
mod thread;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;

use onepipe_bulk::{BLOCKS_MAX, Group as Machine};
use onepipe_transport_bulk::{Door, End, Meeting};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::Doorbell;

pub use error::{GroupEnd, GroupError, GroupSendError, MemberFailure};
pub use file::{FileError, FileProgress, FileReport, FileSource};
pub use options::GroupOptions;

use shared::{Shared, State, Wish};
use thread::Worker;

/// An object that has come to every surviving member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupObject {
    /// Its number, from 0 in the order in which the root has sent.
    pub number: u32,
    /// Its octets. Given back by [`Group::give`], the memory serves for what comes next.
    pub octets: Vec<u8>,
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
/// let door = || Door::open("127.0.0.1:0".parse().expect("an address"));
/// let doors = [door()?, door()?];
/// let members = doors.clone().map(|door| door.address());
/// let options = |own: usize| {
///     GroupOptions { door: Some(doors[own].clone()), ..Default::default() }
/// };
/// std::thread::scope(|scope| {
///     let receiver = scope.spawn(|| {
///         let mut group = Group::create(&members, 1, options(1)).expect("both are here");
///         let object = group.recv().expect("nobody fails").expect("there is one");
///         assert!(object.octets == vec![7; 5_000_000]);
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
    block_octets: u32,
    doorbell: Doorbell,
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
        mut options: GroupOptions,
    ) -> Result<Self, GroupError> {
        let system = |what| move |source| GroupError::System { what, source };
        let Some(address) = members.get(own as usize).copied() else {
            return Err(GroupError::Rank { own, members: members.len() });
        };
        let (_, others) = members.split_first().unwrap_or((&address, &[]));
        let twice = (0..).zip(others).find(|(at, other)| others[..*at].contains(other));
        if let Some((_, twice)) = twice {
            return Err(GroupError::Twice(*twice));
        }
        let machine = Machine::new(options.config(members.len(), own))?;
        let door = match options.door.take() {
            Some(door) => door,
            None => Door::open(if own == 0 { any(address) } else { address })
                .map_err(system("listen at this member's address"))?,
        };
        let (group, patience) = (options.group, options.patience);
        let meeting = Meeting { group, members, own, patience };
        let end = End::join(options.carrier, machine, &meeting, &door, SystemClock::calibrated())?;
        let doorbell = end.doorbell();
        let shared = Arc::<Shared>::default();
        let (theirs, members) = (Arc::clone(&shared), members.to_vec());
        let worker_members = members.clone();
        let (objects_max, block_octets) = (options.objects_max, options.block_octets);
        let work = move || {
            let worker = Worker {
                shared: &theirs,
                members: worker_members,
                memory_octets_max: options.memory_octets_max,
                idle: options.idle,
                on_object: options.on_object,
                wanted: VecDeque::new(),
                under_way_octets: 0,
            };
            worker.run(end);
        };
        let name = format!("group-{group}-{own}");
        let thread = std::thread::Builder::new().name(name).spawn(work);
        let thread = Some(thread.map_err(system("start a thread"))?);
        Ok(Self { shared, members, own, objects_max, block_octets, doorbell, thread })
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
    pub fn send(&mut self, object: impl Into<Vec<u8>>) -> Result<u32, GroupSendError> {
        let object = object.into();
        if self.own != 0 {
            return Err(GroupSendError::NotRoot { own: self.own });
        }
        let octets = object.len();
        if octets as u64 > u64::from(BLOCKS_MAX) * u64::from(self.block_octets) {
            return Err(GroupSendError::TooLarge { octets });
        }
        let mut state = self.shared.lock();
        loop {
            if let Some(end) = ending(&state) {
                return Err(end.into());
            }
            if state.under_way < self.objects_max {
                break;
            }
            state = self.shared.wait(state);
        }
        let number = state.sent;
        state.outbox.push_back(object);
        state.sent += 1;
        state.under_way += 1;
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
            if let Some(object) = state.inbox.pop_front() {
                state.inbox_octets -= object.octets.len() as u64;
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
    /// many octets it has. One copy more than [`Group::give`] and [`Group::recv`].
    ///
    /// # Errors
    /// As [`Group::recv`].
    pub fn recv_into(&mut self, memory: &mut [u8]) -> Result<Option<usize>, GroupEnd> {
        let Some(object) = self.recv()? else { return Ok(None) };
        let octets = object.octets.len();
        let fits = octets.min(memory.len());
        memory[..fits].copy_from_slice(&object.octets[..fits]);
        self.give(object.octets);
        Ok(Some(octets))
    }

    /// Gives memory for objects to come: one that fits is received into it. Without, memory is
    /// taken from the heap when an object is announced, which its first block waits for.
    pub fn give(&self, memory: Vec<u8>) {
        self.shared.lock().give(memory);
    }

    /// Memory of so many octets, from what was given or has come back from what was sent; or new.
    pub fn memory(&self, octets: usize) -> Vec<u8> {
        let found = self.shared.lock().memory(octets as u64);
        found.unwrap_or_else(|| vec![0; octets])
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
        self.wish(Wish::Close);
        self.join();
        let state = self.shared.lock();
        state.ended.clone().unwrap_or(Err(GroupEnd::Left))
    }

    /// Leaves before the end: the others are told and go on, if it is not the root who leaves.
    pub fn leave(mut self) {
        self.wish(Wish::Leave);
        self.join();
    }

    fn wish(&self, wish: Wish) {
        self.shared.lock().wish = wish;
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
            self.wish(Wish::Leave);
            self.join();
        }
    }
}

/// Why nothing more is sent, if so.
fn ending(state: &MutexGuard<'_, State>) -> Option<GroupEnd> {
    match &state.ended {
        Some(Err(end)) => Some(end.clone()),
        Some(Ok(())) => Some(GroupEnd::Left),
        None if !state.failures.is_empty() => {
            let (failures, objects) = (state.failures.clone(), state.stable);
            Some(GroupEnd::Failed { failures, objects })
        }
        None if state.is_over => Some(GroupEnd::Left),
        None => None,
    }
}

/// Any port of the same kind of address: a root is not looked for.
fn any(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::LOCALHOST, 0).into(),
    }
}
