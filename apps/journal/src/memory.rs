//! A disk in memory that can crash, lose or tear what is not durable, fail and be full.

mod file;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile};
use file::FileState;

/// A disk in memory, for tests and simulations. Clones are the same disk.
///
/// This disk is at least as hard on its user as a real one: at a crash each sector that is not
/// durable is lost or not, on its own; each creation, renaming and removal since the directory was
/// last synchronised happened or not, on its own; and after a failed `sync_data` the bytes that it
/// lost count as written.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, FileState>,
    names: BTreeMap<String, u64>,
    /// Names as of the last synchronisation of the directory, and changes since.
    durable_names: BTreeMap<String, u64>,
    changes: Vec<NameChange>,
    next_id: u64,
    /// Number of changing operations so far.
    operations: u64,
    crash_at: Option<u64>,
    is_crashed: bool,
    failing_syncs: u32,
    capacity: Option<u64>,
    full_at: Option<u64>,
    has_stale_blocks: bool,
    random: Random,
}

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, u64),
    Rename(String, String, u64),
    Remove(String),
}

/// A stream of random numbers (SplitMix64).
#[derive(Clone, Debug, Default)]
pub(crate) struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

impl MemoryDisk {
    /// Creates an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Crashes the machine in its changing operation number `operation`, counted from 0 on. That
    /// operation and all later ones return an error until [`MemoryDisk::restart`].
    pub fn crash_at(&self, operation: u64) {
        self.state().crash_at = Some(operation);
    }

    /// Returns the number of changing operations so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Returns whether the machine has crashed.
    pub fn is_crashed(&self) -> bool {
        self.state().is_crashed
    }

    /// Restarts the machine after a crash, which happens now if it has not yet. `seed` decides what
    /// is lost.
    pub fn restart(&self, seed: u64) {
        let state = &mut *self.state();
        state.random = Random(seed);
        for change in std::mem::take(&mut state.changes) {
            if state.random.below(2) == 0 {
                apply(&mut state.durable_names, change);
            }
        }
        state.names = state.durable_names.clone();
        let names = &state.names;
        state.files.retain(|id, _| names.values().any(|named| named == id));
        for file in state.files.values_mut() {
            file.crash(&mut state.random, state.has_stale_blocks);
        }
        (state.crash_at, state.is_crashed, state.failing_syncs) = (None, false, 0);
    }

    /// Makes the next `count` calls of `sync_data` fail.
    pub fn fail_syncs(&self, count: u32) {
        self.state().failing_syncs = count;
    }

    /// Lets no file be created or written from changing operation number `operation` on, counted
    /// from 0 on, as if the disk was full; `None`: no longer. A write is done in part.
    pub fn fill_at(&self, operation: Option<u64>) {
        self.state().full_at = operation;
    }

    /// Limits the bytes of all files to `bytes`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Chooses whether a block that a crash loses may hold what lay there before the file was cut,
    /// as on file systems that do not order data and metadata, or zeros only.
    pub fn set_stale_blocks(&self, has_stale_blocks: bool) {
        self.state().has_stale_blocks = has_stale_blocks;
    }

    /// Replaces the bytes of the file `name`, which is created if it does not exist; all durable.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let state = &mut *self.state();
        let id = state.next_id;
        state.next_id += 1;
        state.files.insert(id, FileState::durable(bytes));
        state.names.insert(name.to_string(), id);
        state.durable_names.insert(name.to_string(), id);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it has the lock")
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: NameChange) {
    match change {
        NameChange::Create(name, id) => {
            names.insert(name, id);
        }
        NameChange::Rename(from, to, id) => {
            if names.get(&from) == Some(&id) {
                names.remove(&from);
            }
            names.insert(to, id);
        }
        NameChange::Remove(name) => {
            names.remove(&name);
        }
    }
}

impl State {
    /// Counts an operation. Returns whether the machine crashes in it.
    fn begin(&mut self) -> io::Result<bool> {
        if self.is_crashed {
            return Err(crashed());
        }
        self.is_crashed = self.crash_at == Some(self.operations);
        self.operations += 1;
        Ok(self.is_crashed)
    }

    /// Returns whether the disk is full from the current operation on.
    fn is_full(&self) -> bool {
        self.full_at.is_some_and(|at| self.operations > at)
    }

    /// Changes names; the change may be lost if the machine crashes in it.
    fn change(&mut self, change: NameChange) -> io::Result<()> {
        let crashes = self.begin()?;
        apply(&mut self.names, change.clone());
        self.changes.push(change);
        if crashes { Err(crashed()) } else { Ok(()) }
    }

    fn id(&self, name: &str) -> io::Result<u64> {
        if self.is_crashed {
            return Err(crashed());
        }
        self.names.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn file(&mut self, id: u64) -> io::Result<&mut FileState> {
        self.files.get_mut(&id).ok_or_else(|| io::Error::other("a file of before the crash"))
    }
}

fn crashed() -> io::Error {
    io::Error::other("the machine has crashed")
}

impl Disk for MemoryDisk {
    type File = MemoryFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state();
        if state.is_crashed { Err(crashed()) } else { Ok(state.names.keys().cloned().collect()) }
    }

    fn create(&self, name: &str) -> io::Result<MemoryFile> {
        let state = &mut *self.state();
        if let Ok(id) = state.id(name) {
            let crashes = state.begin()?;
            state.file(id)?.set_len(0);
            let file = MemoryFile { disk: self.clone(), id };
            return if crashes { Err(crashed()) } else { Ok(file) };
        }
        let id = state.next_id;
        state.next_id += 1;
        state.files.insert(id, FileState::default());
        state.change(NameChange::Create(name.to_string(), id))?;
        Ok(MemoryFile { disk: self.clone(), id })
    }

    fn open(&self, name: &str) -> io::Result<MemoryFile> {
        let id = self.state().id(name)?;
        Ok(MemoryFile { disk: self.clone(), id })
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = &mut *self.state();
        let id = state.id(name)?;
        Ok(state.file(id)?.bytes().to_vec())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let state = &mut *self.state();
        let id = state.id(from)?;
        state.change(NameChange::Rename(from.to_string(), to.to_string(), id))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let state = &mut *self.state();
        state.id(name)?;
        state.change(NameChange::Remove(name.to_string()))
    }

    fn sync_directory(&self) -> io::Result<()> {
        let state = &mut *self.state();
        if state.begin()? {
            return Err(crashed());
        }
        state.durable_names = state.names.clone();
        state.changes.clear();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }
}

/// An open file of a [`MemoryDisk`].
#[derive(Debug)]
pub struct MemoryFile {
    disk: MemoryDisk,
    id: u64,
}

impl DiskFile for MemoryFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let crashes = state.begin()?;
        let named = |id: &u64| state.names.values().any(|named| named == id);
        let used: u64 = state
            .files
            .iter()
            .filter(|(id, _)| named(id))
            .map(|(_, f)| f.bytes().len() as u64)
            .sum();
        let free = state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(used));
        let is_full = state.is_full();
        let file = state.file(self.id)?;
        if is_full {
            file.write(offset as usize, &bytes[..bytes.len() / 2]);
            return Err(ErrorKind::StorageFull.into());
        }
        let grown = (offset + bytes.len() as u64).saturating_sub(file.bytes().len() as u64);
        if grown > free {
            let fitting = bytes.len().saturating_sub((grown - free) as usize);
            file.write(offset as usize, &bytes[..fitting]);
            return Err(ErrorKind::StorageFull.into());
        }
        file.write(offset as usize, bytes);
        if crashes { Err(crashed()) } else { Ok(()) }
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = &mut *self.disk.state();
        if state.is_crashed {
            return Err(crashed());
        }
        let file = state.file(self.id)?.bytes();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(bytes.len());
        bytes.copy_from_slice(file.get(start..end).ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let crashes = state.begin()?;
        state.file(self.id)?.set_len(len as usize);
        if crashes { Err(crashed()) } else { Ok(()) }
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let state = &mut *self.disk.state();
        if state.begin()? {
            return Err(crashed());
        }
        let fails = state.failing_syncs > 0;
        state.failing_syncs = state.failing_syncs.saturating_sub(1);
        let file = state.file(self.id)?;
        if fails {
            file.fail_sync();
            return Err(io::Error::other("the disk has lost a write"));
        }
        file.sync();
        Ok(())
    }
}
