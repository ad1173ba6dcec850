//! Properties of messages, and of replicas and clients that receive any bytes. Shared with
//! `verify/fuzz`.

use std::collections::BTreeSet;

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_transaction::{
    Answer, Client, ClientOptions, Exact, Kind, LogSummary, OwnLog, Phase, Placement, ReadMode,
    Record, Replica, ReplicaOptions, ReplicaScattering, Reply, Request, RequestKind, Start, State,
};

const SHARDS: u16 = 2;
const REPLICAS: u16 = 2;

/// A state that knows everything that it has executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Executed(Vec<(Timestamp, Vec<u8>)>);

impl State for Executed {
    fn execute(&mut self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) {
        assert!(self.0.last().is_none_or(|(last, _)| *last <= at), "timestamps do not descend");
        self.0.push((at, part.to_vec()));
        results.extend_from_slice(part);
    }

    fn read(&self, at: Timestamp, _: &[u8], results: &mut Vec<u8>) -> Exact {
        let from = self.0.last().map(|(last, _)| *last);
        assert!(from <= Some(at), "a read does not take place before an executed write");
        results.push(self.0.len() as u8);
        Exact { from, until: None }
    }

    fn digest(&self) -> u64 {
        self.0.len() as u64
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn load(&mut self, _: &[u8]) -> bool {
        false
    }
}

/// Numbers taken from the front of the bytes.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn next(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.next()))
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.next()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    /// Returns a number that is small, or around the number of writes that a replica remembers.
    fn number(&mut self) -> u64 {
        match self.next() {
            0xff => self.u64(),
            byte @ 0x80.. => u64::from(byte & 0x7f) + (1 << 16) - 8,
            byte => u64::from(byte),
        }
    }
}

/// Checks what bytes do, of which the first chooses the machine that receives them: nothing panics,
/// and what is parsed is written as it was.
pub fn check_messages(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    check_round_trips(bytes);
    match mode % 5 {
        0 => {}
        1 => drive_replica(false, Input(bytes)),
        2 => drive_replica(true, Input(bytes)),
        3 => drive_client(Input(bytes)),
        _ => drive_starts(Input(bytes)),
    }
}

fn check_round_trips(bytes: &[u8]) {
    let mut again = Vec::new();
    if let Some(request) = Request::parse(bytes) {
        request.write(&mut again);
        assert_eq!(again, bytes);
        assert!(Request::is_request(bytes) && !Reply::is_reply(bytes));
    }
    again.clear();
    if let Some(reply) = Reply::parse(bytes) {
        reply.write(&mut again);
        assert_eq!(again, bytes);
        assert!(Reply::is_reply(bytes) && !Request::is_request(bytes));
    }
    again.clear();
    if let Some(record) = Record::parse(7, bytes) {
        record.write(&mut again);
        assert_eq!((again.as_slice(), record.number), (bytes, 7));
    }
}

/// Takes a request, which is well-formed but otherwise arbitrary, as a message.
fn request(input: &mut Input<'_>) -> Vec<u8> {
    let kind = match input.next() % 16 {
        0..4 => RequestKind::Ask,
        4..8 => RequestKind::StrictRead,
        8..10 => RequestKind::SnapshotRead(Timestamp::from_ns(input.u64())),
        10 => RequestKind::Admit,
        11 => RequestKind::Fetch,
        _ => RequestKind::Write,
    };
    let (session, number, finished) = (input.number(), input.number(), input.number());
    let part = input.bytes();
    let shards = match kind {
        RequestKind::Ask | RequestKind::Admit | RequestKind::Fetch => 0..0,
        _ => 0..SHARDS,
    };
    let parts = shards.map(|shard| (shard, part)).collect();
    let view = match kind {
        RequestKind::StrictRead | RequestKind::SnapshotRead(_) => None,
        _ => Some(Timestamp::from_ns(input.number())),
    };
    let request = Request { kind, session, number, attempt: 1, finished, view, parts };
    let mut bytes = Vec::new();
    request.write(&mut bytes);
    bytes
}

/// Drives a replica of shard 0. It executes each write once, in order; replies can be parsed; and a
/// replica that executes the records again is in the same state.
fn drive_replica(is_durable: bool, mut input: Input<'_>) {
    let options = ReplicaOptions { is_durable };
    // The senders of all messages are replicas of other shards.
    let shards = vec![vec![ProcessId(0)], vec![ProcessId(4), ProcessId(5)]];
    let placement = Placement::new(shards).expect("three processes");
    let replica = Replica::new(0, Executed::default(), options);
    let mut replica = replica.with_placement(ProcessId(0), placement);
    let mut restarted = replica.clone();
    let (mut now, mut stored) = (1, 0);
    let (mut executed, mut ended) = (BTreeSet::new(), BTreeSet::new());
    while let Some(step) = input.byte() {
        now += u64::from(step >> 4);
        let at = Timestamp::from_ns(now);
        let from = ProcessId(4 + u32::from(step >> 7));
        match step % 8 {
            0 if !ended.contains(&from) => replica.on_message(true, at, from, &request(&mut input)),
            1 if !ended.contains(&from) => replica.on_message(true, at, from, input.bytes()),
            2 => {
                let at = Timestamp::from_ns(input.number().min(now));
                replica.on_message(false, at, from, &request(&mut input));
            }
            3 => replica.on_message(false, at, from, input.bytes()),
            4 => replica.on_barrier(at),
            5 => {
                ended.insert(from);
                replica.on_process_ended(from, at);
            }
            6 => {
                stored = stored.max(input.number());
                replica.on_stored(stored);
            }
            _ => {
                while replica.poll_reply().inspect(check_reply).is_some() {}
                while replica.poll_scattering(Mono::from_ns(now)).is_some() {}
            }
        }
        while let Some(record) = replica.poll_record() {
            assert!(is_durable, "only a durable replica has records");
            let request = Request::parse(&record.request).expect("a request was executed");
            let id = (record.from, request.session, request.number);
            assert!(executed.insert(id), "{id:?} is executed twice");
            restarted.replay(&record);
        }
    }
    assert_eq!(replica.state().0.len() as u64, replica.stats().writes);
    if is_durable {
        assert_eq!(executed.len() as u64, replica.stats().writes);
        assert_eq!(replica.state(), restarted.state());
    }
}

/// Lets three replicas start that receive what the others send, damaged messages and any bytes.
fn drive_starts(mut input: Input<'_>) {
    let processes = [ProcessId(0), ProcessId(1), ProcessId(2)];
    let placement = Placement::new(vec![vec![processes[0], processes[1]], vec![processes[2]]]);
    let placement = placement.expect("three processes");
    let start = |process: ProcessId| {
        let own = OwnLog { summary: LogSummary::empty(process.0 as u16 / 2), records: Vec::new() };
        Start::new(process, 1, &placement, own, 1)
    };
    let mut starts = processes.map(start);
    let mut now = 1;
    while let Some(step) = input.byte() {
        now += u64::from(step >> 6);
        let (at, process) = (Timestamp::from_ns(now), usize::from(step >> 4) % starts.len());
        let start = &mut starts[process];
        match step % 8 {
            0 => {
                let payload = input.bytes();
                start.on_message(step & 8 == 0, at, processes[(process + 1) % 3], payload);
            }
            1 => start.on_process_ended(processes[usize::from(input.next()) % 3], at),
            2 => start.on_barrier(at),
            3 => while start.next_missing().is_some() {},
            4 if matches!(start.phase(), Phase::Founds(Some(_))) => start.set_ready(),
            _ => {
                let is_damaged = input.next() >= 0xf0;
                let (index, byte) = (usize::from(input.next()), input.next());
                let mut sent = Vec::new();
                while let Some(scattering) = starts[process].poll_scattering(Mono::from_ns(now)) {
                    sent.push(scattering);
                }
                for ReplicaScattering { is_reliable, messages, .. } in sent {
                    for (to, mut payload) in messages {
                        if let Some(damaged) = payload.get_mut(index).filter(|_| is_damaged) {
                            *damaged = byte;
                        }
                        let receiver = &mut starts[to.0 as usize];
                        receiver.on_message(is_reliable, at, processes[process], &payload);
                    }
                }
            }
        }
    }
}

fn check_reply(reply: &onepipe_transaction::OutgoingReply) {
    Reply::parse(&reply.payload).expect("a reply");
}

/// Takes a reply, which is well-formed but otherwise arbitrary, as a message.
fn reply(input: &mut Input<'_>) -> Vec<u8> {
    let (session, number) = (u64::from(input.next() & 1), input.number());
    let (attempt, shard) = (input.next().into(), input.next().into());
    let (from, until) = (Timestamp::from_ns(input.u64()), Timestamp::from_ns(input.u64()));
    let results = input.bytes();
    let answer = match input.next() % 3 {
        0 => Answer::Refused,
        1 => Answer::Written { at: from, results },
        _ => Answer::Read { from, until, results },
    };
    let mut bytes = Vec::new();
    Reply { session, number, attempt, shard, answer }.write(&mut bytes);
    bytes
}

/// Drives a client, which finishes each transaction at most once.
fn drive_client(mut input: Input<'_>) {
    let placement = Placement::consecutive(0, SHARDS, REPLICAS).expect("small numbers");
    let options = ClientOptions {
        timeout_ns: 100,
        timeout_min_ns: 10,
        open_max: 9,
        ..ClientOptions::default()
    };
    let mut client = Client::new(1, placement, options);
    let (mut open, mut now, mut sent) = (BTreeSet::new(), 0, 0);
    while let Some(step) = input.byte() {
        now += u64::from(step >> 4);
        let process = ProcessId(u32::from(step >> 4) % 5);
        match step % 8 {
            0 => {
                let kind = match step >> 4 {
                    0..8 => Kind::Write,
                    8..12 => Kind::Read(ReadMode::Strict),
                    _ => Kind::Read(ReadMode::Snapshot),
                };
                let shards = 0..1 + u16::from(step >> 4) % SHARDS;
                let parts = shards.map(|shard| (shard, vec![step])).collect();
                open.extend(client.submit(kind, parts));
            }
            1 => {
                let barrier = Some(Timestamp::from_ns(now));
                if let Some(scattering) = client.poll_scattering(Mono::from_ns(now), barrier) {
                    let payloads = scattering.messages.iter().map(|(_, payload)| payload);
                    payloads.for_each(|payload| drop(Request::parse(payload).expect("a request")));
                    sent += 1;
                    client.on_submitted(&scattering, ScatteringId(sent));
                }
            }
            2 => {
                if let Some(scattering) = client.poll_scattering(Mono::from_ns(now), None) {
                    client.on_refused(&scattering);
                }
            }
            3 => client.on_message(Mono::from_ns(now), process, input.bytes()),
            4 => client.on_message(Mono::from_ns(now), process, &reply(&mut input)),
            5 => client.on_send_failed(step & 0x80 != 0, ScatteringId(input.next().into())),
            6 => client.on_process_ended(process, Timestamp::from_ns(now)),
            _ => {
                now += 100 * u64::from(step >> 4);
                client.handle_timeout(Mono::from_ns(now));
            }
        }
        while let Some(finished) = client.poll_finished() {
            assert!(open.remove(&finished.transaction), "{finished:?} ends once");
        }
        assert_eq!(client.unfinished(), open.len());
    }
}
