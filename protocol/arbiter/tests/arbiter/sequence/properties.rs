//! Invariants of an arbiter and its endpoints under any sequence of frames, faults and clock steps.
//! Shared with `verify/fuzz`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use onepipe_arbiter::{
    Arbiter, ArbiterConfig, ClientConfig, Core, ObjectId, Transfer, TransferConfig, TransferEvent,
};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Psn, Timestamp};
use onepipe_wire::{
    Fcp, FcpPart, Frame, HEADER_LEN, Header, Opcode, SHORT_HEADER_LEN, Slot, Watchdog, header_len,
    seal,
};

const NODES: u32 = 4;
const SLOT_NS: u64 = 1_250;
const ORIGIN_NS: u64 = 1 << 50;
/// Maximum number of frames in flight.
const FRAMES_MAX: usize = 64;

/// The bytes that decide the next operation; zeros follow their end.
struct Script<'a> {
    rest: &'a [u8],
}

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }
}

struct TestNet {
    transfers: Vec<Transfer>,
    arbiter: Arbiter,
    now_ns: u64,
    /// Offset of each synchronised clock.
    skews: [i64; NODES as usize + 1],
    frames: VecDeque<Vec<u8>>,
    granted: BTreeMap<u64, Vec<(u32, u16)>>,
    sent: BTreeSet<(u32, u32)>,
    objects: u8,
}

/// Executes the operations that the bytes encode. Panics when an invariant does not hold.
pub fn arbiter(bytes: &[u8]) {
    let mut script = Script { rest: bytes };
    let config = |process| {
        let client = ClientConfig {
            frame_len_max: 300,
            slots_max: 64,
            ..ClientConfig::new(ProcessId(process), NODES, ProcessId(NODES), SLOT_NS)
        };
        TransferConfig {
            receive_bytes_max: 5_000,
            objects_max: 8,
            reassembly_timeout_ns: 1_000_000,
            ..TransferConfig::new(client)
        }
    };
    let mut arbiter = ArbiterConfig::new(ProcessId(NODES), Core::racks(NODES, 2, 2), SLOT_NS);
    arbiter.allocator.batch_slots = 1 + script.below(64) as u32;
    let mut net = TestNet {
        transfers: (0..NODES).map(|at| Transfer::new(config(at)).expect("right")).collect(),
        arbiter: Arbiter::new(arbiter).expect("right"),
        now_ns: 1_000,
        skews: [0; NODES as usize + 1],
        frames: VecDeque::new(),
        granted: BTreeMap::new(),
        sent: BTreeSet::new(),
        objects: 0,
    };
    while !script.rest.is_empty() {
        net.step(&mut script);
    }
}

fn object(mark: u8) -> Vec<u8> {
    vec![mark; usize::from(mark) * 37]
}

impl TestNet {
    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() {
            0..=99 => (0..4).for_each(|_| self.pass(script)),
            100..=139 => {
                self.now_ns += match u64::from(script.byte()) {
                    byte @ 0..=250 => byte * 60,
                    byte => byte * 10_000,
                };
            }
            140..=159 => {
                let (src, dst) = (script.below(4), script.below(5) as u32);
                let bytes = object(self.objects);
                if self.transfers[src].send(ProcessId(dst), bytes).is_ok() {
                    self.objects = self.objects.wrapping_add(1);
                }
            }
            160..=163 => {
                let who = script.below(NODES as usize + 1);
                self.skews[who] = match script.byte() {
                    byte @ 0..=250 => (i64::from(byte) - 125) * 20,
                    byte => (i64::from(byte) - 253) << 34,
                };
            }
            164..=166 => {
                let (src, dst) = (script.below(4), ProcessId(script.below(5) as u32));
                let number = script.below(8) as u32;
                self.transfers[src].cancel(ObjectId { dst, number });
            }
            170..=179 => self.invent(script),
            _ => {}
        }
        for index in 0..=NODES as usize {
            self.drain(index);
        }
    }

    fn at(&self, index: usize) -> Now {
        let sync = (ORIGIN_NS + self.now_ns).wrapping_add_signed(self.skews[index]);
        Now { mono: Mono::from_ns(self.now_ns), sync: Timestamp::from_ns(sync) }
    }

    fn deliver(&mut self, index: usize, bytes: &mut [u8]) {
        let now = self.at(index);
        match self.transfers.get_mut(index) {
            Some(transfer) => transfer.handle_frame(now, Port(0), bytes),
            None => self.arbiter.handle_frame(now, Port(0), bytes),
        };
        self.drain(index);
    }

    /// Delivers a frame in flight, perhaps not for the last time, or loses or corrupts it.
    fn pass(&mut self, script: &mut Script<'_>) {
        if self.frames.is_empty() {
            return;
        }
        let index = match script.byte() {
            0..=219 => 0,
            byte => usize::from(byte) % self.frames.len(),
        };
        let action = script.byte();
        let retained = self.frames[index].clone();
        let mut bytes = match action {
            240..=255 => retained,
            _ => self.frames.remove(index).expect("the index is in range"),
        };
        if (200..=219).contains(&action) {
            return;
        }
        let frame = Frame::parse(&bytes).expect("sealed");
        let (header, to) = (frame.header, frame.header.dst().index());
        if (220..=229).contains(&action) && !frame.payload.is_empty() {
            let (length, bit) = (frame.payload.len(), script.below(8));
            let at = SHORT_HEADER_LEN + script.below(length);
            bytes[at] ^= 1 << bit;
            seal(&mut bytes, header, length);
        }
        self.deliver(to, &mut bytes);
    }

    /// Delivers a forged frame with valid checks.
    fn invent(&mut self, script: &mut Script<'_>) {
        let opcodes = [Opcode::Fcp, Opcode::Slot, Opcode::Watchdog, Opcode::Drops, Opcode::Ping];
        let opcode = opcodes[script.below(opcodes.len())];
        let (src, dst) = (script.below(7) as u32, script.below(NODES as usize + 1));
        let mut bytes = [0; HEADER_LEN + 48];
        let length = script.below(48);
        let front = header_len(opcode as u8);
        bytes[front..][..length].fill_with(|| script.byte());
        if opcode == Opcode::Watchdog {
            // Epochs that leave space for takeovers.
            let word = Watchdog { epoch: u32::from(script.byte()), primary: ProcessId(src) };
            word.write(&mut bytes[front..]);
        }
        let (from, to) = (ProcessId(src), ProcessId(dst as u32));
        let mut header = Header::new(opcode, from, to, Incarnation(script.below(3) as u32));
        if opcode == Opcode::Slot {
            let promises = header.promises(Timestamp::from_ns(0));
            let number = Psn(u32::from(script.byte()));
            header = header.stamped(Timestamp::from_ns(0), promises, number);
        }
        let length = seal(&mut bytes, header, length);
        self.deliver(dst, &mut bytes[..length]);
    }

    fn drain(&mut self, index: usize) {
        let now = self.at(index);
        let due = match self.transfers.get(index) {
            Some(transfer) => transfer.poll_timeout(),
            None => self.arbiter.poll_timeout(),
        };
        if due.is_some_and(|due| due <= now.mono) {
            match self.transfers.get_mut(index) {
                Some(transfer) => transfer.handle_timeout(now),
                None => self.arbiter.handle_timeout(now),
            }
        }
        let (mut slot, mut count) = ([0; 1_472], 0);
        loop {
            let sent = match self.transfers.get_mut(index) {
                Some(transfer) => transfer.poll_transmit(now, &mut slot),
                None => self.arbiter.poll_transmit(now, &mut slot),
            };
            let Some(transmit) = sent else { break };
            count += 1;
            assert!(count < 1_000, "it never stops sending");
            self.note(index, &slot[..transmit.bytes]);
        }
        self.drain_events(index);
        match self.transfers.get(index) {
            Some(transfer) => transfer.check_invariants(),
            None => self.arbiter.check_invariants(),
        }
        let next = match self.transfers.get(index) {
            Some(transfer) => transfer.poll_timeout(),
            None => self.arbiter.poll_timeout(),
        };
        assert!(next.is_none_or(|next| next > now.mono), "due again at once: {next:?}");
    }

    fn drain_events(&mut self, index: usize) {
        let Some(transfer) = self.transfers.get_mut(index) else {
            while self.arbiter.poll_event().is_some() {}
            return;
        };
        while let Some(event) = transfer.poll_event() {
            if let TransferEvent::Sent(_, bytes) | TransferEvent::Refused(_, bytes) = event {
                let mark = bytes.first().copied().unwrap_or_default();
                assert_eq!(bytes, object(mark), "returned unchanged");
            }
        }
    }

    /// Checks that a sent frame is well-formed, and that all advertised timeslots are matchings.
    fn note(&mut self, index: usize, bytes: &[u8]) {
        let frame = Frame::parse(bytes).expect("sealed");
        let dst = frame.header.dst().0;
        assert_eq!(frame.header.src(), ProcessId(index as u32));
        match frame.opcode {
            Opcode::Fcp => {
                let fcp = Fcp::parse(0, frame.payload).expect("well-formed");
                let from_arbiter = index == NODES as usize;
                for part in fcp.parts().filter(|_| from_arbiter) {
                    let FcpPart::Grants(grants) = part else { continue };
                    for grant in grants.grants() {
                        self.note_grant(grants.base() + u64::from(grant.slot), dst, grant.dst);
                    }
                }
            }
            Opcode::Slot => {
                let (slot, _) = Slot::parse(frame.payload).expect("well-formed");
                assert!(self.sent.insert((index as u32, slot.timeslot)), "twice in a timeslot");
            }
            _ => {}
        }
        if self.frames.len() == FRAMES_MAX {
            self.frames.pop_front();
        }
        self.frames.push_back(bytes.to_vec());
    }

    fn note_grant(&mut self, slot: u64, src: u32, dst: u16) {
        let pairs = self.granted.entry(slot).or_default();
        let is_free = |pair: &(u32, u16)| pair.0 != src && pair.1 != dst;
        assert!(pairs.iter().all(is_free), "{src} to {dst} beside {pairs:?}");
        pairs.push((src, dst));
    }
}
