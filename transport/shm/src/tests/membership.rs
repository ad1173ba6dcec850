//! Attaching, detaching, dying, and restarting.

use onepipe_base::Cause;

use super::*;

#[test]
fn process_id_is_held_by_one_live_process() {
    let name = name("taken");
    let a = attach(&name, 1);
    let refused = Shm::attach(&name, Some(ProcessId(1)), &small()).expect_err("the id is taken");
    assert_eq!(refused.taken(), Some(ProcessId(1)));
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    let any = Shm::attach(&name, None, &small()).expect("there are free ids");
    assert_eq!(any.process(), ProcessId(0));
    drop(a);
    attach(&name, 1);
}

#[test]
fn names_and_numbers_are_checked() {
    let attach = |name: &str, process, config: &Config| {
        Shm::attach(name, Some(ProcessId(process)), config).expect_err("the arguments are invalid")
    };
    assert!(matches!(attach("../etc", 0, &small()), AttachError::Name(_)));
    assert!(matches!(attach("", 0, &small()), AttachError::Name(_)));
    let out = attach(&name("numbers"), 4, &small());
    assert!(matches!(out, AttachError::OutOfRange { process: 4, processes_max: 4 }));
    let config = Config { ring_entries: 15, ..small() };
    let wrong = attach(&name("numbers"), 0, &config);
    assert!(matches!(wrong, AttachError::Config { field: "ring_entries", value: 15 }));
    let left = segment_left_behind(&name("numbers"));
    assert!(!left, "a refused attachment leaves no segment behind");
}

fn segment_left_behind(name: &str) -> bool {
    let path = attach(name, 0).path().to_owned();
    let refused = Shm::attach(name, Some(ProcessId(4)), &small());
    assert!(refused.is_err());
    path.exists()
}

#[test]
fn last_to_leave_removes_the_segment() {
    let name = name("last");
    let (a, b) = (attach(&name, 0), attach(&name, 1));
    let path = a.path().to_owned();
    drop(a);
    assert!(path.exists());
    drop(b);
    assert!(!path.exists());
}

#[test]
fn stale_segment_is_recreated() {
    let name = name("crash");
    let (a, b) = (attach(&name, 0), attach(&name, 1));
    let path = a.path().to_owned();
    a.kill();
    b.kill();
    assert!(path.exists(), "the segment was left behind");
    // Even with other sizes: nothing of the old segment is used.
    let config = Config { processes_max: 7, ..small() };
    let c = Shm::attach(&name, Some(ProcessId(6)), &config).expect("a stale segment is recreated");
    assert_eq!(c.config().processes_max, 7);
    drop(c);

    std::fs::write(&path, b"not a segment").expect("/dev/shm is writable");
    attach(&name, 0);
}

#[test]
fn stale_segments_of_any_name_are_removed() {
    let (stale, used) = (name("sweep-stale"), name("sweep-used"));
    let (dead, alive) = (attach(&stale, 0), attach(&used, 0));
    let paths = [&dead, &alive].map(|shm| shm.path().to_owned());
    dead.kill();
    // Other tests leave stale segments on purpose, and look for them.
    let prefix = crate::segment::file_prefix() + &name("sweep");
    assert!(!crate::stale_segments().expect("available").contains(&paths[1]));
    let removed = crate::stale::remove_with_prefix(&prefix).expect("/dev/shm is available");
    assert_eq!(removed, paths[..1]);
    assert_eq!(paths.map(|path| path.exists()), [false, true]);
    attach(&stale, 0);
}

#[test]
fn joining_process_gets_the_creators_sizes() {
    let name = name("sizes");
    let _a = attach(&name, 0);
    let other = Config { frame_len_max: 1000, processes_max: 9, ..small() };
    let b = Shm::attach(&name, Some(ProcessId(1)), &other).expect("there is capacity");
    assert_eq!((b.config().frame_len_max, b.config().processes_max), (8192, 4));
}

//= spec/ordering.md#R67
#[test]
fn joining_process_gets_the_creators_terms() {
    let name = name("terms");
    let terms = Config { link_timeout_ns: 7_000_000_000, has_merged_order: true, ..small() };
    let _a = Shm::attach(&name, Some(ProcessId(0)), &terms).expect("the id is free");
    let b = attach(&name, 1);
    assert_eq!((b.config().link_timeout_ns, b.config().has_merged_order), (7_000_000_000, true));
}

#[test]
fn live_segment_of_another_version_is_refused() {
    let name = name("version");
    let a = attach(&name, 0);
    a.segment().mapping().word(8).store(99, Ordering::Release);
    let refused =
        Shm::attach(&name, None, &small()).expect_err("a live segment must not be changed");
    assert!(matches!(refused, AttachError::Layout { version: 99 }));
}

#[test]
fn restarted_process_skips_frames_for_its_previous_incarnation() {
    let name = name("lives");
    let (mut a, b) = (attach(&name, 0), attach(&name, 1));
    receive(&mut a, at(1));
    let first = b.incarnation();
    for byte in 0..5 {
        send(&mut a, at(2), 1, byte);
    }
    b.kill();
    let mut b = attach(&name, 1);
    assert!(b.incarnation() > first);
    receive(&mut a, at(3));
    send(&mut a, at(4), 1, 9);
    assert_eq!(receive(&mut b, at(5)).0, [(0, 9)]);
    for _ in 0..6 {
        send(&mut a, at(6), 1, 9);
    }
    receive(&mut b, at(7));
    for _ in 0..4 {
        send(&mut a, at(8), 1, 9);
    }
    assert_eq!(a.free_slots(), 64 - 4, "no slot of frames to the previous incarnation is lost");
}

#[test]
fn restarted_process_keeps_slots_that_others_still_read() {
    let name = name("unread");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    receive(&mut a, at(1));
    receive(&mut b, at(1));
    // Some short, some long: others still read inline cells and slots.
    for byte in 1..6 {
        send(&mut a, at(2), 1, byte);
    }
    a.kill();
    let mut a = attach(&name, 0);
    assert_eq!(a.free_slots(), 64 - 3);
    receive(&mut a, at(3));
    for byte in 6..11 {
        send(&mut a, at(4), 1, byte);
    }
    let sent: Vec<_> = (1..11).map(|byte| (0, byte)).collect();
    assert_eq!(receive(&mut b, at(5)).0, sent);
    for _ in 0..4 {
        send(&mut a, at(6), 1, 11);
    }
    assert_eq!(a.free_slots(), 64 - 4);
}

#[test]
fn unpublished_entries_are_wiped_on_restart() {
    let name = name("wiped");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    receive(&mut a, at(1));
    receive(&mut b, at(1));
    // Entries are written last to first: a sender that dies in between leaves the second one
    // without the first.
    let second = &a.segment().ring(0, 1).entries[1];
    second.store(1 << 41 | 3 << 17 | 1, Ordering::Release);
    a.kill();
    let mut a = attach(&name, 0);
    receive(&mut a, at(2));
    send(&mut a, at(3), 1, 7);
    assert_eq!(receive(&mut b, at(4)).0, [(0, 7)]);
}

#[test]
fn dead_process_promises_nothing_and_frees_its_slots() {
    let name = name("dead");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    receive(&mut a, at(1));
    receive(&mut b, at(1));
    send(&mut b, at(2), 0, 1);
    send(&mut a, at(2), 1, 2);
    // Killed in the middle of a burst.
    b.begin_burst(at(3), Some(Promises::both(at(3).sync)));
    b.kill();
    let watch_ns = small().liveness_interval_ns;
    let (frames, promises_read) = receive(&mut a, at(4));
    assert_eq!(
        (frames, promises_read),
        (vec![(1, 1)], vec![(1, 3)]),
        "frames sent before the death are delivered"
    );
    assert_eq!(receive(&mut a, at(4 + 2 * watch_ns)).1, []);
    assert_eq!(a.stats().deaths, 1);
    assert_eq!(
        (links_down(&mut a), links_down(&mut a)),
        (vec![(1, Cause::Refused)], vec![]),
        "reported once"
    );
    assert_eq!((a.peers().count(), a.free_slots()), (0, 64));
    send(&mut a, at(5 + 2 * watch_ns), 1, 2);
    assert_eq!((a.stats().frames_unreachable, a.free_slots()), (1, 64));

    let mut b = attach(&name, 1);
    assert_eq!(receive(&mut a, at(6 + 2 * watch_ns)).1, [(1, 6 + 2 * watch_ns)]);
    send(&mut a, at(7 + 2 * watch_ns), 1, 3);
    assert_eq!(receive(&mut b, at(8 + 2 * watch_ns)).0, [(0, 3)]);
}

fn links_down(shm: &mut Shm) -> Vec<(u16, Cause)> {
    let mut links_down = Vec::new();
    shm.poll_links_down(|port, cause| links_down.push((port.0, cause)));
    links_down
}

#[test]
fn link_down_follows_the_last_frame_of_a_leaver() {
    let name = name("leaves");
    let config = Config { arena_slots: 1024, ring_entries: 1024, ..small() };
    let attach = |process| Shm::attach(&name, Some(ProcessId(process)), &config).expect("free");
    let (mut a, mut b) = (attach(0), attach(1));
    receive(&mut a, at(1));
    receive(&mut b, at(1));
    for _ in 0..300 {
        send(&mut b, at(2), 0, 1);
    }
    drop(b);
    assert_eq!(receive(&mut a, at(3)).0.len(), 256);
    assert_eq!(links_down(&mut a), []);
    assert_eq!(receive(&mut a, at(4)).0.len(), 44);
    assert_eq!(links_down(&mut a), [(1, Cause::Left)]);
    assert_eq!(a.stats().deaths, 0);
}

#[test]
fn attached_flag_of_a_dead_process_is_ignored() {
    let name = name("ghost");
    let (mut a, b) = (attach(&name, 0), attach(&name, 1));
    b.kill();
    assert_eq!(receive(&mut a, at(1)).1, []);
    assert_eq!(a.peers().count(), 0);
}

#[test]
fn doorbell_that_outlives_its_process_holds_no_lock() {
    let name = name("doorbell");
    let (first, second) = (attach(&name, 0), attach(&name, 1));
    let waker = second.doorbell();
    drop(second);
    let (reporter, confirmations) = std::sync::mpsc::channel();
    let join = std::thread::spawn(move || {
        drop(first);
        let again = attach(&name, 2);
        let _ = reporter.send(again.process());
    });
    let joined = confirmations.recv_timeout(Duration::from_secs(20));
    assert_eq!(joined, Ok(ProcessId(2)), "the setup lock stayed with the doorbell");
    join.join().expect("the peer has sent its data");
    drop(waker);
}

fn peers_met(shm: &mut Shm) -> Vec<(u16, u32)> {
    let mut peers_met = Vec::new();
    shm.poll_peers(|port, incarnation| peers_met.push((port.0, incarnation.0)));
    peers_met
}

#[test]
fn incarnation_is_reported_once_after_the_previous_drained() {
    let name = name("met");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    let first = b.incarnation().0;
    receive(&mut a, at(1));
    assert_eq!((peers_met(&mut a), peers_met(&mut a)), (vec![(1, first)], vec![]));
    receive(&mut b, at(1));
    send(&mut b, at(2), 0, 1);
    b.kill();
    let b = attach(&name, 1);
    assert_eq!(b.incarnation().0, first + 1);
    // The ring is drained in this turn, and only then is the next incarnation reported.
    assert_eq!(receive(&mut a, at(3)).0, [(1, 1)]);
    assert_eq!((peers_met(&mut a), links_down(&mut a)), (vec![(1, first + 1)], vec![]));
    drop(b);
    receive(&mut a, at(4));
    assert_eq!(
        (peers_met(&mut a), links_down(&mut a)),
        (vec![], vec![(1, Cause::Left)]),
        "a departed process is not reported as new"
    );
}

#[test]
fn detected_death_is_broadcast() {
    let name = name("alarm");
    let (mut a, b, mut c) = (attach(&name, 0), attach(&name, 1), attach(&name, 2));
    receive(&mut a, at(1));
    receive(&mut c, at(1));
    b.kill();
    let watch_ns = small().liveness_interval_ns;
    // Its own liveness check is not due: it is notified.
    receive(&mut c, at(2));
    assert_eq!((links_down(&mut c), c.stats().deaths), (vec![], 0));
    receive(&mut a, at(2 + watch_ns));
    assert_eq!((links_down(&mut a), a.stats().deaths), (vec![(1, Cause::Refused)], 1));
    receive(&mut c, at(3));
    assert_eq!((links_down(&mut c), c.stats().deaths), (vec![(1, Cause::Refused)], 1));
}

//= spec/failure.md#R3
#[test]
fn open_scatterings_hold_back_commits_only() {
    let name = name("open");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    let confirmations = |a: &mut Shm, ns| {
        a.receive(at(ns), |_, _| Verdict::Consumed);
        let mut promises_read = None;
        a.poll_promises(at(ns), |_, promises| promises_read = Some(promises));
        promises_read
    };
    let expected =
        |barrier, commit| Some(Promises { barrier: at(barrier).sync, commit: at(commit).sync });
    assert_eq!(confirmations(&mut a, 100), expected(100, 100));
    b.begin_burst(at(200), Some(Promises::both(at(150).sync)));
    b.hold_commits(Some(at(201).sync));
    assert_eq!(confirmations(&mut a, 300), expected(150, 150), "commits are bounded by the floor");
    b.end_burst(None);
    assert_eq!(confirmations(&mut a, 400), expected(400, 201), "idle with an open scattering");
    b.hold_commits(Some(at(350).sync));
    assert_eq!(confirmations(&mut a, 500), expected(500, 350));
    b.hold_commits(None);
    assert_eq!(confirmations(&mut a, 600), expected(600, 600));
    b.hold_commits(Some(at(601).sync));
    b.kill();
    let _b = attach(&name, 1);
    assert_eq!(
        confirmations(&mut a, 700),
        expected(700, 700),
        "a new incarnation has no open scattering"
    );
}

/// A process that was stopped while it set a segment up once made all others hang, without a word.
//= spec/ordering.md#R83
#[test]
fn setup_lock_is_waited_for_with_a_limit() {
    let path = crate::segment::path_of(&name("locked")).expect("a valid name");
    let wait = std::time::Duration::from_millis(20);
    let held = crate::segment::open_locked(&path, wait).expect("no process holds it");
    let error = crate::segment::open_locked(&path, wait).expect_err("it is held");
    assert!(matches!(error, AttachError::Locked { pid, .. } if pid == std::process::id()));
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    // A file of another user is not waited for: it could be held for ever.
    let is_root = std::os::unix::fs::chown(&path, Some(65_534), None).is_ok();
    if is_root {
        let error = crate::segment::open_locked(&path, wait * 1_000).expect_err("not ours");
        assert!(matches!(error, AttachError::Foreign { owner: 65_534, .. }), "{error}");
    }
    drop(held);
    std::fs::remove_file(&path).expect("it is there");
}

/// Another user could otherwise read what is sent, or have a process map a file of its choice.
#[test]
fn files_are_of_this_user_alone() {
    let wait = Duration::from_millis(20);
    let path = crate::segment::path_of(&name("mode")).expect("a valid name");
    let file = crate::segment::open_locked(&path, wait).expect("no process holds it");
    assert_eq!(file.metadata().expect("it is open").mode() & 0o7777, 0o600);
    drop(file);
    std::fs::remove_file(&path).expect("it is there");
    let target = path.with_extension("target");
    for exists in [false, true] {
        if exists {
            std::fs::write(&target, "precious").expect("/dev/shm is writable");
        }
        std::os::unix::fs::symlink(&target, &path).expect("/dev/shm is writable");
        let error = crate::segment::open_locked(&path, wait).expect_err("links are not followed");
        assert!(matches!(error, AttachError::Io { .. }), "{error}");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(target.exists(), exists, "no file is created through a link");
    }
    assert_eq!(std::fs::read(&target).expect("it is there"), b"precious");
    std::fs::remove_file(&target).expect("it is there");
}
