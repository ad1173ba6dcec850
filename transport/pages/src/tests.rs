//! Members in threads of one process: each has a place of its own in the memory that they share.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use onepipe_base::{Incarnation, Port, ProcessId};
use onepipe_bulk::{Config, Event, Group, GroupId, Link, Member, Outcome};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_tcp::{Door, MeetError, Meeting, meet};

use crate::{Bytes, End, JoinError, join, shared};

const PATIENCE: Duration = Duration::from_secs(30);
const WAIT_NS: u64 = 10_000_000;

fn config(n: u32, own: u32) -> Config {
    let member = |rank: u32| Member {
        process: ProcessId(rank),
        port: Port(rank as u16),
        link: Link::Reliable,
    };
    let members = (0..n).map(member).collect();
    shared(Config { block_len: 1 << 16, ..Config::new(GroupId(1), members, own, Incarnation(1)) })
}

fn object(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ number as u8)
        .collect()
}

/// How a member takes and gives memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Objects are used where they lie; the root's lie on its shelf.
    Shared,
    /// Receivers copy them; the root's are copied to its shelf.
    Private,
    /// Memory was given before anything came.
    Ahead,
}

/// What a member has got, and how it ended.
type Got = (Vec<Bytes>, Option<Outcome>, Vec<u32>);

/// Lives through a group; a member may be told to go after so many objects.
fn live(mut end: End<SystemClock>, mut unsent: Vec<Vec<u8>>, kind: Kind, goes_after: usize) -> Got {
    unsent.reverse();
    let (mut got, mut ended, mut failed) = (Vec::new(), None, Vec::new());
    let is_root = end.group().config().own == 0;
    let lender = end.lender().cloned();
    if kind == Kind::Ahead {
        end.group_mut().offer_memory(vec![0; 1 << 20].into());
    }
    while !end.group().is_done() && got.len() < goes_after {
        if is_root && ended.is_none() {
            while let Some(object) = unsent.pop() {
                let sent = match (kind, end.shelf()) {
                    (Kind::Shared, Some(shelf)) => {
                        let mut sheet = shelf.sheet(object.len()).expect("there is memory");
                        sheet.copy_from_slice(&object);
                        end.group_mut().send(sheet.into())
                    }
                    _ => end.group_mut().send(object.clone().into()),
                };
                if sent.is_err() {
                    unsent.push(object);
                    break;
                }
            }
            if unsent.is_empty() || !end.group().failures().is_empty() {
                end.group_mut().close().expect("it is the root");
            }
        }
        let on_event = |group: &mut Group<Bytes>, event| match event {
            Event::Announced { object, bytes } => {
                let bytes = bytes as usize;
                let page = lender.as_ref().and_then(|lender| lender.page(object, bytes));
                let memory = match page.filter(|_| kind == Kind::Shared) {
                    Some(page) => page.into(),
                    // After a failure a survivor may tell of an object, and not where it lies.
                    None => vec![0; bytes].into(),
                };
                let has_failed = !group.failures().is_empty();
                assert!(kind != Kind::Shared || has_failed || matches!(memory, Bytes::Shared(_)));
                group.provide(object, memory).expect("it is wanted");
            }
            Event::Stable { memory, .. } => got.push(memory),
            Event::Closed(outcome) => ended = Some(outcome),
            Event::Failed(failure) => failed.push(failure.rank),
            _ => {}
        };
        end.turn(WAIT_NS, on_event);
    }
    (got, ended, failed)
}

/// Members in threads of their own; of each how it takes memory, and whether it goes early.
fn group(n: u32, objects: &[Vec<u8>], how: impl Fn(u32) -> (Kind, usize)) -> Vec<JoinHandle<Got>> {
    let open = |_| Door::open("127.0.0.1:0".parse().expect("an address")).expect("a door");
    let doors: Vec<Door> = (0..n).map(open).collect();
    let members: Vec<SocketAddr> = doors.iter().map(Door::address).collect();
    (0..n)
        .zip(doors)
        .map(|(own, door)| {
            let (members, unsent, (kind, goes_after)) =
                (members.clone(), objects.to_vec(), how(own));
            std::thread::spawn(move || {
                let meeting = Meeting { group: 1, members: &members, own, patience: PATIENCE };
                let streams = meet(&meeting, &door).expect("all are here");
                let links = join(&meeting, streams).expect("there is memory");
                let group = Group::with_memory(config(n, own)).expect("a group");
                live(End::new(group, links, SystemClock::calibrated()), unsent, kind, goes_after)
            })
        })
        .collect()
}

#[test]
fn every_size_comes_to_everybody_whoever_copies() {
    let sizes = [0, 1, 59_999, 65_536, 65_537, 3, 1 << 18, 5_000_001, 4_100, 0, 700_000];
    let objects: Vec<Vec<u8>> = (0..).zip(sizes).map(|(at, bytes)| object(at, bytes)).collect();
    let kinds = [Kind::Shared, Kind::Private, Kind::Ahead];
    for n in [1, 2, 5] {
        for root in kinds {
            let how = |rank: u32| (if rank == 0 { root } else { kinds[rank as usize % 3] }, !0);
            for member in group(n, &objects, how) {
                let (got, ended, failed) = member.join().expect("it does not panic");
                assert_eq!((ended, failed), (Some(Outcome::Complete), vec![]));
                assert!(got == objects, "every byte of {n} members, {root:?}");
            }
        }
    }
}

#[test]
fn whoever_goes_is_missed_and_the_others_have_all() {
    let objects: Vec<Vec<u8>> = (0..30).map(|at| object(at, 1_000_000)).collect();
    for goes in [0, 2] {
        let how = |rank| {
            let kind = if rank == 1 { Kind::Shared } else { Kind::Private };
            (kind, if rank == goes { 3 } else { usize::MAX })
        };
        let members = group(4, &objects, how);
        let mut got: Vec<Got> =
            members.into_iter().map(|member| member.join().expect("it does not panic")).collect();
        got.remove(goes as usize);
        for (own, ended, failed) in &got {
            assert_eq!((ended, &failed[..]), (&Some(Outcome::Failed), &[goes][..]));
            assert!(own.len() >= 3 && own.len() == got[0].0.len());
            assert!(*own == objects[..own.len()]);
        }
    }
}

#[test]
fn what_members_left_that_were_killed_is_removed_by_the_next_root() {
    use std::os::unix::fs::MetadataExt;
    let user = std::fs::metadata("/proc/self").expect("we are somebody").uid();
    // As it is when all are killed before the names are taken away: nobody holds a place in it.
    let left = ["", "-s"].map(|end| {
        let name = format!("onepipe-{user}-bulk-1-{}{end}", std::process::id());
        std::path::Path::new("/dev/shm").join(name)
    });
    for path in &left {
        std::fs::write(path, [1; 10_000]).expect("memory has names");
    }
    for member in group(2, &[object(0, 9)], |_| (Kind::Shared, usize::MAX)) {
        let (_, ended, _) = member.join().expect("it does not panic");
        assert_eq!(ended, Some(Outcome::Complete));
    }
    assert!(left.iter().all(|path| !path.exists()));
}

#[test]
fn who_meets_and_then_goes_is_named_and_nothing_is_left() {
    let open = |_| Door::open("127.0.0.1:0".parse().expect("an address")).expect("a door");
    let doors = [0, 1, 2].map(open);
    let members = doors.each_ref().map(Door::address);
    let all = [0, 1, 2].map(|own: u32| {
        let door = doors[own as usize].clone();
        std::thread::spawn(move || {
            let meeting = Meeting { group: 1, members: &members, own, patience: PATIENCE };
            let streams = meet(&meeting, &door).expect("all are here");
            if own == 2 { None } else { Some(join(&meeting, streams).expect_err("one has gone")) }
        })
    });
    let errors = all.map(|member| member.join().expect("it does not panic"));
    let Some(JoinError::Meet(MeetError::Member { rank: 2, .. })) = &errors[0] else {
        panic!("{:?}", errors[0]);
    };
    let Some(JoinError::Meet(MeetError::Member { rank: 0, .. })) = &errors[1] else {
        panic!("{:?}", errors[1]);
    };
    let ours = format!("bulk-{}-", std::process::id());
    for entry in std::fs::read_dir("/dev/shm").expect("memory has names") {
        let name = entry.expect("it can be read").file_name();
        // Other tests of this process have theirs for as long as they take to join.
        let is_old = |path: std::path::PathBuf| {
            let about = std::fs::metadata(path).and_then(|about| about.modified());
            about.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > PATIENCE))
        };
        let path = std::path::Path::new("/dev/shm").join(&name);
        assert!(!(name.to_string_lossy().contains(&ours) && is_old(path)), "{name:?}");
    }
}

#[test]
fn an_object_that_is_through_takes_no_other_with_it() {
    let name = format!("test-{}-pages-forget", std::process::id());
    let shelf = crate::Shelf::create(&name).expect("nobody has it");
    let reader = onepipe_transport_shm::Reader::open(&name, 1).expect("it is there");
    let lender = crate::Lender::new(reader);
    let pages = [(); 12].map(|()| shelf.sheet(100).expect("there is memory").into_page());
    for (object, page) in (0..).zip(&pages) {
        lender.note(object, page.place());
    }
    // Objects get lost in another order than that in which they are through.
    lender.forget(10);
    let known: Vec<u32> = (0..12).filter(|object| lender.page(*object, 100).is_some()).collect();
    assert_eq!(known, [4, 5, 6, 7, 8, 9, 11], "as many as may be under way, but that one");
}
