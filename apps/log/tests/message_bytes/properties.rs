//! Properties of messages and records, and of replicas, clients and starts that receive any bytes.
//! Shared with `verify/fuzz`.

use std::collections::BTreeSet;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_log::{
    ClientOptions, Entry, Executor, Header, LogClient, LogReplica, LogStart, OwnLog, Part,
    PartRequest, Record, ReplicaOptions, Reply, ReplyKind, Request, StartMessage, State, Statement,
    Stored, View,
};

const REPLICAS: u32 = 3;

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

    fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.next()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    /// Returns a number that is small, or any.
    fn number(&mut self) -> u64 {
        match self.next() {
            0xff => u64::from_le_bytes([(); 8].map(|()| self.next())),
            byte => u64::from(byte % 8),
        }
    }
}

/// Checks what bytes do, of which the first chooses the machine that receives them: nothing panics,
/// and what is parsed is written as it was.
pub fn check_messages(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    check_round_trips(bytes);
    match mode % 6 {
        0 => {}
        1 => drive_replica(false, false, Input(bytes)),
        2 => drive_replica(true, false, Input(bytes)),
        3 => drive_replica(true, true, Input(bytes)),
        4 => drive_client(Input(bytes)),
        _ => drive_starts(Input(bytes)),
    }
}

fn check_round_trips(bytes: &[u8]) {
    if let Some(request) = Request::parse(bytes) {
        assert_eq!(request.to_bytes(), bytes);
        assert!(ReplyKind::of(bytes).is_none() && StartMessage::parse(bytes).is_none());
    }
    if let Some(reply) = Reply::parse(bytes) {
        assert_eq!(reply.to_bytes(), bytes);
        assert!(ReplyKind::of(bytes).is_some() && StartMessage::parse(bytes).is_none());
    }
    if let Some(message) = StartMessage::parse(bytes) {
        assert_eq!(StartMessage::parse(&message.to_bytes()), Some(message));
    }
    if let Some(record) = Record::parse(7, bytes) {
        assert_eq!(record.to_bytes(), bytes);
    }
    let all: BTreeSet<_> = (0..REPLICAS).map(ProcessId).collect();
    let stored = Stored { checkpoint: Some((1, bytes)), records: &[], applied: 0 };
    let restored = LogReplica::restore(ProcessId(0), all, ReplicaOptions::default(), stored);
    assert!(restored.is_err() || !bytes.is_empty());
}

/// A state that counts, and accepts any part.
#[derive(Default)]
struct Count(u64);

impl State for Count {
    fn apply(&mut self, index: u64, _: &Entry) {
        assert_eq!(index, self.0, "entries are applied in order");
        self.0 += 1;
    }

    fn begin_sync(&mut self) {}

    fn durable_len(&self) -> u64 {
        self.0
    }

    fn read_part(&mut self, request: &PartRequest) -> Option<Part> {
        let next = (request.cursor < 3).then_some(request.cursor + 1);
        Some(Part { len: self.0, next, bytes: vec![1] })
    }

    fn install_part(&mut self, _: u64, _: u64, _: &[u8]) {}

    fn finish_install(&mut self, len: u64) {
        self.0 = len;
    }
}

/// Takes a request, which is well-formed but otherwise arbitrary.
fn request(input: &mut Input<'_>) -> (bool, Vec<u8>) {
    let members = (0..REPLICAS).filter(|member| input.0.len() % 7 != *member as usize);
    let view = View { number: input.number(), members: members.map(ProcessId).collect() };
    let stable = (input.number(), input.number());
    let (session, request, finished) = (input.number(), input.number(), input.number());
    let header = Header { view: view.clone(), session, request, finished, stable };
    let number = 1 + input.number() / 2;
    let from_other = ProcessId(1);
    let statement = Statement { stable_len: finished, stable_checksum: 0, entries: Vec::new() };
    let request = match input.next() % 8 {
        0 => Request::Append(header, number, input.bytes()),
        1 => {
            let at = Timestamp::from_ns(input.number());
            Request::Repair(header, number, at, input.bytes())
        }
        2 => Request::Ask(header, number, number),
        3 => Request::Finished(header),
        4 => Request::Sync(view),
        5 => Request::Join(view),
        6 => Request::Leave,
        _ => Request::Statement(view, [].into(), [from_other].into(), statement),
    };
    (request.is_reliable(), request.to_bytes())
}

/// Drives a replica, alone or beside others that send any bytes.
fn drive_replica(has_state: bool, is_catching_up: bool, mut input: Input<'_>) {
    let all: BTreeSet<_> = (0..REPLICAS).map(ProcessId).collect();
    let mut replica = LogReplica::new(ProcessId(0), all, ReplicaOptions::default());
    let mut executor = has_state.then(|| Executor::new(Count::default()));
    if is_catching_up {
        replica.rejoin(Mono::from_ns(0));
    }
    let mut now = 1;
    while let Some(step) = input.byte() {
        now += u64::from(step >> 4);
        let at = Timestamp::from_ns(now);
        let from = ProcessId(u32::from(step >> 4) % 5);
        match step % 8 {
            0..3 => {
                let (is_reliable, bytes) = request(&mut input);
                replica.on_message(is_reliable, at, from, &bytes);
            }
            3 => replica.on_message(step & 128 != 0, at, from, input.bytes()),
            4 => replica.on_ended(from, at),
            5 => replica.on_barrier(at),
            6 => replica.handle_timeout(Mono::from_ns(now << 20)),
            _ => replica.on_stored(input.number()),
        }
        if let Some(executor) = &mut executor {
            while executor.advance(&mut replica) {}
        }
        while let Some(record) = replica.poll_record() {
            assert_eq!(Record::parse(record.number, &record.to_bytes()), Some(record));
        }
        while let Some(scattering) = replica.poll_scattering() {
            let payload = &scattering.payload;
            assert!(Request::parse(payload).is_some() || Reply::parse(payload).is_some());
        }
    }
}

fn drive_client(mut input: Input<'_>) {
    let view = View::first((0..REPLICAS).map(ProcessId));
    let mut client = LogClient::new(1, view, ClientOptions::default());
    let mut now = Mono::from_ns(0);
    while let Some(step) = input.byte() {
        now = now.after_ns(u64::from(step >> 4) << 20);
        let from = ProcessId(u32::from(step >> 4) % 4);
        match step % 4 {
            0 => {
                let _ = client.append(now, input.bytes().to_vec());
            }
            1 | 2 => client.on_message(now, from, input.bytes()),
            _ => client.handle_timeout(now),
        }
        while let Some(scattering) = client.poll_scattering() {
            assert!(Request::parse(&scattering.payload).is_some());
        }
        while client.poll_committed().is_some() {}
    }
}

/// Lets three replicas start that receive what the others send, damaged messages and any bytes.
fn drive_starts(mut input: Input<'_>) {
    let all: BTreeSet<_> = (0..REPLICAS).map(ProcessId).collect();
    let mut start = |process: &ProcessId| {
        let own = if input.next().is_multiple_of(2) { OwnLog::Empty } else { OwnLog::Replaced };
        LogStart::new((*process, 1), &all, own, 1)
    };
    let mut starts: Vec<_> = all.iter().map(&mut start).collect();
    let mut now = 1;
    while let Some(step) = input.byte() {
        now += u64::from(step >> 6);
        let (at, process) = (Timestamp::from_ns(now), usize::from(step >> 4) % starts.len());
        match step % 8 {
            0 => {
                let from = ProcessId((process as u32 + 1) % REPLICAS);
                starts[process].on_message(step & 8 == 0, at, from, input.bytes());
            }
            1 => starts[process].on_ended(ProcessId(u32::from(input.next()) % REPLICAS), at),
            2 => starts[process].on_send_failed(),
            _ => {
                let (is_damaged, index) = (input.next() >= 0xf0, usize::from(input.next()));
                let byte = input.next();
                let mut sent = Vec::new();
                while let Some(scattering) = starts[process].poll_scattering(Mono::from_ns(now)) {
                    sent.push(scattering);
                }
                for mut scattering in sent {
                    let damaged = scattering.payload.get_mut(index).filter(|_| is_damaged);
                    if let Some(damaged) = damaged {
                        *damaged = byte;
                    }
                    for to in scattering.receivers {
                        let from = ProcessId(process as u32);
                        let is_reliable = scattering.kind.is_reliable();
                        let receiver = &mut starts[to.index()];
                        receiver.on_message(is_reliable, at, from, &scattering.payload);
                    }
                }
            }
        }
    }
}
