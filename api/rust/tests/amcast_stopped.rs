//! A replica that is a process of its own, and stands still for a while under load.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onepipe::{Amcast, AmcastOptions, AmcastReplica, Directory, GroupId, Loopback, Role};
use onepipe_daemon_member::MemberDaemon;

const TEST: &str = "a_replica_that_is_stopped_holds_up_nobody_and_catches_up";
/// Set in the process that is the replica: its directory, and where it is.
const DIRECTORY: &str = "ONEPIPE_TEST_DIRECTORY";
const AT: &str = "ONEPIPE_TEST_REPLICA";
/// What takes this long never comes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Messages before it is stopped, and while it is: fewer than members keep.
const BEFORE: u32 = 100;
const MEANWHILE: u32 = 3_000;
const LEN: usize = 1_000;

/// The child's whole life: it says what it delivers.
fn deliver(directory: &str) {
    let directory = Directory::read(directory).expect("the parent has written it");
    let at = std::env::var(AT).expect("the parent has set it");
    let at = at.parse().expect("an address");
    let mut replica = AmcastReplica::open(&directory, at).expect("a replica");
    let mut seen = 0;
    while seen < BEFORE + MEANWHILE {
        let mut said = std::io::stdout().lock();
        let has_come = replica
            .wait(TIMEOUT, |message, _, place| {
                seen += 1;
                writeln!(said, "delivers {} at {}", number(message), place.0).expect("a reader");
            })
            .expect("members keep what it misses");
        said.flush().expect("a reader");
        assert!(has_come, "{seen} have come");
    }
}

fn number(message: &[u8]) -> u32 {
    message.first_chunk().map_or(u32::MAX, |bytes| u32::from_be_bytes(*bytes))
}

struct Replica(Child);

impl Replica {
    fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let status = kill.args([name, &self.0.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "it is our child");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends numbers until all are over and `replica` has delivered them. Answers what it has.
fn send(
    client: &mut Amcast,
    replica: &mut AmcastReplica,
    numbers: std::ops::Range<u32>,
) -> Vec<String> {
    let (until, count) = (Instant::now() + TIMEOUT, numbers.len());
    let (mut numbers, mut over, mut delivered) = (numbers.peekable(), 0, Vec::new());
    let mut message = vec![0; LEN];
    while over < count || delivered.len() < count {
        assert!(Instant::now() < until, "{over} are over, {} delivered", delivered.len());
        while let Some(number) = numbers.peek() {
            message[..4].copy_from_slice(&number.to_be_bytes());
            if client.amcast(&[0], &message).is_err() {
                break;
            }
            numbers.next();
        }
        client.poll(|_| over += 1);
        let take = |message: &[u8], _, place: onepipe::LogicalTime| {
            delivered.push(format!("delivers {} at {}", number(message), place.0));
        };
        replica.poll(take).expect("it is not behind");
        std::thread::yield_now();
    }
    delivered
}

#[test]
fn stopped_replica_delays_no_other_and_catches_up() {
    if let Ok(directory) = std::env::var(DIRECTORY) {
        return deliver(&directory);
    }
    let fixture = Loopback { groups: 1, members: 3, replicas: 2, clients: 1, coordinators: 0 };
    let directory = fixture.directory().expect("there are ports");
    let (members, replicas) =
        (directory.of(Role::Member(GroupId(0))), directory.of(Role::Replica(GroupId(0))));
    let at = directory.of(Role::Client)[0];
    let text = format!(
        "clients = ['{at}']\n[[groups]]\nmembers = ['{}', '{}', '{}']\nreplicas = ['{}', '{}']\n",
        members[0], members[1], members[2], replicas[0], replicas[1]
    );
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for at in members {
            let mut member =
                MemberDaemon::new(&directory, at, &AmcastOptions::default()).expect("a member");
            let stop = &stop;
            // It looks whether it is told to stop when it is told anything, at the latest.
            scope.spawn(move || member.run(stop, |_| {}));
        }
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let child = Command::new(std::env::current_exe().expect("this test has a path"))
                .args(["--exact", TEST, "--nocapture"])
                .envs([(DIRECTORY, text.as_str()), (AT, &replicas[1].to_string())])
                .stdout(Stdio::piped())
                .spawn();
            let mut other = Replica(child.expect("this test can start itself"));
            let said = BufReader::new(other.0.stdout.take().expect("it is piped"));
            let mut said = said
                .lines()
                .map(|line| line.expect("text"))
                .filter(|line| line.starts_with("delivers"));
            let mut quick = AmcastReplica::open(&directory, replicas[0]).expect("a replica");
            let mut client = Amcast::open(&directory, at).expect("a client");
            let mut delivered = send(&mut client, &mut quick, 0..BEFORE);
            for expected in &delivered {
                assert_eq!(said.next().as_ref(), Some(expected), "it is in full swing");
            }
            other.signal("-STOP");
            delivered.extend(send(&mut client, &mut quick, BEFORE..BEFORE + MEANWHILE));
            // All is over and delivered, and it has said nothing since.
            other.signal("-CONT");
            let (behind, came) = (&delivered[BEFORE as usize..], said.collect::<Vec<_>>());
            assert!(came == behind, "{} came, of {}", came.len(), behind.len());
            assert!(other.0.wait().is_ok_and(|status| status.success()), "it has all");
        }));
        stop.store(true, Ordering::Release);
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
