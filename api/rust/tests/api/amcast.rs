//! Agreed multicast through the library, over real sockets: errors and slow peers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onepipe::{
    Amcast, AmcastError, AmcastOptions, AmcastReplica, Directory, GroupId, Loopback, Role,
    WaitError,
};
use onepipe_daemon_member::MemberDaemon;

/// Everything here takes milliseconds; this bound only fails hanging tests.
const TIMEOUT: Duration = Duration::from_secs(60);
const WINDOW: u32 = 16;

/// Runs `work` while members run in threads of their own.
fn with_members(loopback: Loopback, options: AmcastOptions, work: impl FnOnce(&Directory)) {
    let mut directory = loopback.directory().expect("there are free ports");
    directory.set_window(WINDOW);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let members =
            (0..loopback.groups).flat_map(|group| directory.of(Role::Member(GroupId(group))));
        let mut doorbells = Vec::new();
        for at in members {
            let mut member = MemberDaemon::new(&directory, at, &options).expect("the member opens");
            doorbells.push(member.doorbell());
            let stop = &stop;
            scope.spawn(move || member.run(stop, |_| {}));
        }
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&directory)));
        stop.store(true, Ordering::Release);
        doorbells.iter().for_each(|doorbell| doorbell.ring());
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn loopback(groups: u16, replicas: usize) -> Loopback {
    Loopback { groups, members: 3, replicas, clients: 1, coordinators: 0 }
}

fn client(directory: &Directory) -> Amcast {
    Amcast::open(directory, directory.of(Role::Client)[0]).expect("the client opens")
}

fn replicas(directory: &Directory, group: u16) -> Vec<AmcastReplica> {
    let all = directory.of(Role::Replica(GroupId(group)));
    all.into_iter()
        .map(|at| AmcastReplica::open(directory, at).expect("the replica opens"))
        .collect()
}

/// Waits for the next `count` messages of a replica.
fn read(replica: &mut AmcastReplica, count: usize) -> Vec<(u64, Vec<u8>)> {
    let mut read = Vec::new();
    while read.len() < count {
        let has_come = replica
            .wait(TIMEOUT, |message, _, timestamp| read.push((timestamp.0, message.to_vec())))
            .expect("no state transfer is required");
        assert!(has_come, "{} of {count} have come", read.len());
    }
    read
}

/// Sends numbers to `groups`, with a full window, and waits until all are complete.
fn send_all(client: &mut Amcast, groups: &[u16], count: u32) {
    let (mut next, mut over) = (0, 0);
    let until = Instant::now() + TIMEOUT;
    while over < count {
        while next < count && client.amcast(groups, &next.to_be_bytes()).is_ok() {
            next += 1;
        }
        let progress = client.poll(|_| over += 1);
        client.rest(progress);
        assert!(Instant::now() < until, "{over} of {count} are over: {:?}", client.stats());
    }
}

#[test]
fn unsendable_messages_are_errors_with_their_limit() {
    // No member runs: nothing completes.
    let mut directory = loopback(2, 1).directory().expect("there are free ports");
    directory.set_window(2);
    let mut client = client(&directory);
    assert_eq!(client.amcast(&[], b"to nobody"), Err(AmcastError::NoGroup));
    for unknown in [2, 64, u16::MAX] {
        let refused = client.amcast(&[0, unknown], b"to somebody unknown");
        assert_eq!(refused, Err(AmcastError::UnknownGroup(GroupId(unknown))));
    }
    let limit = client.message_len_max();
    let refused =
        client.amcast(&[0], &vec![0; limit + 1]).expect_err("a message must fit one packet");
    assert_eq!(refused, AmcastError::TooLong { got: limit + 1, limit });
    assert!(refused.to_string().contains(&limit.to_string()), "{refused}");
    let first = client.amcast(&[0], &vec![0; limit]).expect("the frame is large enough");
    client.amcast(&[0, 1, 0], b"twice the same is once").expect("there is capacity");
    assert_eq!(client.amcast(&[0], b"one too many"), Err(AmcastError::WindowFull(2)));
    assert_eq!(client.wait(first, Duration::from_millis(20)), Err(WaitError::Timeout));
    let never = onepipe::MessageId { client: 0, sequence: 77 };
    assert_eq!(client.wait(never, TIMEOUT), Err(WaitError::Unknown));
    assert_eq!(client.open_messages(), 2);
}

#[test]
fn addresses_outside_the_directory_are_refused() {
    let directory = loopback(1, 1).directory().expect("there are free ports");
    let (stranger, member) =
        (([127, 0, 0, 1], 9).into(), directory.of(Role::Member(GroupId(0)))[0]);
    let error = Amcast::open(&directory, stranger).expect_err("nobody").to_string();
    assert!(error.starts_with("127.0.0.1:9 is not the address of a client in this directory: "));
    let error =
        Amcast::open(&directory, member).expect_err("the address has another role").to_string();
    assert!(
        error.starts_with(&format!("{member} is not the address of a client in this directory"))
    );
    let error = AmcastReplica::open(&directory, member)
        .expect_err("the address has another role")
        .to_string();
    assert!(
        error.starts_with(&format!("{member} is not the address of a replica in this directory"))
    );
    let mut even = loopback(1, 1);
    even.members = 2;
    let even = even.directory().expect("there are free ports");
    let error =
        Amcast::open(&even, even.of(Role::Client)[0]).expect_err("two members have no majority");
    assert!(error.to_string().starts_with("group 0 has 2 members: give it an odd number of them"));
}

#[test]
fn busy_group_delivers_everything_eventually() {
    let options = AmcastOptions { busy_threshold: Some(1), ..AmcastOptions::default() };
    with_members(loopback(2, 1), options, |directory| {
        let mut client = client(directory);
        let mut all: Vec<AmcastReplica> =
            (0..2).flat_map(|group| replicas(directory, group)).collect();
        send_all(&mut client, &[0, 1], 40);
        assert!(
            client.stats().busy > 0,
            "the client was never told to slow down: {:?}",
            client.stats()
        );
        let delivered: Vec<_> = all.iter_mut().map(|replica| read(replica, 40)).collect();
        assert_eq!(delivered[0], delivered[1], "one order in both groups");
    });
}

#[test]
fn lagging_replica_delays_no_other_and_misses_nothing() {
    // The replica has capacity for this many messages, and the members retain as many for it.
    let history = 256;
    let options = AmcastOptions { history, ..AmcastOptions::default() };
    with_members(loopback(1, 2), options, |directory| {
        let mut client = client(directory);
        let mut all = replicas(directory, 0);
        let count = (history + WINDOW as usize) as u32;
        send_all(&mut client, &[0], count);
        let quick = read(&mut all[0], count as usize);
        assert_eq!(all[1].stats().delivered, 0, "the replica was not driven");
        let slow = read(&mut all[1], count as usize);
        assert_eq!(quick, slow);
        let numbers = quick.iter().map(|(_, message)| message.clone());
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count as usize, "each message once");
    });
}
