//! Repairs damaged blocks from other replicas, which may be programs of their own, and compares the
//! blocks of all replicas.

mod answering;
mod calls;
mod question;
mod scrub_run;

use std::collections::{BTreeMap, VecDeque};

use onepipe_base::Mono;

use crate::copy::CopiedBlock;
pub use answering::SUMMARIZED_MAX;
pub use calls::Asked;
use calls::{Asker, Calls};
pub use question::{Answer, Question, RepairMessage};
pub use scrub_run::ScrubReport;
use scrub_run::ScrubRun;

/// What repairs depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RepairOptions {
    /// Number of replicas.
    pub replicas: usize,
    /// Number of blocks of the device.
    pub blocks: u64,
    /// Numbers of questions are behind this one: another start of the program has used lower ones.
    pub last_number: u64,
    /// Time after which a replica that does not answer is given up, in ns.
    pub give_up_ns: u64,
}

/// What has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RepairOutcome {
    /// The repair with this number.
    Block {
        /// The number that [`Repairs::begin`] has returned.
        number: u64,
        /// The block as of another replica; `None` if no other one has it.
        block: Option<CopiedBlock>,
        /// Whether the damaged block was replaced.
        is_repaired: bool,
    },
    /// The scrub.
    Scrub(ScrubReport),
}

/// Asks the replicas of a device about blocks, and lets them repair these. Its driver sends what
/// [`Repairs::poll_question`] returns to a replica, or answers it if that replica is its own
/// ([`Question::answer`]), and passes each answer to [`Repairs::handle_answer`].
///
/// A read of a damaged block asks all other replicas at once, and takes the first intact copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Repairs {
    options: RepairOptions,
    calls: Calls,
    last: u64,
    repairs: BTreeMap<u64, Repair>,
    scrub: Option<ScrubRun>,
    outcomes: VecDeque<RepairOutcome>,
}

/// A damaged block that is being repaired.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Repair {
    replica: usize,
    block: u64,
    /// Number of replicas that were asked, and have not answered.
    open: usize,
    copied: Option<CopiedBlock>,
}

impl Repairs {
    /// Creates the machine.
    pub fn new(options: RepairOptions) -> Repairs {
        Repairs {
            options,
            calls: Calls::new(options.last_number, options.give_up_ns),
            last: 0,
            repairs: BTreeMap::new(),
            scrub: None,
            outcomes: VecDeque::new(),
        }
    }

    /// Begins to repair a block that is damaged in a replica. The other replicas must have applied
    /// `position`. Returns the number of the repair.
    pub fn begin(&mut self, now: Mono, replica: usize, block: u64, position: u64) -> u64 {
        self.last += 1;
        let number = self.last;
        let others = (0..self.options.replicas).filter(|other| *other != replica);
        let mut open = 0;
        for other in others {
            let question = Question::Copy { block, position };
            self.calls.ask(now, Asker::Repair(number), other, question);
            open += 1;
        }
        self.repairs.insert(number, Repair { replica, block, open, copied: None });
        if open == 0 {
            self.finish(number, false);
        }
        number
    }

    /// Begins to compare all replicas that have applied `position`.
    ///
    /// # Panics
    /// If a scrub has not ended.
    pub fn begin_scrub(&mut self, now: Mono, position: u64) {
        assert!(self.scrub.is_none(), "one scrub at a time");
        let RepairOptions { replicas, blocks, .. } = self.options;
        self.scrub = Some(ScrubRun::new(replicas, (blocks, position)));
        self.advance_scrub(now);
    }

    /// Returns the number of blocks that the scrub has compared, if one is going on.
    pub fn scrubbed(&self) -> Option<u64> {
        self.scrub.as_ref().map(ScrubRun::done)
    }

    /// Handles an answer of a replica to the question with this number.
    pub fn handle_answer(&mut self, now: Mono, (from, number): (usize, u64), answer: Answer) {
        let Some((asker, from, answer)) = self.calls.handle_answer(now, (from, number), answer)
        else {
            return;
        };
        self.on_answer(now, asker, from, answer);
    }

    /// Handles that the deadline has passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        while let Some((asker, from)) = self.calls.handle_timeout(now) {
            self.on_answer(now, asker, from, Answer::Failed);
        }
    }

    fn on_answer(&mut self, now: Mono, asker: Asker, from: usize, answer: Answer) {
        match asker {
            Asker::Repair(number) => self.on_repair(now, number, answer),
            Asker::Scrub => {
                if let Some(scrub) = &mut self.scrub {
                    scrub.handle_answer(from, answer);
                }
                self.advance_scrub(now);
            }
        }
    }

    fn on_repair(&mut self, now: Mono, number: u64, answer: Answer) {
        let Some(repair) = self.repairs.get_mut(&number) else { return };
        let (as_of, copy) = match answer {
            Answer::Copy { as_of, copy } => (as_of, copy),
            Answer::Installed { is_written } => return self.finish(number, is_written),
            // The damaged block cannot be replaced, but it was read from another replica.
            _ if repair.copied.is_some() => return self.finish(number, false),
            _ => (0, Vec::new()),
        };
        match CopiedBlock::parse(&copy, repair.block) {
            Some(copied) => {
                repair.copied = Some(copied);
                let replica = repair.replica;
                self.calls.cancel(Asker::Repair(number));
                let install = Question::Install { as_of, copy };
                self.calls.ask(now, Asker::Repair(number), replica, install);
            }
            // The block is damaged there, too, or the replica has ended.
            None => {
                repair.open -= 1;
                if repair.open == 0 {
                    self.finish(number, false);
                }
            }
        }
    }

    fn finish(&mut self, number: u64, is_repaired: bool) {
        if let Some(Repair { copied: block, .. }) = self.repairs.remove(&number) {
            self.outcomes.push_back(RepairOutcome::Block { number, block, is_repaired });
        }
    }

    fn advance_scrub(&mut self, now: Mono) {
        let Some(scrub) = &mut self.scrub else { return };
        while let Some((to, question)) = scrub.poll_question() {
            self.calls.ask(now, Asker::Scrub, to, question);
        }
        if let Some(report) = scrub.report() {
            self.outcomes.push_back(RepairOutcome::Scrub(report));
            self.scrub = None;
        }
    }

    /// Returns the next question that is to be sent.
    pub fn poll_question(&mut self, now: Mono) -> Option<Asked> {
        self.calls.poll(now)
    }

    /// Returns what has ended.
    pub fn poll_outcome(&mut self) -> Option<RepairOutcome> {
        self.outcomes.pop_front()
    }

    /// Returns when [`Repairs::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.calls.poll_timeout()
    }
}
