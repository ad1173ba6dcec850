//! The file that processes share: created by the first to attach, removed by the last to detach.
//!
//! The kernel knows which processes are alive, not the file ([`crate::lock`]). A file in which no
//! live process holds an id was left behind by a crash and is recreated.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onepipe_base::{Controllers, Incarnation, ProcessId};
use onepipe_transport_clock::Calibration;

use crate::config::VERSION;
use crate::mapping::Mapping;
use crate::promise::{CommitHold, PromiseWord};
use crate::ring::RingView;
use crate::sleep::{FutexSlot, fence_before_wake};
use crate::sync::{AtomicU64, Ordering};
use crate::{AttachError, Config, SegmentLost, futex, lock, memory};

/// "onepipe" and a byte that no text begins with.
const MAGIC: u64 = 0x6f6e_6570_6970_6501;

/// Offsets of the words of the header.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const STATE: usize = 16;
    pub(super) const CONFIG: [usize; 5] = [24, 32, 40, 48, 56];
    pub(super) const CALIBRATION: [usize; 4] = [64, 72, 80, 88];
    /// The first controller and their number; 0: there are none.
    pub(super) const CONTROLLERS: usize = 96;
    pub(super) const LINK_TIMEOUT: usize = 104;
    pub(super) const MERGED_ORDER: usize = 112;
    /// On a cache line of its own, because all processes poll it.
    pub(super) const EPOCH: usize = 128;
    pub(super) const END: usize = 256;
}

/// The header is complete. Written last.
const READY: u64 = 1;
/// States of a process id: a process is attached under it, or none is.
const ATTACHED: u64 = 1;
const VACANT: u64 = 0;

/// An arena grows as long as it takes at most this part of what is left for others.
const GROWTH_SHARE: u64 = 8;

/// This process's attachment to a segment.
#[derive(Debug)]
pub(crate) struct Segment {
    file: File,
    path: PathBuf,
    mapping: Arc<Mapping>,
    config: Config,
    calibration: Calibration,
    process: usize,
    incarnation: u32,
}

impl Segment {
    /// Claims a process id in the segment `name`, creating the segment if there is none. Until
    /// [`Segment::publish`] the setup lock is held, and others do not see this process.
    pub(crate) fn attach(
        name: &str,
        process: Option<ProcessId>,
        wanted: &Config,
    ) -> Result<Self, AttachError> {
        if let Some((field, value)) = wanted.out_of_range() {
            return Err(AttachError::Config { field, value });
        }
        let path = path_of(name)?;
        let file = open_locked(&path, lock::SETUP_WAIT)?;
        let is_alone =
            !lock::has_live_process(&file).map_err(AttachError::io("check for live processes"))?;
        let attached = Self::attach_locked(file, path.clone(), process, wanted, is_alone);
        if attached.is_err() && is_alone {
            // No other process would remove what was just created.
            let _ = std::fs::remove_file(&path);
        }
        attached
    }

    fn attach_locked(
        file: File,
        path: PathBuf,
        process: Option<ProcessId>,
        wanted: &Config,
        is_alone: bool,
    ) -> Result<Self, AttachError> {
        let (mapping, config) = match is_alone {
            true => create(&file, wanted)?,
            false => join(&file, &path, wanted)?,
        };
        let words = at::CALIBRATION.map(|at| mapping.word(at).load(Ordering::Relaxed));
        let calibration =
            Calibration::from_words(words).ok_or(AttachError::Layout { version: VERSION })?;
        let process = claim_process_id(&file, &mapping, &config, process)?;
        let segment = Self {
            file,
            path,
            mapping: Arc::new(mapping),
            config,
            calibration,
            process,
            incarnation: 0,
        };
        segment.start_incarnation()
    }

    /// Reserves the rings of this process, and resets the state, the promise word and the futex
    /// that a previous incarnation left.
    fn start_incarnation(mut self) -> Result<Self, AttachError> {
        self.reserve_rings()?;
        // Seconds since 1970 exceed every incarnation of a removed segment; the stored number is
        // the previous incarnation in this one.
        let seconds =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (previous, _) = self.membership(self.process);
        self.incarnation = previous.saturating_add(1).max(seconds) as u32;
        let [incarnation, pid, state] = self.process_words(self.process);
        state.store(VACANT, Ordering::Relaxed);
        incarnation.store(u64::from(self.incarnation), Ordering::Relaxed);
        pid.store(u64::from(std::process::id()), Ordering::Relaxed);
        self.promise_word(self.process).set_idle();
        self.commit_hold(self.process).store(None);
        self.futex_slot(self.process).finish_sleep();
        Ok(self)
    }

    /// Reserves the rings from and to every process that was ever attached, and the first slots of
    /// this process. Processes that attach later reserve theirs from and to this one.
    fn reserve_rings(&self) -> Result<(), AttachError> {
        let me = self.process;
        let others = (0..self.config.processes_max as usize)
            .filter(|other| *other != me && self.membership(*other).0 != 0);
        let mut parts: Vec<(usize, usize)> = others
            .flat_map(|other| [(me, other), (other, me)])
            .map(|(from, to)| self.config.ring_part(from, to))
            .collect();
        parts.push(self.config.slots_part(me, 0, self.config.step_end(0)));
        let need = parts.iter().map(|(_, bytes)| *bytes as u64).sum();
        for part in parts {
            self.reserve(part).map_err(|source| match source.kind() {
                io::ErrorKind::StorageFull => AttachError::NoMemory {
                    need,
                    free: memory::free_bytes(&self.file).unwrap_or(0),
                    source,
                },
                _ => AttachError::io("allocate memory")(source),
            })?;
        }
        Ok(())
    }

    /// Reserves memory that this process is the first to use.
    fn reserve(&self, part: (usize, usize)) -> io::Result<()> {
        memory::preallocate(&self.file, part)?;
        self.mapping.touch(part);
        Ok(())
    }

    /// Reserves the slots of this process from `first` up to `end`, unless too little memory would
    /// be left for others: a process takes at most a share of what it leaves free, so that those
    /// that attach later find some (dynamic thresholds, as for the shares of receivers).
    #[cold]
    pub(crate) fn grow_arena(&self, first: u32, end: u32) -> io::Result<()> {
        let part = self.config.slots_part(self.process, first, end);
        let (_, held) = self.config.slots_part(self.process, 0, end);
        let left = memory::free_bytes(&self.file)?.saturating_sub(part.1 as u64);
        if held as u64 > left / GROWTH_SHARE {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.reserve(part)
    }

    /// Ensures that the slots from `first` up to `end` of `process` have memory, as they do if its
    /// entries are right.
    #[cold]
    pub(crate) fn ensure_slots(&self, process: usize, first: u32, end: u32) -> io::Result<()> {
        memory::preallocate(&self.file, self.config.slots_part(process, first, end))
    }

    /// Makes this process visible to others and releases the setup lock.
    pub(crate) fn publish(&self) -> Result<(), AttachError> {
        let [_, _, state] = self.process_words(self.process);
        state.store(ATTACHED, Ordering::Release);
        self.epoch().fetch_add(1, Ordering::Release);
        lock::unlock_setup(&self.file).map_err(AttachError::io("unlock the segment"))
    }

    //= spec/ordering.md#R84
    /// Whether the memory is no longer that of the segment to which this process has attached: the
    /// file was shortened, so that zeros are mapped, or its contents were replaced. Those may show
    /// an epoch again, but not the state of this process, which no other process changes.
    #[cold]
    pub(crate) fn is_lost(&self) -> bool {
        let (incarnation, is_attached) = self.membership(self.process);
        self.mapping.is_lost() || !is_attached || incarnation != u64::from(self.incarnation)
    }

    pub(crate) fn loss(&self) -> SegmentLost {
        SegmentLost { path: self.path.clone() }
    }

    /// Removes the segment's name, if it still refers to this segment.
    pub(crate) fn unlink(&self) -> io::Result<()> {
        let (opened, present) = (self.file.metadata()?, std::fs::metadata(&self.path)?);
        if (opened.dev(), opened.ino()) == (present.dev(), present.ino()) {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn calibration(&self) -> Calibration {
        self.calibration
    }

    pub(crate) fn process(&self) -> usize {
        self.process
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// The membership epoch: a counter that changes whenever a process attaches, detaches or is
    /// found dead.
    #[inline]
    pub(crate) fn epoch(&self) -> &AtomicU64 {
        self.mapping.word(at::EPOCH)
    }

    /// The words for incarnation, pid and state of a process.
    fn process_words(&self, process: usize) -> [&AtomicU64; 3] {
        let at = self.config.process_words_at(process);
        [0, 8, 16].map(|offset| self.mapping.word(at + offset))
    }

    /// Returns the latest incarnation of a process, 0 if there was none, and whether the segment
    /// shows it as attached.
    pub(crate) fn membership(&self, process: usize) -> (u64, bool) {
        let [incarnation, _, state] = self.process_words(process);
        let is_attached = state.load(Ordering::Acquire) == ATTACHED;
        (incarnation.load(Ordering::Acquire), is_attached)
    }

    /// Whether a process is alive according to the kernel. A query that fails is no proof of death.
    pub(crate) fn is_alive(&self, process: usize) -> bool {
        lock::is_locked_by_other(&self.file, process).unwrap_or(true)
    }

    #[cfg(test)]
    pub(crate) fn release_process_lock(&self) {
        lock::unlock_process(&self.file, self.process).expect("the file is open");
    }

    #[inline]
    pub(crate) fn promise_word(&self, process: usize) -> PromiseWord<'_> {
        PromiseWord(self.mapping.word(self.config.promise_at(process)))
    }

    #[inline]
    pub(crate) fn commit_hold(&self, process: usize) -> CommitHold<'_> {
        CommitHold(self.mapping.word(self.config.commit_hold_at(process)))
    }

    /// Makes all processes check the membership, including sleeping ones.
    #[cold]
    pub(crate) fn notify_membership_change(&self) {
        self.epoch().fetch_add(1, Ordering::Release);
        fence_before_wake();
        for process in (0..self.config.processes_max as usize).filter(|at| self.membership(*at).1) {
            let futex_slot = self.futex_slot(process);
            if process != self.process && futex_slot.take_wake() {
                futex::wake(futex_slot.0);
            }
        }
    }

    #[inline]
    pub(crate) fn futex_slot(&self, process: usize) -> FutexSlot<'_> {
        FutexSlot(self.mapping.word32(self.config.futex_slot_at(process)))
    }

    /// The ring from one process to another.
    #[inline]
    pub(crate) fn ring(&self, from: usize, to: usize) -> RingView<'_> {
        let entries = self.config.ring_entries as usize;
        RingView {
            head: self.mapping.word(self.config.ring_at(from, to)),
            entries: self.mapping.words(self.config.entries_at(from, to), entries),
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // On any failure here, closing the file releases the process id. What is written to a lost
        // segment reaches no other process, or one that finds it lost as well.
        self.promise_word(self.process).set_idle();
        if !lock::lock_setup(&self.file, lock::SETUP_WAIT).is_ok_and(|is_taken| is_taken) {
            return;
        }
        let [_, _, state] = self.process_words(self.process);
        state.store(VACANT, Ordering::Release);
        self.epoch().fetch_add(1, Ordering::Release);
        let is_last = lock::unlock_process(&self.file, self.process).is_ok()
            && lock::has_live_process(&self.file).is_ok_and(|is_live| !is_live);
        if is_last {
            // A process that has opened the file already, and waits for the setup lock, finds it
            // removed and starts over.
            let _ = self.unlink();
        }
        // A doorbell may keep the file open for long: it must not keep the lock.
        let _ = lock::unlock_setup(&self.file);
    }
}

/// Returns the path of the segment `name` of this user.
pub(crate) fn path_of(name: &str) -> Result<PathBuf, AttachError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !(1..=64).contains(&name.len()) || !name.chars().all(is_allowed) {
        return Err(AttachError::Name(name.to_owned()));
    }
    Ok(Path::new(DIRECTORY).join(file_prefix() + name))
}

/// The directory of segments: a memory file system.
pub(crate) const DIRECTORY: &str = "/dev/shm";

/// The prefix of the file names of all segments of this user.
pub(crate) fn file_prefix() -> String {
    format!("onepipe-{}-", lock::effective_uid())
}

//= spec/ordering.md#R83
/// Opens the file at `path`, creating it if there is none, with the setup lock held. Waits for that
/// lock for at most `wait`, and not at all for a file of another user, who could hold it for ever.
pub(crate) fn open_locked(path: &Path, wait: Duration) -> Result<File, AttachError> {
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
        let file = options.open(path).map_err(AttachError::io("open the segment"))?;
        let opened = file.metadata().map_err(AttachError::io("examine the segment"))?;
        if opened.uid() != lock::effective_uid() || !opened.is_file() {
            let path = path.display().to_string();
            return Err(AttachError::Foreign { path, owner: opened.uid() });
        }
        if !lock::lock_setup(&file, wait).map_err(AttachError::io("lock the segment"))? {
            let (path, pid) = (path.display().to_string(), lock::setup_holder(&file));
            return Err(AttachError::Locked { path, wait, pid: pid.unwrap_or(0) });
        }
        // The last process to detach may have removed it while this one waited.
        match std::fs::metadata(path) {
            Ok(present) if (present.dev(), present.ino()) == (opened.dev(), opened.ino()) => {
                return Ok(file);
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(AttachError::io("examine the segment")(error));
            }
            _ => {}
        }
    }
}

/// Creates the segment; no other process uses the file.
fn create(file: &File, config: &Config) -> Result<(Mapping, Config), AttachError> {
    let what = "create the segment";
    // Contents left by a crash are dropped: everything starts as zeros.
    file.set_len(0).map_err(AttachError::io(what))?;
    file.set_len(config.segment_len() as u64).map_err(AttachError::io(what))?;
    memory::preallocate(file, config.common_part()).map_err(AttachError::io("allocate memory"))?;
    let mapping = Mapping::new(file, config.segment_len()).map_err(AttachError::io(what))?;
    let store = |at: usize, value| mapping.word(at).store(value, Ordering::Relaxed);
    store(at::MAGIC, MAGIC);
    store(at::VERSION, VERSION);
    let frame_len_max = config.frame_len_max as u64;
    let numbers = [
        config.processes_max.into(),
        frame_len_max,
        config.arena_slots.into(),
        config.ring_entries.into(),
        config.has_checksums.into(),
    ];
    at::CONFIG.iter().zip(numbers).for_each(|(at, value)| store(*at, value));
    let controllers =
        config.controllers.map_or(0, |ids| u64::from(ids.first.0) << 32 | u64::from(ids.count));
    store(at::CONTROLLERS, controllers);
    store(at::LINK_TIMEOUT, config.link_timeout_ns);
    store(at::MERGED_ORDER, config.has_merged_order.into());
    let calibration = Calibration::measure().to_words();
    at::CALIBRATION.iter().zip(calibration).for_each(|(at, value)| store(*at, value));
    mapping.word(at::STATE).store(READY, Ordering::Release);
    Ok((mapping, *config))
}

/// Maps the segment that others use, with the sizes and the terms in its header.
fn join(file: &File, path: &Path, wanted: &Config) -> Result<(Mapping, Config), AttachError> {
    let what = "map the segment";
    let bytes = file.metadata().map_err(AttachError::io(what))?.len();
    // Its users have written a complete header before they released the setup lock.
    let lost = || AttachError::from(SegmentLost { path: path.to_owned() });
    if bytes < at::END as u64 {
        return Err(lost());
    }
    let header = Mapping::new(file, at::END).map_err(AttachError::io(what))?;
    let load = |at: usize| header.word(at).load(Ordering::Acquire);
    let version = load(at::VERSION);
    let is_lost = || header.is_lost() || load(at::MAGIC) == 0;
    if load(at::STATE) != READY || load(at::MAGIC) != MAGIC || version != VERSION || is_lost() {
        return Err(if is_lost() { lost() } else { AttachError::Layout { version } });
    }
    let [processes_max, frame_len_max, arena_slots, ring_entries, checksums] = at::CONFIG.map(load);
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let config = Config {
        processes_max: narrow(processes_max),
        frame_len_max: frame_len_max as usize,
        arena_slots: narrow(arena_slots),
        ring_entries: narrow(ring_entries),
        has_checksums: checksums != 0,
        controllers: match load(at::CONTROLLERS) {
            0 => None,
            word => Some(Controllers { first: ProcessId((word >> 32) as u32), count: word as u32 }),
        },
        link_timeout_ns: load(at::LINK_TIMEOUT),
        has_merged_order: load(at::MERGED_ORDER) != 0,
        ..*wanted
    };
    // The fields are in range before they are multiplied.
    if config.out_of_range().is_some() {
        return Err(AttachError::Layout { version });
    }
    if bytes != config.segment_len() as u64 {
        return Err(lost());
    }
    let mapping = Mapping::new(file, config.segment_len()).map_err(AttachError::io(what))?;
    Ok((mapping, config))
}

/// Claims the process id `process`, or the lowest free one.
fn claim_process_id(
    file: &File,
    mapping: &Mapping,
    config: &Config,
    process: Option<ProcessId>,
) -> Result<usize, AttachError> {
    let processes_max = config.processes_max;
    let take = |process: usize| {
        lock::lock_process(file, process).map_err(AttachError::io("claim a process id"))
    };
    let Some(ProcessId(process)) = process else {
        for free in 0..processes_max as usize {
            if take(free)? {
                return Ok(free);
            }
        }
        return Err(AttachError::Full(processes_max));
    };
    if process >= processes_max {
        return Err(AttachError::OutOfRange { process, processes_max });
    }
    if !take(process as usize)? {
        let pid_at = config.process_words_at(process as usize) + 8;
        let pid = mapping.word(pid_at).load(Ordering::Relaxed);
        return Err(AttachError::Taken { process, pid });
    }
    Ok(process as usize)
}
