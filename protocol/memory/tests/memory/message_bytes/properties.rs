//! Properties of messages, and of owners and clients that receive any bytes. Shared with
//! `verify/fuzz`.

use std::collections::BTreeSet;

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_memory::{
    ClientOptions, MemoryClient, MemoryOwner, Operation, Order, OwnerOptions, Processes, Region,
    RegionId, Reply, Request, Rights,
};

const REGION_LEN: u64 = 32;

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

    /// Returns a number that is small, or near the largest one.
    fn number(&mut self) -> u64 {
        match self.next() {
            byte @ 0xf0.. => u64::MAX - u64::from(byte & 0xf),
            byte => byte.into(),
        }
    }

    fn operation(&mut self) -> Operation<'a> {
        let code = self.next();
        let (region, offset) = (RegionId(u32::from(code >> 4) % 3), self.number());
        match code % 4 {
            0 => Operation::Read { region, offset, len: self.number() as u32 },
            1 => Operation::Write { region, offset, bytes: self.bytes() },
            2 => {
                let (expected, new) = (self.number(), self.number());
                Operation::CompareAndSwap { region, offset, expected, new }
            }
            _ => Operation::FetchAdd { region, offset, addend: self.number() },
        }
    }

    fn operations(&mut self) -> Vec<Operation<'a>> {
        let count = 1 + self.next() % 4;
        (0..count).map(|_| self.operation()).collect()
    }
}

/// Checks what bytes do, of which the first chooses the machine that receives them: nothing panics,
/// and what is parsed is written as it was.
pub fn check_messages(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    if let Some(request) = Request::parse(bytes) {
        assert_eq!(request.to_bytes(), bytes);
        assert!(Request::is_request(bytes) && !Reply::is_reply(bytes));
    }
    if let Some(reply) = Reply::parse(bytes) {
        assert_eq!(reply.to_bytes(), bytes);
        assert!(Reply::is_reply(bytes) && !Request::is_request(bytes));
    }
    match mode % 3 {
        0 => {}
        1 => drive_owner(Input(bytes)),
        _ => drive_client(Input(bytes)),
    }
}

/// Drives an owner: a region without the right to write stays as it is, replies can be parsed, and
/// a request is executed once.
fn drive_owner(mut input: Input<'_>) {
    let mut owner = MemoryOwner::new(OwnerOptions { results_max: 4, ..OwnerOptions::default() });
    let only = Processes::Only(BTreeSet::from([ProcessId(1)]));
    let rights = Rights { read: only, write: Processes::None, atomics: Processes::None };
    for (id, rights) in [(RegionId(0), Rights::all()), (RegionId(1), rights)] {
        let region = Region::new(vec![7; REGION_LEN as usize], rights);
        owner.register(id, region).expect("each once");
    }
    let (mut now, mut executed, mut ended) = (1, BTreeSet::new(), BTreeSet::new());
    while let Some(step) = input.byte() {
        now += u64::from(step >> 4);
        let (at, from) = (Timestamp::from_ns(now), ProcessId(u32::from(step >> 7)));
        match step % 8 {
            0..3 if !ended.contains(&from) => {
                let (session, number) = (input.number(), input.number());
                let finished = input.number().min(number);
                let operations = input.operations();
                // What waits is executed before, and does not count below.
                owner.on_barrier(at);
                let before = owner.stats().executed;
                let order = Order::Total;
                let request = Request::Execute { session, number, finished, order, operations };
                owner.on_message(true, at, from, &request.to_bytes());
                if owner.stats().executed > before {
                    let id = (from, session, number);
                    assert!(executed.insert(id), "{id:?} is executed twice");
                }
            }
            3 => {
                let (session, number) = (input.number(), input.number());
                let operations = input.operations();
                let order = if step >> 6 == 1 { Order::Owner } else { Order::Total };
                let request = Request::Execute { session, number, finished: 0, order, operations };
                let at = Timestamp::from_ns(input.number().min(now));
                owner.on_message(false, at, from, &request.to_bytes());
            }
            4 if !ended.contains(&from) => {
                owner.on_message(step & 8 == 0, at, from, input.bytes());
            }
            5 => owner.on_barrier(Timestamp::from_ns(now)),
            // A process that has ended sends no more: its results may be dropped.
            6 if ended.insert(from) => owner.on_process_ended(from, at),
            _ => {
                while let Some(reply) = owner.poll_reply() {
                    Reply::parse(&reply.payload).expect("a reply");
                }
            }
        }
        owner.check_invariants();
    }
    let bytes = owner.region(RegionId(1)).expect("registered").bytes();
    assert!(bytes.iter().all(|byte| *byte == 7), "only the owner may write there");
}

/// Drives a client, which completes each request at most once.
fn drive_client(mut input: Input<'_>) {
    let options = ClientOptions {
        timeout_ns: 100,
        timeout_min_ns: 10,
        give_up_ns: 10_000,
        pending_max: 9,
        ..ClientOptions::default()
    };
    let mut client = MemoryClient::new(1, options);
    let (mut open, mut now, mut sent) = (BTreeSet::new(), 0, 0);
    while let Some(step) = input.byte() {
        now += u64::from(step >> 4);
        let (time, process) = (Mono::from_ns(now), ProcessId(u32::from(step >> 4) % 3));
        match step % 8 {
            0 => {
                let operations = input.operations();
                let other = ProcessId(process.0 + 1);
                let batches = [(process, operations.as_slice()), (other, operations.as_slice())];
                open.extend(client.submit(&batches[..1 + usize::from(step >> 7)]));
            }
            1 => {
                if let Some(scattering) = client.poll_scattering(time) {
                    let payloads = scattering.messages.iter().map(|(_, payload)| payload);
                    payloads.for_each(|payload| drop(Request::parse(payload).expect("a request")));
                    sent += 1;
                    client.on_submitted(&scattering, ScatteringId(sent));
                }
            }
            2 => {
                if let Some(scattering) = client.poll_scattering(time) {
                    match step >> 7 {
                        0 => client.on_refused(&scattering),
                        _ => client.on_unsendable(&scattering),
                    }
                }
            }
            3 => client.on_message(time, process, input.bytes()),
            4 => {
                let (number, at) = (input.number(), Timestamp::from_ns(input.number()));
                let outcomes = onepipe_memory::Outcome::Added { previous: input.number() };
                let result = Ok(vec![outcomes; usize::from(input.next() % 5)]);
                let reply = Reply { session: u64::from(step >> 7), number, at, result };
                client.on_message(time, process, &reply.to_bytes());
            }
            5 => {
                let id = ScatteringId(input.next().into());
                client.on_send_failed(time, step & 0x80 != 0, id);
            }
            6 => client.on_process_ended(process, Timestamp::from_ns(now)),
            _ => {
                now += 100 * u64::from(step >> 4);
                client.handle_timeout(Mono::from_ns(now));
            }
        }
        client.check_invariants();
        while let Some(completed) = client.poll_completed() {
            assert!(open.remove(&completed.request), "{completed:?} completes once");
        }
        assert_eq!(client.in_flight(), open.len());
    }
}
