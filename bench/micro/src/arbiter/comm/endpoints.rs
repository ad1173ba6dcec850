//! All endpoints of an arbiter in one thread, behind one socket that acts as the arbiter's switch.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onepipe_base::{Now, ProcessId};
use onepipe_transport_clock::{Clock, SystemClock, reduce_wakeup_latency};
use onepipe_transport_udp::{BatchSocket, Config};
use onepipe_wire::{Frame, Opcode};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::endpoint::Endpoint;
use crate::arbiter::workers::thread_cpu_time;

/// Index of the socket's only destination.
const TO_ARBITER: usize = 0;

/// Sleep of the thread when it is idle.
const PAUSE: Duration = Duration::from_micros(5);

/// Usage of the endpoints' thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndpointUsage {
    /// Its CPU time.
    pub spent: Duration,
    /// Datagrams to the endpoints that the kernel dropped.
    pub lost: u32,
}

/// All endpoints. Datagrams are received and sent in batches (one system call, GSO and GRO), as at
/// a switch.
pub(super) struct Endpoints {
    socket: BatchSocket,
    knows_arbiter: bool,
    clock: SystemClock,
    endpoints: Vec<Endpoint>,
}

impl Endpoints {
    /// Creates `nodes` endpoints, each with a permanent backlog to a few of the others.
    ///
    /// # Panics
    /// When there are too few other endpoints.
    pub fn new(nodes: u32, arbiter: ProcessId, slot_ns: u64) -> Result<Self> {
        let bind = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let socket = BatchSocket::bind(&Config { bind, ..Config::default() }, 1 + TO_ARBITER);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(nodes));
        // Destinations of each endpoint, by distance from it: every endpoint receives as much.
        let mut steps: Vec<u32> = (1..nodes).collect();
        steps.shuffle(&mut random);
        let endpoints = (0..nodes).map(|src| {
            let others = std::array::from_fn(|at| (src + steps[at]) % nodes);
            Endpoint::new((ProcessId(src), arbiter), others, slot_ns)
        });
        Ok(Self {
            socket: socket.context("a socket")?,
            knows_arbiter: false,
            clock: SystemClock::calibrated(),
            endpoints: endpoints.collect(),
        })
    }

    /// Returns the address at which the arbiter finds its switch.
    pub fn addr(&self) -> Result<SocketAddr> {
        Ok(self.socket.local_addr()?)
    }

    /// Polls the endpoints for `time`.
    pub fn run_for(&mut self, time: Duration) -> EndpointUsage {
        reduce_wakeup_latency();
        let (begin, lost) = (thread_cpu_time(), self.socket.kernel_drops());
        let end = Instant::now() + time;
        while Instant::now() < end {
            let now = self.clock.read();
            let has_received = self.receive(now);
            if !self.send_due(now) && !has_received {
                // The daemon's other threads may need the core. Waking this thread by a doorbell
                // would add to the daemon's CPU time.
                std::thread::sleep(PAUSE);
            }
        }
        let lost = self.socket.kernel_drops().zip(lost).map_or(0, |(all, before)| all - before);
        EndpointUsage { spent: thread_cpu_time() - begin, lost }
    }

    /// Hands received frames to their endpoints. Returns whether anything was received.
    fn receive(&mut self, now: Now) -> bool {
        let batches = self.socket.receive();
        for batch in 0..batches {
            if !self.knows_arbiter {
                self.socket.set_destination(TO_ARBITER, self.socket.source(batch));
                self.knows_arbiter = true;
            }
            for index in self.socket.frames(batch) {
                let Ok(frame) = Frame::parse(self.socket.frame(index)) else { continue };
                let endpoint = self.endpoints.get_mut(frame.header.dst().index());
                if let Some(endpoint) = endpoint.filter(|_| frame.opcode == Opcode::Fcp) {
                    endpoint.handle_packet(now, frame.header.psn().0, frame.payload);
                }
            }
        }
        batches > 0
    }

    /// Sends the packets that are due. Returns whether there were any.
    fn send_due(&mut self, now: Now) -> bool {
        let mut has_sent = false;
        for endpoint in &mut self.endpoints {
            if !endpoint.is_due(now.mono) {
                continue;
            }
            let Some(slot) = self.socket.slot() else { break };
            let bytes = endpoint.write_packet(now, self.socket.frame(slot));
            let frame = self.socket.keep(slot, bytes);
            self.socket.send(TO_ARBITER, frame);
            has_sent = true;
        }
        // Packets without buffer space leave at the next poll.
        self.socket.flush();
        has_sent
    }
}
