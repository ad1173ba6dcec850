//! Incarnation numbers derived from the start time of a process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onepipe_base::Incarnation;
use rustix::fs::OFlags;

/// An incarnation number counts eighths of a second since 2024-01-01: 32 bits last until 2041.
const TICK: Duration = Duration::from_millis(125);
const EPOCH: Duration = Duration::from_secs(1_704_067_200);
/// Folder of the record: memory of this machine, which all its users may write.
const FOLDER: &str = "/dev/shm";
/// The record has one number of four bytes for every id modulo this.
const RECORD_NUMBERS: u32 = 4096;
/// A recorded number this far ahead of the clock (36 hours) is not one of ours.
const AHEAD_MAX: u32 = 1 << 20;
/// How often, and at what interval, a lock is tried that another process holds for microseconds.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_INTERVAL: Duration = Duration::from_millis(1);

/// Returns an incarnation of `id` above that of any previous incarnation on this machine and below
/// that of any later one. Holds as long as the system's clock is not set back by more than an
/// incarnation has lasted.
///
/// The last number of each id is recorded in a file of this user in `/dev/shm`. Where that cannot
/// be used, sleeps until the next number would be returned, at most an eighth of a second. Programs
/// that do not share the folder (containers) must not start an id twice within that time.
pub fn start_incarnation(id: u32) -> Incarnation {
    let since = since_epoch();
    let ticks = (since.as_nanos() / TICK.as_nanos()) as u32;
    let name = format!("onepipe-incarnations-{}", rustix::process::geteuid().as_raw());
    let number = record(&Path::new(FOLDER).join(name), id, ticks).unwrap_or_else(|_| {
        let passed = Duration::from_nanos((since.as_nanos() % TICK.as_nanos()) as u64);
        std::thread::sleep(TICK - passed);
        ticks
    });
    Incarnation(number)
}

/// Returns the incarnation that a process would have which starts in `ahead` from now.
pub fn incarnation_after(ahead: Duration) -> Incarnation {
    Incarnation(((since_epoch() + ahead).as_nanos() / TICK.as_nanos()) as u32)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH + EPOCH).unwrap_or_default()
}

/// Records and returns a number above the last one of `id`: `ticks`, unless that was used.
fn record(path: &Path, id: u32, ticks: u32) -> io::Result<u32> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "a file of another user"));
    }
    lock(&file)?;
    let at = u64::from(id % RECORD_NUMBERS) * 4;
    let mut last = [0; 4];
    let last = match file.read_exact_at(&mut last, at) {
        Ok(()) => u32::from_le_bytes(last),
        // The file ends before this number.
        Err(_) => 0,
    };
    let number = if last >= ticks.saturating_add(AHEAD_MAX) { ticks } else { ticks.max(last + 1) };
    file.write_all_at(&number.to_le_bytes(), at)?;
    Ok(number)
}

/// Locks the record until `file` is closed. Does not wait for a process that was stopped meanwhile.
fn lock(file: &File) -> io::Result<()> {
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a path in the folder that only this test uses.
    fn path(test: &str) -> std::path::PathBuf {
        Path::new(FOLDER).join(format!("onepipe-test-{}-{test}", std::process::id()))
    }

    #[test]
    fn every_incarnation_is_above_the_last() {
        let numbers: Vec<_> = (0..100).map(|_| start_incarnation(7)).collect();
        assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
        assert!(numbers[0] > Incarnation(0));
    }

    #[test]
    fn each_id_counts_its_starts_within_a_tick() {
        let path = path("numbers");
        let number = |id, ticks| record(&path, id, ticks).expect("the folder is writable");
        assert_eq!(
            [number(3, 100), number(3, 100), number(3, 101), number(3, 110)],
            [100, 101, 102, 110]
        );
        assert_eq!(number(4, 100), 100, "another id");
        assert_eq!(number(3 + RECORD_NUMBERS, 110), 111, "ids that share a number");
        std::fs::remove_file(&path).expect("the test has made it");
        assert_eq!(number(3, 112), 112);
        std::fs::remove_file(&path).expect("the test has made it");
    }

    #[test]
    fn concurrent_starts_have_different_numbers() {
        let path = path("concurrent");
        let start = || (0..50).map(|_| record(&path, 0, 1)).collect::<Vec<_>>();
        let mut numbers: Vec<u32> = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(start));
            let all = threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
            // A lock that is held for long is an error, and the caller sleeps.
            all.filter_map(Result::ok).collect()
        });
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert!(count > 4 && numbers.len() == count, "{count} numbers");
        std::fs::remove_file(&path).expect("the test has made it");
    }

    #[test]
    fn unusable_records_are_errors() {
        let path = path("unusable");
        std::fs::write(&path, u32::MAX.to_le_bytes()).expect("the folder is writable");
        assert_eq!(record(&path, 0, 5).expect("not a number of ours"), 5);
        std::fs::write(&path, [1, 2]).expect("the folder is writable");
        assert_eq!(record(&path, 0, 5).expect("a file that was cut off"), 5);
        std::fs::remove_file(&path).expect("the test has made it");
        std::os::unix::fs::symlink("/dev/null", &path).expect("the folder is writable");
        assert!(record(&path, 0, 5).is_err(), "a link is not followed");
        std::fs::remove_file(&path).expect("the test has made it");
        let held = File::create(&path).expect("the folder is writable");
        held.lock().expect("nobody else has it");
        assert!(record(&path, 0, 5).is_err(), "held by a process that was stopped");
        std::fs::remove_file(&path).expect("the test has made it");
    }
}
