//! Timeslots given out by several cores: each has every so many-th batch, and what it cannot serve
//! goes on to the core of the next one while both work (design: arbiter.md section 2).

use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use onepipe_arbiter::{Config, Flow, Flows, Ledger, Schedule, Stage, Timeslot};
use rtrb::{Consumer, Producer, RingBuffer};

use super::load::Load;
use super::{Outcome, check};

/// Flows that are taken from the core before at a time.
const CHUNK: usize = 512;
/// Looks at an empty ring before others get the core.
const SPINS: u32 = 10_000;

/// What a batch is asked for.
type Requests = Vec<(u32, u32, u32)>;

/// A core's place in the ring of cores.
struct Place {
    flows_in: Consumer<Flow>,
    flows_out: Producer<Flow>,
    /// Whoever has the ledger may end its batch; the flows before it have all been sent.
    ledger_in: Consumer<Ledger>,
    ledger_out: Producer<Ledger>,
}

/// Packets that a core has given timeslots, in all and before the middle; when it came to the
/// middle, and when it had ended.
struct Count {
    given: u64,
    given_before: u64,
    times: [Instant; 2],
}

/// As [`super::run`], with so many cores.
pub(super) fn run(config: Config, cores: usize, load: f64, slots: u64) -> Result<Outcome> {
    let batch = u64::from(config.batch_slots);
    let mut load = Load::new(config.nodes, load);
    let requests: Vec<Requests> =
        (0..slots).step_by(batch as usize).map(|start| load.until(start).to_vec()).collect();
    let middle = requests.len() / 2;
    let places = places(config, cores)?;
    let ready = Barrier::new(cores);
    let counts = std::thread::scope(|scope| {
        let cores: Vec<_> = (places.into_iter().enumerate())
            .map(|(core, place)| {
                let worker = Worker { config, core, cores, requests: &requests };
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    worker.work(place)
                })
            })
            .collect();
        let join = |core: std::thread::ScopedJoinHandle<'_, _>| {
            core.join().unwrap_or_else(|_| Err(anyhow!("a core has panicked")))
        };
        cores.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let sum = |requests: &[Requests]| -> u64 {
        requests.iter().flatten().map(|(.., slots)| u64::from(*slots)).sum()
    };
    let (all, measured) = (sum(&requests), sum(&requests[middle..]));
    let given: u64 = counts.iter().map(|count| count.given).sum();
    ensure!(given <= all, "{} packets more were given than asked for", given - all);
    let before: u64 = counts.iter().map(|count| count.given_before).sum();
    // From when the first core came to the middle until the last one had ended.
    let begin = counts.iter().map(|count| count.times[0]).min().expect("there is a core");
    let end = counts.iter().map(|count| count.times[1]).max().expect("there is a core");
    Ok(Outcome {
        slots: (requests.len() - middle) as u64 * batch,
        spent: end.duration_since(begin),
        asked: measured,
        given: given - before,
    })
}

fn places(config: Config, cores: usize) -> Result<Vec<Place>> {
    let (mut flows_out, flows_in): (Vec<_>, Vec<_>) =
        (0..cores).map(|_| RingBuffer::new(config.pairs_max as usize)).unzip();
    let (mut ledger_out, ledger_in): (Vec<_>, Vec<_>) =
        (0..cores).map(|_| RingBuffer::new(1)).unzip();
    // What a core reads from, the one before it writes to.
    flows_out.rotate_left(1);
    ledger_out.rotate_left(1);
    let last = ledger_out.last_mut().expect("there is a core");
    last.push(Ledger::new(&config)?).map_err(|_| anyhow!("there is room for one"))?;
    let flows = flows_in.into_iter().zip(flows_out);
    let ledgers = ledger_in.into_iter().zip(ledger_out);
    Ok(flows
        .zip(ledgers)
        .map(|((flows_in, flows_out), (ledger_in, ledger_out))| Place {
            flows_in,
            flows_out,
            ledger_in,
            ledger_out,
        })
        .collect())
}

struct Worker<'a> {
    config: Config,
    core: usize,
    cores: usize,
    requests: &'a [Requests],
}

impl Worker<'_> {
    fn work(&self, mut place: Place) -> Result<Count> {
        let mut stage = Stage::new(self.config)?;
        let mut onward = Flows::new(self.config.pairs_max);
        let mut schedule = Schedule::new(self.config.nodes);
        let middle = self.requests.len() / 2;
        let mut count = Count { given: 0, given_before: 0, times: [Instant::now(); 2] };
        for number in (self.core..self.requests.len()).step_by(self.cores) {
            if number / self.cores == middle / self.cores {
                count.times[0] = Instant::now();
            }
            let start = number as u64 * u64::from(self.config.batch_slots);
            stage.begin(number as u64, Timeslot(start));
            let mut ledger = place.offer_all(&mut stage, &mut onward);
            for &(src, dst, slots) in &self.requests[number] {
                ledger.request(src, dst, slots)?;
            }
            stage.finish(&mut ledger, &mut onward);
            place.hand_on(&mut onward);
            if place.ledger_out.push(ledger).is_err() {
                return Err(anyhow!("the core behind has not taken the ledger"));
            }
            schedule.fill(stage.batch().grants());
            let given = u64::from(stage.batch().given());
            count.given += given;
            count.given_before += if number < middle { given } else { 0 };
            // Now and then, before the middle only: it would be part of the time.
            if number < middle && number % 16 == 0 {
                check(&schedule, self.config.batch_slots, given)?;
            }
        }
        count.times[1] = Instant::now();
        Ok(count)
    }
}

impl Place {
    /// Takes all flows of the batch before, and the ledger behind them.
    fn offer_all(&mut self, stage: &mut Stage, onward: &mut Flows) -> Ledger {
        let mut spins = 0;
        loop {
            // Looked for first: then no flow can come behind it.
            let ledger = self.ledger_in.pop().ok();
            let mut is_idle = true;
            while let Ok(chunk) = self.flows_in.read_chunk(self.flows_in.slots().min(CHUNK)) {
                if chunk.is_empty() {
                    break;
                }
                is_idle = false;
                let (first, second) = chunk.as_slices();
                stage.offer(first, onward);
                stage.offer(second, onward);
                chunk.commit_all();
                self.hand_on(onward);
            }
            if let Some(ledger) = ledger {
                return ledger;
            }
            spins = if is_idle { spins + 1 } else { 0 };
            if spins >= SPINS {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Sends on what must wait for the next batch.
    fn hand_on(&mut self, onward: &mut Flows) {
        let flows = onward.as_slice();
        let chunk = self
            .flows_out
            .write_chunk_uninit(flows.len())
            .expect("there are no more flows than the ring has room for");
        let _ = chunk.fill_from_iter(flows.iter().copied());
        onward.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_give_all_that_is_asked_for() {
        for cores in [2, 3] {
            let outcome = run(Config::new(24), cores, 0.8, 8_192).expect("it is a matching");
            let utilisation = outcome.given as f64 / outcome.asked as f64;
            assert!((0.9..1.1).contains(&utilisation), "{utilisation}");
        }
    }
}
