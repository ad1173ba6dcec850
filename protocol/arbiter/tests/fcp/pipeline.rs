//! The arbiter's ends apart from its allocator, as when the two run on cores of their own.

use onepipe_arbiter::{
    Allocator, Client, Comm, CommConfig, Config, Demand, Fabric, Paths, Schedule, Timeslot,
};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_wire::Frame;

use crate::world::{SLOT_NS, client_config};

const ORIGIN_NS: u64 = 1 << 50;

struct Pipeline {
    comm: Comm,
    allocator: Allocator,
    paths: Paths,
    client: Client,
    now_ns: u64,
    /// Batches that are allocated and not yet told.
    behind: Vec<(Timeslot, Schedule)>,
    sent: u32,
}

impl Pipeline {
    fn now(&self) -> Now {
        let sync = Timestamp::from_ns(ORIGIN_NS + self.now_ns);
        Now { mono: Mono::from_ns(self.now_ns), sync }
    }

    /// What the client says is heard, and what is demanded handed on.
    fn hear(&mut self) {
        let (now, mut slot) = (self.now(), [0; 1_472]);
        self.client.handle_timeout(now);
        while let Some(transmit) = self.client.poll_transmit(now, &mut slot) {
            let frame = Frame::parse(&slot[..transmit.octets]).expect("sealed");
            self.sent += u32::from(frame.header.dst() == ProcessId(1));
            if frame.header.dst() == ProcessId(4) {
                self.comm.handle_frame(now, &frame);
            }
            while let Some(demand) = self.comm.poll_demand() {
                match demand {
                    Demand::Forget(src) => self.allocator.forget(src),
                    Demand::Want { src, dst, slots } => {
                        self.allocator.request(src, dst, slots).expect("few");
                    }
                }
            }
        }
    }

    /// A batch is allocated, and the one before the last `behind` is told.
    fn allocate(&mut self, behind: usize) {
        let ahead = 60_000 / SLOT_NS;
        self.allocator.skip_to(Timeslot((ORIGIN_NS + self.now_ns) / SLOT_NS + ahead));
        let batch = self.allocator.next_batch();
        let mut schedule = Schedule::new(4);
        schedule.fill(batch.grants());
        self.behind.push((batch.start(), schedule));
        while self.behind.len() > behind {
            let (start, schedule) = self.behind.remove(0);
            self.paths.assign(&schedule, 8);
            self.comm.grant(&schedule, &self.paths, start, 8);
        }
        let (now, mut slot) = (self.now(), [0; 1_472]);
        while let Some(octets) = self.comm.poll_transmit(now, &mut slot) {
            let frame = &mut slot[..octets];
            if Frame::parse(frame).expect("sealed").header.dst() == ProcessId(0) {
                self.client.handle_frame(now, Port(0), frame);
            }
        }
    }

    fn step(&mut self, behind: usize) {
        self.now_ns += 8 * SLOT_NS;
        self.comm.handle_timeout(self.now());
        self.hear();
        self.allocate(behind);
    }
}

/// What was allocated for an endpoint's former life comes to it when it has begun anew: it counts,
/// and nothing is given in its place or on top of it.
#[test]
fn batches_that_are_told_after_a_reset_are_neither_lost_nor_given_twice() {
    for (before, after) in [(40, 0), (40, 3), (40, 50), (4, 1)] {
        let fabric = Fabric { nodes: 4, rack_nodes: 4, paths: 1, is_strict: false };
        let mut pipeline = Pipeline {
            comm: Comm::new(CommConfig::new(ProcessId(4), 4)).expect("right"),
            allocator: Allocator::new(Config { batch_slots: 8, ..Config::new(4) }).expect("right"),
            paths: Paths::new(fabric).expect("right"),
            client: Client::new(client_config(0, 4, 1)).expect("right"),
            now_ns: 0,
            behind: Vec::new(),
            sent: 0,
        };
        let enqueue = |client: &mut Client, count| {
            (0..count).for_each(|_| client.enqueue(ProcessId(1), &[0; 200]).expect("room"));
        };
        enqueue(&mut pipeline.client, before);
        (0..4).for_each(|_| pipeline.step(3));
        let mut config = client_config(0, 4, 1);
        config.incarnation = Incarnation(2);
        pipeline.client = Client::new(config).expect("right");
        pipeline.sent = 0;
        enqueue(&mut pipeline.client, after);
        (0..8).for_each(|_| pipeline.step(3));
        (0..2_000).for_each(|_| pipeline.step(0));
        assert_eq!((pipeline.client.backlog(), pipeline.sent), (0, after));
        let (asked, given) = pipeline.client.totals(ProcessId(1));
        assert_eq!((asked, given), pipeline.comm.totals(0, 1), "{before}, then {after}");
        assert_eq!((asked, pipeline.allocator.wanted()), (given, 0));
        assert!(u32::from(given) <= 24 + after, "{given} for {after}");
    }
}
