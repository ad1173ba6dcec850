//! The thread that drives an end of scheduled transfer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onepipe_arbiter::{ObjectId, TransferError, TransferEvent};
use onepipe_transport_clock::sharpen_timers;

use super::letter::Letter;
use super::shared::{Parcel, Shared, lock};
use super::{EmbeddedTransfer, Object, ObjectError};

/// Works until it is closed.
pub(super) fn run(mut end: EmbeddedTransfer, shared: &Shared) {
    sharpen_timers();
    let mut letters = BTreeMap::new();
    // What the machine has no room for.
    let mut kept: Option<Parcel> = None;
    // What the machine was told last: a command makes it look for something to send.
    let mut room = None;
    while !shared.is_closing.load(Ordering::Acquire) {
        while let Some(parcel) = kept.take().or_else(|| lock(&shared.waiting).parcels.pop_front()) {
            kept = hand_over(&mut end, shared, &mut letters, parcel);
            if kept.is_some() {
                break;
            }
        }
        let receive_room = shared.receive_room();
        if room.replace(receive_room) != Some(receive_room) {
            end.set_receive_octets_max(receive_room);
        }
        let progress = end.poll(|event| settle(shared, &mut letters, event));
        end.rest(progress);
    }
    let unsent = std::mem::take(&mut lock(&shared.waiting).parcels);
    let unsent = unsent.into_iter().chain(kept).map(|parcel| parcel.letter);
    unsent.chain(letters.into_values()).for_each(|letter| letter.settle(Err(ObjectError::Closed)));
}

/// Hands a parcel to the machine; answers it if there is no room now.
fn hand_over(
    end: &mut EmbeddedTransfer,
    shared: &Shared,
    letters: &mut BTreeMap<ObjectId, Arc<Letter>>,
    parcel: Parcel,
) -> Option<Parcel> {
    let Parcel { to, object, letter } = parcel;
    let octets = object.len();
    let error = match end.send(to, object) {
        Ok(id) => {
            letters.insert(id, letter);
            return None;
        }
        Err(TransferError::Full(object)) => return Some(Parcel { to, object, letter }),
        Err(TransferError::TooLarge) => ObjectError::TooLarge,
        // What else there may be one day concerns this receiver, too.
        Err(_) => ObjectError::Unknown(to),
    };
    letter.settle(Err(error));
    shared.on_through(octets);
    None
}

fn settle(shared: &Shared, letters: &mut BTreeMap<ObjectId, Arc<Letter>>, event: TransferEvent) {
    let (id, object, outcome) = match event {
        TransferEvent::Received(from, number, octets) => {
            return shared.on_received(Object { from, number, octets });
        }
        TransferEvent::Sent(id, object) => (id, object, Ok(())),
        TransferEvent::Refused(id, object) => (id, object, Err(ObjectError::Refused(id.dst))),
        _ => return,
    };
    if let Some(letter) = letters.remove(&id) {
        letter.settle(outcome);
        shared.on_through(object.len());
    }
}
