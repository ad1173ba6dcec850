//! Deliveries of one process.

use std::time::{Duration, Instant};

use onepipe_base::ScatteringId;

use super::{Job, Outcome};

/// First words of control messages.
pub(super) const HELLO: u64 = u64::MAX;
pub(super) const END: u64 = u64::MAX - 1;
/// Timeout of every phase but the measurement itself.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// Deliveries between two checkpoints of the order.
const CHECKPOINT: u64 = 10_000;

/// Deliveries and control messages received.
pub(super) struct DeliveryLog {
    pub outcome: Outcome,
    pub joined: Vec<bool>,
    /// Number of end messages received.
    pub ends_received: u32,
    /// Whether deliveries must be in ascending order.
    pub is_ordered: bool,
    /// Next number expected from each sender.
    expected: Vec<u64>,
    last: Option<(u64, u32, u16)>,
    hash: u64,
    /// Times of the first message and of the last end message.
    first_at: Option<Instant>,
    last_at: Option<Instant>,
    /// Number of the newest ping or pong.
    pub last_number: Option<u64>,
    pub error: Option<String>,
    /// Scatterings of own end messages, and receivers that are known to have missed one.
    pub ends: Vec<ScatteringId>,
    pub undelivered_ends: Vec<u32>,
}

impl DeliveryLog {
    /// Creates an empty log, in which only this process has joined.
    pub fn new(job: &Job) -> Self {
        Self {
            outcome: Outcome::default(),
            joined: (0..job.processes).map(|process| process == job.process).collect(),
            ends_received: 0,
            is_ordered: true,
            expected: vec![0; job.processes as usize],
            last: None,
            hash: 0,
            first_at: None,
            last_at: None,
            last_number: None,
            error: None,
            ends: Vec::new(),
            undelivered_ends: Vec::new(),
        }
    }

    /// Returns whether a message of every process was delivered. A hello that is lost is repeated
    /// only until its sender has the hellos of all others, and floods then.
    pub fn have_all_joined(&self) -> bool {
        self.joined.iter().zip(&self.expected).all(|(joined, next)| *joined || *next > 0)
    }

    /// Returns the result.
    pub fn finish(&self) -> Outcome {
        let mut outcome = self.outcome.clone();
        if let (Some(first), Some(last)) = (self.first_at, self.last_at) {
            outcome.seconds = (last - first).as_secs_f64();
        }
        outcome
    }

    /// Records the delivery of a message with this order key and first word.
    // Part of the polling loop: as a call it would cost a tenth of what is measured.
    #[inline(always)]
    pub fn deliver(&mut self, key: (u64, u32, u16), word: u64) {
        if self.is_ordered && self.last.is_some_and(|last| key <= last) {
            self.report_misorder(key);
        }
        self.last = Some(key);
        let from = key.1 as usize;
        if word >= END {
            return self.handle_control(from, word);
        }
        if word < self.expected[from] {
            self.report_duplicate(from, word);
        }
        self.expected[from] = word + 1;
        self.last_number = Some(word);
        self.count(key.0, u64::from(key.1), word);
    }

    #[cold]
    fn handle_control(&mut self, from: usize, word: u64) {
        match word {
            HELLO => self.joined[from] = true,
            _ => {
                self.joined[from] = true;
                self.ends_received += 1;
                self.last_at = Some(Instant::now());
            }
        }
    }

    #[cold]
    fn report_misorder(&mut self, key: (u64, u32, u16)) {
        self.error = Some(format!("{key:?} was delivered after {:?}", self.last));
    }

    #[cold]
    fn report_duplicate(&mut self, from: usize, number: u64) {
        self.error = Some(format!("{number} received twice from process {from}"));
    }

    #[inline(always)]
    fn count(&mut self, timestamp: u64, from: u64, number: u64) {
        // All receivers deliver the same stream, so they have the same hash at the same count.
        let item = timestamp ^ from.rotate_left(48) ^ number.rotate_left(24);
        self.hash = (self.hash.rotate_left(5) ^ item).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.outcome.delivered += 1;
        if self.outcome.delivered % CHECKPOINT == 1 {
            self.add_checkpoint();
        }
    }

    #[cold]
    fn add_checkpoint(&mut self) {
        self.first_at.get_or_insert_with(Instant::now);
        self.outcome.checkpoints.push(self.hash);
    }
}

/// Returns the CPU time of this process so far, in s.
pub(super) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
