//! The results of a client's requests that it may ask for again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

use onepipe_base::Timestamp;
use onepipe_base::mistake::{Mistake, makes};

use crate::reply::Reason;
use crate::request::{BatchHeader, Order};

/// The requests of a process that write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// The last session of the process.
    pub session: u64,
    /// Requests in the total order.
    total: Results,
    /// Requests in the order of this owner. Their floor is another one: of two owners of a request
    /// in the total order, one alone might receive them first and drop it.
    own: Results,
    /// Timestamp of the last request.
    pub last_at: Timestamp,
}

/// The requests of one order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Results {
    /// All requests below this number have completed.
    floor: u64,
    /// Encoded replies by the number of the request.
    replies: BTreeMap<u64, Vec<u8>>,
    /// Bytes of these replies.
    bytes: u64,
}

/// What an owner does with a request that writes.
pub enum Step {
    /// The owner executes it.
    New,
    /// The owner has executed it, and repeats this reply.
    Repeated(Vec<u8>),
    /// The owner drops it: its client needs no reply.
    Stale,
    /// The owner refuses it: too many results are remembered, or too long ones.
    Full(Reason),
}

/// Limits of the results that are remembered for the requests of one order.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResultLimits {
    /// Maximum number of results.
    pub results_max: usize,
    /// Number of bytes at which no further result is accepted.
    pub bytes_max: u64,
}

impl Session {
    pub fn new(session: u64, at: Timestamp) -> Self {
        Self { session, total: Results::default(), own: Results::default(), last_at: at }
    }

    fn results(&mut self, order: Order) -> &mut Results {
        match order {
            Order::Total => &mut self.total,
            Order::Owner => &mut self.own,
        }
    }

    /// Panics if more results are remembered than allowed, or their bytes are miscounted.
    pub fn check_invariants(&self, results_max: usize) {
        for results in [&self.total, &self.own] {
            assert!(results.replies.len() <= results_max, "the results are bounded");
            let bytes: u64 = results.replies.values().map(|reply| reply.len() as u64).sum();
            assert_eq!(results.bytes, bytes, "the bytes are those of the results");
            let first = results.replies.keys().next();
            assert!(
                first.is_none_or(|first| *first >= results.floor),
                "completed ones are dropped"
            );
        }
    }

    /// Remembers the encoded reply to a request.
    pub fn remember(&mut self, order: Order, number: u64, reply: Vec<u8>) {
        self.results(order).remember(number, reply);
    }

    /// Returns the encoded reply to a request in the total order.
    pub fn result(&self, number: u64) -> Option<&[u8]> {
        self.total.replies.get(&number).map(Vec::as_slice)
    }

    /// Decides on a request.
    pub fn step(
        &mut self,
        at: Timestamp,
        order: Order,
        header: BatchHeader,
        limits: ResultLimits,
    ) -> Step {
        let session = header.session;
        if session < self.session {
            return Step::Stale;
        }
        if session > self.session {
            *self = Self::new(session, at);
        }
        self.last_at = self.last_at.max(at);
        self.results(order).step(header, limits)
    }
}

impl Results {
    fn remember(&mut self, number: u64, reply: Vec<u8>) {
        self.bytes += reply.len() as u64;
        if let Some(previous) = self.replies.insert(number, reply) {
            self.bytes -= previous.len() as u64;
        }
    }

    fn step(&mut self, header: BatchHeader, limits: ResultLimits) -> Step {
        let BatchHeader { number, finished, .. } = header;
        let ResultLimits { results_max, bytes_max } = limits;
        // Only requests of the same order raise the floor: all owners of a request in the total
        // order have received the same ones before, so that all of them drop a request or none.
        self.floor = self.floor.max(finished);
        let unfinished = self.replies.split_off(&self.floor);
        let finished = mem::replace(&mut self.replies, unfinished);
        self.bytes -= finished.values().map(|reply| reply.len() as u64).sum::<u64>();
        debug_assert!(!self.replies.is_empty() || self.bytes == 0, "bytes are those of replies");
        if number < self.floor {
            return Step::Stale;
        }
        match self.replies.get(&number) {
            Some(reply) if !makes(Mistake::BatchExecutedTwice) => Step::Repeated(reply.clone()),
            None if self.replies.len() >= results_max => {
                Step::Full(Reason::TooManyRequests { limit: results_max as u64 })
            }
            None if self.bytes >= bytes_max => {
                Step::Full(Reason::TooManyBytes { limit: bytes_max })
            }
            _ => Step::New,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn results_are_remembered_until_requests_have_completed() {
        let at = Timestamp::from_ns(9);
        let mut session = Session::new(1, at);
        let order = Order::Total;
        let mut step = |number, finished, (results_max, bytes_max)| match session.step(
            at,
            order,
            BatchHeader { session: 1, number, finished },
            ResultLimits { results_max, bytes_max },
        ) {
            Step::New => {
                session.remember(order, number, vec![number as u8; 10]);
                "new"
            }
            Step::Repeated(reply) => {
                assert_eq!(reply, [number as u8; 10]);
                "repeated"
            }
            Step::Stale => "stale",
            Step::Full(Reason::TooManyRequests { limit: 2 }) => "too many",
            Step::Full(Reason::TooManyBytes { limit: 15 }) => "too long",
            Step::Full(_) => "wrong reason",
        };
        assert_eq!(step(1, 1, (2, 100)), "new");
        assert_eq!(step(2, 1, (2, 100)), "new");
        assert_eq!(step(1, 1, (2, 100)), "repeated");
        assert_eq!(step(3, 1, (2, 100)), "too many");
        assert_eq!(step(3, 1, (9, 15)), "too long");
        // The first request has completed.
        assert_eq!(step(3, 2, (2, 15)), "new");
        assert_eq!(step(1, 2, (9, 100)), "stale");
        assert_eq!(step(2, 2, (2, 15)), "repeated");
    }

    #[test]
    fn requests_of_one_order_drop_none_of_the_other() {
        let at = Timestamp::from_ns(9);
        let mut session = Session::new(1, at);
        let is_new = |step| matches!(step, Step::New);
        let id = |number, finished| BatchHeader { session: 1, number, finished };
        let limits = ResultLimits { results_max: 9, bytes_max: 100 };
        // The client has given request 5 up; the other owner has executed it.
        assert!(is_new(session.step(at, Order::Owner, id(7, 7), limits)));
        assert!(is_new(session.step(at, Order::Total, id(5, 3), limits)));
        assert!(is_new(session.step(at, Order::Total, id(8, 8), limits)));
        assert!(!is_new(session.step(at, Order::Owner, id(6, 6), limits)), "it has completed");
    }
}
