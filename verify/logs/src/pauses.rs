//! Pauses between deliveries: recorded by each process, evaluated where all logs are compared.

/// Of the pauses that begin within one slice of this length, only the longest is reported. In ns.
const SLICE_NS: u64 = 1_000_000;
/// A pause that begins up to this long after a kill counts as caused by it: the barrier stops at
/// the kill, but deliveries below it continue. In ns.
const KILL_EFFECT_NS: u64 = 10_000_000;
/// Pauses are retained for this long, as a kill may still turn out to fall into one, in ns.
const RETENTION_NS: u64 = 1_000_000_000;

/// Start and length of a pause, in ns of a clock of all.
pub type Pause = (u64, u64);

/// Records pauses at a process.
#[derive(Clone, Debug)]
pub struct PauseRecorder {
    last_ns: u64,
    pauses: Vec<Pause>,
}

impl PauseRecorder {
    /// Starts the first pause now.
    pub fn new(now_ns: u64) -> Self {
        Self { last_ns: now_ns, pauses: Vec::new() }
    }

    /// Returns the time of the last delivery, in ns.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Records a delivery: ends a pause and starts the next one.
    #[inline]
    pub fn on_delivered(&mut self, now_ns: u64) {
        let (began_ns, length_ns) = (self.last_ns, now_ns.saturating_sub(self.last_ns));
        self.last_ns = now_ns;
        match self.pauses.last_mut() {
            Some(pause) if pause.0 / SLICE_NS == began_ns / SLICE_NS => {
                if length_ns > pause.1 {
                    *pause = (began_ns, length_ns);
                }
            }
            _ => self.pauses.push((began_ns, length_ns)),
        }
    }

    /// Takes the pauses since the last call.
    pub fn take(&mut self) -> Vec<Pause> {
        std::mem::take(&mut self.pauses)
    }
}

/// Pauses of one process, as known where the logs are compared.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    /// Pauses that the kill has caused, or may cause if it comes now.
    near_kill: Vec<Pause>,
    other_max_ns: u64,
}

impl Pauses {
    /// Adds pauses. A pause counts up to the end of sending: after it there may be nothing to
    /// deliver.
    pub fn add(
        &mut self,
        pauses: Vec<Pause>,
        now_ns: u64,
        killed_ns: Option<u64>,
        stopped_ns: u64,
    ) {
        for (began_ns, length_ns) in pauses {
            let length_ns = length_ns.min(stopped_ns.saturating_sub(began_ns));
            self.near_kill.push((began_ns, length_ns));
        }
        let retained_from_ns = killed_ns.unwrap_or(now_ns.saturating_sub(RETENTION_NS));
        let kill_effect_ends_ns =
            killed_ns.map_or(u64::MAX, |killed_ns| killed_ns + KILL_EFFECT_NS);
        let other_max_ns = &mut self.other_max_ns;
        self.near_kill.retain(|(began_ns, length_ns)| {
            let is_near =
                began_ns + length_ns >= retained_from_ns && *began_ns <= kill_effect_ends_ns;
            if !is_near {
                *other_max_ns = (*other_max_ns).max(*length_ns);
            }
            is_near
        });
    }

    /// Returns the longest pause around the kill, and the longest other pause, in ns.
    pub fn longest_ns(&self) -> (u64, u64) {
        (self.near_kill.iter().map(|pause| pause.1).max().unwrap_or(0), self.other_max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn keeps_longest_pause_of_each_slice() {
        let mut recorder = PauseRecorder::new(10 * MS);
        for at_ns in [10 * MS + 5, 10 * MS + 100, 10 * MS + 110, 13 * MS, 13 * MS + 1] {
            recorder.on_delivered(at_ns);
        }
        let long = (10 * MS + 110, 3 * MS - 110);
        assert_eq!(recorder.take(), [long, (13 * MS, 1)]);
        assert_eq!(recorder.take(), []);
    }

    #[test]
    fn attributes_pause_around_kill() {
        let killed_ns = 100 * MS;
        let mut pauses = Pauses::default();
        let early = vec![(50 * MS, 20 * MS), (98 * MS, MS)];
        pauses.add(early, 99 * MS, None, u64::MAX);
        let later = vec![(99 * MS, 4 * MS), (105 * MS, 7 * MS), (200 * MS, 50 * MS)];
        pauses.add(later, 300 * MS, Some(killed_ns), u64::MAX);
        assert_eq!(pauses.longest_ns(), (7 * MS, 50 * MS));
    }

    #[test]
    fn ignores_pause_after_end_of_sending() {
        let mut pauses = Pauses::default();
        pauses.add(vec![(95 * MS, 900 * MS)], 1_000 * MS, Some(10 * MS), 100 * MS);
        assert_eq!(pauses.longest_ns(), (0, 5 * MS));
    }
}
