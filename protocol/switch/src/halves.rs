//! The two logical switches in one: who feeds whom.

use alloc::vec::Vec;

use onepipe_base::{Mono, Port, Promises, Registers};

/// Registers of all input links, and what every output link has been told.
///
/// - Up: an upper port is told the minimum over the lower ports.
/// - Down: a lower port is told the minimum over the upper ports and all *other* lower ports. Its
///   own promise need not come back: a process inserts its messages to itself locally, and its
///   stamping floor is at least any barrier that it has received. A port that is quite alone is
///   told its own promise, so that its barrier moves at all.
///
/// An output holds what it was told last while the minimum lies below (a newcomer catches up).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Halves {
    lower_ports: u16,
    lower: Registers,
    upper: Registers,
    told: Vec<Option<Promises>>,
}

impl Halves {
    pub(crate) fn new(lower_ports: u16, upper_ports: u16) -> Self {
        Self {
            lower_ports,
            lower: Registers::new(lower_ports),
            upper: Registers::new(upper_ports),
            told: alloc::vec![None; usize::from(lower_ports) + usize::from(upper_ports)],
        }
    }

    #[inline]
    pub(crate) fn is_upper(&self, port: Port) -> bool {
        port.0 >= self.lower_ports
    }

    /// Notes a promise heard on `port`. Answers whether the link was not live before.
    #[inline]
    pub(crate) fn hear(&mut self, now: Mono, port: Port, promises: Promises) -> bool {
        if self.is_upper(port) {
            self.upper.hear(now, self.upper_index(port), promises)
        } else {
            self.lower.hear(now, port, promises)
        }
    }

    #[inline]
    pub(crate) fn is_live(&self, port: Port) -> bool {
        if self.is_upper(port) {
            self.upper.is_live(self.upper_index(port))
        } else {
            self.lower.is_live(port)
        }
    }

    pub(crate) fn has_heard_all(&self) -> bool {
        (self.lower.live() + self.upper.live()) as usize == self.told.len()
    }

    /// Takes a link out of the minima. Answers whether it was live.
    pub(crate) fn remove(&mut self, port: Port) -> bool {
        if self.is_upper(port) {
            self.upper.remove(self.upper_index(port))
        } else {
            self.lower.remove(port)
        }
    }

    /// Takes all links last heard before `deadline` out.
    pub(crate) fn expire(&mut self, deadline: Mono, mut lost: impl FnMut(Port)) {
        self.lower.expire(deadline, &mut lost);
        let lower_ports = self.lower_ports;
        self.upper.expire(deadline, |port| lost(Port(port.0 + lower_ports)));
    }

    /// When the live link that has been silent longest was last heard.
    pub(crate) fn oldest_heard(&self) -> Option<Mono> {
        Mono::earlier(self.lower.oldest_heard(), self.upper.oldest_heard())
    }

    /// Forgets what `port` was told: a new link takes its place.
    pub(crate) fn forget_told(&mut self, port: Port) {
        self.told[port.index()] = None;
    }

    /// What `port` can be told now, and from now on has been; `None` while no input feeds it.
    #[inline]
    pub(crate) fn tell(&mut self, port: Port) -> Option<Promises> {
        let fresh = self.minimum(port)?;
        let told = &mut self.told[port.index()];
        let telling = told.map_or(fresh, |told| told.max(fresh));
        debug_assert!(told.is_none_or(|told| {
            telling.barrier >= told.barrier && telling.commit >= told.commit
        }));
        *told = Some(telling);
        Some(telling)
    }

    /// Whether `port` could be told more than it has been.
    #[inline]
    pub(crate) fn has_news(&self, port: Port) -> bool {
        let Some(fresh) = self.minimum(port) else { return false };
        self.told[port.index()].is_none_or(|told| told.max(fresh) != told)
    }

    #[inline]
    fn minimum(&self, port: Port) -> Option<Promises> {
        if self.is_upper(port) {
            return self.lower.all();
        }
        match (self.upper.all(), self.lower.except(port)) {
            (Some(upper), Some(lower)) => Some(upper.min(lower)),
            (None, None) => self.lower.get(port),
            (upper, lower) => upper.or(lower),
        }
    }

    #[inline]
    fn upper_index(&self, port: Port) -> Port {
        Port(port.0 - self.lower_ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::Timestamp;

    fn promise(ns: u64) -> Promises {
        Promises { barrier: Timestamp::from_ns(ns), commit: Timestamp::from_ns(ns / 2) }
    }

    fn halves(promises: &[(u16, u64)]) -> Halves {
        let mut halves = Halves::new(3, 2);
        for &(port, ns) in promises {
            halves.hear(Mono::from_ns(ns), Port(port), promise(ns));
        }
        halves
    }

    #[test]
    fn up_is_fed_by_lower_ports_only() {
        let mut halves = halves(&[(0, 50), (2, 40), (3, 10), (4, 20)]);
        assert_eq!(
            (halves.tell(Port(3)), halves.tell(Port(4))),
            (Some(promise(40)), Some(promise(40)))
        );
    }

    #[test]
    fn down_is_fed_by_upper_ports_and_the_other_lower_ones() {
        let mut halves = halves(&[(0, 50), (2, 40), (3, 70), (4, 45)]);
        assert_eq!(halves.tell(Port(0)), Some(promise(40)));
        assert_eq!(halves.tell(Port(2)), Some(promise(45)));
        assert_eq!(halves.tell(Port(1)), Some(promise(40)), "nothing heard there, yet it is told");
    }

    #[test]
    fn a_port_that_is_alone_is_told_its_own_promise() {
        let mut alone = halves(&[(1, 50)]);
        assert_eq!(alone.tell(Port(1)), Some(promise(50)));
        let mut with_upper = halves(&[(1, 50), (3, 60)]);
        assert_eq!(with_upper.tell(Port(1)), Some(promise(60)));
    }

    #[test]
    fn a_half_that_nothing_feeds_tells_nothing() {
        let mut none = halves(&[]);
        assert_eq!((none.tell(Port(0)), none.tell(Port(3))), (None, None));
        let mut only_upper = halves(&[(3, 10)]);
        assert_eq!((only_upper.tell(Port(0)), only_upper.tell(Port(3))), (Some(promise(10)), None));
    }

    #[test]
    fn a_newcomer_holds_what_was_told_and_does_not_move_it_back() {
        let mut halves = halves(&[(0, 50), (1, 60)]);
        assert_eq!(halves.tell(Port(2)), Some(promise(50)));
        halves.hear(Mono::from_ns(0), Port(3), promise(5));
        assert_eq!(halves.tell(Port(2)), Some(promise(50)));
        assert!(!halves.has_news(Port(2)));
        halves.hear(Mono::from_ns(0), Port(3), promise(55));
        halves.hear(Mono::from_ns(0), Port(0), promise(56));
        assert!(halves.has_news(Port(2)));
        assert_eq!(halves.tell(Port(2)), Some(promise(55)));
    }

    #[test]
    fn expiry_names_ports_of_both_halves() {
        let mut halves = halves(&[(0, 50), (2, 40), (3, 70), (4, 45)]);
        assert_eq!(halves.oldest_heard(), Some(Mono::from_ns(40)));
        let mut lost = Vec::new();
        halves.expire(Mono::from_ns(50), |port| lost.push(port));
        assert_eq!(lost, [Port(2), Port(4)]);
        assert!(halves.is_live(Port(3)) && !halves.is_live(Port(4)));
    }
}
