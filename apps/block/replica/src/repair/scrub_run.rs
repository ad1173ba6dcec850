//! Compares all blocks of the replicas, range by range, and lets damaged ones be repaired.

use std::collections::{BTreeSet, VecDeque};

use crate::copy::CopiedBlock;
use crate::repair::answering::SUMMARIZED_MAX;
use crate::repair::question::{Answer, Question};
use crate::scrub::{Finding, Summary};

/// Rounds over the same blocks, as those that change meanwhile are not repaired.
const ROUNDS_MAX: usize = 8;

/// What a scrub has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScrubReport {
    /// Blocks that were compared.
    pub blocks: u64,
    /// Replicas that were compared.
    pub replicas: u64,
    /// Replicas that were not compared, or not all of whose blocks were: they do not answer.
    pub missing: BTreeSet<usize>,
    /// Copies of blocks that were damaged, or lacked a change.
    pub damaged: u64,
    /// Those that were repaired.
    pub repaired: u64,
    /// Blocks of which no intact copy is known.
    pub lost: u64,
}

/// A block of the range that is being repaired.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mending {
    block: u64,
    /// Number of questions that are not answered.
    open: usize,
    /// Replicas where the block is damaged, until they were asked to repair it.
    bad: Vec<usize>,
}

/// What the scrub waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The marks of the range; the replicas that have answered come first.
    Summaries(Vec<(usize, Summary)>),
    /// A repair; what is repaired after it.
    Repairs(Mending, VecDeque<(Finding, Vec<usize>, u64)>),
    /// Nothing: all ranges were compared.
    Done,
}

/// A scrub that is going on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScrubRun {
    blocks: u64,
    /// Each replica is compared as of this position of the log or a later one.
    position: u64,
    replicas: BTreeSet<usize>,
    first: u64,
    round: usize,
    step: Step,
    unsent: VecDeque<(usize, Question)>,
    report: ScrubReport,
}

impl ScrubRun {
    /// Begins to compare the replicas 0 to `replicas`.
    pub fn new(replicas: usize, (blocks, position): (u64, u64)) -> ScrubRun {
        let mut run = ScrubRun {
            blocks,
            position,
            replicas: (0..replicas).collect(),
            first: 0,
            round: 0,
            step: Step::Done,
            unsent: VecDeque::new(),
            report: ScrubReport::default(),
        };
        run.summarize();
        run
    }

    /// Returns the number of blocks that were compared.
    pub fn done(&self) -> u64 {
        self.first
    }

    /// Returns the next question, with the replica that is asked.
    pub fn poll_question(&mut self) -> Option<(usize, Question)> {
        self.unsent.pop_front()
    }

    /// Returns what was found, once all is compared.
    pub fn report(&self) -> Option<ScrubReport> {
        let replicas = self.replicas.len() as u64;
        let report = || ScrubReport { replicas, ..self.report.clone() };
        (self.step == Step::Done).then(report)
    }

    fn count(&self) -> u64 {
        SUMMARIZED_MAX.min(self.blocks - self.first)
    }

    /// Asks for the marks of the range, or ends behind the last one.
    fn summarize(&mut self) {
        let (first, count, position) = (self.first, self.count(), self.position);
        if count == 0 || self.replicas.is_empty() {
            self.step = Step::Done;
            return;
        }
        let question = Question::Summarize { first, count: count as u32, position };
        self.unsent.extend(self.replicas.iter().map(|replica| (*replica, question.clone())));
        self.step = Step::Summaries(Vec::new());
    }

    /// Handles the answer of a replica.
    pub fn handle_answer(&mut self, from: usize, answer: Answer) {
        match (&mut self.step, answer) {
            (Step::Summaries(summaries), Answer::Summary(summary)) => {
                summaries.push((from, summary));
                self.compare_when_complete();
            }
            (Step::Summaries(_), _) => {
                self.replicas.remove(&from);
                self.report.missing.insert(from);
                self.compare_when_complete();
            }
            (Step::Repairs(..), answer) => self.on_repair(answer),
            (Step::Done, _) => {}
        }
    }

    fn compare_when_complete(&mut self) {
        let Step::Summaries(summaries) = &mut self.step else { return };
        if summaries.len() < self.replicas.len() {
            return;
        }
        let summaries = std::mem::take(summaries);
        let (replicas, summaries): (Vec<usize>, Vec<Summary>) = summaries.into_iter().unzip();
        let findings = Summary::compare(&summaries);
        let bad: u64 = findings.iter().map(|finding| finding.bad.len() as u64).sum();
        let lost = findings.iter().filter(|finding| finding.good.is_empty()).count() as u64;
        if self.round == 0 {
            self.report.damaged += bad;
        }
        self.round += 1;
        if self.round == ROUNDS_MAX || bad == 0 || lost == findings.len() as u64 {
            self.report.lost += lost;
            return self.next_range();
        }
        // A damaged mark says nothing of changes since: the copy must be as of what was applied.
        let applied = |finding: &Finding| {
            finding.bad.iter().map(|at| summaries[*at].applied).max().unwrap_or(0)
        };
        let is_mendable = |finding: &Finding| !finding.good.is_empty() && !finding.bad.is_empty();
        let mendable = findings.into_iter().filter(is_mendable);
        let next = mendable.map(|finding| {
            let applied = applied(&finding);
            (finding, replicas.clone(), applied)
        });
        let next = next.collect();
        self.mend(next);
    }

    fn next_range(&mut self) {
        let count = self.count();
        self.report.blocks += count;
        self.first += count;
        self.round = 0;
        self.summarize();
    }

    /// Asks for a copy of the next damaged block. Compares the range again after the last one.
    fn mend(&mut self, mut next: VecDeque<(Finding, Vec<usize>, u64)>) {
        let Some((finding, replicas, position)) = next.pop_front() else {
            return self.summarize();
        };
        let Finding { block, good, bad } = finding;
        let bad = bad.iter().map(|at| replicas[*at]).collect();
        self.unsent.push_back((replicas[good[0]], Question::Copy { block, position }));
        self.step = Step::Repairs(Mending { block, open: 1, bad }, next);
    }

    fn on_repair(&mut self, answer: Answer) {
        let Step::Repairs(mending, next) = &mut self.step else { return };
        mending.open -= 1;
        match answer {
            Answer::Copy { as_of, copy } if CopiedBlock::parse(&copy, mending.block).is_some() => {
                for replica in std::mem::take(&mut mending.bad) {
                    mending.open += 1;
                    let question = Question::Install { as_of, copy: copy.clone() };
                    self.unsent.push_back((replica, question));
                }
            }
            Answer::Installed { is_written } => self.report.repaired += u64::from(is_written),
            // The next round finds the block again.
            _ => {}
        }
        if mending.open == 0 {
            let next = std::mem::take(next);
            self.mend(next);
        }
    }
}
