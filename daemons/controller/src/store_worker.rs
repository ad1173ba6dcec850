//! The store worker: a thread that owns the store, so that the machine never waits for it.

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onepipe_base::ProcessId;
use onepipe_controller::{Epoch, PersistError, Record, RecordId, Store, StoreError};
use onepipe_transport_driver::Doorbell;

use crate::RunError;
use crate::store_state::{StateChange, StoreState};

/// A command to the worker.
#[derive(Debug)]
enum Command {
    Append(Epoch, RecordId, Record),
    Replace(Epoch, Vec<Record>),
    /// Step down, and let other replicas campaign first.
    Resign(Epoch),
    /// Report whether the epoch is still current.
    Confirm(Epoch),
    End,
}

/// An event of the worker.
#[derive(Debug)]
pub(crate) enum StoreEvent {
    /// This replica is active; with the log at that time.
    Elected(Epoch, Vec<Record>),
    /// The result of a write.
    Written(RecordId, Result<(), PersistError>),
    /// The epoch is over.
    Deposed(Epoch),
    /// The epoch is current, as [`StoreHandle::confirm`] has asked.
    Confirmed(Epoch),
    /// The store has failed, or its error has changed.
    Failed(String),
    /// The store works again.
    Recovered,
    /// The worker has panicked, and does nothing any more.
    Panicked(String),
}

/// The intervals of the election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElectionTimers {
    pub(crate) campaign_interval: Duration,
    pub(crate) renew_interval: Duration,
    /// How long a replica that has resigned does not campaign.
    pub(crate) resign_pause: Duration,
}

/// The machine's handle of the worker. When it is dropped the worker resigns and ends.
#[derive(Debug)]
pub(crate) struct StoreHandle {
    commands: Sender<Command>,
    events: Receiver<StoreEvent>,
    state: Arc<Mutex<StoreState>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreHandle {
    /// Starts the worker, which campaigns for `replica` from now on.
    pub(crate) fn open<S>(
        store: S,
        replica: ProcessId,
        timers: ElectionTimers,
        doorbell: Doorbell,
    ) -> std::io::Result<Self>
    where
        S: Store<Error: Error> + Send + 'static,
    {
        let (commands, command_receiver) = channel();
        let (event_sender, events) = channel();
        let state = Arc::new(Mutex::new(StoreState::new()));
        let store_worker = StoreWorker {
            store,
            replica,
            timers,
            command_receiver,
            event_sender,
            doorbell,
            state: Arc::clone(&state),
            term: None,
            due: Instant::now(),
            unconfirmed: None,
        };
        let builder = std::thread::Builder::new().name("store".to_owned());
        let thread = Some(builder.spawn(move || run_reporting_panic(store_worker))?);
        Ok(Self { commands, events, state, thread })
    }

    /// Submits a record to be written.
    pub(crate) fn append(&self, epoch: Epoch, id: RecordId, record: Record) {
        self.send(Command::Append(epoch, id, record));
    }

    /// Submits a replacement of the log. A failure is harmless: the log then stays long.
    pub(crate) fn replace(&self, epoch: Epoch, records: Vec<Record>) {
        self.send(Command::Replace(epoch, records));
    }

    /// Submits the request to let another replica become active.
    pub(crate) fn resign(&self, epoch: Epoch) {
        self.send(Command::Resign(epoch));
    }

    /// Asks whether `epoch` is still current: [`StoreEvent::Confirmed`] or [`StoreEvent::Deposed`]
    /// follows, once the store answers.
    pub(crate) fn confirm(&self, epoch: Epoch) {
        self.send(Command::Confirm(epoch));
    }

    /// Returns the worker's next event.
    ///
    /// # Errors
    /// [`RunError::StoreThread`] once the worker has panicked.
    //= spec/failure.md#R53
    #[inline]
    pub(crate) fn poll_event(&self) -> Result<Option<StoreEvent>, RunError> {
        match self.events.try_recv() {
            Ok(StoreEvent::Panicked(reason)) => Err(RunError::StoreThread(reason)),
            Ok(event) => Ok(Some(event)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(RunError::StoreThread("it has ended".into())),
        }
    }

    /// Returns the state of the store.
    pub(crate) fn state(&self) -> StoreState {
        lock(&self.state).clone()
    }

    fn send(&self, command: Command) {
        // The worker receives until it gets `Command::End`; if it has panicked, `poll_event` says
        // so.
        let _ = self.commands.send(command);
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        self.send(Command::End);
        if let Some(thread) = self.thread.take() {
            // `poll_event` has reported a panic.
            let _ = thread.join();
        }
    }
}

/// Runs the worker, and reports a panic of the store: a database may panic on a damaged file.
fn run_reporting_panic<S: Store<Error: Error>>(store_worker: StoreWorker<S>) {
    let (events, doorbell) = (store_worker.event_sender.clone(), store_worker.doorbell.clone());
    // The worker is consumed: nothing that the panic has left half done is used again.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| store_worker.work())) {
        // If the receiver is gone, the daemon has ended.
        let _ = events.send(StoreEvent::Panicked(panic_text(panic.as_ref())));
        doorbell.ring();
    }
}

/// Returns the message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

struct StoreWorker<S> {
    store: S,
    replica: ProcessId,
    timers: ElectionTimers,
    command_receiver: Receiver<Command>,
    event_sender: Sender<StoreEvent>,
    doorbell: Doorbell,
    state: Arc<Mutex<StoreState>>,
    term: Option<Term>,
    /// When to campaign or to renew next.
    due: Instant,
    /// The epoch that the next renewal is to confirm.
    unconfirmed: Option<Epoch>,
}

#[derive(Clone, Copy)]
struct Term {
    epoch: Epoch,
    /// Whether the machine was notified: only after the log was read.
    is_reported: bool,
}

impl<S: Store<Error: Error>> StoreWorker<S> {
    fn work(mut self) {
        loop {
            let wait = self.due.saturating_duration_since(Instant::now());
            match self.command_receiver.recv_timeout(wait) {
                Ok(Command::Append(epoch, id, record)) => self.append(epoch, id, &record),
                Ok(Command::Replace(epoch, records)) => {
                    let replaced = self.store.replace(epoch, &records);
                    // If this fails, the log stays long, which is harmless.
                    let _ = self.handle_result(epoch, replaced);
                }
                Ok(Command::Resign(epoch)) => {
                    self.resign(epoch);
                    self.due = Instant::now() + self.timers.resign_pause;
                }
                Ok(Command::Confirm(epoch)) => {
                    self.unconfirmed = Some(epoch);
                    self.due = Instant::now();
                }
                Ok(Command::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            // Checked after every command, so that a busy worker still renews in time.
            if Instant::now() >= self.due {
                self.campaign_or_renew();
            }
        }
        if let Some(term) = self.term {
            self.resign(term.epoch);
        }
    }

    fn campaign_or_renew(&mut self) {
        let Some(Term { epoch, is_reported }) = self.term else {
            let campaigned = self.store.campaign(self.replica);
            if let Ok(Some(epoch)) = campaigned {
                self.term = Some(Term { epoch, is_reported: false });
                return self.load_and_report(epoch);
            }
            self.record_state(campaigned.as_ref().err());
            self.due = Instant::now() + self.timers.campaign_interval;
            return;
        };
        self.due = Instant::now() + self.timers.renew_interval;
        let renewed = self.store.renew(epoch);
        if self.handle_result(epoch, renewed).is_err() {
            return;
        }
        if self.unconfirmed.take_if(|unconfirmed| *unconfirmed == epoch).is_some() {
            self.report(StoreEvent::Confirmed(epoch));
        }
        if !is_reported {
            self.load_and_report(epoch);
        }
    }

    /// Reads the log, and reports the election. If the log cannot be read now, the next renewal
    /// tries again.
    fn load_and_report(&mut self, epoch: Epoch) {
        let loaded = self.store.load();
        self.record_state(loaded.as_ref().err());
        let interval = match loaded {
            Ok(records) => {
                self.term = Some(Term { epoch, is_reported: true });
                self.report(StoreEvent::Elected(epoch, records));
                self.timers.renew_interval
            }
            Err(_) => self.timers.campaign_interval,
        };
        self.due = Instant::now() + interval;
    }

    fn append(&mut self, epoch: Epoch, id: RecordId, record: &Record) {
        let appended = self.store.append(epoch, record);
        let result = self.handle_result(epoch, appended);
        self.report(StoreEvent::Written(id, result));
    }

    fn resign(&mut self, epoch: Epoch) {
        let resigned = self.store.resign(epoch);
        // If the store does not answer, the epoch ends all the same: it is not renewed any more.
        let _ = self.handle_result(epoch, resigned);
        self.depose(epoch);
    }

    /// Handles a result of the store in `epoch`.
    fn handle_result(
        &mut self,
        epoch: Epoch,
        result: Result<(), StoreError<S::Error>>,
    ) -> Result<(), PersistError> {
        match result {
            // A store whose log cannot be read yet does not work, whatever else it answers.
            Ok(()) if self.term.is_some_and(|term| !term.is_reported) => Ok(()),
            Ok(()) => {
                self.record_state(None);
                Ok(())
            }
            Err(StoreError::Deposed) => {
                self.record_state(None);
                self.depose(epoch);
                Err(PersistError::Deposed)
            }
            Err(StoreError::Failed(error)) => {
                self.record_state(Some(&error));
                Err(PersistError::Failed)
            }
        }
    }

    fn depose(&mut self, epoch: Epoch) {
        if self.term.take_if(|term| term.epoch == epoch).is_some() {
            self.due = Instant::now() + self.timers.campaign_interval;
            self.report(StoreEvent::Deposed(epoch));
        }
    }

    fn report(&self, event: StoreEvent) {
        // If the receiver is gone, the worker gets `Command::End` soon.
        let _ = self.event_sender.send(event);
        self.doorbell.ring();
    }

    /// Records the state of the store, and reports each change.
    //= spec/failure.md#R53
    fn record_state(&mut self, error: Option<&S::Error>) {
        let error = error.map(|error| error_chain(error));
        let change = lock(&self.state).record(error);
        match change {
            StateChange::None => {}
            StateChange::Failed(text) => self.report(StoreEvent::Failed(text)),
            StateChange::Recovered => self.report(StoreEvent::Recovered),
        }
    }
}

/// Formats an error with all its causes.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
