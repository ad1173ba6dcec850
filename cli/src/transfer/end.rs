//! An end of scheduled transfer on the main thread, and why it does not get on.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onepipe::{
    ClientStats, EmbeddedTransfer, ObjectId, ProcessId, TransferError, TransferEvent, TransferStats,
};
use onepipe_arbiter::{ClientEvent, Unlike};

use super::Place;
use crate::number::readable_ns;

/// What a receiver had no room for is sent again so much later.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Who is told that nobody listens is told so within this.
const REFUSAL: Duration = Duration::from_millis(200);

/// How often an arbiter has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Served {
    /// Its process id.
    pub process: u32,
    /// Control packets that came from it.
    pub answers: u64,
}

/// Everything that is counted, at one time.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub at: Instant,
    pub endpoint: ClientStats,
    pub transfer: TransferStats,
}

/// Whether it is known that nobody listens at a UDP address. No answer is no proof.
fn is_refused(addr: SocketAddr) -> bool {
    let own = match addr {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let ask = || {
        let socket = UdpSocket::bind(own)?;
        socket.connect(addr)?;
        socket.set_read_timeout(Some(REFUSAL))?;
        // Of no octets: whoever listens takes it for nothing.
        socket.send(&[])?;
        socket.recv(&mut [0])
    };
    ask().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// An end, and what it is to send.
#[derive(Debug)]
pub struct End {
    transfer: EmbeddedTransfer,
    place: Place,
    process: u32,
    outbox: VecDeque<(ProcessId, Vec<u8>)>,
    /// What was refused for want of room, until when it waits.
    refused: VecDeque<(Instant, ProcessId, Vec<u8>)>,
    came: VecDeque<(ProcessId, Vec<u8>)>,
    asked: u32,
    served: Vec<Served>,
    /// Arbiters that are set up for other endpoints.
    unlike: Vec<Unlike>,
    stop: Arc<AtomicBool>,
}

impl End {
    /// Opens its socket. Nobody needs to be there yet.
    pub fn open(place: &Place, process: u32) -> Result<Self> {
        let builder = EmbeddedTransfer::builder().switch(place.udp).process(process);
        let builder = builder.endpoints(place.nodes).arbiters(&place.arbiter);
        let transfer = builder.slot(Duration::from_nanos(place.slot)).embedded();
        let transfer = transfer
            .with_context(|| format!("cannot be process {process} behind {}", place.udp))?;
        let stop = crate::interrupt::stop_flag(transfer.doorbell(), false)?;
        onepipe_transport_clock::sharpen_timers();
        Ok(Self {
            transfer,
            place: place.clone(),
            process,
            outbox: VecDeque::new(),
            refused: VecDeque::new(),
            came: VecDeque::new(),
            asked: place.arbiter[0],
            served: Vec::new(),
            unlike: Vec::new(),
            stop,
        })
    }

    /// Whether the user has interrupted it.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// What wakes it.
    pub fn doorbell(&self) -> onepipe_transport_driver::Doorbell {
        self.transfer.doorbell()
    }

    /// How long whoever does not answer is waited for.
    pub fn patience(&self) -> Duration {
        Duration::from_nanos(self.place.wait)
    }

    /// An object for `to`; it leaves in the turns to come.
    pub fn send(&mut self, to: ProcessId, object: Vec<u8>) {
        self.outbox.push_back((to, object));
    }

    /// Objects that are not through.
    pub fn under_way(&self) -> usize {
        self.outbox.len() + self.refused.len() + self.transfer.sending()
    }

    /// Works on, and rests if there is nothing to do.
    pub fn turn(&mut self) {
        self.hand_over();
        let Self { transfer, asked, refused, came, unlike, .. } = self;
        let answers = transfer.endpoint_stats().control_received;
        let progress = transfer.poll(|event| match event {
            TransferEvent::Received(from, _, octets) => came.push_back((from, octets)),
            TransferEvent::Refused(ObjectId { dst, .. }, octets) => {
                refused.push_back((Instant::now() + REFUSED_PAUSE, dst, octets));
            }
            TransferEvent::Client(ClientEvent::Asks(arbiter)) => *asked = arbiter.0,
            TransferEvent::Client(ClientEvent::Unlike(one)) => {
                unlike.retain(|known| known.arbiter != one.arbiter);
                unlike.push(one);
            }
            _ => {}
        });
        let answers = transfer.endpoint_stats().control_received - answers;
        if answers > 0 {
            self.count(answers);
        }
        if self.came.is_empty() {
            self.transfer.rest(progress);
        }
    }

    /// So many answers of the arbiter that is asked.
    fn count(&mut self, answers: u64) {
        self.unlike.retain(|unlike| unlike.arbiter.0 != self.asked);
        match self.served.iter_mut().find(|served| served.process == self.asked) {
            Some(served) => served.answers += answers,
            None => self.served.push(Served { process: self.asked, answers }),
        }
    }

    fn hand_over(&mut self) {
        while self.refused.front().is_some_and(|(at, ..)| *at <= Instant::now()) {
            self.outbox.extend(self.refused.pop_front().map(|(_, to, object)| (to, object)));
        }
        while let Some((to, object)) = self.outbox.pop_front() {
            match self.transfer.send(to, object) {
                Ok(_) => {}
                Err(TransferError::Full(object)) => {
                    self.outbox.push_front((to, object));
                    break;
                }
                // It is no endpoint: whoever names it was checked, or has sent something itself.
                Err(_) => {}
            }
        }
    }

    /// An object that has come.
    pub fn next(&mut self) -> Option<(ProcessId, Vec<u8>)> {
        self.came.pop_front()
    }

    /// Turns until nothing is under way, for `most` at most, and for `least` at least: what was
    /// heard last is told as often as the other end asks.
    pub fn linger(&mut self, least: Duration, most: Duration) {
        let began = Instant::now();
        while began.elapsed() < most && (self.under_way() > 0 || began.elapsed() < least) {
            self.turn();
            self.came.clear();
        }
    }

    /// Everything that is counted.
    pub fn counted(&self) -> Counted {
        Counted {
            at: Instant::now(),
            endpoint: *self.transfer.endpoint_stats(),
            transfer: *self.transfer.stats(),
        }
    }

    /// The arbiters that have answered, in the order in which they did so first.
    pub fn served(&self) -> &[Served] {
        &self.served
    }

    /// Which process it is.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// For people: who it is, and where.
    pub fn name(&self) -> String {
        format!("process {} behind {}", self.process, self.place.udp)
    }

    /// For people: how long its timeslots are, and who gives them.
    pub fn arbiter(&self) -> String {
        format!("arbiter {} gives timeslots of {}", self.asked, readable_ns(self.place.slot))
    }

    /// Whether an arbiter has answered.
    pub fn is_served(&self) -> bool {
        !self.served.is_empty()
    }

    /// Whether all arbiters are set up for other endpoints: to wait is of no use.
    pub fn suits_nobody(&self) -> bool {
        self.unlike.len() == self.place.arbiter.len()
    }

    /// Why nothing has got on since `before`, as far as it is not another endpoint's affair.
    pub fn trouble(&self, before: &Counted) -> Option<String> {
        let Place { udp, arbiter, nodes, slot, .. } = &self.place;
        let (was, is) = (&before.endpoint, self.transfer.endpoint_stats());
        let since = |count: fn(&ClientStats) -> u64| count(is) - count(was);
        let answers = since(|it| it.control_received);
        let heard = answers + since(|it| it.control_bad) + since(|it| it.slots_received);
        let granted = since(|it| it.granted);
        let useless = (since(|it| it.late), since(|it| it.ahead));
        let slot = readable_ns(*slot);
        if heard == 0 && is_refused(*udp) {
            return Some(format!("nobody listens at {udp}: `onepipe switch` does not run there"));
        }
        let ids = arbiter.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        if answers == 0
            && let Some(unlike) = self.unlike.last()
        {
            return Some(format!("{unlike}: --slot and --nodes must be the arbiter's"));
        }
        if answers == 0 && since(|it| it.control_sent) > 0 {
            return Some(format!(
                "no arbiter answers: {ids} was asked, behind the switch at {udp}, as endpoint {} of \
                 {nodes} for timeslots of {slot}; does `onepipe arbiter` run there with this \
                 --process, --nodes {nodes} and --slot {slot}?",
                self.process
            ));
        }
        if granted == 0 && useless != (0, 0) {
            return Some(format!(
                "arbiter {} gives timeslots that have passed ({}) or are too far ahead ({}): are \
                 its --slot {slot}, as here, and its --lead some milliseconds?",
                self.asked, useless.0, useless.1
            ));
        }
        if granted == 0 && self.under_way() > 0 {
            return Some(format!("arbiter {} gives no timeslots (of {slot})", self.asked));
        }
        None
    }
}
