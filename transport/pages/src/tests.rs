//! Members in threads of one process; each attaches to the shared memory as a process of its own.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use onepipe_base::{Incarnation, Port, ProcessId};
use onepipe_bulk::{Config, Event, Group, GroupId, Link, Member, Outcome};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_tcp::{Listener, Rendezvous, RendezvousError, connect_members};

use crate::{JoinError, ObjectBytes, ShmGroupDriver, join, shared_memory_config};

const TIMEOUT: Duration = Duration::from_secs(30);
const WAIT_NS: u64 = 10_000_000;

fn config(n: u32, own: u32) -> Config {
    let member = |rank: u32| Member {
        process: ProcessId(rank),
        port: Port(rank as u16),
        link: Link::Reliable,
    };
    let members = (0..n).map(member).collect();
    shared_memory_config(Config {
        block_len: 1 << 16,
        ..Config::new(GroupId(1), members, own, Incarnation(1))
    })
}

fn object(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ number as u8)
        .collect()
}

/// How a member receives and sends objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Objects are used in place; the root allocates from its page pool.
    Shared,
    /// Receivers copy objects; the root's objects are copied into its page pool.
    Private,
    /// Memory was offered before any object was announced.
    Offered,
}

/// The objects received, the outcome and the failures reported.
type MemberResult = (Vec<ObjectBytes>, Option<Outcome>, Vec<u32>);

/// Runs a member to the end of its group, or until it has received `leaves_after` objects.
fn run_member(
    mut driver: ShmGroupDriver<SystemClock>,
    mut unsent: Vec<Vec<u8>>,
    kind: Kind,
    leaves_after: usize,
) -> MemberResult {
    unsent.reverse();
    let (mut got, mut ended, mut failed) = (Vec::new(), None, Vec::new());
    let is_root = driver.group().config().own == 0;
    let page_index = driver.page_index().cloned();
    if kind == Kind::Offered {
        driver.group_mut().offer_memory(vec![0; 1 << 20].into());
    }
    while !driver.group().is_done() && got.len() < leaves_after {
        if is_root && ended.is_none() {
            while let Some(object) = unsent.pop() {
                let sent = match (kind, driver.page_pool()) {
                    (Kind::Shared, Some(page_pool)) => {
                        let mut page_mut =
                            page_pool.alloc(object.len()).expect("memory is available");
                        page_mut.copy_from_slice(&object);
                        driver.group_mut().send(page_mut.into())
                    }
                    _ => driver.group_mut().send(object.clone().into()),
                };
                if sent.is_err() {
                    unsent.push(object);
                    break;
                }
            }
            if unsent.is_empty() || !driver.group().failures().is_empty() {
                driver.group_mut().close().expect("the root may send");
            }
        }
        let on_event = |group: &mut Group<ObjectBytes>, event| match event {
            Event::Announced { object, bytes } => {
                let bytes = bytes as usize;
                let page =
                    page_index.as_ref().and_then(|page_index| page_index.page(object, bytes));
                let memory = match page.filter(|_| kind == Kind::Shared) {
                    Some(page) => page.into(),
                    // After a failure a survivor may announce an object without its location.
                    None => vec![0; bytes].into(),
                };
                let has_failed = !group.failures().is_empty();
                assert!(
                    kind != Kind::Shared || has_failed || matches!(memory, ObjectBytes::Shared(_))
                );
                group.provide(object, memory).expect("the object is wanted");
            }
            Event::Stable { memory, .. } => got.push(memory),
            Event::Closed(outcome) => ended = Some(outcome),
            Event::Failed(failure) => failed.push(failure.rank),
            _ => {}
        };
        driver.turn(WAIT_NS, on_event);
    }
    (got, ended, failed)
}

/// Runs members in threads of their own; `kinds_and_exits` gives each one's kind and when it
/// leaves.
fn group(
    n: u32,
    objects: &[Vec<u8>],
    kinds_and_exits: impl Fn(u32) -> (Kind, usize),
) -> Vec<JoinHandle<MemberResult>> {
    let open = |_| {
        Listener::bind("127.0.0.1:0".parse().expect("a valid address")).expect("the listener binds")
    };
    let listeners: Vec<Listener> = (0..n).map(open).collect();
    let members: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    (0..n)
        .zip(listeners)
        .map(|(own, listener)| {
            let (members, unsent, (kind, leaves_after)) =
                (members.clone(), objects.to_vec(), kinds_and_exits(own));
            std::thread::spawn(move || {
                let rendezvous = Rendezvous { group: 1, members: &members, own, timeout: TIMEOUT };
                let streams = connect_members(&rendezvous, &listener).expect("all members connect");
                let links = join(&rendezvous, streams).expect("memory is available");
                let group = Group::with_memory(config(n, own)).expect("the configuration is valid");
                run_member(
                    ShmGroupDriver::new(group, links, SystemClock::calibrated()),
                    unsent,
                    kind,
                    leaves_after,
                )
            })
        })
        .collect()
}

#[test]
fn objects_of_every_size_reach_every_member() {
    let sizes = [0, 1, 59_999, 65_536, 65_537, 3, 1 << 18, 5_000_001, 4_100, 0, 700_000];
    let objects: Vec<Vec<u8>> = (0..).zip(sizes).map(|(at, bytes)| object(at, bytes)).collect();
    let kinds = [Kind::Shared, Kind::Private, Kind::Offered];
    for n in [1, 2, 5] {
        for root in kinds {
            let kinds_and_exits =
                |rank: u32| (if rank == 0 { root } else { kinds[rank as usize % 3] }, !0);
            for member in group(n, &objects, kinds_and_exits) {
                let (got, ended, failed) = member.join().expect("the thread does not panic");
                assert_eq!((ended, failed), (Some(Outcome::Complete), vec![]));
                assert!(got == objects, "all bytes at {n} members, {root:?}");
            }
        }
    }
}

#[test]
fn departed_member_is_reported_and_survivors_agree() {
    let objects: Vec<Vec<u8>> = (0..30).map(|at| object(at, 1_000_000)).collect();
    for leaves in [0, 2] {
        let kinds_and_exits = |rank| {
            let kind = if rank == 1 { Kind::Shared } else { Kind::Private };
            (kind, if rank == leaves { 3 } else { usize::MAX })
        };
        let members = group(4, &objects, kinds_and_exits);
        let mut got: Vec<MemberResult> = members
            .into_iter()
            .map(|member| member.join().expect("the thread does not panic"))
            .collect();
        got.remove(leaves as usize);
        for (own, ended, failed) in &got {
            assert_eq!((ended, &failed[..]), (&Some(Outcome::Failed), &[leaves][..]));
            assert!(own.len() >= 3 && own.len() == got[0].0.len());
            assert!(*own == objects[..own.len()]);
        }
    }
}

#[test]
fn next_root_removes_segments_of_killed_members() {
    use std::os::unix::fs::MetadataExt;
    let user = std::fs::metadata("/proc/self").expect("the process has a user id").uid();
    // The state after all members were killed before the names were removed.
    let left = ["", "-s"].map(|suffix| {
        let name = format!("onepipe-{user}-bulk-1-{}{suffix}", std::process::id());
        std::path::Path::new("/dev/shm").join(name)
    });
    for path in &left {
        std::fs::write(path, [1; 10_000]).expect("/dev/shm is available");
    }
    for member in group(2, &[object(0, 9)], |_| (Kind::Shared, usize::MAX)) {
        let (_, ended, _) = member.join().expect("the thread does not panic");
        assert_eq!(ended, Some(Outcome::Complete));
    }
    assert!(left.iter().all(|path| !path.exists()));
}

#[test]
fn member_lost_during_join_is_named() {
    let open = |_| {
        Listener::bind("127.0.0.1:0".parse().expect("a valid address")).expect("the listener binds")
    };
    let listeners = [0, 1, 2].map(open);
    let members = listeners.each_ref().map(Listener::address);
    let all = [0, 1, 2].map(|own: u32| {
        let listener = listeners[own as usize].clone();
        std::thread::spawn(move || {
            let rendezvous = Rendezvous { group: 1, members: &members, own, timeout: TIMEOUT };
            let streams = connect_members(&rendezvous, &listener).expect("all members connect");
            if own == 2 {
                None
            } else {
                Some(join(&rendezvous, streams).expect_err("one member has exited"))
            }
        })
    });
    let errors = all.map(|member| member.join().expect("the thread does not panic"));
    let Some(JoinError::Rendezvous(RendezvousError::Member { rank: 2, .. })) = &errors[0] else {
        panic!("{:?}", errors[0]);
    };
    let Some(JoinError::Rendezvous(RendezvousError::Member { rank: 0, .. })) = &errors[1] else {
        panic!("{:?}", errors[1]);
    };
    let ours = format!("bulk-{}-", std::process::id());
    for entry in std::fs::read_dir("/dev/shm").expect("/dev/shm is available") {
        let name = entry.expect("the directory entry is readable").file_name();
        // Other tests of this process have segments of their own while they join.
        let is_old = |path: std::path::PathBuf| {
            let about = std::fs::metadata(path).and_then(|about| about.modified());
            about.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > TIMEOUT))
        };
        let path = std::path::Path::new("/dev/shm").join(&name);
        assert!(!(name.to_string_lossy().contains(&ours) && is_old(path)), "{name:?}");
    }
}

#[test]
fn finished_objects_are_removed_one_by_one() {
    let name = format!("test-{}-pages-forget", std::process::id());
    let page_pool = crate::PagePool::create(&name).expect("the name is free");
    let reader = onepipe_transport_shm::PageReader::open(&name, 1).expect("the pool exists");
    let page_index = crate::PageIndex::new(reader);
    let pages = [(); 12].map(|()| page_pool.alloc(100).expect("memory is available").freeze());
    for (object, page) in (0..).zip(&pages) {
        page_index.insert(object, page.location());
    }
    // Objects finish in another order than they were announced.
    page_index.remove(10);
    let known: Vec<u32> =
        (0..12).filter(|object| page_index.page(*object, 100).is_some()).collect();
    assert_eq!(
        known,
        [4, 5, 6, 7, 8, 9, 11],
        "the latest ones up to the limit, except the removed one"
    );
}

/// Shortens the file at `path`, which has no name any more: as any process of the user can by the
/// descriptors of this one.
fn shorten(path: &std::path::Path) {
    let path = format!("{} (deleted)", path.display());
    let entries = std::fs::read_dir("/proc/self/fd").expect("the process has descriptors");
    let mut descriptors = entries.flatten().map(|entry| entry.path());
    let is_it = |descriptor: &std::path::PathBuf| {
        std::fs::read_link(descriptor).is_ok_and(|target| target.to_string_lossy() == path)
    };
    let descriptor = descriptors.find(is_it).expect("the members have the file open");
    let file = std::fs::OpenOptions::new().write(true).open(descriptor).expect("it exists");
    file.set_len(0).expect("the file belongs to this user");
}

//= spec/ordering.md#R84
#[test]
fn shortened_memory_ends_every_member() {
    for suffix in ["", "-s"] {
        let open =
            |_| Listener::bind("127.0.0.1:0".parse().expect("a valid address")).expect("it binds");
        let listeners: Vec<Listener> = (0..2).map(open).collect();
        let members: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
        let join_one = |own: u32, listener: Listener| {
            let rendezvous = Rendezvous { group: 1, members: &members, own, timeout: TIMEOUT };
            let streams = connect_members(&rendezvous, &listener).expect("all connect");
            join(&rendezvous, streams).expect("memory is available")
        };
        let join_one = &join_one;
        let all: Vec<_> = std::thread::scope(|scope| {
            let start = |(own, listener)| scope.spawn(move || join_one(own, listener));
            let threads: Vec<_> = (0..).zip(listeners).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let path = std::path::PathBuf::from(format!("{}{suffix}", all[0].shm.path().display()));
        let mut drivers: Vec<_> = (0..)
            .zip(all)
            .map(|(own, links)| {
                let group = Group::with_memory(config(2, own)).expect("a valid configuration");
                ShmGroupDriver::new(group, links, SystemClock::calibrated())
            })
            .collect();
        let sent = drivers[0].group_mut().send(object(0, 100_000).into());
        sent.expect("the group is open");
        let mut stable = 0;
        while stable < 2 {
            for driver in &mut drivers {
                driver.turn(0, |group, event| match event {
                    Event::Announced { object, bytes } => {
                        let memory = vec![0; bytes as usize].into();
                        group.provide(object, memory).expect("the object is wanted");
                    }
                    Event::Stable { .. } => stable += 1,
                    _ => {}
                });
            }
        }
        shorten(&path);
        for driver in &mut drivers {
            while driver.loss().is_none() {
                driver.turn(0, |_, _| {});
            }
            assert_eq!(driver.loss().map(|lost| lost.path), Some(path.clone()));
        }
    }
}
