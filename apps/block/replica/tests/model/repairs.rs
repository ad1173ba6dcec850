//! Three replicas that are programs of their own, and ask each other over a network that loses,
//! repeats and reorders messages. One may not answer at all. A read of a damaged block returns
//! every acknowledged write, and a scrub repairs all that differs.

use onepipe_base::Mono;
use onepipe_block_replica::{
    Answer, BLOCK_LEN, ImageWriter, RepairMessage, RepairOptions, RepairOutcome, Repairs,
    ScrubReport,
};
use onepipe_journal::MemoryFile;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::damage::Replica;
use super::{BLOCKS, Log, Outcome, rng};

const REPLICAS: usize = 3;
/// Time of a step in ns.
const STEP_NS: u64 = 1_000_000;
/// Steps after which a task hangs.
const STEPS_MAX: u64 = 60_000;

struct Programs {
    rng: Xoshiro256PlusPlus,
    log: Log,
    replicas: Vec<Replica>,
    writers: Vec<ImageWriter<MemoryFile>>,
    /// The machine of each program.
    machines: Vec<Repairs>,
    /// Messages in flight: sender, receiver, bytes.
    network: Vec<(usize, usize, Vec<u8>)>,
    /// A replica that does not answer.
    down: Option<usize>,
    now: Mono,
}

impl Programs {
    fn new(seed: u64) -> Result<Programs, String> {
        let mut rng = rng(seed);
        let replicas = (0..REPLICAS).map(|_| Replica::new()).collect::<Result<Vec<_>, _>>()?;
        let writer = |replica: &Replica| replica.image.writer().map_err(|error| error.to_string());
        let writers = replicas.iter().map(writer).collect::<Result<_, _>>()?;
        let options = RepairOptions {
            replicas: REPLICAS,
            blocks: BLOCKS,
            last_number: seed,
            give_up_ns: 5_000_000_000,
        };
        let down = rng.random_bool(0.3).then(|| rng.random_range(0..REPLICAS));
        Ok(Programs {
            rng,
            log: Log::default(),
            replicas,
            writers,
            machines: vec![Repairs::new(options); REPLICAS],
            network: Vec::new(),
            down,
            now: Mono::from_ns(0),
        })
    }

    /// Returns a replica that answers.
    fn draw_up(&mut self) -> usize {
        loop {
            let drawn = self.rng.random_range(0..REPLICAS);
            if self.down != Some(drawn) {
                return drawn;
            }
        }
    }

    fn grow(&mut self, limit: u64) {
        (0..self.rng.random_range(0..limit)).for_each(|_| self.log.grow(&mut self.rng));
    }

    /// Lets some replicas apply the next change.
    fn apply(&mut self) -> Outcome {
        for replica in &mut self.replicas {
            if self.rng.random_bool(0.3) {
                self.log.apply_next(&mut replica.image).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn apply_all(&mut self) -> Outcome {
        self.replicas.iter_mut().try_for_each(|replica| self.log.apply_all(&mut replica.image))
    }

    fn send(&mut self, from: usize, to: usize, message: &RepairMessage) {
        let is_lost = from != to && self.rng.random_bool(0.2);
        let copies = if is_lost { 0 } else { 1 + usize::from(self.rng.random_bool(0.1)) };
        self.network.extend(vec![(from, to, message.to_bytes()); copies]);
    }

    /// Delivers a message, in any order, then lets each machine send what it has.
    fn step(&mut self) -> Outcome {
        self.now = self.now.after_ns(STEP_NS);
        for at in 0..REPLICAS {
            self.machines[at].handle_timeout(self.now);
            while let Some(asked) = self.machines[at].poll_question(self.now) {
                self.send(at, asked.to, &RepairMessage::Question(asked.number, asked.question));
            }
        }
        if self.network.is_empty() || self.rng.random_bool(0.3) {
            return Ok(());
        }
        let at = self.rng.random_range(0..self.network.len());
        let (from, to, bytes) = self.network.swap_remove(at);
        if self.down == Some(to) {
            return Ok(());
        }
        match RepairMessage::parse(&bytes).ok_or("a message is malformed")? {
            RepairMessage::Question(number, question) => {
                let (reader, writer) = (&self.replicas[to].reader, &mut self.writers[to]);
                let answer = question.answer(reader, writer).unwrap_or(Answer::Failed);
                self.send(to, from, &RepairMessage::Answer(number, answer));
            }
            RepairMessage::Answer(number, answer) => {
                self.machines[to].handle_answer(self.now, (from, number), answer);
            }
        }
        Ok(())
    }

    /// Takes steps until a machine reports an outcome. The log grows by at most `limit` changes at
    /// each step.
    fn await_outcome(&mut self, machine: usize, limit: u64) -> Result<RepairOutcome, String> {
        for _ in 0..STEPS_MAX {
            if limit > 0 && self.rng.random_bool(0.05) {
                self.grow(limit);
            }
            self.apply()?;
            self.step()?;
            if let Some(outcome) = self.machines[machine].poll_outcome() {
                return Ok(outcome);
            }
        }
        Err("a task never ends".into())
    }

    /// A block is damaged, and read.
    fn read(&mut self) -> Outcome {
        let replica = self.draw_up();
        // A read is answered by a replica that has applied what was acknowledged.
        let acknowledged = self.replicas[replica].reader.applied();
        let block = self.rng.random_range(0..BLOCKS);
        self.replicas[replica].flip_block(block, &mut self.rng);
        let number = self.machines[replica].begin(self.now, replica, block, acknowledged);
        match self.await_outcome(replica, 3)? {
            RepairOutcome::Block { number: of, block: Some(copied), .. } if of == number => {
                let range = block as usize * BLOCK_LEN..(block as usize + 1) * BLOCK_LEN;
                let is_right = |position| self.log.content(position)[range.clone()] == copied.bytes;
                match (acknowledged..=self.log.len()).any(is_right) {
                    true => Ok(()),
                    false => Err(format!("block {block} lacks an acknowledged write")),
                }
            }
            other => Err(format!("a damaged block is not read: {other:?}")),
        }
    }

    fn scrub(&mut self, limit: u64) -> Result<ScrubReport, String> {
        let machine = self.draw_up();
        let acknowledged = self.log.len();
        self.machines[machine].begin_scrub(self.now, acknowledged);
        match self.await_outcome(machine, limit)? {
            RepairOutcome::Scrub(report) => Ok(report),
            other => Err(format!("a scrub ends with {other:?}")),
        }
    }

    /// Copies are damaged or lack a change, and are repaired by a scrub.
    fn damage_and_scrub(&mut self) -> Outcome {
        self.grow(4);
        let mut damaged = 0;
        let faulty = self.draw_up();
        if self.rng.random() {
            // The others may not have applied the change that is lost.
            self.replicas[faulty].lose(&self.log, &mut self.rng)?;
            damaged += 1;
        }
        let lost = std::mem::take(&mut self.replicas[faulty].lost);
        let block = self.rng.random_range(0..BLOCKS);
        if self.rng.random() && !lost.contains(&block) {
            self.replicas[faulty].flip_block(block, &mut self.rng);
            damaged += 1;
        }
        let limit = self.rng.random_range(0..3);
        let report = self.scrub(limit)?;
        self.check_report(&report, damaged)?;
        if limit > 0 {
            // What has changed during the first scrub may need another one.
            let report = self.scrub(0)?;
            self.check_report(&report, damaged)?;
        }
        self.apply_all()?;
        let is_up = |(at, _): &(usize, &Replica)| self.down != Some(*at);
        let mut replicas = self.replicas.iter().enumerate().filter(is_up);
        replicas.try_for_each(|(_, replica)| self.log.check(&replica.image))
    }

    fn check_report(&self, report: &ScrubReport, damaged: u64) -> Outcome {
        let is_complete = report.blocks == BLOCKS
            && report.missing.iter().copied().eq(self.down)
            && report.replicas + report.missing.len() as u64 == REPLICAS as u64;
        match is_complete && report.damaged <= damaged && report.lost == 0 {
            true => Ok(()),
            false => Err(format!("{damaged} copies were damaged: {report:?}")),
        }
    }
}

pub fn run(seed: u64) -> Outcome {
    let mut programs = Programs::new(seed)?;
    for _ in 0..3 {
        programs.grow(6);
        programs.apply()?;
        programs.read()?;
        programs.apply_all()?;
        // What was not replaced, as it may have changed meanwhile.
        programs.scrub(0)?;
        programs.damage_and_scrub()?;
    }
    Ok(())
}
