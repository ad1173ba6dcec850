//! The clerk: a thread that owns the store, so that the machine never waits for it.

use std::error::Error;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onepipe_base::ProcessId;
use onepipe_controller::{Epoch, Record, RecordId, Refused, Store, StoreError};
use onepipe_transport_driver::Doorbell;

use crate::StoreState;

/// What the clerk shall do.
#[derive(Debug)]
enum Order {
    Append(Epoch, RecordId, Record),
    Replace(Epoch, Vec<Record>),
    /// Step down, and let others try first.
    Resign(Epoch),
    End,
}

/// What the clerk has to tell.
#[derive(Debug)]
pub(crate) enum News {
    /// This replica is active; the log as it was then.
    Elected(Epoch, Vec<Record>),
    /// What has become of a record.
    Written(RecordId, Result<(), Refused>),
    /// The epoch is over.
    Deposed(Epoch),
}

/// How often the clerk looks after the election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    pub(crate) campaign_interval: Duration,
    pub(crate) renew_interval: Duration,
    /// How long a replica that has resigned leaves it to others.
    pub(crate) resign_pause: Duration,
}

/// The machine's side of the clerk's desk. When it is dropped the clerk resigns and ends.
#[derive(Debug)]
pub(crate) struct Desk {
    orders: Sender<Order>,
    news: Receiver<News>,
    state: Arc<Mutex<StoreState>>,
    thread: Option<JoinHandle<()>>,
}

impl Desk {
    /// Starts the clerk, who campaigns for `replica` from now on.
    pub(crate) fn open<S>(
        store: S,
        replica: ProcessId,
        rhythm: Rhythm,
        doorbell: Doorbell,
    ) -> std::io::Result<Self>
    where
        S: Store<Error: Error> + Send + 'static,
    {
        let (orders, to_do) = channel();
        let (tell, news) = channel();
        let state = Arc::new(Mutex::new(StoreState::new()));
        let clerk = Clerk {
            store,
            replica,
            rhythm,
            to_do,
            tell,
            doorbell,
            state: Arc::clone(&state),
            reign: None,
            due: Instant::now(),
        };
        let named = std::thread::Builder::new().name("store".to_owned());
        let thread = Some(named.spawn(move || clerk.work())?);
        Ok(Self { orders, news, state, thread })
    }

    /// Wants a record written.
    pub(crate) fn append(&self, epoch: Epoch, id: RecordId, record: Record) {
        self.order(Order::Append(epoch, id, record));
    }

    /// Wants the log replaced. It is no harm if that fails: the log then stays long.
    pub(crate) fn replace(&self, epoch: Epoch, records: Vec<Record>) {
        self.order(Order::Replace(epoch, records));
    }

    /// Wants another replica to become active.
    pub(crate) fn resign(&self, epoch: Epoch) {
        self.order(Order::Resign(epoch));
    }

    /// The next thing that the clerk has to tell.
    #[inline]
    pub(crate) fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// How the store is.
    pub(crate) fn state(&self) -> StoreState {
        lock(&self.state).clone()
    }

    fn order(&self, order: Order) {
        // The clerk goes last.
        let _ = self.orders.send(order);
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.order(Order::End);
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by its thread.
            let _ = thread.join();
        }
    }
}

struct Clerk<S> {
    store: S,
    replica: ProcessId,
    rhythm: Rhythm,
    to_do: Receiver<Order>,
    tell: Sender<News>,
    doorbell: Doorbell,
    state: Arc<Mutex<StoreState>>,
    reign: Option<Reign>,
    /// When to campaign or to renew next.
    due: Instant,
}

#[derive(Clone, Copy)]
struct Reign {
    epoch: Epoch,
    /// Whether the machine has been told: not before the log was read.
    is_told: bool,
}

impl<S: Store<Error: Error>> Clerk<S> {
    fn work(mut self) {
        loop {
            let wait = self.due.saturating_duration_since(Instant::now());
            match self.to_do.recv_timeout(wait) {
                Ok(Order::Append(epoch, id, record)) => self.append(epoch, id, &record),
                Ok(Order::Replace(epoch, records)) => {
                    let replaced = self.store.replace(epoch, &records);
                    // The log then stays long.
                    let _ = self.settle(epoch, replaced);
                }
                Ok(Order::Resign(epoch)) => {
                    self.resign(epoch);
                    self.due = Instant::now() + self.rhythm.resign_pause;
                }
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            // However busy it is with records.
            if Instant::now() >= self.due {
                self.look_after_election();
            }
        }
        if let Some(reign) = self.reign {
            self.resign(reign.epoch);
        }
    }

    fn look_after_election(&mut self) {
        let Some(Reign { epoch, is_told }) = self.reign else {
            let campaigned = self.store.campaign(self.replica);
            self.note(campaigned.as_ref().err());
            if let Ok(Some(epoch)) = campaigned {
                self.reign = Some(Reign { epoch, is_told: false });
                return self.take_office(epoch);
            }
            self.due = Instant::now() + self.rhythm.campaign_interval;
            return;
        };
        self.due = Instant::now() + self.rhythm.renew_interval;
        let renewed = self.store.renew(epoch);
        if self.settle(epoch, renewed).is_ok() && !is_told {
            self.take_office(epoch);
        }
    }

    /// Reads the log, and tells the machine. If the log cannot be read now, it is tried again with
    /// the next renewal.
    fn take_office(&mut self, epoch: Epoch) {
        let loaded = self.store.load();
        self.note(loaded.as_ref().err());
        let interval = match loaded {
            Ok(records) => {
                self.reign = Some(Reign { epoch, is_told: true });
                self.tell(News::Elected(epoch, records));
                self.rhythm.renew_interval
            }
            Err(_) => self.rhythm.campaign_interval,
        };
        self.due = Instant::now() + interval;
    }

    fn append(&mut self, epoch: Epoch, id: RecordId, record: &Record) {
        let appended = self.store.append(epoch, record);
        let settled = self.settle(epoch, appended);
        self.tell(News::Written(id, settled));
    }

    fn resign(&mut self, epoch: Epoch) {
        let resigned = self.store.resign(epoch);
        // If the store does not answer, the epoch ends all the same: nobody renews it.
        let _ = self.settle(epoch, resigned);
        self.depose(epoch);
    }

    /// Draws the consequences of what the store has answered in `epoch`.
    fn settle(
        &mut self,
        epoch: Epoch,
        answer: Result<(), StoreError<S::Error>>,
    ) -> Result<(), Refused> {
        match answer {
            Ok(()) => {
                self.note(None);
                Ok(())
            }
            Err(StoreError::Deposed) => {
                self.note(None);
                self.depose(epoch);
                Err(Refused::Deposed)
            }
            Err(StoreError::Failed(error)) => {
                self.note(Some(&error));
                Err(Refused::Failed)
            }
        }
    }

    fn depose(&mut self, epoch: Epoch) {
        if self.reign.take_if(|reign| reign.epoch == epoch).is_some() {
            self.due = Instant::now() + self.rhythm.campaign_interval;
            self.tell(News::Deposed(epoch));
        }
    }

    fn tell(&self, news: News) {
        // Who does not listen any more has ended, and the clerk will hear of it.
        let _ = self.tell.send(news);
        self.doorbell.ring();
    }

    /// Notes how the store is, for people.
    fn note(&self, error: Option<&S::Error>) {
        let mut state = lock(&self.state);
        let error = error.map(|error| whole(error));
        if state.error.is_some() != error.is_some() {
            state.since = Instant::now();
        }
        state.failures += u64::from(error.is_some());
        state.calls += 1;
        state.error = error;
    }
}

/// An error with all its causes.
fn whole(error: &dyn Error) -> String {
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
