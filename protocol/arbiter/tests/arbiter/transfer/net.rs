//! A star of four endpoints and an arbiter that loses and delays frames.

use std::collections::BTreeMap;

use allocation_counter::measure;
use onepipe_arbiter::{
    Arbiter, ArbiterConfig, ClientConfig, Core, ObjectId, Transfer, TransferConfig, TransferEvent,
};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_wire::Frame;

pub const MS: u64 = 1_000_000;
pub const NODES: u32 = 4;

pub struct TestNet {
    pub now: u64,
    pub transfers: Vec<Transfer>,
    pub arbiter: Arbiter,
    pub in_flight: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    /// One frame in this number is lost; and maximum extra delay, ns.
    pub lose: u64,
    pub jitter_ns: u64,
    pub draws: u64,
    pub events: Vec<(u32, TransferEvent)>,
    /// Number of heap allocations by the transfers.
    pub taken: u64,
}

pub fn config(process: u32) -> TransferConfig {
    let client = ClientConfig {
        frame_len_max: 300,
        ..ClientConfig::new(ProcessId(process), NODES, ProcessId(NODES), 1_250)
    };
    TransferConfig { receive_bytes_max: 400_000, ..TransferConfig::new(client) }
}

pub fn object(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

impl TestNet {
    pub fn new(seed: u64) -> Self {
        let mut arbiter = ArbiterConfig::new(ProcessId(NODES), Core::racks(NODES, 2, 2), 1_250);
        arbiter.allocator.batch_slots = 16;
        Self {
            now: 0,
            transfers: (0..NODES).map(|at| Transfer::new(config(at)).expect("right")).collect(),
            arbiter: Arbiter::new(arbiter).expect("right"),
            in_flight: BTreeMap::new(),
            lose: 0,
            jitter_ns: 1,
            draws: seed,
            events: Vec::new(),
            taken: 0,
        }
    }

    pub fn draw(&mut self) -> u64 {
        self.draws = self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        self.draws >> 33
    }

    pub fn at(&self) -> Now {
        let sync = Timestamp::from_ns(1_125_900_000_000_000 + self.now);
        Now { mono: Mono::from_ns(self.now), sync }
    }

    pub fn send(&mut self, src: usize, dst: u32, bytes: Vec<u8>) -> ObjectId {
        let id = self.transfers[src].send(ProcessId(dst), bytes).expect("the object is accepted");
        self.deliver(src);
        id
    }

    pub fn deliver(&mut self, index: usize) {
        let (now, mut slot) = (self.at(), [0; 1_472]);
        loop {
            let mut sent = None;
            let taken = measure(|| {
                sent = match self.transfers.get_mut(index) {
                    Some(transfer) => transfer.poll_transmit(now, &mut slot),
                    None => self.arbiter.poll_transmit(now, &mut slot),
                }
            });
            self.taken += taken.count_total;
            let Some(transmit) = sent else { break };
            let bytes = slot[..transmit.bytes].to_vec();
            let to = Frame::parse(&bytes).expect("sealed").header.dst().index();
            let (chance, late) = (self.draw(), self.draw());
            if self.lose == 0 || !chance.is_multiple_of(self.lose) {
                let at = self.now + 5_000 + late % self.jitter_ns;
                self.in_flight.insert((at, late + (chance << 32)), (to, bytes));
            }
        }
        if let Some(transfer) = self.transfers.get_mut(index) {
            while let Some(event) = transfer.poll_event() {
                self.events.push((index as u32, event));
            }
        }
        while self.arbiter.poll_event().is_some() {}
    }

    pub fn run_for(&mut self, ns: u64) {
        let end = self.now + ns;
        loop {
            let own = self.transfers.iter().filter_map(Machine::poll_timeout);
            let due = own.chain(self.arbiter.poll_timeout()).map(Mono::as_ns);
            let due = due.chain(self.in_flight.keys().next().map(|key| key.0)).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            let now = self.at();
            while let Some(entry) = self.in_flight.first_entry().filter(|at| at.key().0 <= due) {
                let (to, mut frame) = entry.remove();
                let taken = measure(|| {
                    match self.transfers.get_mut(to) {
                        Some(transfer) => transfer.handle_frame(now, Port(0), &mut frame),
                        None => self.arbiter.handle_frame(now, Port(0), &mut frame),
                    };
                });
                self.taken += taken.count_total;
                self.deliver(to);
            }
            let is_due = |due: Option<Mono>| due.is_some_and(|due| due <= now.mono);
            for index in 0..self.transfers.len() {
                if is_due(self.transfers[index].poll_timeout()) {
                    let taken = measure(|| self.transfers[index].handle_timeout(now));
                    self.taken += taken.count_total;
                    self.deliver(index);
                }
            }
            if is_due(self.arbiter.poll_timeout()) {
                self.arbiter.handle_timeout(now);
                self.deliver(self.transfers.len());
            }
        }
        self.now = end;
    }

    /// Returns the objects that `dst` has received, in order.
    pub fn received(&self, dst: u32) -> Vec<(ProcessId, u32, &Vec<u8>)> {
        let of_it = self.events.iter().filter(|(at, _)| *at == dst);
        let received = of_it.filter_map(|(_, event)| match event {
            TransferEvent::Received(src, number, bytes) => Some((*src, *number, bytes)),
            _ => None,
        });
        received.collect()
    }

    /// Restarts the endpoint of process `index` as its second incarnation.
    pub fn restart(&mut self, index: u32) {
        let mut config = config(index);
        config.client.incarnation = Incarnation(2);
        self.transfers[index as usize] = Transfer::new(config).expect("right");
    }

    pub fn sent(&self, src: u32) -> usize {
        let is_sent = |event: &TransferEvent| matches!(event, TransferEvent::Sent(..));
        self.events.iter().filter(|(at, event)| *at == src && is_sent(event)).count()
    }
}
