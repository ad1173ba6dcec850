//! Questions that are not answered yet: each is sent again until it is answered or given up.

use std::collections::{BTreeMap, VecDeque};

use onepipe_base::Mono;

use crate::repair::question::{Answer, Question};

/// Time after which a question is sent again, in ns; doubled by each repetition.
const REPEAT_NS: u64 = 50_000_000;
/// Limit on that time, in ns.
const REPEAT_NS_MAX: u64 = 1_000_000_000;
/// Time after which a replica that is behind is asked again, in ns.
const BEHIND_NS: u64 = 5_000_000;

/// Which task asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asker {
    /// The repair with this number.
    Repair(u64),
    /// The scrub.
    Scrub,
}

/// A question that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    /// The replica that is asked.
    pub to: usize,
    /// Number of the question, which its answer bears.
    pub number: u64,
    /// The question.
    pub question: Question,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    asker: Asker,
    to: usize,
    question: Question,
    /// The time after which the question is sent again.
    interval_ns: u64,
    repeat_at: Mono,
    give_up_at: Mono,
    is_unsent: bool,
}

/// The open questions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Calls {
    give_up_ns: u64,
    last: u64,
    open: BTreeMap<u64, Call>,
    unsent: VecDeque<u64>,
}

impl Calls {
    /// Creates an empty set. Questions have numbers behind `last`; they are given up after
    /// `give_up_ns`.
    pub fn new(last: u64, give_up_ns: u64) -> Calls {
        Calls { give_up_ns, last, open: BTreeMap::new(), unsent: VecDeque::new() }
    }

    /// Asks a replica.
    pub fn ask(&mut self, now: Mono, asker: Asker, to: usize, question: Question) {
        self.last = self.last.wrapping_add(1);
        let give_up_at = now.after_ns(self.give_up_ns);
        let (interval_ns, repeat_at) = (REPEAT_NS, now);
        let call =
            Call { asker, to, question, interval_ns, repeat_at, give_up_at, is_unsent: true };
        self.open.insert(self.last, call);
        self.unsent.push_back(self.last);
    }

    /// Returns the next question that is to be sent.
    pub fn poll(&mut self, now: Mono) -> Option<Asked> {
        while let Some(number) = self.unsent.pop_front() {
            if let Some(call) = self.open.get_mut(&number) {
                call.is_unsent = false;
                call.repeat_at = now.after_ns(call.interval_ns);
                let (to, question) = (call.to, call.question.clone());
                return Some(Asked { to, number, question });
            }
        }
        None
    }

    /// Handles an answer. Returns it with the task that waits for it, unless the replica is to be
    /// asked again, or the question is not open.
    pub fn handle_answer(
        &mut self,
        now: Mono,
        (from, number): (usize, u64),
        answer: Answer,
    ) -> Option<(Asker, usize, Answer)> {
        let call = self.open.get_mut(&number).filter(|call| call.to == from)?;
        if answer == Answer::Behind {
            call.repeat_at = now.after_ns(BEHIND_NS);
            return None;
        }
        if !fits(&call.question, &answer) {
            return None;
        }
        let call = self.open.remove(&number)?;
        Some((call.asker, call.to, answer))
    }

    /// Sends questions again that are due. Returns the task and the replica of a question that is
    /// given up, one after the other.
    pub fn handle_timeout(&mut self, now: Mono) -> Option<(Asker, usize)> {
        let expired = self.open.iter().find(|(_, call)| call.give_up_at <= now);
        if let Some(number) = expired.map(|(number, _)| *number) {
            return self.open.remove(&number).map(|call| (call.asker, call.to));
        }
        for (number, call) in &mut self.open {
            if call.repeat_at <= now && !call.is_unsent {
                call.interval_ns = (2 * call.interval_ns).min(REPEAT_NS_MAX);
                call.is_unsent = true;
                self.unsent.push_back(*number);
            }
        }
        None
    }

    /// Returns when [`Calls::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        let sent = self.open.values().filter(|call| !call.is_unsent);
        sent.map(|call| call.repeat_at.min(call.give_up_at)).min()
    }

    /// Drops the open questions of a task.
    pub fn cancel(&mut self, asker: Asker) {
        self.open.retain(|_, call| call.asker != asker);
    }
}

/// Returns whether an answer is one to this question: its sender may have another version.
fn fits(question: &Question, answer: &Answer) -> bool {
    match (question, answer) {
        (Question::Summarize { first, count, .. }, Answer::Summary(summary)) => {
            summary.first == *first && summary.marks.len() as u64 == u64::from(*count)
        }
        (Question::Copy { .. }, Answer::Copy { .. })
        | (Question::Install { .. }, Answer::Installed { .. })
        | (_, Answer::Failed) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Question = Question::Copy { block: 3, position: 7 };

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    #[test]
    fn question_is_repeated_with_backoff_until_it_is_given_up() {
        let mut calls = Calls::new(9, 400_000_000);
        calls.ask(at(0), Asker::Scrub, 2, QUESTION);
        let asked = Asked { to: 2, number: 10, question: QUESTION };
        let mut sent = Vec::new();
        let mut now = at(0);
        loop {
            if let Some(given_up) = calls.handle_timeout(now) {
                assert_eq!((given_up, now), ((Asker::Scrub, 2), at(400_000_000)));
                break;
            }
            while let Some(polled) = calls.poll(now) {
                assert_eq!(polled, asked);
                sent.push(now.as_ns() / 1_000_000);
            }
            now = calls.poll_timeout().expect("a question is open");
        }
        assert_eq!(sent, [0, 50, 150, 350]);
        assert_eq!((calls.poll_timeout(), calls.poll(now)), (None, None));
    }

    #[test]
    fn only_the_replica_that_was_asked_answers_once() {
        let mut calls = Calls::new(0, 1_000_000_000);
        calls.ask(at(0), Asker::Repair(5), 1, QUESTION);
        assert_eq!(calls.poll(at(0)).map(|asked| asked.number), Some(1));
        let copy = || Answer::Copy { as_of: 7, copy: vec![1] };
        assert_eq!(calls.handle_answer(at(1), (0, 1), copy()), None, "another replica");
        assert_eq!(calls.handle_answer(at(1), (1, 2), copy()), None, "another question");
        let wrong = Answer::Installed { is_written: true };
        assert_eq!(calls.handle_answer(at(1), (1, 1), wrong), None, "to another question");
        let expected = Some((Asker::Repair(5), 1, copy()));
        assert_eq!(calls.handle_answer(at(1), (1, 1), copy()), expected);
        assert_eq!(calls.handle_answer(at(1), (1, 1), copy()), None, "it was answered");
    }

    #[test]
    fn replica_that_is_behind_is_asked_again_soon() {
        let mut calls = Calls::new(0, 1_000_000_000);
        calls.ask(at(0), Asker::Scrub, 1, QUESTION);
        calls.poll(at(0));
        assert_eq!(calls.handle_answer(at(1), (1, 1), Answer::Behind), None);
        assert_eq!(calls.poll_timeout(), Some(at(1 + BEHIND_NS)));
        assert_eq!(calls.handle_timeout(at(1 + BEHIND_NS)), None);
        assert!(calls.poll(at(1 + BEHIND_NS)).is_some());
    }
}
