//! The load generator for clients of a network: connections that each wait for a reply before they
//! send again. Both sides of a comparison use it, so neither has a better client than the other.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::rounds::Trial;
use crate::light::us;

/// A connection that executes one transaction after the other.
pub(super) trait Connection: 'static {
    /// Executes a transaction. Fails unless it was executed.
    fn transaction(&mut self) -> impl Future<Output = Result<()>>;
}

/// Latencies in ns, up to a minute with three digits.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid")
}

/// Drives all connections for a fifth of `seconds` unmeasured, then for `seconds`. `cpu_seconds`
/// returns the CPU time that the servers have used.
pub(super) async fn drive<C: Connection>(
    connections: Vec<C>,
    seconds: f64,
    cpu_seconds: impl Fn() -> Result<f64>,
) -> Result<Trial> {
    let latencies = Rc::new(RefCell::new(histogram()));
    let is_measuring = Rc::new(Cell::new(false));
    let is_stopping = Rc::new(Cell::new(false));
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let mut tasks = tokio::task::JoinSet::new();
            for mut connection in connections {
                let (latencies, is_measuring) = (Rc::clone(&latencies), Rc::clone(&is_measuring));
                let is_stopping = Rc::clone(&is_stopping);
                tasks.spawn_local(async move {
                    while !is_stopping.get() {
                        let began = Instant::now();
                        connection.transaction().await?;
                        if is_measuring.get() {
                            let ns = began.elapsed().as_nanos() as u64;
                            latencies.borrow_mut().saturating_record(ns.max(1));
                        }
                    }
                    Ok::<_, anyhow::Error>(())
                });
            }
            let pause = |seconds| tokio::time::sleep(Duration::from_secs_f64(seconds));
            pause(seconds / 5.0).await;
            let (began, cpu_before) = (Instant::now(), cpu_seconds()?);
            is_measuring.set(true);
            pause(seconds).await;
            is_measuring.set(false);
            let (elapsed, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds()? - cpu_before);
            is_stopping.set(true);
            while let Some(ended) = tasks.join_next().await {
                ended.context("a connection's task panicked")??;
            }
            trial(&latencies.borrow(), elapsed, cpu)
        })
        .await
}

/// Returns the figures of a measurement.
pub(super) fn trial(latencies: &Histogram<u64>, elapsed: f64, cpu: f64) -> Result<Trial> {
    let count = latencies.len() as f64;
    ensure!(count > 0.0, "no transaction ended within the {elapsed:.3} s measured");
    Ok(Trial {
        rate: count / elapsed,
        p50_us: us(latencies, 0.5),
        p99_us: us(latencies, 0.99),
        cpu_us: cpu * 1e6 / count,
    })
}

/// Returns a runtime of one thread: the load generator leaves the other cores to the servers.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the load generator")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sleeper(Duration);

    impl Connection for Sleeper {
        async fn transaction(&mut self) -> Result<()> {
            tokio::time::sleep(self.0).await;
            ensure!(!self.0.is_zero(), "it refuses");
            Ok(())
        }
    }

    fn drive_sleepers(sleepers: Vec<Sleeper>) -> Result<Trial> {
        let cpu = Cell::new(0.0);
        runtime()?.block_on(drive(sleepers, 0.2, || {
            cpu.set(cpu.get() + 1.0);
            Ok(cpu.get())
        }))
    }

    #[test]
    fn counts_transactions_of_all_connections() {
        let sleeper = || Sleeper(Duration::from_millis(5));
        let trial = drive_sleepers(vec![sleeper(), sleeper()]).expect("both succeed");
        assert!(trial.p50_us >= 5_000.0 && trial.p99_us >= trial.p50_us, "{trial:?}");
        // Two connections that wait for 5 ms each time.
        assert!(trial.rate <= 400.0 + 2.0 / 0.2, "{trial:?}");
        // The servers used one second.
        assert!((trial.cpu_us * trial.rate * 0.2 / 1e6 - 1.0).abs() < 0.5, "{trial:?}");
    }

    #[test]
    fn refused_transaction_is_an_error() {
        let error = drive_sleepers(vec![Sleeper(Duration::ZERO)]).expect_err("it refuses");
        assert_eq!(error.to_string(), "it refuses");
    }
}
