//! A switch for rivals: it forwards and nothing else, perhaps with the sequencer in it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use onepipe_base::{Machine, Now, Port, ProcessId};
use onepipe_bench_rivals::{Links, Rival};
use onepipe_transport_clock::{Clock, SystemClock};
use onepipe_transport_driver::Idle;
use onepipe_transport_udp::{Config, Exchange};
use onepipe_wire::parse_header;

use super::tally::{PATIENCE, cpu_seconds};
use super::{Job, Outcome, Rule, member, work};

/// Forwards until nothing has come for a second.
pub(super) fn relay(job: &Job, bind: &str, frame_len: usize, rule: Rule) -> Result<Outcome> {
    let config =
        Config { bind: Some(bind.parse()?), frame_len_max: frame_len, ..Config::default() };
    let sequencer = ProcessId(job.processes);
    let seat = Job { process: sequencer.0, ..job.clone() };
    let seat = (rule == Rule::SwitchSequencer)
        .then(|| member::rival(&seat, rule, Links::Uplink, frame_len))
        .transpose()?;
    // The members, and a sequencer at a host.
    let nodes = job.processes as usize + 1;
    let mut relay = Relay {
        exchange: Exchange::bind(&config, nodes)?,
        seats: vec![None; nodes],
        sequencer,
        seat,
        clock: SystemClock::calibrated(),
        frames: 0,
    };
    let mut heard = Instant::now();
    let is_spinning = work::idle(job) == Idle::Spin;
    while heard.elapsed() < if relay.frames == 0 { PATIENCE } else { Duration::from_secs(1) } {
        let before = relay.frames;
        relay.turn();
        if relay.frames > before {
            heard = Instant::now();
        } else if !is_spinning {
            std::thread::yield_now();
        }
    }
    let delivered = relay.frames;
    Ok(Outcome { delivered, cpu_seconds: cpu_seconds(), ..Outcome::default() })
}

struct Relay {
    exchange: Exchange,
    /// Where each process was last heard.
    seats: Vec<Option<SocketAddr>>,
    sequencer: ProcessId,
    seat: Option<Rival>,
    clock: SystemClock,
    frames: u64,
}

impl Relay {
    fn turn(&mut self) {
        let trains = self.exchange.receive();
        let now = self.clock.read();
        for train in 0..trains {
            let from = self.exchange.sender(train);
            for place in self.exchange.frames(train) {
                self.frames += 1;
                let frame = self.exchange.frame(place);
                let Ok((header, opcode)) = parse_header(frame) else { continue };
                let (src, dst) = (header.src(), header.dst());
                if opcode.is_hop_only() {
                    // It says where somebody is.
                } else if dst == self.sequencer
                    && let Some(seat) = &mut self.seat
                {
                    seat.handle_frame(now, Port(0), frame);
                } else {
                    self.exchange.send(dst.index(), place);
                }
                self.learn(src, from);
            }
        }
        self.speak(now);
        // What finds no room is dropped, and sent again by who sent it.
        self.exchange.flush();
    }

    fn learn(&mut self, process: ProcessId, from: Option<SocketAddr>) {
        let Some(seat) = self.seats.get_mut(process.index()) else { return };
        if *seat != from {
            *seat = from;
            self.exchange.set_destination(process.index(), from);
        }
    }

    /// Sends what the sequencer has to say.
    fn speak(&mut self, now: Now) {
        let Some(seat) = &mut self.seat else { return };
        if seat.poll_timeout().is_some_and(|due| due <= now.mono) {
            seat.handle_timeout(now);
        }
        while seat.poll_event().is_some() {}
        while let Some(slot) = self.exchange.slot() {
            let Some(transmit) = seat.poll_transmit(now, self.exchange.frame(slot)) else { break };
            let place = self.exchange.keep(slot, transmit.bytes);
            let to =
                parse_header(self.exchange.frame(place)).map(|(header, _)| header.dst().index());
            if let Ok(to) = to {
                self.exchange.send(to, place);
            }
        }
    }
}
