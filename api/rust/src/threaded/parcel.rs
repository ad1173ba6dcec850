//! Scatterings on their way from the caller's thread to the driving thread.

use onepipe_base::ProcessId;
use onepipe_endpoint::{MESSAGE_CHARGE_OCTETS, Message, SendError};
use onepipe_wire::Service;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::end::Rules;

/// Scatterings that may be on their way to the driving thread.
const PARCELS_MAX: usize = 1024;
/// Octets that may be, charges included; a single scattering may be longer.
pub(crate) const PARCELS_OCTETS_MAX: u64 = 4 << 20;
/// A parcel whose memory is larger than this is not kept for the next scattering.
const KEPT_OCTETS_MAX: usize = 64 << 10;
/// Messages of a scattering that are put together again without the heap.
const MESSAGES_ON_STACK: usize = 32;

/// A scattering, packed.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) service: Service,
    /// Destination and length of each message.
    heads: Vec<(ProcessId, u32)>,
    /// The payloads, one behind the other.
    octets: Vec<u8>,
}

impl Default for Parcel {
    fn default() -> Self {
        Self { service: Service::BestEffort, heads: Vec::new(), octets: Vec::new() }
    }
}

impl Parcel {
    /// Whom its messages are for, in their order.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.heads.iter().map(|(to, _)| *to)
    }

    fn pack(&mut self, service: Service, messages: &[Message<'_>]) {
        self.service = service;
        self.heads.clear();
        self.octets.clear();
        for message in messages {
            self.heads.push((message.to, message.payload.len() as u32));
            self.octets.extend_from_slice(message.payload);
        }
    }

    /// Octets it takes in a send buffer.
    pub(crate) fn charge(&self) -> u64 {
        (self.octets.len() + self.heads.len() * MESSAGE_CHARGE_OCTETS as usize) as u64
    }

    /// Calls `with` with the messages as they were.
    #[inline]
    pub(crate) fn unpack<R>(&self, with: impl FnOnce(&[Message<'_>]) -> R) -> R {
        let mut rest = &self.octets[..];
        let messages = self.heads.iter().map(|&(to, octets)| {
            let (payload, behind) = rest.split_at(octets as usize);
            rest = behind;
            Message { to, payload }
        });
        if self.heads.len() > MESSAGES_ON_STACK {
            return with(&messages.collect::<Vec<_>>());
        }
        let mut array = [Message { to: ProcessId(0), payload: &[] }; MESSAGES_ON_STACK];
        array.iter_mut().zip(messages).for_each(|(place, message)| *place = message);
        with(&array[..self.heads.len()])
    }
}

/// The caller's end.
#[derive(Debug)]
pub(crate) struct Counter {
    parcels: Producer<Parcel>,
    empty: Consumer<Parcel>,
    submitted_octets: u64,
    /// As last seen.
    accepted_octets: u64,
}

/// The driving thread's end.
#[derive(Debug)]
pub(crate) struct Chute {
    pub(crate) parcels: Consumer<Parcel>,
    empty: Producer<Parcel>,
}

pub(crate) fn chute() -> (Counter, Chute) {
    let (parcels, taken) = RingBuffer::new(PARCELS_MAX);
    let (returned, empty) = RingBuffer::new(PARCELS_MAX);
    let counter = Counter { parcels, empty, submitted_octets: 0, accepted_octets: 0 };
    (counter, Chute { parcels: taken, empty: returned })
}

impl Counter {
    /// Hands a scattering over, if the endpoint will accept it one day. `accepted` reads how many
    /// octets it has accepted so far.
    #[inline]
    pub(crate) fn submit(
        &mut self,
        rules: &Rules,
        service: Service,
        messages: &[Message<'_>],
        accepted: impl FnOnce() -> u64,
    ) -> Result<(), SendError> {
        let need = rules.check(messages)?;
        self.check_room(need, accepted)?;
        let mut parcel = self.empty.pop().unwrap_or_default();
        parcel.pack(service, messages);
        // There is room: looked at above, and only this thread fills it.
        if self.parcels.push(parcel).is_err() {
            return Err(SendError::BufferFull { need, free: 0 });
        }
        self.submitted_octets += need as u64;
        Ok(())
    }

    #[inline]
    fn check_room(&mut self, need: usize, accepted: impl FnOnce() -> u64) -> Result<(), SendError> {
        let is_over = |counter: &Self| {
            let held = counter.submitted_octets - counter.accepted_octets;
            held > 0 && held + need as u64 > PARCELS_OCTETS_MAX
        };
        if is_over(self) {
            self.accepted_octets = accepted();
            if is_over(self) {
                let held = self.submitted_octets - self.accepted_octets;
                let free = PARCELS_OCTETS_MAX.saturating_sub(held) as usize;
                return Err(SendError::BufferFull { need, free });
            }
        }
        if self.parcels.cached_slots() == 0 && self.parcels.is_full() {
            return Err(SendError::BufferFull { need, free: 0 });
        }
        Ok(())
    }
}

impl Chute {
    /// Gives the memory of a parcel back.
    pub(crate) fn give_back(&mut self, parcel: Parcel) {
        if parcel.octets.capacity() <= KEPT_OCTETS_MAX {
            // Full only if the caller has made more parcels than fit, which are freed then.
            let _ = self.empty.push(parcel);
        }
    }
}
