//! The trace of a history: a 64-bit hash, and the last lines of text.

use std::collections::VecDeque;

use crate::Instant;

/// An odd number without pattern: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A rolling hash over all events in order.
///
/// Two runs with equal hashes had the same history: each event contributes its instant, its node,
/// its kind and its content. Not collision-resistant against an adversary.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    /// Events that are not yet part of the hash, if the trace is a recording.
    recorded: Option<Vec<(Instant, u64, u64)>>,
    lines: VecDeque<String>,
    lines_max: usize,
}

impl Trace {
    /// Returns an empty trace that keeps the last `lines_max` lines of text.
    pub fn new(lines_max: usize) -> Self {
        Self { hash: MULTIPLIER, recorded: None, lines: VecDeque::new(), lines_max }
    }

    /// Returns a trace that only records its events, for [`Trace::append`], and keeps no text.
    pub fn recording() -> Self {
        Self { recorded: Some(Vec::new()), ..Self::new(0) }
    }

    /// Adds an event: instant, packed node and kind, and a hash of its content.
    #[inline]
    pub fn note(&mut self, at: Instant, what: u64, carried: u64) {
        match &mut self.recorded {
            None => self.hash = fold(fold(fold(self.hash, at.as_ps()), what), carried),
            Some(recorded) => recorded.push((at, what, carried)),
        }
    }

    /// Moves the events of a recording to the end of this trace.
    pub fn append(&mut self, recording: &mut Self) {
        for (at, what, carried) in recording.recorded.iter_mut().flat_map(|all| all.drain(..)) {
            self.note(at, what, carried);
        }
    }

    /// Adds a line of text, if any are kept. Does not affect the hash.
    #[inline]
    pub fn line(&mut self, at: Instant, text: impl FnOnce() -> String) {
        if self.lines_max > 0 {
            self.keep(at, text());
        }
    }

    /// Returns the hash of the history so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the kept lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    fn keep(&mut self, at: Instant, text: String) {
        if self.lines.len() == self.lines_max {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("@{}.{:03} {text}", at.as_ns(), at.as_ps() % 1_000));
    }
}

/// Folds a word into the hash: a multiplication to 128 bits of which both halves are used, so that
/// every bit of the old hash affects the new one.
#[inline]
fn fold(hash: u64, word: u64) -> u64 {
    let wide = u128::from(hash ^ word) * u128::from(MULTIPLIER);
    (wide as u64) ^ ((wide >> 64) as u64).rotate_left(29) ^ word.rotate_left(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(events: &[(u64, u64, u64)]) -> u64 {
        let mut trace = Trace::new(0);
        events
            .iter()
            .for_each(|&(at, what, carried)| trace.note(Instant::from_ps(at), what, carried));
        trace.hash()
    }

    #[test]
    fn hash_covers_time_kind_content_and_order() {
        let base = hash(&[(1, 2, 3), (4, 5, 6)]);
        assert_eq!(base, hash(&[(1, 2, 3), (4, 5, 6)]));
        for other in [
            [(1, 2, 3), (4, 5, 7)],
            [(1, 2, 3), (4, 6, 6)],
            [(1, 2, 3), (5, 5, 6)],
            [(4, 5, 6), (1, 2, 3)],
            [(1, 2, 2), (4, 5, 6)],
        ] {
            assert_ne!(base, hash(&other), "{other:?}");
        }
        assert_ne!(base, hash(&[(1, 2, 3)]));
    }

    #[test]
    fn appended_recordings_hash_like_one_trace() {
        let events = [(1, 2, 3), (4, 5, 6), (4, 5, 7)];
        let mut trace = Trace::new(0);
        let mut recordings = [Trace::recording(), Trace::recording()];
        for (index, (at, what, carried)) in events.into_iter().enumerate() {
            recordings[usize::from(index > 0)].note(Instant::from_ps(at), what, carried);
        }
        recordings.iter_mut().for_each(|recording| trace.append(recording));
        assert_eq!(trace.hash(), hash(&events));
        // A recording is empty once it was appended.
        recordings.iter_mut().for_each(|recording| trace.append(recording));
        assert_eq!(trace.hash(), hash(&events));
    }

    #[test]
    fn keeps_only_last_lines_as_text() {
        let mut trace = Trace::new(2);
        (0..5u64).for_each(|n| trace.line(Instant::from_ps(n * 1_500), || format!("event {n}")));
        assert_eq!(trace.lines().collect::<Vec<_>>(), ["@4.500 event 3", "@6.000 event 4"]);
    }
}
