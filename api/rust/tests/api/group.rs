//! Bulk multicast between members in threads of one process, over real sockets.

use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use onepipe::{
    Carrier, EmbeddedGroup, FileError, FileSource, Group, GroupEnd, GroupError, GroupObject,
    GroupOptions, GroupSendError, GroupState, Listener, Reason, RendezvousError,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Instantiates every test for every carrier.
macro_rules! over {
    ($($carrier:ident: $carrier_kind:expr,)*) => { $(
        mod $carrier {
            over! { in $carrier_kind;
                objects_are_received_owned_copied_and_borrowed
                leaver_is_named_and_survivors_agree
                every_process_is_root_of_a_group_on_shared_listeners
                slow_receiver_is_waited_for
                invalid_settings_are_refused
                group_of_one_completes
                files_of_every_size_arrive_with_their_digest
                file_transfer_resumes_and_detects_a_wrong_prefix
                full_disk_at_one_receiver_fails_only_that_receiver
                late_member_learns_the_group_state
                one_thread_drives_all_members
            }
        }
    )* };
    (in $carrier_kind:expr; $($name:ident)*) => { $(
        #[test]
        fn $name() {
            super::$name($carrier_kind);
        }
    )* };
}

over! {
    tcp: onepipe::Carrier::Tcp,
    udp: onepipe::Carrier::Udp,
    shm: onepipe::Carrier::Shm,
}

fn listeners(n: usize) -> Vec<Listener> {
    let open = |_| {
        Listener::bind("127.0.0.1:0".parse().expect("a valid address")).expect("the listener binds")
    };
    (0..n).map(open).collect()
}

fn addresses(listeners: &[Listener]) -> Vec<SocketAddr> {
    listeners.iter().map(Listener::address).collect()
}

fn options(listener: &Listener, carrier: Carrier) -> GroupOptions {
    GroupOptions {
        carrier,
        listener: Some(listener.clone()),
        join_timeout: TIMEOUT,
        block_len: 1 << 17,
        ..GroupOptions::default()
    }
}

fn bytes(number: u32, count: usize) -> Vec<u8> {
    let mut word = u64::from(number) + 1;
    let next = |_| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 56) as u8
    };
    (0..count).map(next).collect()
}

/// Runs `act` with each member of one group of `n` in threads of their own; the root is 0.
fn together<T: Send>(carrier: Carrier, n: usize, act: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let listeners = listeners(n);
    let members = addresses(&listeners);
    let create_member = |own: usize| {
        let group = Group::create(&members, own as u32, options(&listeners[own], carrier));
        act(group.expect("all members connect"))
    };
    thread::scope(|scope| {
        let create_member = &create_member;
        let all: Vec<_> = (0..n).map(|own| scope.spawn(move || create_member(own))).collect();
        all.into_iter().map(|member| member.join().expect("the thread does not panic")).collect()
    })
}

fn objects_are_received_owned_copied_and_borrowed(carrier: Carrier) {
    let sizes = [0, 1, 3_000_000, 70_000];
    let listeners = listeners(3);
    let members = addresses(&listeners);
    let (shows, shown) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut group = Group::create(&members, 1, options(&listeners[1], carrier))
                .expect("all members connect");
            group.offer_buffer(vec![9; 3_000_000]);
            for (number, size) in (0..).zip(sizes) {
                let object = GroupObject { number, bytes: bytes(number, size).into() };
                assert!(group.recv() == Ok(Some(object)), "{size}");
            }
            assert_eq!(group.recv(), Ok(None));
            assert_eq!(group.progress().objects[1], 4);
            assert_eq!(group.close(), Ok(()));
        });
        scope.spawn(|| {
            let options = options(&listeners[2], carrier).on_object(move |number, bytes| {
                shows
                    .send((number, bytes.to_vec()))
                    .expect("the receiver of shown objects is alive");
            });
            let mut group = Group::create(&members, 2, options).expect("all members connect");
            let mut memory = [0; 100];
            for (number, size) in (0..).zip(sizes) {
                assert_eq!(group.recv_into(&mut memory), Ok(Some(size)));
                let fits = size.min(100);
                assert_eq!(memory[..fits], bytes(number, size)[..fits]);
            }
            assert_eq!(group.close(), Ok(()));
        });
        let mut root = Group::create(&members, 0, options(&listeners[0], carrier))
            .expect("all members connect");
        for (number, size) in (0..).zip(sizes) {
            assert_eq!(root.send(bytes(number, size)).expect("the root may send"), number);
        }
        assert_eq!(root.close(), Ok(()));
    });
    let all: Vec<_> = shown.iter().collect();
    assert!(all == (0..).zip(sizes).map(|(at, size)| (at, bytes(at, size))).collect::<Vec<_>>());
}

fn leaver_is_named_and_survivors_agree(carrier: Carrier) {
    let ends = together(carrier, 4, |mut group| match group.own() {
        0 => {
            let refused = (0..1_000).find_map(|number| group.send(bytes(number, 500_000)).err());
            let refused = refused.expect("a member leaves");
            assert!(matches!(refused, GroupSendError::Ended(GroupEnd::Failed { .. })));
            Some((group.close().expect_err("a member has left"), u32::MAX))
        }
        2 => {
            let first = group.recv().expect("no member has failed").expect("an object is received");
            assert!(first.bytes == bytes(0, 500_000));
            group.leave();
            None
        }
        _ => {
            let mut count = 0;
            loop {
                match group.recv() {
                    Ok(object) => {
                        let object = object.expect("the group does not end regularly");
                        assert!(object.bytes == bytes(count, 500_000));
                        count += 1;
                    }
                    Err(end) => return Some((end, count)),
                }
            }
        }
    });
    let ends: Vec<_> = ends.into_iter().flatten().collect();
    assert_eq!(ends.len(), 3);
    for (end, received) in &ends {
        let GroupEnd::Failed { failures, objects } = end else { panic!("{end}") };
        assert_eq!((failures.len(), failures[0].rank), (1, 2));
        assert!(matches!(failures[0].reason, Reason::Left | Reason::Link));
        assert!(end.to_string().starts_with("member 2 at 127.0.0.1:"), "{end}");
        assert!(*received == u32::MAX || received == objects, "{received} of {objects}");
        assert_eq!(Some(*objects), ends.iter().map(|(_, count)| *count).min());
    }
}

fn every_process_is_root_of_a_group_on_shared_listeners(carrier: Carrier) {
    const N: u32 = 3;
    let listeners = listeners(N as usize);
    let members = addresses(&listeners);
    thread::scope(|scope| {
        for (process, root) in (0..N).flat_map(|process| (0..N).map(move |root| (process, root))) {
            let (members, listener) = (&members, &listeners[process as usize]);
            scope.spawn(move || {
                let turned: Vec<_> = (0..N).map(|at| members[((root + at) % N) as usize]).collect();
                let own = (process + N - root) % N;
                let options =
                    GroupOptions { group: u64::from(root) + 40, ..options(listener, carrier) };
                let mut group = Group::create(&turned, own, options).expect("all members connect");
                for at in 0..5 {
                    let object = bytes(100 * root + at, 400_001);
                    if own == 0 {
                        group.send(object).expect("the root may send");
                    } else {
                        let got =
                            group.recv().expect("no member fails").expect("an object is received");
                        assert!(got.bytes == object && got.number == at);
                    }
                }
                assert_eq!(group.close(), Ok(()));
            });
        }
    });
}

fn slow_receiver_is_waited_for(carrier: Carrier) {
    let listeners = listeners(2);
    let members = addresses(&listeners);
    let (takes, taken) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (members, theirs) = (&members, &listeners[1]);
        let receiver = scope.spawn(move || {
            let options = GroupOptions { memory_bytes_max: 250_000, ..options(theirs, carrier) };
            let mut group = Group::create(members, 1, options).expect("both members connect");
            taken.recv().expect("the root has sent objects");
            let mut count = 0;
            while let Some(object) = group.recv().expect("no member fails") {
                assert!(object.bytes == bytes(count, 100_000));
                group.offer_buffer(object.bytes);
                count += 1;
            }
            count
        });
        let mut root = Group::create(members, 0, options(&listeners[0], carrier))
            .expect("both members connect");
        // Two fit the receiver's memory, four are in flight.
        for number in 0..6 {
            root.send(bytes(number, 100_000)).expect("the root may send");
        }
        let sender = scope.spawn(move || {
            for number in 6..20 {
                root.send(bytes(number, 100_000)).expect("the root may send");
            }
            root.close()
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!sender.is_finished(), "the receiver has freed no memory");
        takes.send(()).expect("the receiver waits");
        assert_eq!(receiver.join().expect("the thread does not panic"), 20);
        assert_eq!(sender.join().expect("the thread does not panic"), Ok(()));
    });
}

fn invalid_settings_are_refused(carrier: Carrier) {
    let listeners = listeners(2);
    let members = addresses(&listeners);
    let create = |members: &[SocketAddr], own| {
        Group::create(members, own, options(&listeners[0], carrier))
            .map(|_| ())
            .expect_err("no group")
    };
    assert!(matches!(create(&members, 2), GroupError::Rank { own: 2, members: 2 }));
    let twice = [members[0], members[1], members[1]];
    assert!(matches!(create(&twice, 0), GroupError::DuplicateMember(who) if who == members[1]));
    let none = GroupOptions { objects_max: 0, ..options(&listeners[0], carrier) };
    assert!(matches!(Group::create(&members, 0, none), Err(GroupError::Config(_))));
    // No other member runs: the error names the missing one.
    let soon =
        GroupOptions { join_timeout: Duration::from_millis(50), ..options(&listeners[1], carrier) };
    let error = Group::create(&members, 1, soon).expect_err("the root does not connect");
    assert!(error.to_string().starts_with("member 0 at 127.0.0.1:"), "{error}");

    let ends = together(carrier, 2, |mut group| {
        let refused =
            (group.own() == 1).then(|| group.send([1, 2]).expect_err("only the root may send"));
        (refused.map(|error| error.to_string()), group.close())
    });
    assert_eq!(ends[1].0.as_deref(), Some("only the root of a group sends: this is member 1"));
    assert!(ends.iter().all(|(_, end)| *end == Ok(())));
}

fn group_of_one_completes(carrier: Carrier) {
    let ends = together(carrier, 1, |mut group| {
        for number in 0..9 {
            group.send(bytes(number, 10)).expect("the root may send");
        }
        group.close()
    });
    assert_eq!(ends, [Ok(())]);
}

fn files_of_every_size_arrive_with_their_digest(carrier: Carrier) {
    for size in [0, 1, 999, 1_000, 1_001, 700_000] {
        let file = bytes(1, size);
        let source = FileSource { bytes: size as u64, from: 0, chunk_len: 1_000 };
        let reports = together(carrier, 3, |mut group| {
            if group.own() == 0 {
                let mut reported = 0;
                let report = group
                    .send_part(&mut &file[..], source, |progress| reported = progress.done)
                    .expect("no member fails");
                assert_eq!(reported, size as u64);
                group.close().expect("no member fails");
                return report;
            }
            let mut copy = Cursor::new(vec![]);
            let report = group.recv_part(&mut copy, |_| {}).expect("no member fails");
            assert!(copy.into_inner() == file, "{size}");
            report
        });
        assert_eq!((reports[0].digest, reports[0].bytes), (reports[2].digest, size as u64));
        assert_eq!(reports[0].digest_hex(), blake3::hash(&file).to_hex().to_string());
    }
}

fn file_transfer_resumes_and_detects_a_wrong_prefix(carrier: Carrier) {
    let file = bytes(1, 100_000);
    let source = FileSource { bytes: 100_000, from: 60_000, chunk_len: 7_000 };
    let outcomes = together(carrier, 3, |mut group| {
        if group.own() == 0 {
            let report = group.send_part(&mut &file[..], source, |_| {});
            // A receiver that found a wrong prefix may have left before the end.
            let _ = group.close();
            report.map(|report| report.from)
        } else {
            let mut before = file[..60_000].to_vec();
            before[5] ^= u8::from(group.own() == 2);
            let mut copy = Cursor::new(before);
            let report = group.recv_part(&mut copy, |_| {})?;
            assert!(copy.into_inner() == file);
            Ok(report.from)
        }
    });
    assert!(matches!(outcomes[..], [_, Ok(60_000), Err(FileError::Digest { .. })]), "{outcomes:?}");
}

/// A disk with space for a number of bytes.
struct FullDisk(Cursor<Vec<u8>>, usize);

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.get_ref().len() + bytes.len() > self.1 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for FullDisk {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Seek for FullDisk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

fn full_disk_at_one_receiver_fails_only_that_receiver(carrier: Carrier) {
    let file = bytes(1, 3_000_000);
    let source = FileSource { bytes: 3_000_000, from: 0, chunk_len: 100_000 };
    let outcomes = together(carrier, 3, |mut group| match group.own() {
        0 => group.send_part(&mut &file[..], source, |_| {}).map(|_| 0),
        1 => {
            let mut full = FullDisk(Cursor::new(vec![]), 450_000);
            group.recv_part(&mut full, |_| {}).map(|_| 0)
        }
        _ => {
            let mut copy = Cursor::new(vec![]);
            let error = group.recv_part(&mut copy, |_| {}).expect_err("the root stops");
            assert!(copy.get_ref()[..] == file[..copy.get_ref().len()]);
            assert!(matches!(error, FileError::Ended(GroupEnd::Failed { .. })), "{error}");
            Ok(copy.get_ref().len())
        }
    });
    let [Err(FileError::Send(_)), Err(FileError::Write { at: 400_000, source }), Ok(_)] =
        &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
}

/// Tests late members while the group runs, and after it has ended and no member polls its
/// listener.
fn late_member_learns_the_group_state(carrier: Carrier) {
    let listeners = listeners(3);
    let members = addresses(&listeners);
    let late = |own: u32, group_state: GroupState| {
        // A listener of its own, which no member knows.
        let listener = Listener::bind("127.0.0.1:0".parse().expect("a valid address"))
            .expect("the listener binds");
        let began = Instant::now();
        let error =
            Group::create(&members, own, options(&listener, carrier)).expect_err("too late");
        assert!(began.elapsed() < TIMEOUT / 4, "{:?}", began.elapsed());
        let GroupError::Rendezvous(RendezvousError::GroupClosed {
            group: 1,
            group_state: reported,
            ..
        }) = &error
        else {
            panic!("{error}")
        };
        assert_eq!(*reported, group_state, "{error}");
        error.to_string()
    };
    let create_member = |own: usize| {
        let group = Group::create(&members, own as u32, options(&listeners[own], carrier));
        group.expect("all members connect")
    };
    let create_member = &create_member;
    thread::scope(|scope| {
        let others: Vec<_> =
            (1..3).map(|own| scope.spawn(move || create_member(own).close())).collect();
        let mut root = create_member(0);
        for own in [0, 1, 2] {
            let said = late(own, GroupState::Running);
            assert!(
                said.starts_with("group 1 has started without this member, as reported by member ")
            );
        }
        root.send(bytes(1, 100_000)).expect("the root may send");
        assert_eq!(root.close(), Ok(()), "the running group is not affected");
        for other in others {
            assert_eq!(other.join().expect("the thread does not panic"), Ok(()));
        }
        late(2, GroupState::Ended);
    });
}

fn one_thread_drives_all_members(carrier: Carrier) {
    let listeners = listeners(3);
    let members = addresses(&listeners);
    let (members, listeners) = (&members, &listeners);
    // Creating a member blocks, so it takes a thread each.
    let mut groups: Vec<EmbeddedGroup> = thread::scope(|scope| {
        let create = |own: usize| {
            let group =
                EmbeddedGroup::create(members, own as u32, options(&listeners[own], carrier));
            group.expect("all members connect")
        };
        let all: Vec<_> = (0..3).map(|own| scope.spawn(move || create(own))).collect();
        all.into_iter().map(|member| member.join().expect("the thread does not panic")).collect()
    });
    let refused = groups[1].send([1]).expect_err("only the root may send");
    assert!(matches!(refused, GroupSendError::NotRoot { own: 1 }) && !groups[1].can_send());
    for number in 0..4 {
        assert!(groups[0].can_send());
        assert_eq!(groups[0].send(bytes(number, 200_000)).expect("there is capacity"), number);
    }
    let full = groups[0].send(bytes(4, 200_000)).expect_err("four objects are in flight");
    let GroupSendError::Full { object } = full else { panic!("{full}") };
    let (mut waiting, mut received) = (Some(object), [0, 0]);
    let began = Instant::now();
    while !groups.iter().all(EmbeddedGroup::is_done) {
        assert!(began.elapsed() < TIMEOUT, "{groups:?}");
        for group in &mut groups {
            group.poll();
        }
        if groups[0].can_send()
            && let Some(object) = waiting.take()
        {
            assert_eq!(groups[0].send(object).expect("there is capacity"), 4);
        }
        for (own, received) in (1..).zip(&mut received) {
            while let Some(object) = groups[own].recv() {
                assert!(object.number == *received && object.bytes == bytes(*received, 200_000));
                *received += 1;
            }
        }
        if received == [5, 5] && groups[2].ended().is_none() {
            groups[2].leave();
        }
    }
    assert_eq!((received, groups[2].ended()), ([5, 5], Some(Err(GroupEnd::Left))));
    for group in &groups[..2] {
        let end = group.ended().expect("the member has ended").expect_err("a member has left");
        assert!(matches!(end, GroupEnd::Failed { objects: 5, .. }), "{end}");
        assert_eq!((group.failures()[0].rank, group.failures()[0].reason), (2, Reason::Left));
    }
}
