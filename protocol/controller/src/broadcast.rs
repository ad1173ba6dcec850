//! News on its way: in waves, or to one process after another
//! (design: failure.md, "How does the news get around?").

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::{Backoff, Instance, Mono, Port, ProcessId};
use onepipe_wire::{
    FAILURE_LEN, FLOOD_HEADER_LEN, Failure, Flood, FloodAck, FloodId, FloodKind, INSTANCE_LEN,
    RESOLVED_LEN, Resolved,
};

use crate::{Config, Epoch, Links};

/// What is to be told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum News {
    /// Failures; afterwards these lives are completed.
    Notice(Vec<Failure>),
    /// Links that hold nothing any more.
    Resume(Vec<Resolved>),
    /// Lives whose links are dead.
    Freeze(Vec<Instance>),
}

impl News {
    pub(crate) fn kind(&self) -> FloodKind {
        match self {
            Self::Notice(_) => FloodKind::Notice,
            Self::Resume(_) => FloodKind::Resume,
            Self::Freeze(_) => FloodKind::Freeze,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Notice(failures) => failures.len(),
            Self::Resume(resolved) => resolved.len(),
            Self::Freeze(instances) => instances.len(),
        }
    }

    fn per_frame(&self, payload_len: usize) -> usize {
        let entry = match self {
            Self::Notice(_) => FAILURE_LEN,
            Self::Resume(_) => RESOLVED_LEN,
            Self::Freeze(_) => INSTANCE_LEN,
        };
        (payload_len.saturating_sub(FLOOD_HEADER_LEN) / entry).max(1)
    }
}

/// Who is told, and asked for an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Audience {
    /// Everybody behind these links, in a wave.
    pub links: BTreeSet<Port>,
    /// These processes, each by itself.
    pub processes: BTreeSet<ProcessId>,
}

/// A piece of news that fits a frame, and who has not answered it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Round {
    pub id: FloodId,
    pub news: News,
    /// Whether everybody is told, so that nobody knows less afterwards.
    pub is_full: bool,
    /// How many announcements had come in when it began.
    pub announcements: u64,
    pub begun: Mono,
    audience: Audience,
    /// The entries that are on their way: from here, as many as fit.
    from: usize,
    missing: Audience,
    owed: Audience,
    repeat: Backoff,
    /// When it is begun anew unless somebody answers before.
    restart_at: Mono,
    /// When it is begun anew in any case: the ways have changed.
    hurried_at: Option<Mono>,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    Flood(Port),
    Notice(ProcessId),
}

/// One piece of news at a time, and the numbers of the waves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Broadcast {
    is_mesh: bool,
    payload_len: usize,
    repeat_ns: (u64, u64),
    restart_ns: u64,
    epoch: u32,
    sequence: u32,
    round: Option<Round>,
    /// Processes that have come while news was under way.
    pub late: BTreeSet<ProcessId>,
}

impl Broadcast {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            is_mesh: matches!(config.links, Links::Mesh(_)),
            payload_len: config.payload_len_max(),
            repeat_ns: (config.repeat_ns, config.repeat_slow_ns),
            restart_ns: config.restart_ns,
            epoch: 0,
            sequence: 0,
            round: None,
            late: BTreeSet::new(),
        }
    }

    /// A new reign: whatever was under way is not.
    pub(crate) fn begin_epoch(&mut self, epoch: Epoch) {
        (self.epoch, self.sequence) = (epoch.0, 0);
        self.round = None;
        self.late.clear();
    }

    /// A number above all before it.
    fn next_id(&mut self) -> FloodId {
        self.sequence += 1;
        FloodId { epoch: self.epoch, sequence: self.sequence }
    }

    /// The number of what is under way, or else a new one: for news to one process beside it.
    pub(crate) fn id_beside(&mut self) -> FloodId {
        match &self.round {
            Some(round) => round.id,
            None => self.next_id(),
        }
    }

    pub(crate) fn round(&self) -> Option<&Round> {
        self.round.as_ref()
    }

    /// Tells `news`, instead of what was under way.
    pub(crate) fn begin(
        &mut self,
        now: Mono,
        news: News,
        audience: Audience,
        is_full: bool,
        announcements: u64,
    ) {
        let id = self.next_id();
        let repeat = Backoff::new(self.repeat_ns.0, self.repeat_ns.1);
        let mut round = Round {
            id,
            news,
            is_full,
            announcements,
            begun: now,
            missing: audience.clone(),
            owed: audience.clone(),
            audience,
            from: 0,
            repeat,
            restart_at: now.after_ns(self.restart_ns),
            hurried_at: None,
        };
        round.repeat_from(now);
        self.round = Some(round);
    }

    /// What was under way is not any more. Whoever it was meant for alone is late again.
    pub(crate) fn abandon(&mut self) {
        if let Some(round) = self.round.take().filter(|round| !round.is_full) {
            self.late.extend(round.missing.processes);
        }
    }

    /// The ways have changed: what is not answered by `at` is begun anew then.
    pub(crate) fn hurry(&mut self, at: Mono) {
        if let Some(round) = self.round.as_mut().filter(|round| !round.missing.links.is_empty()) {
            round.hurried_at = Mono::earlier(round.hurried_at, Some(at));
        }
    }

    /// Whether `process` has yet to be told something.
    pub(crate) fn waits_for(&self, process: ProcessId) -> bool {
        let is_missing = |round: &Round| round.missing.processes.contains(&process);
        self.late.contains(&process) || self.round.as_ref().is_some_and(is_missing)
    }

    /// Everybody behind `port` has done what `echo` says. Answers whether that was waited for.
    pub(crate) fn on_echo(&mut self, now: Mono, port: Port, echo: FloodAck) -> bool {
        let restart_at = now.after_ns(self.restart_ns);
        let Some(round) = self.answered(echo) else { return false };
        round.owed.links.remove(&port);
        let is_progress = round.missing.links.remove(&port);
        round.go_on(is_progress, restart_at)
    }

    /// `process` has done what `echo` says. Answers whether that was waited for.
    pub(crate) fn on_completed(&mut self, now: Mono, process: ProcessId, echo: FloodAck) -> bool {
        let restart_at = now.after_ns(self.restart_ns);
        let Some(round) = self.answered(echo) else { return false };
        round.owed.processes.remove(&process);
        let is_progress = round.missing.processes.remove(&process);
        round.go_on(is_progress, restart_at)
    }

    fn answered(&mut self, echo: FloodAck) -> Option<&mut Round> {
        self.round.as_mut().filter(|round| (round.id, round.news.kind()) == (echo.id, echo.kind))
    }

    /// `process` has failed: nobody waits for it.
    pub(crate) fn on_failed(&mut self, process: ProcessId) {
        self.late.remove(&process);
        let Some(round) = &mut self.round else { return };
        let port = u16::try_from(process.0).ok().filter(|_| self.is_mesh).map(Port);
        for audience in [&mut round.audience, &mut round.missing, &mut round.owed] {
            audience.processes.remove(&process);
            audience.links.retain(|link| Some(*link) != port);
        }
    }

    /// Goes on when all have answered: to the next entries, under the next number. Answers the
    /// round once there are none left.
    pub(crate) fn advance(&mut self, now: Mono) -> Option<Round> {
        let round = self.round.as_mut()?;
        if !(round.missing.links.is_empty() && round.missing.processes.is_empty()) {
            return None;
        }
        let from = round.from + round.news.per_frame(self.payload_len);
        if from >= round.news.len() {
            return self.round.take();
        }
        self.sequence += 1;
        round.id.sequence = self.sequence;
        round.from = from;
        round.missing = round.audience.clone();
        round.owed = round.audience.clone();
        round.restart_at = now.after_ns(self.restart_ns);
        round.hurried_at = None;
        round.repeat_from(now);
        None
    }

    /// When something is to be repeated or to be begun anew.
    pub(crate) fn due(&self) -> Option<Mono> {
        let round = self.round.as_ref()?;
        Mono::earlier(round.repeat.due(), Some(round.ends_at()))
    }

    /// Repeats what was not answered. Answers whether it has to be begun anew.
    pub(crate) fn on_timeout(&mut self, now: Mono, repeats: &mut u64) -> bool {
        let Some(round) = &mut self.round else { return false };
        if now >= round.ends_at() {
            return true;
        }
        if round.repeat.take(now) {
            round.owed = round.missing.clone();
            *repeats += (round.owed.links.len() + round.owed.processes.len()) as u64;
        }
        false
    }

    /// The next to be sent.
    pub(crate) fn pop(&mut self) -> Option<Owed> {
        let owed = &mut self.round.as_mut()?.owed;
        match owed.links.pop_first() {
            Some(port) => Some(Owed::Flood(port)),
            None => owed.processes.pop_first().map(Owed::Notice),
        }
    }

    /// Whether there is something to be sent.
    pub(crate) fn wants_transmit(&self) -> bool {
        self.round
            .as_ref()
            .is_some_and(|round| !(round.owed.links.is_empty() && round.owed.processes.is_empty()))
    }

    /// Writes the payload of what is under way. Answers its bytes.
    pub(crate) fn write(&self, room: &mut [u8]) -> Option<usize> {
        let round = self.round.as_ref()?;
        let wave = Flood { id: round.id };
        let fit = round.news.per_frame(self.payload_len);
        let room = &mut room[..self.payload_len];
        let written = match &round.news {
            News::Notice(failures) => {
                wave.write_notice(room, failures[round.from..].iter().take(fit).copied())
            }
            News::Resume(resolved) => {
                wave.write_resume(room, resolved[round.from..].iter().take(fit).copied())
            }
            News::Freeze(instances) => {
                wave.write_freeze(room, instances[round.from..].iter().take(fit).copied())
            }
        };
        written.map(|(_, bytes)| bytes)
    }
}

impl Round {
    /// When it is begun anew.
    fn ends_at(&self) -> Mono {
        self.hurried_at.map_or(self.restart_at, |at| at.min(self.restart_at))
    }

    /// Somebody has answered, if it is so: told one by one, many take long, and all is well as long
    /// as there is always one more.
    fn go_on(&mut self, is_progress: bool, restart_at: Mono) -> bool {
        if is_progress {
            self.restart_at = restart_at;
        }
        is_progress
    }

    /// The first sending is under way already; the next is due after the first pause.
    fn repeat_from(&mut self, now: Mono) {
        self.repeat.on_change(now);
        self.repeat.take(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use onepipe_base::{Controllers, Incarnation, Timestamp};
    use onepipe_wire::FloodView;

    fn config() -> Config {
        let controllers = Controllers { first: ProcessId(90), count: 1 };
        // Two failures fit a frame.
        let frame_len_max = onepipe_wire::HEADER_LEN + FLOOD_HEADER_LEN + 2 * FAILURE_LEN;
        Config { frame_len_max, ..Config::new(ProcessId(90), controllers) }
    }

    fn failure(process: u32) -> Failure {
        let at = Timestamp::from_ns(5);
        Failure { first: ProcessId(process), count: 1, incarnation: Incarnation(0), at }
    }

    fn everybody() -> Audience {
        Audience { links: BTreeSet::from([Port(0)]), processes: BTreeSet::from([ProcessId(7)]) }
    }

    #[test]
    fn news_that_does_not_fit_a_frame_takes_several_waves() {
        let mut broadcast = Broadcast::new(&config());
        broadcast.begin_epoch(Epoch(3));
        let news = News::Notice([1, 3, 5].map(failure).into());
        let now = Mono::from_ns(100);
        broadcast.begin(now, news, everybody(), true, 0);
        let mut told = Vec::new();
        for sequence in 1..=2 {
            assert_eq!(broadcast.pop(), Some(Owed::Flood(Port(0))));
            assert_eq!(broadcast.pop(), Some(Owed::Notice(ProcessId(7))));
            assert_eq!(broadcast.pop(), None);
            let mut room = [0; 200];
            let bytes = broadcast.write(&mut room).expect("under way");
            let view = FloodView::parse(&room[..bytes]).expect("just written");
            told.extend(view.failures(Timestamp::from_ns(5)).map(|failure| failure.first.0));
            let id = FloodId { epoch: 3, sequence };
            assert_eq!(view.id, id);
            assert!(broadcast.advance(now).is_none(), "nobody has answered");
            let echo = FloodAck { id, kind: FloodKind::Notice };
            assert!(!broadcast.on_echo(now, Port(0), FloodAck { kind: FloodKind::Resume, ..echo }));
            assert!(broadcast.on_echo(now, Port(0), echo));
            assert!(!broadcast.on_echo(now, Port(0), echo));
            assert!(broadcast.on_completed(now, ProcessId(7), echo));
            assert_eq!(broadcast.advance(now).is_some(), sequence == 2);
        }
        assert_eq!(told, [1, 3, 5]);
    }

    #[test]
    fn who_does_not_answer_is_told_again_and_who_has_failed_is_not() {
        let mut broadcast = Broadcast::new(&config());
        let audience =
            Audience { links: BTreeSet::new(), processes: BTreeSet::from([7, 8].map(ProcessId)) };
        broadcast.begin(Mono::from_ns(0), News::Notice(vec![failure(1)]), audience, true, 0);
        while broadcast.pop().is_some() {}
        let due = broadcast.due().expect("unanswered");
        let mut repeats = 0;
        assert!(!broadcast.on_timeout(due, &mut repeats));
        assert_eq!((repeats, broadcast.pop()), (2, Some(Owed::Notice(ProcessId(7)))));
        broadcast.on_failed(ProcessId(7));
        broadcast.on_failed(ProcessId(8));
        assert!(broadcast.pop().is_none());
        assert!(broadcast.advance(due).is_some());
    }

    #[test]
    fn a_wave_without_an_answer_is_begun_anew() {
        let mut broadcast = Broadcast::new(&config());
        broadcast.begin(Mono::from_ns(0), News::Freeze(vec![]), everybody(), false, 0);
        broadcast.on_failed(ProcessId(0));
        assert!(broadcast.advance(Mono::from_ns(1)).is_none(), "port 0 is everybody's");
        let mut repeats = 0;
        let restart = Mono::from_ns(config().restart_ns);
        assert!(broadcast.on_timeout(restart, &mut repeats));
        broadcast.abandon();
        assert_eq!((broadcast.due(), broadcast.wants_transmit()), (None, false));
    }

    #[test]
    fn told_one_by_one_it_goes_on_as_long_as_anybody_answers() {
        let restart_ns = config().restart_ns;
        let mut broadcast = Broadcast::new(&config());
        let processes: BTreeSet<ProcessId> = (0..10).map(ProcessId).collect();
        let audience = Audience { links: BTreeSet::new(), processes: processes.clone() };
        broadcast.begin(Mono::from_ns(0), News::Notice(vec![failure(20)]), audience, true, 0);
        let echo = FloodAck { id: broadcast.round().expect("begun").id, kind: FloodKind::Notice };
        let mut now = Mono::from_ns(0);
        for process in processes.into_iter().take(9) {
            now = now.after_ns(restart_ns - 1);
            assert!(!broadcast.on_timeout(now, &mut 0), "{process:?} answers in time");
            assert!(broadcast.on_completed(now, process, echo));
        }
        // What was answered already is no progress.
        now = now.after_ns(restart_ns);
        assert!(!broadcast.on_completed(now, ProcessId(0), echo));
        assert!(broadcast.on_timeout(now, &mut 0));
    }

    #[test]
    fn when_the_ways_have_changed_no_answer_puts_the_restart_off() {
        let mut broadcast = Broadcast::new(&config());
        broadcast.begin(Mono::from_ns(0), News::Freeze(vec![]), everybody(), false, 0);
        let echo = FloodAck { id: broadcast.round().expect("begun").id, kind: FloodKind::Freeze };
        broadcast.hurry(Mono::from_ns(500));
        assert!(broadcast.on_completed(Mono::from_ns(400), ProcessId(7), echo));
        assert_eq!(broadcast.due(), Some(Mono::from_ns(500)));
        assert!(broadcast.on_timeout(Mono::from_ns(500), &mut 0));
    }
}
