//! The thread that drives an end of scheduled transfer.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onepipe_arbiter::{ObjectId, TransferError, TransferEvent};
use onepipe_base::ProcessId;
use onepipe_transport_clock::sharpen_timers;

use super::letter::Letter;
use super::shared::{Parcel, Seen, Shared, charge, lock};
use super::{EmbeddedTransfer, Object, ObjectError};

/// Works until it is closed.
pub(super) fn run(mut end: EmbeddedTransfer, shared: &Shared) {
    sharpen_timers();
    let mut outbox =
        Outbox { shared, letters: BTreeMap::new(), kept: BTreeMap::new(), made_room: false };
    // What the machine was told last: a command makes it look for something to send.
    let mut room = None;
    while !shared.is_closing.load(Ordering::Acquire) {
        if shared.recall.take() {
            outbox.recall(&mut end);
        }
        while let Some(parcel) = outbox.next_parcel() {
            outbox.take(&mut end, parcel);
        }
        if mem::take(&mut outbox.made_room) {
            outbox.take_kept(&mut end);
        }
        let receive_room = shared.receive_room();
        if room.replace(receive_room) != Some(receive_room) {
            end.set_receive_bytes_max(receive_room);
        }
        let progress = end.poll(|event| outbox.settle(event));
        if !progress.is_idle() {
            *lock(&shared.seen) = Seen {
                transfer: *end.stats(),
                endpoint: *end.endpoint_stats(),
                terms_mismatch: end.terms_mismatch(),
            };
        }
        end.rest(progress);
    }
}

/// What is on its way out, as far as the machine does not know it.
struct Outbox<'a> {
    shared: &'a Shared,
    /// Of what the machine has.
    letters: BTreeMap<ObjectId, Arc<Letter>>,
    /// What the machine has no room for, by receiver: who does not answer holds up nobody else.
    kept: BTreeMap<ProcessId, VecDeque<Parcel>>,
    /// The machine may have room for some of that now.
    made_room: bool,
}

impl Outbox<'_> {
    fn next_parcel(&self) -> Option<Parcel> {
        lock(&self.shared.waiting).parcels.pop_front()
    }

    /// Takes a parcel: behind those for the same receiver that wait, if any do.
    fn take(&mut self, end: &mut EmbeddedTransfer, parcel: Parcel) {
        if parcel.letter.is_given_up() {
            return self.shared.on_through(charge(parcel.object.len()));
        }
        if let Some(kept) = self.kept.get_mut(&parcel.to) {
            return kept.push_back(parcel);
        }
        if let Some(parcel) = self.hand_over(end, parcel) {
            self.kept.insert(parcel.to, VecDeque::from([parcel]));
        }
    }

    fn take_kept(&mut self, end: &mut EmbeddedTransfer) {
        let mut kept = mem::take(&mut self.kept);
        kept.retain(|_, parcels| {
            while let Some(parcel) = parcels.pop_front() {
                if let Some(parcel) = self.hand_over(end, parcel) {
                    parcels.push_front(parcel);
                    break;
                }
            }
            !parcels.is_empty()
        });
        self.kept = kept;
    }

    /// Hands a parcel to the machine; answers it if there is no room now.
    fn hand_over(&mut self, end: &mut EmbeddedTransfer, parcel: Parcel) -> Option<Parcel> {
        let Parcel { to, object, letter } = parcel;
        let bytes = object.len();
        let error = match end.send(to, object) {
            Ok(id) => {
                self.letters.insert(id, letter);
                return None;
            }
            Err(TransferError::Full(object)) => return Some(Parcel { to, object, letter }),
            Err(TransferError::TooLarge) => ObjectError::TooLarge,
            // What else there may be one day concerns this receiver, too.
            Err(_) => ObjectError::Unknown(to),
        };
        self.shared.on_through(charge(bytes));
        letter.settle(Err(error));
        None
    }

    fn settle(&mut self, event: TransferEvent) {
        let (id, object, outcome) = match event {
            TransferEvent::Received(from, number, bytes) => {
                return self.shared.on_received(Object { from, number, bytes });
            }
            TransferEvent::Sent(id, object) => (id, object, Ok(())),
            TransferEvent::Refused(id, object) => (id, object, Err(ObjectError::Refused(id.dst))),
            _ => return,
        };
        self.made_room = !self.kept.is_empty();
        // Who is told has room for another one.
        self.shared.on_through(charge(object.len()));
        // None if it was given up when all of it had come.
        if let Some(letter) = self.letters.remove(&id) {
            letter.settle(outcome);
        }
    }

    /// Lets go of what was given up.
    fn recall(&mut self, end: &mut EmbeddedTransfer) {
        self.letters.retain(|id, letter| {
            let is_given_up = letter.is_given_up();
            if is_given_up && let Some(object) = end.cancel(*id) {
                self.shared.on_through(charge(object.len()));
            }
            !is_given_up
        });
        self.made_room = !self.kept.is_empty();
        for parcels in self.kept.values_mut() {
            parcels.retain(|parcel| {
                let is_given_up = parcel.letter.is_given_up();
                if is_given_up {
                    self.shared.on_through(charge(parcel.object.len()));
                }
                !is_given_up
            });
        }
        self.kept.retain(|_, parcels| !parcels.is_empty());
    }
}

/// However the thread ends, nobody waits for it.
impl Drop for Outbox<'_> {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        // Who sends looks at that with this lock: what comes later is not taken.
        let unsent = mem::take(&mut lock(&self.shared.waiting).parcels);
        let unsent = unsent.into_iter().chain(mem::take(&mut self.kept).into_values().flatten());
        let letters = mem::take(&mut self.letters).into_values();
        let letters = unsent.map(|parcel| parcel.letter).chain(letters);
        letters.for_each(|letter| letter.settle(Err(ObjectError::Closed)));
    }
}

#[cfg(test)]
mod tests {
    use onepipe_transport_driver::{Bell, Doorbell};

    use super::*;

    struct Silent;

    impl Bell for Silent {
        fn ring(&self) {}
    }

    #[test]
    fn nobody_waits_for_a_thread_that_has_died() {
        let shared =
            Shared::new(ProcessId(0), 4, (1 << 20, 1 << 20), Doorbell::new(Arc::new(Silent)));
        let sending = [1, 2].map(|to| shared.submit(ProcessId(to), vec![0; 9]).expect("room"));
        let died = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let (letters, kept) = (BTreeMap::new(), BTreeMap::new());
                let mut outbox = Outbox { shared: &shared, letters, kept, made_room: false };
                let parcel = outbox.next_parcel().expect("two wait");
                outbox.letters.insert(ObjectId { dst: parcel.to, number: 0 }, parcel.letter);
                panic!("as a test has it");
            });
            thread.join()
        });
        assert!(died.is_err());
        for sending in sending {
            assert_eq!(sending.outcome(), Some(Err(ObjectError::Closed)));
        }
        let late = shared.submit(ProcessId(1), vec![]);
        assert!(matches!(late, Err(ObjectError::Closed)), "{late:?}");
    }
}
