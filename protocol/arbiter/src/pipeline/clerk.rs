//! Who keeps the counts for the workers.

use crate::demand::Flow;
use crate::desk::Command;
use crate::isolate::Fault;
use crate::{Allocated, Config, ConfigError, Demand, Ledger, RequestError, Timeslot};

/// What a worker is to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Nobody waits any more for flows of this endpoint that come from batches before.
    Forget(u32),
    /// Avoid this, or use it again.
    Avoid {
        /// What.
        fault: Fault,
        /// Whether it is avoided.
        avoids: bool,
    },
    /// Give out a batch.
    Batch {
        /// It begins here.
        start: Timeslot,
        /// So many new flows have been handed to the worker for it.
        fresh: u32,
    },
    /// So many more have been handed to it for the same batch, which was ordered before: flows that
    /// came back, and go out again. These are the last.
    Renew {
        /// How many.
        fresh: u32,
    },
}

/// Where orders and new flows go: to workers, by number.
pub trait Hands {
    /// This worker is to do this.
    fn order(&mut self, worker: usize, order: Order);

    /// These are new, and for this worker's next batch, of which the order follows.
    fn admit(&mut self, worker: usize, flows: &[Flow]);
}

/// Timeslots that were demanded and not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// Who wants to send.
    pub src: u32,
    /// To whom.
    pub dst: u32,
    /// How many.
    pub slots: u32,
}

/// Keeps the counts, on the core that communicates: what is demanded goes to the workers as flows
/// when a batch is closed, each batch to the next of them; what they have not served they hand on
/// to each other, and what was given all comes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clerk {
    ledger: Ledger,
    workers: usize,
    /// Whose the next batch is.
    next: usize,
}

impl Clerk {
    /// Orders that may wait for one worker: everybody forgotten twice, and all that may be avoided.
    pub const ORDERS_MAX: usize = 1 << 13;

    /// Of so many workers, one at least; the first is first. All memory that it will ever need is
    /// taken here.
    ///
    /// # Errors
    /// When a setting makes no sense, as that flows never come back to it.
    pub fn new(config: &Config, workers: usize) -> Result<Self, ConfigError> {
        if config.return_batches == 0 {
            return Err(ConfigError { name: "return_batches of several cores", value: 0 });
        }
        Ok(Self { ledger: Ledger::new(config)?, workers: workers.max(1), next: 0 })
    }

    /// Whether it can take a command: not while it waits for [`Clerk::on_allocated`] to make the
    /// last batch whole.
    pub fn is_ready(&self) -> bool {
        self.ledger.is_ready()
    }

    /// The batch that is closed next.
    pub fn number(&self) -> u64 {
        self.ledger.number()
    }

    /// The worker that gives it out.
    pub fn next(&self) -> usize {
        self.next
    }

    /// The worker that gives out the batch closed last.
    pub fn last(&self) -> usize {
        (self.next + self.workers - 1) % self.workers
    }

    /// Timeslots that are wanted and not known to be given.
    pub fn wanted(&self) -> u64 {
        self.ledger.wanted()
    }

    /// Pairs that wait for them, but for those that have asked for more since they were given all.
    pub fn pairs(&self) -> u32 {
        self.ledger.pairs()
    }

    /// Sees to it that a command is done. Answers what was demanded and not taken.
    ///
    /// # Panics
    /// When it is a batch, and it is not [`Clerk::is_ready`].
    pub fn obey(&mut self, command: Command, hands: &mut impl Hands) -> Option<Refused> {
        match command {
            Command::Demand(Demand::Want { src, dst, slots }) => {
                let slots = match self.ledger.request(src, dst, slots) {
                    Ok(()) => return None,
                    Err(RequestError::TooMuch { refused }) => refused,
                    Err(_) => slots,
                };
                return Some(Refused { src, dst, slots });
            }
            Command::Demand(Demand::Forget(src)) => {
                self.ledger.forget(src);
                hands.order(self.next, Order::Forget(src));
            }
            // They all choose paths.
            Command::Avoid { fault, avoids } => {
                (0..self.workers).for_each(|at| hands.order(at, Order::Avoid { fault, avoids }));
            }
            Command::Late => self.ledger.on_late(),
            Command::Batch(start) => {
                let at = self.next;
                let fresh = self.ledger.close(|fresh| {
                    hands.admit(at, fresh);
                    fresh.len() as u32
                });
                hands.order(at, Order::Batch { start, fresh });
                self.next = (at + 1) % self.workers;
                self.renew(hands);
            }
        }
        None
    }

    /// Makes the batch whole that was closed last, if it is not and can be.
    fn renew(&mut self, hands: &mut impl Hands) {
        let at = self.last();
        let fresh = self.ledger.renew(|fresh| {
            hands.admit(at, fresh);
            fresh.len() as u32
        });
        if let Some(fresh) = fresh {
            hands.order(at, Order::Renew { fresh });
        }
    }

    /// A batch was given out. They come in the order in which they were commanded. Answers whether
    /// another one, that waited for it, is whole now.
    pub fn on_allocated(&mut self, batch: &mut Allocated, hands: &mut impl Hands) -> bool {
        self.ledger.on_batch(batch.given.given, batch.dropped, &mut batch.dry);
        batch.given.wanted = self.ledger.wanted();
        batch.given.pairs = self.ledger.pairs();
        let was_ready = self.is_ready();
        self.renew(hands);
        self.is_ready() && !was_ready
    }
}
