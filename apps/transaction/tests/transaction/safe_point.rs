//! A snapshot counts when all replicas of the store have said that they have stored what it holds.

use crate::fabric::registers::Registers;
use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_transaction::{
    CatchUpOptions, Placement, Replica, ReplicaOptions, Request, RequestKind,
};

const CLIENT: ProcessId = ProcessId(7);
const OPTIONS: ReplicaOptions = ReplicaOptions { is_durable: true };
/// Timestamp of the last write of the snapshot that waits.
const LAST: u64 = 10;

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

/// Two shards of two replicas each: processes 0 and 1, 2 and 3.
fn placement() -> Placement {
    Placement::consecutive(0, 2, 2).expect("two replicas of each shard")
}

fn request(kind: RequestKind) -> Vec<u8> {
    let parts: Vec<(u16, &[u8])> = match kind {
        RequestKind::Write => vec![(0, &[1, 2]), (1, &[1, 2])],
        _ => Vec::new(),
    };
    let (session, number, attempt, finished, view) = (5, 1, 0, 0, None);
    let mut bytes = Vec::new();
    Request { kind, session, number, attempt, finished, view, parts }.write(&mut bytes);
    bytes
}

/// Receiver and payload of a best-effort message.
type Sent = (ProcessId, Vec<u8>);

/// The replicas of a store that have executed a write at [`LAST`].
struct Env {
    replicas: Vec<Replica<Registers>>,
    now: u64,
}

impl Env {
    fn new() -> Self {
        let new = |process: u32| {
            let replica = Replica::new((process / 2) as u16, Registers::default(), OPTIONS);
            replica.with_placement(ProcessId(process), placement())
        };
        let mut env = Self { replicas: (0..4).map(new).collect(), now: LAST + 1 };
        for replica in &mut env.replicas {
            replica.on_message(true, at(LAST), CLIENT, &request(RequestKind::Write));
            replica.on_barrier(at(LAST + 1));
        }
        env
    }

    fn store(&mut self, processes: &[usize]) {
        processes.iter().for_each(|process| self.replicas[*process].on_stored(1));
    }

    /// Returns what a process sends.
    fn poll(&mut self, process: usize) -> Vec<Sent> {
        let mut messages = Vec::new();
        while let Some(sent) = self.replicas[process].poll_scattering(Mono::from_ns(self.now)) {
            assert!(!sent.is_reliable, "a lost message is repeated");
            messages.extend(sent.messages);
        }
        messages
    }

    /// Lets replica 0 ask, and returns its questions.
    fn ask(&mut self) -> Vec<Sent> {
        self.replicas[0].await_stored(at(LAST));
        self.poll(0)
    }

    /// Returns the question for one process, as a replica that knows no answer sends it.
    fn ask_process(process: u32) -> Sent {
        let mut questions = Self::new().ask();
        questions.retain(|(to, _)| to.0 == process);
        questions.pop().expect("all others are asked")
    }

    /// Delivers a message that is sent now. Returns what the receiver sends.
    fn deliver(&mut self, from: u32, (to, payload): Sent) -> Vec<Sent> {
        self.now += 1;
        let receiver = to.0 as usize;
        self.replicas[receiver].on_message(false, at(self.now), ProcessId(from), &payload);
        self.poll(receiver)
    }

    /// Lets replica 0 ask, and delivers all answers. Returns which processes were asked.
    fn exchange(&mut self) -> Vec<u32> {
        let mut asked = Vec::new();
        for question in self.ask() {
            let process = question.0.0;
            asked.push(process);
            for answer in self.deliver(0, question) {
                assert!(self.deliver(process, answer).is_empty(), "an answer needs none");
            }
        }
        asked
    }

    fn counts(&self) -> bool {
        self.replicas[0].stored_by_all(at(LAST))
    }

    fn end(&mut self, process: u32) {
        self.now += 1;
        for replica in &mut self.replicas {
            replica.on_process_ended(ProcessId(process), at(self.now));
        }
    }
}

#[test]
fn single_replica_counts_alone() {
    let placement = Placement::consecutive(0, 1, 1).expect("one replica");
    let alone = Replica::new(0, Registers::default(), OPTIONS);
    for mut replica in [alone.clone(), alone.with_placement(ProcessId(0), placement)] {
        replica.on_message(true, at(LAST), CLIENT, &request(RequestKind::Write));
        replica.on_barrier(at(LAST + 1));
        replica.await_stored(at(LAST));
        assert_eq!(replica.poll_scattering(Mono::from_ns(0)), None);
        assert!(!replica.stored_by_all(at(LAST)) && replica.is_sync_awaited());
        replica.on_stored(1);
        assert!(replica.stored_by_all(at(LAST)) && !replica.is_sync_awaited());
        assert!(!replica.stored_by_all(at(LAST + 1)), "others may be at that timestamp");
    }
}

#[test]
fn counts_when_every_replica_has_stored() {
    let mut env = Env::new();
    env.store(&[0, 1, 2]);
    assert!(!env.counts() && env.poll(0).is_empty(), "no snapshot waits");
    assert_eq!(env.exchange(), [1, 2, 3]);
    assert!(!env.counts(), "the last replica has not stored the write");
    env.store(&[3]);
    assert!(!env.counts() && env.poll(0).is_empty(), "it is asked again later");
    assert_eq!(env.exchange(), [3], "the others have answered");
    assert!(env.counts() && env.ask().is_empty());
}

#[test]
fn own_writes_are_stored_too() {
    let mut env = Env::new();
    env.store(&[1, 2, 3]);
    env.exchange();
    assert!(!env.counts() && env.replicas[0].is_sync_awaited());
    env.store(&[0]);
    assert!(env.counts());
}

#[test]
fn lost_questions_and_answers_are_repeated() {
    let mut env = Env::new();
    env.store(&[0, 1, 2, 3]);
    assert_eq!(env.ask().len(), 3, "all questions are lost");
    for question in env.ask() {
        let process = question.0.0;
        let answers = env.deliver(0, question);
        assert_eq!(answers.len(), 1);
        if process == 2 {
            continue;
        }
        env.deliver(process, answers[0].clone());
    }
    assert!(!env.counts(), "an answer is lost");
    assert_eq!(env.exchange(), [2]);
    assert!(env.counts());
}

#[test]
fn asked_replica_awaits_a_sync_until_it_has_stored() {
    let mut env = Env::new();
    env.store(&[0, 1, 2]);
    assert!(!env.replicas[3].is_sync_awaited(), "it was not asked");
    env.exchange();
    let awaits = |env: &Env| env.replicas.iter().map(Replica::is_sync_awaited).collect::<Vec<_>>();
    assert_eq!(awaits(&env), [false, false, false, true]);
    env.store(&[3]);
    assert_eq!(awaits(&env), [false; 4]);
}

#[test]
fn ended_replica_is_not_awaited() {
    let mut env = Env::new();
    env.store(&[0, 1, 2]);
    env.exchange();
    assert!(!env.counts());
    env.end(3);
    assert!(env.counts() && env.ask().is_empty());
}

#[test]
fn shard_without_a_replica_holds_back() {
    let mut env = Env::new();
    env.store(&[0, 1, 2, 3]);
    env.exchange();
    env.end(3);
    assert!(env.counts());
    env.end(2);
    assert!(!env.counts() && env.ask().is_empty());
}

#[test]
fn answer_of_an_earlier_incarnation_does_not_count() {
    let mut env = Env::new();
    env.store(&[0, 1, 2, 3]);
    env.exchange();
    let question = Env::ask_process(3);
    let earlier = env.deliver(0, question);
    let sent = at(env.now);
    assert!(env.counts());
    env.end(3);
    env.now += 1;
    let admit = request(RequestKind::Admit);
    env.replicas[0].on_message(true, at(env.now), ProcessId(3), &admit);
    assert!(!env.counts(), "its disk is another one");
    env.replicas[0].on_message(false, sent, ProcessId(3), &earlier[0].1);
    assert!(!env.counts(), "it was sent before the end");
    assert_eq!(env.exchange(), [3]);
    assert!(env.counts());
}

/// A replica that catches up has nothing, and its peer has the state.
#[test]
fn replica_that_catches_up_counts_with_another_one_of_its_shard() {
    let mut env = Env::new();
    env.store(&[0, 1]);
    let options = CatchUpOptions::new(9, 1_000);
    let of = (ProcessId(3), 1);
    env.replicas[3] = Replica::returning(of, placement(), Registers::default(), OPTIONS, options);
    env.replicas[3].on_barrier(at(LAST + 5));
    assert_eq!(env.poll(3).len(), 1, "a request for the state of its peer");
    env.exchange();
    assert!(!env.counts(), "the peer has not stored the write");
    env.store(&[2]);
    assert_eq!(env.exchange(), [2, 3]);
    assert!(env.counts());
    env.end(2);
    assert!(!env.counts(), "no replica of the shard has the state");
}

#[test]
fn others_than_replicas_are_ignored() {
    let mut env = Env::new();
    let (_, question) = Env::ask_process(1);
    assert_eq!(env.deliver(CLIENT.0, (ProcessId(1), question)), []);
    assert!(!env.replicas[1].is_sync_awaited());
    assert_eq!(env.replicas[1].stats().malformed, 1);
    // The state is for replicas alone, and so is an admission, which lets writes be refused.
    for kind in [RequestKind::Fetch, RequestKind::Admit] {
        let is_reliable = kind == RequestKind::Admit;
        env.replicas[1].on_message(is_reliable, at(LAST + 2), CLIENT, &request(kind));
    }
    assert_eq!((env.poll(1), env.replicas[1].stats().malformed), (Vec::new(), 3));
    assert_eq!(env.replicas[1].members().view(), None);
}
