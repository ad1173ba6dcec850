//! The load generator for nodes of this process: a fixed number of transactions in flight.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::closed_loop::{histogram, trial};
use super::cpu_time;
use super::rounds::Trial;

/// How long a transaction may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Takes the result of one transaction, from any thread.
pub(crate) struct Finish<R> {
    slot: usize,
    finished: Sender<(usize, Instant, R)>,
}

impl<R> Finish<R> {
    pub(crate) fn with(self, result: R) {
        // The generator has ended, if this fails.
        let _ = self.finished.send((self.slot, Instant::now(), result));
    }
}

/// Keeps `in_flight` transactions in flight, for a fifth of `seconds` unmeasured, then for
/// `seconds`. `begin` begins one, and returns what `check` needs to check its result. The CPU time
/// is that of this whole process: of all nodes, and of the generator.
pub(crate) fn drive<R, B>(
    in_flight: usize,
    seconds: f64,
    mut begin: impl FnMut(Finish<R>) -> Result<B>,
    mut check: impl FnMut(B, R) -> Result<()>,
) -> Result<Trial> {
    let (finished, results) = channel();
    let mut latencies = histogram();
    let mut begun = Vec::with_capacity(in_flight);
    for slot in 0..in_flight {
        let at = Instant::now();
        begun.push(Some((at, begin(Finish { slot, finished: finished.clone() })?)));
    }
    let measured_from = Instant::now() + Duration::from_secs_f64(seconds / 5.0);
    let until = measured_from + Duration::from_secs_f64(seconds);
    let mut cpu_before = None;
    let mut open = in_flight;
    let mut measured = None;
    while open > 0 {
        let (slot, at, result) = match results.recv_timeout(LIMIT) {
            Ok(finished) => finished,
            Err(RecvTimeoutError::Timeout) => bail!("a transaction takes more than {LIMIT:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("no transaction is in flight"),
        };
        let Some((began, what)) = begun[slot].take() else { bail!("a transaction ended twice") };
        check(what, result)?;
        let now = Instant::now();
        if now >= measured_from && measured.is_none() {
            let (from, before) = *cpu_before.get_or_insert_with(|| (now, cpu_time::own_seconds()));
            latencies
                .saturating_record((at.saturating_duration_since(began).as_nanos() as u64).max(1));
            if now >= until {
                measured = Some(((now - from).as_secs_f64(), cpu_time::own_seconds() - before));
            }
        }
        if measured.is_some() {
            open -= 1;
            continue;
        }
        let at = Instant::now();
        begun[slot] = Some((at, begin(Finish { slot, finished: finished.clone() })?));
    }
    let (elapsed, cpu) = measured.unwrap_or_default();
    trial(&latencies, elapsed, cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_transactions_in_flight_and_checks_each() {
        let (worker, work) = channel::<(u64, Finish<u64>)>();
        let executor = std::thread::spawn(move || {
            for (number, finish) in work {
                finish.with(number + 1);
            }
        });
        let (mut begun, mut checked) = (0, 0);
        let begin = |finish| {
            begun += 1;
            worker.send((begun, finish))?;
            Ok(begun)
        };
        let check = |number, result| {
            checked += 1;
            anyhow::ensure!(result == number + 1, "{number} has {result}");
            Ok(())
        };
        let trial = drive(4, 0.1, begin, check).expect("all are right");
        assert!(trial.rate > 0.0 && trial.p99_us >= trial.p50_us, "{trial:?}");
        assert_eq!(begun, checked);
        drop(worker);
        executor.join().expect("it does not panic");
    }

    #[test]
    fn wrong_result_is_an_error() {
        let begin = |finish: Finish<u64>| {
            finish.with(7);
            Ok(())
        };
        assert!(drive(1, 0.1, begin, |(), _| bail!("wrong")).is_err());
    }
}
