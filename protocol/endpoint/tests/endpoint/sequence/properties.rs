//! Arbitrary sequences of well-sealed frames, commands and time, and the invariants that an
//! endpoint keeps whatever its peers send. Shared with `verify/fuzz`.

use std::collections::VecDeque;

use onepipe_base::{
    Address, Cause, Controllers, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId,
    Promises, Psn, SwitchId, Timestamp,
};
use onepipe_endpoint::{Config, Delivery, Endpoint, Event, Links, Message, ReceiveMode, Service};
use onepipe_wire::{
    Ack, AckDelay, Connect, Failure, Flags, Flood, FloodId, FragmentHeader, HEADER_LEN, Header,
    Opcode, PiggybackedAck, Probe, Recall, Recovery, Resolved, SharedReceiver, SharedReceivers,
    seal, write_fragment_header, write_message,
};

const PROCESSES: u32 = 5;
const ORIGIN_NS: u64 = 1 << 50;
const OWN: Instance =
    Instance { address: Address::Process(ProcessId(0)), incarnation: Incarnation(1) };
static PAYLOAD: [u8; 100_000] = [9; 100_000];

/// Bytes that decide the next step; reads zeros behind their end.
struct Script<'a> {
    rest: &'a [u8],
}

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn below(&mut self, limit: u64) -> u64 {
        u64::from(self.byte()) % limit
    }

    fn wide(&mut self) -> u64 {
        (0..8).fold(0, |value, _| value << 8 | u64::from(self.byte()))
    }

    /// Usually near `near`, sometimes arbitrary.
    fn number(&mut self, near: u64) -> u64 {
        match self.byte() {
            choice @ 0..=199 => near.wrapping_add(u64::from(choice % 20)).wrapping_sub(4),
            200..=229 => self.byte().into(),
            230..=239 => near.wrapping_add(1 << 31),
            240..=247 => u64::MAX - u64::from(self.byte()),
            _ => self.wide(),
        }
    }

    /// A time that is usually near `near`.
    fn time(&mut self, near: u64) -> u64 {
        match self.byte() {
            choice @ 0..=219 => near.wrapping_add(u64::from(choice) * 100).wrapping_sub(2_000),
            220..=239 => near.wrapping_add(u64::from(self.byte()) << 20),
            240..=249 => near.wrapping_sub(u64::from(self.byte()) << 20),
            _ => self.wide(),
        }
    }
}

struct Run<'a> {
    script: Script<'a>,
    end: Endpoint,
    ns: u64,
    sync_ns: u64,
    held: VecDeque<Delivery>,
    /// Indexed by service.
    last: [Option<(Timestamp, ProcessId)>; 2],
    barrier: Option<Timestamp>,
    commit_barrier: Option<Timestamp>,
    promised: Option<Promises>,
    slot: Vec<u8>,
    psn: [u64; PROCESSES as usize],
}

/// Runs `bytes` as a script.
pub fn endpoint(bytes: &[u8]) {
    let mut script = Script { rest: bytes };
    let kinds = script.byte();
    let links = match kinds % 4 {
        1 => Links::Uplink,
        3 => Links::Overlay,
        _ => Links::Mesh,
    };
    // The last process is the controller, if there is one.
    let controllers = Controllers { first: ProcessId(PROCESSES - 1), count: 1 };
    let config = Config {
        links,
        controllers: (kinds & 4 != 0).then_some(controllers),
        receive_mode: if kinds & 8 != 0 { ReceiveMode::Merged } else { ReceiveMode::Separate },
        processes_max: PROCESSES,
        frame_len_max: [256, 300, 1_472][script.below(3) as usize],
        receive_buffer_bytes_max: 1 << 20,
        window_bytes_max: [4_096, 65_536][script.below(2) as usize],
        message_len_max: 100_000,
        send_buffer_bytes_max: 300_000,
        congestion_window_bytes: 4_096,
        probes_max: 2,
        reorder_packets: script.below(4) as u32,
        ack_packets: 1 + script.below(8) as u32,
        ..Config::new(ProcessId(0), Incarnation(1))
    };
    let slot = vec![0; config.frame_len_max];
    let end = Endpoint::new(config).expect("a valid configuration");
    let mut run = Run {
        script,
        end,
        ns: 1_000,
        sync_ns: ORIGIN_NS,
        held: VecDeque::new(),
        last: [None; 2],
        barrier: None,
        commit_barrier: None,
        promised: None,
        slot,
        psn: [0; PROCESSES as usize],
    };
    if kinds & 16 == 0 {
        run.register();
    }
    while !run.script.rest.is_empty() {
        run.step();
        run.drain();
        run.check();
    }
    run.finish();
}

impl Run<'_> {
    /// Registers the process with the controller, if there is one.
    fn register(&mut self) {
        let (from, at) = (ProcessId(PROCESSES - 1), Timestamp::from_ns(self.sync_ns));
        let header = Header::new(Opcode::AnnounceAck, from, ProcessId(0), Incarnation(1));
        let header = header.stamped(at, Promises::both(at), Psn(1));
        let mut bytes = [0; HEADER_LEN];
        let length = seal(&mut bytes, header, 0);
        let port = match self.end.config().links {
            Links::Mesh => Port(from.0 as u16),
            _ => Port(0),
        };
        self.end.handle_frame(self.now(), port, &mut bytes[..length]);
    }

    fn now(&self) -> Now {
        Now { mono: Mono::from_ns(self.ns), sync: Timestamp::from_ns(self.sync_ns) }
    }

    fn step(&mut self) {
        match self.script.byte() {
            0..=149 => self.frame(),
            150..=179 => {
                let byte = u64::from(self.script.byte());
                self.advance(byte * byte * 50);
            }
            180..=199 => self.scatter(Service::BestEffort),
            200..=219 => self.scatter(Service::Reliable),
            220..=239 => {
                for _ in 0..self.script.below(8) {
                    if let Some(delivery) = self.held.pop_front() {
                        assert_eq!(self.end.payload(&delivery).len(), delivery.len as usize);
                        self.end.release(delivery);
                    }
                }
            }
            240..=244 => self.end.handle_link_down(
                Port(self.script.below(u64::from(PROCESSES)) as u16),
                Cause::Refused,
            ),
            245..=249 => {
                let promise = Timestamp::from_ns(self.script.time(self.sync_ns).min(1 << 61));
                let port = Port(self.script.below(8) as u16);
                let commit = Timestamp::from_ns(self.script.time(self.sync_ns).min(1 << 61));
                self.end.handle_promises(self.now(), port, Promises { barrier: promise, commit });
            }
            250 => self.sync_ns = self.script.time(self.sync_ns).min(1 << 60),
            251 if self.script.byte() == 7 => self.end.leave(),
            252 => self.end.on_failure_handled(),
            253 => self.end.recover(self.now()),
            254 => self.send_unordered(),
            _ => self.advance(1_000),
        }
    }

    fn advance(&mut self, ns: u64) {
        self.ns += ns;
        self.sync_ns += ns;
    }

    fn scatter(&mut self, service: Service) {
        let count = 1 + self.script.below(6) as usize;
        let messages: Vec<_> = (0..count)
            .map(|_| {
                let bytes = match self.script.byte() {
                    byte @ 0..=199 => usize::from(byte),
                    byte => usize::from(byte - 199) * 1_700,
                };
                let to = ProcessId(self.script.below(u64::from(PROCESSES)) as u32);
                Message { to, payload: &PAYLOAD[..bytes] }
            })
            .collect();
        let _ = match service {
            Service::BestEffort => self.end.scatter(&messages),
            Service::Reliable => self.end.scatter_reliably(&messages),
        };
    }

    fn send_unordered(&mut self) {
        let bytes = usize::from(self.script.byte()) * 100;
        let to = ProcessId(self.script.below(u64::from(PROCESSES)) as u32);
        let _ = self.end.send_unordered(Message { to, payload: &PAYLOAD[..bytes] });
    }

    fn frame(&mut self) {
        let from = self.script.below(u64::from(PROCESSES) + 1) as u32;
        let incarnation = 1 + self.script.below(3) as u32;
        let at = (from as usize).min(self.psn.len() - 1);
        let psn = match self.script.byte() {
            0..=159 => self.psn[at],
            _ => self.script.number(self.psn[at]),
        };
        let opcode = Opcode::ALL[self.script.below(Opcode::ALL.len() as u64) as usize];
        let mut bytes = [0; 10_000];
        let known = Flags::ACK_NOW
            | Flags::RESERVED
            | Flags::CONGESTION
            | Flags::UNORDERED
            | Flags::PIGGYBACK
            | Flags::SINGLE;
        let flags = self.script.byte() & known;
        let mut front = HEADER_LEN;
        if opcode.in_best_effort() == Opcode::Data && flags & Flags::PIGGYBACK != 0 {
            front += self.piggyback(&mut bytes[HEADER_LEN..]);
        }
        let length = front - HEADER_LEN + self.body(incarnation, opcode, psn, &mut bytes[front..]);
        if opcode.has_messages() {
            self.psn[at] = psn.wrapping_add(1) & u64::from(u32::MAX);
        }
        let timestamp = Timestamp::from_ns(self.script.time(self.sync_ns));
        let promise = Timestamp::from_ns(self.script.time(self.sync_ns));
        let promises = match self.script.byte() {
            0..=199 => Promises::both(promise),
            byte => {
                let commit = promise.saturating_sub_ns(u64::from(byte) * 1_000);
                Promises { barrier: promise, commit }
            }
        };
        let header = if opcode.is_hop_only() && self.script.byte() < 200 {
            let address = match self.script.byte() {
                0..=99 => Address::Switch(SwitchId(2)),
                _ => Address::Process(ProcessId(from)),
            };
            let peer = (self.script.byte() < 200).then_some(OWN);
            let speaker = Instance { address, incarnation: Incarnation(incarnation) };
            Header::hop_only(opcode, speaker, peer, promises)
        } else {
            Header::new(opcode, ProcessId(from), ProcessId(0), Incarnation(incarnation))
                .stamped(timestamp, promises, Psn(psn as u32))
                .flagged(flags)
        };
        let length = seal(&mut bytes, header, length);
        let port = match self.end.config().links {
            Links::Mesh => Port(from as u16),
            Links::Uplink => Port(0),
            Links::Overlay => Port(self.script.below(3) as u16),
        };
        self.end.handle_frame(self.now(), port, &mut bytes[..length]);
    }

    /// Writes an acknowledgement in front of messages, sometimes none. Returns its length.
    fn piggyback(&mut self, body: &mut [u8]) -> usize {
        let script = &mut self.script;
        let ack = PiggybackedAck {
            cumulative: Psn(script.number(0) as u32),
            consumed: script.number(500) as u32,
            acked_incarnation: 1 + script.below(8) as u32 / 7,
            received: script.byte(),
            marked: script.byte(),
            delay: AckDelay(script.number(0) as u16),
        };
        if script.byte() == 255 { 0 } else { ack.write(body).unwrap_or(0) }
    }

    /// Writes a body that fits the opcode, with arbitrary fields.
    fn body(&mut self, incarnation: u32, opcode: Opcode, psn: u64, body: &mut [u8]) -> usize {
        match opcode {
            Opcode::Flood | Opcode::Notice => return self.flood(body),
            Opcode::Relayed => return self.relayed(incarnation, psn, body),
            Opcode::Recall | Opcode::RecallAck => return self.recall(body),
            Opcode::Recovery => return self.recovery(body),
            _ => {}
        }
        let script = &mut self.script;
        match opcode.in_best_effort() {
            Opcode::Data | Opcode::SharedData => {
                let (mut used, mut index) = (0, 0);
                if opcode.is_shared() {
                    let receiver = |_| SharedReceiver {
                        process: ProcessId(script.below(2) as u32),
                        psn: Psn(script.number(psn) as u32),
                        index: script.below(3) as u16,
                        is_ack_wanted: script.below(2) == 0,
                        has_ack: false,
                    };
                    let list = (0..3).map(receiver);
                    used += SharedReceivers::write(body, list).unwrap_or(0);
                    body[0] -= script.below(4) as u8;
                }
                for _ in 0..script.below(5) {
                    let payload = &PAYLOAD[..script.number(30) as usize % 2_000];
                    index += script.below(3) as u16;
                    let delta_ns = script.byte() as u32 / 64;
                    let message = onepipe_wire::Message { delta_ns, index, payload };
                    used += write_message(&mut body[used..], message).unwrap_or(0);
                }
                used.saturating_sub(usize::from(script.byte() == 255))
            }
            Opcode::Fragment => {
                let index = script.below(2) as u16;
                let message_len = script.number(400) as u32;
                let offset = script.number(0) as u32;
                write_fragment_header(body, FragmentHeader { index, message_len, offset });
                12 + script.number(200) as usize % 1_400
            }
            Opcode::Ack | Opcode::Nak | Opcode::Grant => {
                let ack = Ack {
                    cumulative: Psn(script.number(0) as u32),
                    received: script.number(0) as u32,
                    marked: script.number(0) as u32,
                    window_bytes: script.number(8_192) as u32,
                    consumed_bytes: script.number(500),
                    acked_incarnation: 1 + script.below(8) as u32 / 7,
                    reservation_id: script.number(4) as u32,
                    reservation: script.below(3) as u8,
                    delay: AckDelay(script.number(0) as u16),
                };
                let words: Vec<_> =
                    (0..script.below(4)).map(|_| (script.wide(), script.wide())).collect();
                ack.write(body, words.iter().copied()).unwrap_or(0)
            }
            Opcode::Probe => {
                let (resolved, until) = (script.number(psn) as u32, script.number(psn) as u32);
                let reservation_done = script.number(4) as u32;
                let probe = Probe { resolved: Psn(resolved), until: Psn(until), reservation_done };
                probe.write(body).unwrap_or(0)
            }
            Opcode::Connect => {
                let connect = Connect {
                    reservation_id: script.number(4) as u32,
                    reservation_bytes: script.number(100_000),
                    ack_delay_ns: script.number(100_000) as u32,
                };
                connect.write(body).unwrap_or(0)
            }
            _ => script.below(3) as usize,
        }
    }

    /// Usually near what this process has scattered.
    fn recall(&mut self, body: &mut [u8]) -> usize {
        let near = self.promised.map_or(self.sync_ns, |promises| promises.commit.as_ns());
        let script = &mut self.script;
        let count = 1 + script.below(4);
        let stamps: Vec<_> =
            (0..count).map(|_| Timestamp::from_ns(script.number(near).min(1 << 61))).collect();
        Recall::write(body, stamps.into_iter())
    }

    fn failures(&mut self) -> Vec<Failure> {
        let near = self.commit_barrier.map_or(self.sync_ns, Timestamp::as_ns);
        let count = self.script.below(3);
        let failures = (0..count).map(|_| {
            // Rarely this process itself.
            let is_own = self.script.byte() == 255;
            let other = 1 + self.script.below(PROCESSES.into()) as u32;
            Failure {
                first: ProcessId(if is_own { 0 } else { other }),
                count: 1 + self.script.below(3) as u32,
                incarnation: Incarnation(self.script.below(4) as u32),
                at: Timestamp::from_ns(self.script.time(near).min(1 << 61)),
                cause: Cause::TimedOut,
            }
        });
        failures.collect()
    }

    fn flood(&mut self, body: &mut [u8]) -> usize {
        let (epoch, sequence) = (self.script.below(3) as u32, self.script.below(20) as u32);
        let flood = Flood { id: FloodId { epoch, sequence } };
        let written = match self.script.below(3) {
            0 => {
                let failures = self.failures();
                flood.write_notice(body, failures.into_iter())
            }
            1 => {
                let owner = OWN;
                let numbers = 0..self.script.below(6) as u32;
                flood.write_resume(body, numbers.map(|number| Resolved { owner, number }))
            }
            _ => {
                let address = match self.script.byte() {
                    0..=49 => Address::Switch(SwitchId(2)),
                    byte => Address::Process(ProcessId(u32::from(byte) % (PROCESSES + 1))),
                };
                let incarnation = Incarnation(self.script.below(4) as u32);
                flood.write_freeze(body, [Instance { address, incarnation }].into_iter())
            }
        };
        written.map_or(0, |(_, bytes)| bytes)
    }

    /// A frame relayed by a controller.
    fn relayed(&mut self, incarnation: u32, psn: u64, body: &mut [u8]) -> usize {
        const INNER: [Opcode; 6] = [
            Opcode::ReliableData,
            Opcode::ReliableFragment,
            Opcode::ReliableAck,
            Opcode::ReliableConnect,
            Opcode::ReliableGrant,
            Opcode::Recall,
        ];
        let opcode = INNER[self.script.below(6) as usize];
        let source = self.script.below(PROCESSES.into()) as u32;
        let length = self.body(incarnation, opcode, psn, &mut body[HEADER_LEN..9_000]);
        let timestamp = Timestamp::from_ns(self.script.time(self.sync_ns));
        let header = Header::new(opcode, ProcessId(source), ProcessId(0), Incarnation(incarnation));
        seal(body, header.stamped(timestamp, Promises::both(timestamp), Psn(psn as u32)), length)
    }

    fn recovery(&mut self, body: &mut [u8]) -> usize {
        let complete = Timestamp::from_ns(self.script.time(self.sync_ns).min(1 << 61));
        let (part, parts) = (self.script.below(2) as u16, 1 + self.script.below(2) as u16);
        let failures = self.failures();
        let recalls = [(ProcessId(1), complete), (ProcessId(0), complete)];
        let recovery = Recovery { complete, part, parts };
        recovery.write(body, failures.into_iter(), recalls.into_iter()).unwrap_or(0)
    }

    /// What a driver does after each call.
    fn drain(&mut self) {
        let now = self.now();
        if self.end.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.end.handle_timeout(now);
        }
        let mut frames = 0;
        loop {
            let is_due = self.end.poll_timeout().is_some_and(|due| due <= now.mono);
            let is_hinted = is_due || self.end.wants_transmit();
            let Some(transmit) = self.end.poll_transmit(now, &mut self.slot) else { break };
            let frame = onepipe_wire::Frame::parse(&self.slot[..transmit.bytes]);
            let opcode = frame.expect("the endpoint seals its frames").opcode;
            assert!(is_hinted, "wants_transmit() was false before {opcode:?}");
            frames += 1;
            assert!(frames < 10_000, "endless sequence of frames");
        }
        let next = self.end.poll_timeout();
        assert!(next.is_none_or(|due| due > now.mono), "due again at once: {next:?}");
        while let Some(event) = self.end.poll_event() {
            if let Event::Delivered(delivery) = event {
                if delivery.is_unordered {
                    self.held.push_back(delivery);
                    continue;
                }
                let key = (delivery.timestamp, delivery.from);
                let commit = self.end.commit_barrier();
                let (last, barrier) = match delivery.service {
                    // A recovering process knows outcomes beyond the last barrier that it has
                    // received.
                    Service::BestEffort if !self.end.is_member() => (&mut self.last[0], commit),
                    Service::BestEffort => (&mut self.last[0], self.end.barrier()),
                    Service::Reliable => (&mut self.last[1], commit),
                };
                assert!(last.is_none_or(|last| last <= key), "out of order");
                let barrier = barrier.max(self.end.barrier().filter(|_| !self.end.is_member()));
                assert!(barrier.is_some_and(|barrier| delivery.timestamp < barrier));
                *last = Some(key);
                self.held.push_back(delivery);
            }
        }
    }

    fn check(&mut self) {
        self.end.check_invariants();
        let config = self.end.config();
        let receive_max = config.receive_buffer_bytes_max as u64;
        // Each service has buffers of its own.
        assert!(self.end.receive_buffer_bytes() <= 2 * receive_max, "a receive buffer overflows");
        assert!(self.end.send_buffer_bytes() <= 2 * config.send_buffer_bytes_max);
        let (barrier, commit) = (self.end.barrier(), self.end.commit_barrier());
        assert!(barrier >= self.barrier, "the barrier decreased");
        assert!(commit >= self.commit_barrier, "the commit barrier decreased");
        (self.barrier, self.commit_barrier) = (barrier, commit);
        let promises = self.end.promises();
        if let (Some(then), Some(now)) = (self.promised, promises) {
            assert!(now.barrier >= then.barrier, "the promise decreased");
            assert!(now.commit >= then.commit, "the commit promise decreased");
        }
        self.promised = promises;
    }

    /// Consumes every message and lets no peer respond: buffers must drain, and every message in
    /// flight must be reported.
    fn finish(&mut self) {
        self.fail_all_others();
        self.end.leave();
        for _ in 0..40 {
            while let Some(delivery) = self.held.pop_front() {
                self.end.release(delivery);
            }
            self.advance(5_000_000);
            let later = Timestamp::from_ns((1 << 62) + self.ns);
            for port in 0..PROCESSES as u16 {
                self.end.handle_promises(self.now(), Port(port), Promises::both(later));
            }
            self.drain();
            self.check();
        }
        self.held.drain(..).for_each(|delivery| self.end.release(delivery));
        let is_held = self.end.commit_barrier() < Some(Timestamp::from_ns(1 << 62));
        if !self.end.is_member() || !self.end.is_drained() || is_held {
            // Reliable messages wait for controllers, or for peers that are not dead.
            return;
        }
        assert_eq!(self.end.send_buffer_bytes(), 0, "a packet is retransmitted forever");
        assert_eq!(self.end.pending(), 0, "a message waits forever");
        assert_eq!(self.end.receive_buffer_bytes(), 0, "the buffer accounts do not balance");
    }

    /// The controller reports that all other processes have failed, and resolves every link.
    fn fail_all_others(&mut self) {
        let controller = PROCESSES - 1;
        if self.end.config().controllers.is_none() || self.end.config().links != Links::Mesh {
            return;
        }
        let owner = OWN;
        let at = Timestamp::from_ns(self.sync_ns);
        let (first, count) = (ProcessId(1), PROCESSES - 2);
        let all = Failure {
            first,
            count,
            incarnation: Incarnation(u32::MAX),
            at,
            cause: Cause::TimedOut,
        };
        for sequence in 0..2 {
            let flood = Flood { id: FloodId { epoch: u32::MAX, sequence } };
            let mut buf = [0; 8_000];
            let body = &mut buf[HEADER_LEN..];
            let written = match sequence {
                0 => flood.write_notice(body, [all].into_iter()),
                _ => {
                    let numbers = (0..500).map(|number| Resolved { owner, number });
                    flood.write_resume(body, numbers)
                }
            };
            let length = written.expect("fits").1;
            let (from, incarnation) = (ProcessId(controller), Incarnation(u32::MAX));
            let header = Header::new(Opcode::Notice, from, ProcessId(0), incarnation);
            let header = header.stamped(at, Promises::both(at), Psn(0));
            let length = seal(&mut buf, header, length);
            (1..controller)
                .for_each(|port| self.end.handle_link_down(Port(port as u16), Cause::Refused));
            self.end.handle_frame(self.now(), Port(controller as u16), &mut buf[..length]);
            self.drain();
        }
    }
}
