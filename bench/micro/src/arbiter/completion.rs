//! Completion times of transfers: from arrival to the end of the last packet's timeslot.

use anyhow::{Result, ensure};
use onepipe_arbiter::Schedule;

use super::SlotAllocator;
use super::load::Load;
use crate::Detail;

/// Timeslots of warm-up, and timeslots after it in which measured transfers arrive; the benchmark
/// of the Fastpass paper uses 10,000 and 50,000.
const WARM_UP: u64 = 10_112;
const COUNTED: u64 = 50_048;
/// Maximum number of packets of a trace; it shortens the traces of a thousand endpoints and more.
const PACKETS_MAX: f64 = 16e6;
/// A working allocator serves all measured transfers within this multiple of the trace.
const SLOTS_MAX_FACTOR: u64 = 16;

/// Completion times over several traces, in timeslots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Completion {
    /// Mean over the traces of the mean of each trace.
    mean: f64,
    /// Standard error of the mean; zero for a single trace.
    error: f64,
    /// Mean over the traces of the 99th percentile of each trace.
    p99: f64,
}

impl Completion {
    /// Measures allocators with batches of `batch_slots` over `traces` (at least one) traces, which
    /// are the same for every allocator.
    pub fn measure<A: SlotAllocator>(
        (nodes, load, batch_slots): (u32, f64, u32),
        traces: u64,
        mut allocator: impl FnMut() -> Result<A>,
    ) -> Result<Self> {
        let slots = (PACKETS_MAX / (f64::from(nodes) * load)) as u64;
        let all = (WARM_UP + COUNTED).min(slots);
        let window = (all * WARM_UP / (WARM_UP + COUNTED), all);
        let (mut means, mut p99s) = (Vec::new(), Vec::new());
        for trace in 0..traces {
            let load = Load::new(nodes, load).of_trace(trace);
            let mut durations = run(allocator()?, (nodes, batch_slots), load, window)?;
            ensure!(!durations.is_empty(), "no transfer comes in {all} timeslots");
            durations.sort_unstable_by(f64::total_cmp);
            means.push(mean(&durations));
            p99s.push(durations[durations.len() * 99 / 100]);
        }
        Ok(Self { mean: mean(&means), error: standard_error(&means), p99: mean(&p99s) })
    }

    /// Returns the details, with names that begin with `prefix`.
    pub fn details(&self, prefix: &str) -> [Detail; 3] {
        [("mean", self.mean), ("± standard error", self.error), ("p99", self.p99)].map(
            |(name, value)| Detail {
                name: format!("completion {prefix}{name}"),
                value,
                unit: "slots".to_string(),
            },
        )
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn standard_error(values: &[f64]) -> f64 {
    let (mean, count) = (mean(values), values.len() as f64);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if values.len() < 2 { 0.0 } else { (squares / (count - 1.0) / count).sqrt() }
}

/// Returns the completion times of the transfers that arrive in the window; arrivals continue until
/// all of these are complete.
fn run(
    mut allocator: impl SlotAllocator,
    (nodes, batch_slots): (u32, u32),
    mut load: Load,
    (begin, end): (u64, u64),
) -> Result<Vec<f64>> {
    let mut schedule = Schedule::new(nodes);
    let mut transfers = Transfers::new(nodes, (begin as f64, end as f64));
    let mut start = 0;
    while start < end || transfers.counted > 0 {
        ensure!(start < SLOTS_MAX_FACTOR * end, "{} transfers never complete", transfers.counted);
        let arrivals = load.until(start).to_vec();
        for (&(src, dst, packets), &time) in arrivals.iter().zip(load.times()) {
            allocator.request(src, dst, packets)?;
            transfers.arrive((src, dst), packets, time);
        }
        allocator.allocate(&mut schedule);
        for slot in 0..batch_slots {
            for (src, dst) in schedule.pairs(slot) {
                transfers.serve((src, dst), start + u64::from(slot))?;
            }
        }
        start += u64::from(batch_slots);
    }
    Ok(transfers.durations)
}

/// A transfer that has arrived and is not complete.
#[derive(Clone, Copy)]
struct Transfer {
    time: f64,
    packets_left: u32,
    /// Index + 1 of the next transfer of the same pair; zero if none.
    next: u32,
}

/// Transfers of each pair in FIFO order: a grant serves the earliest one.
struct Transfers {
    nodes: usize,
    /// Index + 1 of the first and the last transfer of each pair; zero if none.
    ends: Vec<[u32; 2]>,
    all: Vec<Transfer>,
    /// Free indices of `all`.
    free: Vec<u32>,
    window: (f64, f64),
    /// Measured transfers that are not complete.
    counted: u64,
    durations: Vec<f64>,
}

impl Transfers {
    fn new(nodes: u32, window: (f64, f64)) -> Self {
        let nodes = nodes as usize;
        let ends = vec![[0; 2]; nodes * nodes];
        let (all, free, durations) = (Vec::new(), Vec::new(), Vec::new());
        Self { nodes, ends, all, free, window, counted: 0, durations }
    }

    fn is_counted(&self, time: f64) -> bool {
        (self.window.0..self.window.1).contains(&time)
    }

    fn arrive(&mut self, (src, dst): (u32, u32), packets: u32, time: f64) {
        let transfer = Transfer { time, packets_left: packets, next: 0 };
        let index = self.free.pop().unwrap_or(self.all.len() as u32);
        match self.all.get_mut(index as usize) {
            Some(free) => *free = transfer,
            None => self.all.push(transfer),
        }
        let [first, last] = &mut self.ends[src as usize * self.nodes + dst as usize];
        match *first {
            0 => *first = index + 1,
            _ => self.all[*last as usize - 1].next = index + 1,
        }
        *last = index + 1;
        self.counted += u64::from(self.is_counted(time));
    }

    fn serve(&mut self, (src, dst): (u16, u16), slot: u64) -> Result<()> {
        let [first, _] = &mut self.ends[usize::from(src) * self.nodes + usize::from(dst)];
        ensure!(*first > 0, "{src} was granted a timeslot to {dst} that it did not request");
        let transfer = &mut self.all[*first as usize - 1];
        transfer.packets_left -= 1;
        if transfer.packets_left == 0 {
            self.free.push(*first - 1);
            *first = transfer.next;
            let time = transfer.time;
            if self.is_counted(time) {
                self.counted -= 1;
                self.durations.push((slot + 1) as f64 - time);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves one pair at a time in FIFO order, one timeslot per batch.
    struct OneByOne(Vec<(u32, u32, u32)>);

    impl SlotAllocator for OneByOne {
        fn request(&mut self, src: u32, dst: u32, slots: u32) -> Result<()> {
            self.0.push((src, dst, slots));
            Ok(())
        }

        fn allocate(&mut self, schedule: &mut Schedule) -> u64 {
            schedule.clear();
            let Some((src, dst, slots)) = self.0.first_mut() else { return 0 };
            schedule.put(*src, 0, *dst as u16);
            *slots -= 1;
            if *slots == 0 {
                self.0.remove(0);
            }
            1
        }
    }

    #[test]
    fn matches_mg1_queue_theory() {
        // Half of the timeslots are requested (two endpoints at a load of 0.25): a FIFO queue. In
        // theory, with the moments of the sampled distribution: the mean wait of M/G/1, plus the
        // service time, plus half a timeslot until the next one begins.
        let exact = |power: i32| {
            let tail = |packets: f64| (-(packets - 0.5) / 10.0f64).exp();
            (1..400).fold(1.0 - tail(1.0), |sum, packets| {
                let packets = f64::from(packets);
                sum + (tail(packets) - tail(packets + 1.0)) * packets.powi(power)
            })
        };
        let (service, squares) = (exact(1), exact(2));
        let rate = 0.5 / service;
        let theory = rate * squares / (2.0 * (1.0 - 0.5)) + service + 0.5;
        let completion = Completion::measure((2, 0.25, 1), 8, || Ok(OneByOne(Vec::new())))
            .expect("transfers complete");
        let off = (completion.mean - theory).abs();
        assert!(off < 4.0 * completion.error, "{completion:?}, {theory} in theory");
        assert!(completion.error < theory / 10.0 && completion.p99 > 3.0 * completion.mean);
    }

    #[test]
    fn detects_unwanted_and_missing_grants() {
        let mut transfers = Transfers::new(3, (0.0, 9.0));
        transfers.arrive((0, 1), 2, 1.0);
        transfers.arrive((0, 1), 1, 3.5);
        for slot in 4..7 {
            assert!(transfers.serve((1, 0), slot).is_err());
            transfers.serve((0, 1), slot).expect("it was requested");
        }
        assert!(transfers.serve((0, 1), 7).is_err());
        assert_eq!((transfers.durations, transfers.counted), (vec![5.0, 3.5], 0));
        struct Nothing;
        impl SlotAllocator for Nothing {
            fn request(&mut self, _: u32, _: u32, _: u32) -> Result<()> {
                Ok(())
            }
            fn allocate(&mut self, _: &mut Schedule) -> u64 {
                0
            }
        }
        assert!(Completion::measure((2, 0.1, 64), 1, || Ok(Nothing)).is_err());
    }
}
