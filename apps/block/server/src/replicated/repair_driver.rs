//! The thread that repairs damaged blocks from other replicas, of this program or of others, and
//! compares all replicas: it drives [`Repairs`].

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use onepipe::ProcessId;
use onepipe_base::Mono;
use onepipe_block_replica::{
    Answer, Asked, Question, RepairMessage, RepairOptions, RepairOutcome, Repairs, ScrubReport,
};
use onepipe_log_server::LogHandle;

use super::reads::Reads;
use super::repairer::{Command, OnProgress, Repaired};

/// Time that other replicas have to answer, or to apply what the damaged one has.
const GIVE_UP: Duration = Duration::from_secs(5);
/// Longest wait for a command.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Starts the thread, which ends when the device has ended.
pub fn start(
    commands: Receiver<Command>,
    (replicas, blocks): (usize, u64),
    reads: Weak<Reads>,
) -> io::Result<()> {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let options = RepairOptions {
        replicas,
        blocks,
        last_number: since_epoch.unwrap_or_default().as_nanos() as u64,
        give_up_ns: GIVE_UP.as_nanos() as u64,
    };
    let mut driver = Driver {
        repairs: Repairs::new(options),
        reads,
        remote: None,
        open: BTreeMap::new(),
        scrub: None,
        began: Instant::now(),
    };
    let thread = thread::Builder::new().name("block-repair".into());
    thread.spawn(move || driver.run(&commands)).map(drop)
}

struct Driver {
    repairs: Repairs,
    reads: Weak<Reads>,
    /// The replica of this program and its node, if the others are in other programs.
    remote: Option<(usize, LogHandle)>,
    open: BTreeMap<u64, Sender<Repaired>>,
    scrub: Option<(OnProgress, Sender<ScrubReport>)>,
    began: Instant,
}

impl Driver {
    fn now(&self) -> Mono {
        let elapsed = self.began.elapsed().as_nanos();
        Mono::from_ns(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    fn run(&mut self, commands: &Receiver<Command>) {
        loop {
            // One question is answered between two commands, so that none waits for a whole scrub.
            let is_busy = self.advance();
            let due = self.repairs.poll_timeout().map(|due| due.since_ns(self.now()));
            let wait = match is_busy {
                true => Duration::ZERO,
                false => due.map_or(WAIT_MAX, Duration::from_nanos).min(WAIT_MAX),
            };
            match commands.recv_timeout(wait) {
                Ok(command) => self.on_command(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn on_command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Joined(replica, node) => self.remote = Some((replica, node)),
            Command::Repair { replica, block, position, done } => {
                let number = self.repairs.begin(now, replica, block, position);
                self.open.insert(number, done);
            }
            Command::Scrub { position, on_progress, done } => {
                self.repairs.begin_scrub(now, position);
                self.scrub = Some((on_progress, done));
            }
            Command::Message(from, payload) => match RepairMessage::parse(&payload) {
                Some(RepairMessage::Question(number, question)) => {
                    let Some((own, node)) = &self.remote else { return };
                    let answer = RepairMessage::Answer(number, self.answer(*own, &question));
                    node.send(from, &answer.to_bytes());
                }
                Some(RepairMessage::Answer(number, answer)) => {
                    self.repairs.handle_answer(now, (from.0 as usize, number), answer);
                }
                None => tracing::warn!(from = from.0, "a replica has sent no message of a repair"),
            },
        }
    }

    /// Sends a question, and reports what has ended. Returns whether there may be more to do.
    fn advance(&mut self) -> bool {
        self.repairs.handle_timeout(self.now());
        let asked = self.repairs.poll_question(self.now());
        let is_busy = asked.is_some();
        if let Some(asked) = asked {
            self.ask(asked);
        }
        while let Some(outcome) = self.repairs.poll_outcome() {
            match outcome {
                // The receivers wait for these, unless their device has ended.
                RepairOutcome::Block { number, block, is_repaired } => {
                    if let Some(done) = self.open.remove(&number) {
                        let _ = done.send(Repaired { block, is_repaired });
                    }
                }
                RepairOutcome::Scrub(report) => {
                    if let Some((_, done)) = self.scrub.take() {
                        let _ = done.send(report);
                    }
                }
            }
        }
        if let (Some((on_progress, _)), Some(done)) = (&mut self.scrub, self.repairs.scrubbed()) {
            on_progress(done);
        }
        is_busy
    }

    fn ask(&mut self, Asked { to, number, question }: Asked) {
        match &self.remote {
            Some((own, node)) if to != *own => {
                let message = RepairMessage::Question(number, question);
                node.send(ProcessId(to as u32), &message.to_bytes());
            }
            _ => {
                let answer = self.answer(to, &question);
                self.repairs.handle_answer(self.now(), (to, number), answer);
            }
        }
    }

    /// Answers a question by a replica of this program.
    fn answer(&self, replica: usize, question: &Question) -> Answer {
        let image = self.reads.upgrade().and_then(|reads| reads.image(replica));
        let Some(image) = image else { return Answer::Failed };
        let mut writer = image.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = question.answer(&image.reader, &mut writer);
        drop(writer);
        answer.unwrap_or_else(|error| {
            tracing::error!(%error, replica, "a replica's disk fails during a repair");
            Answer::Failed
        })
    }
}
