//! A replica in a process of its own that is stopped for a while under load.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onepipe::{Amcast, AmcastOptions, AmcastReplica, Directory, GroupId, Loopback, Role};
use onepipe_daemon_member::MemberDaemon;

const TEST: &str = "stopped_replica_delays_no_other_and_catches_up";
/// The directory and the address of the replica; set in its process.
const DIRECTORY: &str = "ONEPIPE_TEST_DIRECTORY";
const AT: &str = "ONEPIPE_TEST_REPLICA";
/// This bound only fails a hanging test.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Messages before and while the replica is stopped: fewer than members retain.
const BEFORE: u32 = 100;
const MEANWHILE: u32 = 3_000;
const LEN: usize = 1_000;

/// Runs the child process: prints each delivery.
fn deliver(directory: &str) {
    let directory = Directory::read(directory).expect("the parent has written it");
    let at = std::env::var(AT).expect("the parent has set it");
    let at = at.parse().expect("a valid address");
    let mut replica = AmcastReplica::open(&directory, at).expect("the replica opens");
    let mut seen = 0;
    while seen < BEFORE + MEANWHILE {
        let mut said = std::io::stdout().lock();
        let has_come = replica
            .wait(TIMEOUT, |message, _, timestamp| {
                seen += 1;
                writeln!(said, "delivers {} at {}", number(message), timestamp.0)
                    .expect("stdout is open");
            })
            .expect("members retain what the replica misses");
        said.flush().expect("stdout is open");
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
        assert!(status.is_ok_and(|status| status.success()), "the process is a child");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends numbers until all are complete and `replica` has delivered them; returns the deliveries.
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
        let take = |message: &[u8], _, timestamp: onepipe::LogicalTime| {
            delivered.push(format!("delivers {} at {}", number(message), timestamp.0));
        };
        replica.poll(take).expect("no state transfer is required");
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
    let directory = fixture.directory().expect("there are free ports");
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
            let mut member = MemberDaemon::new(&directory, at, &AmcastOptions::default())
                .expect("the member opens");
            let stop = &stop;
            // The member checks the flag whenever it receives a frame.
            scope.spawn(move || member.run(stop, |_| {}));
        }
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let child = Command::new(std::env::current_exe().expect("this test has a path"))
                .args(["--exact", TEST, "--nocapture"])
                .envs([(DIRECTORY, text.as_str()), (AT, &replicas[1].to_string())])
                .stdout(Stdio::piped())
                .spawn();
            let mut other = Replica(child.expect("this test can start itself"));
            let said = BufReader::new(other.0.stdout.take().expect("the output is piped"));
            let mut said = said
                .lines()
                .map(|line| line.expect("text"))
                .filter(|line| line.starts_with("delivers"));
            let mut quick =
                AmcastReplica::open(&directory, replicas[0]).expect("the replica opens");
            let mut client = Amcast::open(&directory, at).expect("the client opens");
            let mut delivered = send(&mut client, &mut quick, 0..BEFORE);
            for expected in &delivered {
                assert_eq!(said.next().as_ref(), Some(expected), "the replica delivers in step");
            }
            other.signal("-STOP");
            delivered.extend(send(&mut client, &mut quick, BEFORE..BEFORE + MEANWHILE));
            // All messages are complete and delivered elsewhere; the stopped replica printed
            // nothing.
            other.signal("-CONT");
            let (behind, came) = (&delivered[BEFORE as usize..], said.collect::<Vec<_>>());
            assert!(came == behind, "{} came, of {}", came.len(), behind.len());
            assert!(
                other.0.wait().is_ok_and(|status| status.success()),
                "the replica has delivered all messages"
            );
        }));
        stop.store(true, Ordering::Release);
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
