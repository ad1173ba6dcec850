//! Memory of a segment: set aside as it is used, and before it is used.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use onepipe_base::{Mono, Now, Port, ProcessId, Timestamp, Transmit, Verdict};
use onepipe_transport_driver::Transport;
use onepipe_transport_shm::{AttachError, Config, Shm};

/// The size of `/dev/shm` in a container, by default.
const CONTAINER_BYTES: u64 = 64 << 20;
const PROCESSES: u32 = 32;
/// Set in the process that has a `/dev/shm` of that size to itself.
const SMALL_SHM: &str = "ONEPIPE_TEST_SMALL_SHM";

fn at(ns: u64) -> Now {
    Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns + (1 << 50)) }
}

fn attach(name: &str, process: u32) -> Result<Shm, AttachError> {
    Shm::attach(name, Some(ProcessId(process)), &Config::default())
}

fn attach_all(name: &str) -> Vec<Shm> {
    (0..PROCESSES).map(|process| attach(name, process).expect("there is memory")).collect()
}

/// Returns the memory that the segment takes, in bytes.
fn allocated(shm: &Shm) -> u64 {
    std::fs::metadata(shm.path()).expect("the segment exists").blocks() * 512
}

/// Sends one frame of `bytes` bytes in a burst of its own. Returns false if the burst must wait.
fn send(shm: &mut Shm, now: Now, to: u32, bytes: usize) -> bool {
    if !shm.can_begin_burst(now) {
        return false;
    }
    shm.begin_burst(now, None);
    let Some(slot) = shm.slot() else { return false };
    slot[..bytes].fill(7);
    shm.send(Transmit { port: Port(to as u16), bytes });
    shm.end_burst(None);
    true
}

/// Receives what has arrived. Returns the number of frames, which are all as they were sent.
fn receive(shm: &mut Shm, now: Now) -> usize {
    shm.receive(now, |_, frame| {
        assert!(frame.iter().all(|byte| *byte == 7));
        Verdict::Consumed
    })
}

/// Has every process send a short and a long frame to all others, and receive all of them.
fn exchange(all: &mut [Shm], now: u64) {
    for shm in all.iter_mut() {
        receive(shm, at(now));
    }
    for (me, shm) in all.iter_mut().enumerate() {
        for to in (0..PROCESSES).filter(|to| *to != me as u32) {
            assert!(send(shm, at(now), to, 100) && send(shm, at(now), to, 8000));
        }
    }
    for shm in all.iter_mut() {
        assert_eq!(receive(shm, at(now)), 2 * (PROCESSES as usize - 1));
    }
}

#[test]
fn thirty_two_processes_fit_a_container() {
    let mut all = attach_all(&format!("test-{}-fit", std::process::id()));
    let joined = allocated(&all[0]);
    exchange(&mut all, 1_000);
    let used = allocated(&all[0]);
    println!("{joined} bytes after the joins, {used} after frames to all");
    assert!(used < CONTAINER_BYTES / 2, "{joined} {used}");
}

/// Runs `test` of this file in a process whose `/dev/shm` is as small as a container's. Returns
/// false if the kernel refuses a mount to this user.
fn run_in_small_shm(test: &str) -> bool {
    let mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm || exit 77; exec \"$0\" \"$@\"";
    for namespaces in [["--mount"].as_slice(), &["--map-root-user", "--mount"]] {
        let is_permitted = Command::new("unshare").args(namespaces).arg("true").output();
        if !is_permitted.is_ok_and(|probe| probe.status.success()) {
            continue;
        }
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["sh", "-c", mount]);
        command.arg(std::env::current_exe().expect("this test has a path"));
        command.args(["--exact", &format!("memory::{test}"), "--nocapture"]).env(SMALL_SHM, "1");
        let status = command.status().expect("unshare has run before");
        if status.code() != Some(77) {
            assert!(status.success(), "{test} in a small /dev/shm: {status}");
            return true;
        }
    }
    false
}

#[test]
fn full_memory_applies_backpressure_without_loss() {
    if std::env::var_os(SMALL_SHM).is_some() {
        return fill_memory();
    }
    if !run_in_small_shm("full_memory_applies_backpressure_without_loss") {
        println!("skipped: this user may not mount a small /dev/shm");
    }
}

fn fill_memory() {
    const FRAMES: usize = 4000;
    let mut all = attach_all("full");
    exchange(&mut all, 1_000);
    // Another program takes all the memory that is left.
    let filler = std::path::Path::new("/dev/shm/filler");
    let refused = std::fs::write(filler, vec![1; CONTAINER_BYTES as usize]).expect_err("full");
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);

    let (senders, receivers) = all.split_at_mut(1);
    let sender = &mut senders[0];
    let (mut sent, mut received, mut now) = (0, 0, 2_000);
    while received < FRAMES {
        let to = 1 + sent as u32 % (PROCESSES - 1);
        if sent < FRAMES && send(sender, at(now), to, 8000) {
            sent += 1;
            continue;
        }
        sender.can_begin_burst(at(now));
        received += receivers.iter_mut().map(|shm| receive(shm, at(now))).sum::<usize>();
        now += 1_000;
        assert!(now < 100_000_000, "{sent} {received}");
    }
    let stats = *sender.stats();
    assert_eq!((stats.frames_overflowed, stats.frames_unreachable), (0, 0));
    assert!(stats.growths_refused > 0 && stats.growths_refused < 100, "{stats:?}");

    let refused = attach("full", PROCESSES).expect_err("no memory for one more").to_string();
    assert!(refused.contains("cannot reserve") && refused.contains("--shm-size"), "{refused}");

    std::fs::remove_file(filler).expect("it was made above");
    let before = allocated(sender);
    now += 20_000_000;
    while allocated(sender) == before {
        assert!(send(sender, at(now), 1, 8000), "there is memory again");
    }
    attach("full", PROCESSES).expect("there is memory again");
}
