//! Two endpoints in the steady state allocate nothing.

use allocation_counter::measure;
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_endpoint::{Config, Endpoint, Event, Links, Message};

struct Pair {
    ends: [Endpoint; 2],
    ns: u64,
    delivered: u64,
    frames: u64,
    is_lossy: bool,
    slot: [u8; 1_472],
}

impl Pair {
    fn new() -> Self {
        let end = |process| {
            let links = Links::Mesh;
            let config = Config::new(ProcessId(process), Incarnation(1));
            Endpoint::new(Config { processes_max: 2, links, ..config }).expect("valid")
        };
        let ends = [end(0), end(1)];
        Self { ends, ns: 1_000, delivered: 0, frames: 0, is_lossy: false, slot: [0; 1_472] }
    }

    /// A round of 5 us: both endpoints send coalesced and fragmented messages to each other and to
    /// themselves, and every frame arrives at once.
    fn round(&mut self) {
        self.ns += 5_000;
        let sync = Timestamp::from_ns((1 << 50) + self.ns);
        let now = Now { mono: Mono::from_ns(self.ns), sync };
        let (small, large) = ([7; 64], [8; 5_000]);
        for from in 0..2 {
            let [here, there] = [from, 1 - from].map(ProcessId);
            for _ in 0..20 {
                let one = Message { to: there, payload: &small };
                self.ends[from as usize].scatter(&[one]).expect("the send buffer is large enough");
                let both = [Message { to: here, payload: &small }, one, one];
                self.ends[from as usize].scatter(&both).expect("the send buffer is large enough");
            }
            let long = Message { to: there, payload: &large };
            self.ends[from as usize].scatter(&[long]).expect("the send buffer is large enough");
            self.scatter_reliably(from, &small, &large);
        }
        for _ in 0..4 {
            for from in 0..2 {
                self.pass(now, from);
            }
        }
    }

    /// Reliable scatterings, too: single, with siblings, and fragmented.
    fn scatter_reliably(&mut self, from: u32, small: &[u8], large: &[u8]) {
        let [here, there] = [from, 1 - from].map(ProcessId);
        let end = &mut self.ends[from as usize];
        let [own, one] = [here, there].map(|to| Message { to, payload: small });
        for _ in 0..10 {
            end.scatter_reliably(&[one]).expect("the send buffer is large enough");
            end.scatter_reliably(&[own, one, one]).expect("the send buffer is large enough");
        }
        end.scatter_reliably(&[Message { to: there, payload: large }])
            .expect("the send buffer is large enough");
    }

    /// Delivers the frames of `from` to the other endpoint, which consumes its messages.
    fn pass(&mut self, now: Now, from: usize) {
        let [port_here, _] = [from, 1 - from].map(|process| Port(process as u16));
        if self.ends[from].poll_timeout().is_some_and(|due| due <= now.mono) {
            self.ends[from].handle_timeout(now);
        }
        while let Some(transmit) = self.ends[from].poll_transmit(now, &mut self.slot) {
            self.frames += 1;
            // One of 128 frames is lost, of any kind, so reliable packets are retransmitted.
            let is_lost = self.frames.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57 == 0;
            if !self.is_lossy || !is_lost {
                let bytes = &mut self.slot[..transmit.bytes];
                self.ends[1 - from].handle_frame(now, port_here, bytes);
            }
        }
        let promises = self.ends[from].promises().expect("the clock was read before");
        let other = &mut self.ends[1 - from];
        other.handle_promises(now, port_here, promises);
        while let Some(event) = other.poll_event() {
            let Event::Delivered(delivery) = event else {
                assert!(self.is_lossy, "{event:?}");
                continue;
            };
            self.delivered += 1;
            other.release(delivery);
        }
    }
}

#[test]
fn steady_state_allocates_nothing() {
    let mut pair = Pair::new();
    let warm_up = measure(|| (0..2_000).for_each(|_| pair.round()));
    assert!(warm_up.count_total > 0, "the warm-up allocates buffers");
    let before = (pair.delivered, pair.ends[0].stats().acks_sent);
    assert!(pair.ends[0].is_drained(), "reliable messages are acknowledged, too");
    let count = measure(|| (0..2_000).for_each(|_| pair.round()));
    let (messages, acks) = (pair.delivered - before.0, pair.ends[0].stats().acks_sent - before.1);
    assert!(messages > 300_000 && acks > 500, "{messages} messages, {acks} acknowledgements");
    assert_eq!(count.count_total, 0, "allocations for {messages} messages");
}

#[test]
fn retransmission_allocates_nothing() {
    let mut pair = Pair::new();
    pair.is_lossy = true;
    (0..4_000).for_each(|_| pair.round());
    let before = pair.ends[0].stats().packets_retransmitted;
    let count = measure(|| (0..2_000).for_each(|_| pair.round()));
    let resent = pair.ends[0].stats().packets_retransmitted - before;
    assert!(resent > 60, "{resent} packets retransmitted");
    assert_eq!(count.count_total, 0, "allocations for {resent} packets");
}
