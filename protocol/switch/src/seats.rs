//! Where controllers sit.

use alloc::vec::Vec;

use onepipe_base::{Instance, Mono, Port};

/// The ports behind which a controller says that it sits. They take no part in the barriers
/// (design: failure.md, "Where is the controller?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seats {
    seats: Vec<Seat>,
    max: usize,
    timeout_ns: u64,
}

/// A controller that has much to read or to think says nothing meanwhile. Nobody's barrier waits
/// for its link, but it knows nothing about anybody without one.
const PATIENCE: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seat {
    port: Port,
    instance: Instance,
    heard: Mono,
}

/// What a greeting has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeted {
    /// Nothing: it sat there already.
    Again,
    /// Somebody sits there who did not.
    New,
    /// It comes from an earlier life than the one that sits there, or there is no room.
    Refused,
}

impl Seats {
    /// Room for `max` seats on links with this timeout, in ns; 0: none. Each is free after
    /// [`PATIENCE`] times as long without a greeting.
    pub(crate) fn new(max: usize, link_timeout_ns: u64) -> Self {
        let timeout_ns = link_timeout_ns.saturating_mul(PATIENCE);
        Self { seats: Vec::with_capacity(max), max, timeout_ns }
    }

    /// `instance` says that it sits at `port`.
    pub(crate) fn greet(&mut self, now: Mono, port: Port, instance: Instance) -> Greeted {
        let Some(seat) = self.seats.iter_mut().find(|seat| seat.port == port) else {
            if self.seats.len() == self.max {
                return Greeted::Refused;
            }
            self.seats.push(Seat { port, instance, heard: now });
            return Greeted::New;
        };
        let is_stale = seat.instance.address == instance.address
            && instance.incarnation < seat.instance.incarnation;
        if is_stale {
            return Greeted::Refused;
        }
        let is_same = seat.instance == instance;
        *seat = Seat { port, instance, heard: now };
        if is_same { Greeted::Again } else { Greeted::New }
    }

    /// Who sits at `port`.
    pub(crate) fn instance(&self, port: Port) -> Option<Instance> {
        self.seats.iter().find(|seat| seat.port == port).map(|seat| seat.instance)
    }

    /// A seat that has been silent for too long, which is free from now on.
    pub(crate) fn pop_silent(&mut self, now: Mono) -> Option<Port> {
        let at = self.seats.iter().position(|seat| self.is_silent(seat, now))?;
        Some(self.seats.remove(at).port)
    }

    /// Frees `port`. Answers whether somebody sat there.
    pub(crate) fn remove(&mut self, port: Port) -> bool {
        let before = self.seats.len();
        self.seats.retain(|seat| seat.port != port);
        self.seats.len() < before
    }

    /// When the next seat may be silent for too long.
    pub(crate) fn due(&self) -> Option<Mono> {
        let heard = self.seats.iter().map(|seat| seat.heard).min()?;
        (self.timeout_ns > 0).then(|| heard.after_ns(self.timeout_ns.saturating_add(1)))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (Port, Instance)> + '_ {
        self.seats.iter().map(|seat| (seat.port, seat.instance))
    }

    fn is_silent(&self, seat: &Seat, now: Mono) -> bool {
        self.timeout_ns > 0 && now.since_ns(seat.heard) > self.timeout_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Address, Incarnation, ProcessId};

    #[test]
    fn a_seat_is_taken_by_the_latest_life_and_freed_by_silence() {
        let instance = |incarnation| Instance {
            address: Address::Process(ProcessId(60)),
            incarnation: Incarnation(incarnation),
        };
        let at = Mono::from_ns;
        let mut seats = Seats::new(1, 100);
        assert_eq!(seats.due(), None);
        assert_eq!(seats.greet(at(0), Port(1), instance(2)), Greeted::New);
        assert_eq!(seats.greet(at(5), Port(1), instance(2)), Greeted::Again);
        assert_eq!(seats.greet(at(6), Port(1), instance(1)), Greeted::Refused);
        assert_eq!(seats.greet(at(6), Port(2), instance(9)), Greeted::Refused, "no room");
        assert_eq!(seats.greet(at(7), Port(1), instance(3)), Greeted::New);
        assert_eq!((seats.instance(Port(1)), seats.due()), (Some(instance(3)), Some(at(808))));
        assert_eq!(seats.pop_silent(at(807)), None);
        assert_eq!((seats.pop_silent(at(808)), seats.iter().len()), (Some(Port(1)), 0));
        seats.greet(at(900), Port(2), instance(3));
        assert!(seats.remove(Port(2)) && !seats.remove(Port(2)));
    }
}
