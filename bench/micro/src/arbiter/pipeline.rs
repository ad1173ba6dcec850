//! Timeslots given out by several cores: each has every so many-th batch, and what it cannot serve
//! goes on to the core of the next one while both work (design: arbiter.md section 2).

use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use onepipe_arbiter::{Command, Config, Demand, Timeslot};
use onepipe_daemon_arbiter::{Place, Post, places};

use super::load::Load;
use super::{Outcome, check, machine};

/// Looks at empty rings before others get the core.
const SPINS: u32 = 10_000;
/// Of no account where timeslots are not given out by the clock.
const SLOT_NS: u64 = 1_000;

/// What a batch is asked for.
type Requests = Vec<(u32, u32, u32)>;

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
    let (places, posts) = places(&machine(config, SLOT_NS), cores)?;
    let ready = Barrier::new(cores);
    let counts = std::thread::scope(|scope| {
        let cores: Vec<_> = (places.into_iter().zip(posts).enumerate())
            .map(|(core, (place, post))| {
                let worker = Worker { config, core, cores, requests: &requests };
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    worker.work(place, post)
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

struct Worker<'a> {
    config: Config,
    core: usize,
    cores: usize,
    requests: &'a [Requests],
}

impl Worker<'_> {
    fn work(&self, mut place: Place, mut post: Post) -> Result<Count> {
        let middle = self.requests.len() / 2;
        let mut count = Count { given: 0, given_before: 0, times: [Instant::now(); 2] };
        for number in (self.core..self.requests.len()).step_by(self.cores) {
            if number / self.cores == middle / self.cores {
                count.times[0] = Instant::now();
            }
            let start = number as u64 * u64::from(self.config.batch_slots);
            let want = |&(src, dst, slots)| Command::Demand(Demand::Want { src, dst, slots });
            post.command_all(self.requests[number].iter().map(want));
            post.command(Command::Batch(Timeslot(start)));
            let mut spins = 0;
            while !post.has_written() {
                spins = if place.turn().is_busy { 0 } else { spins + 1 };
                if spins >= SPINS {
                    std::thread::yield_now();
                }
            }
            let given = post.read(|batch| {
                let given = u64::from(batch.given().given);
                // Now and then, before the middle only: it would be part of the time.
                if number < middle && number % 16 == 0 {
                    check(batch.schedule(), self.config.batch_slots, given)?;
                }
                anyhow::Ok(given)
            });
            let given = given.expect("it has written one")?;
            count.given += given;
            count.given_before += if number < middle { given } else { 0 };
        }
        count.times[1] = Instant::now();
        Ok(count)
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
