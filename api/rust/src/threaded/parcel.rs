//! Scatterings on their way from the caller's thread to the driving thread.

use onepipe_base::ProcessId;
use onepipe_endpoint::{MESSAGE_CHARGE_BYTES, Message, SendError};
use onepipe_wire::Service;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::end::Rules;

/// Scatterings that may be on their way to the driving thread.
const PARCELS_MAX: usize = 1024;
/// Bytes that may be, charges included; a single scattering may be longer.
pub(crate) const PARCELS_BYTES_MAX: u64 = 4 << 20;
/// A parcel whose memory is larger than this is not kept for the next scattering.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// Messages of a scattering that are put together again without the heap.
const MESSAGES_ON_STACK: usize = 32;

/// A scattering, packed.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) service: Service,
    /// Destination and length of each message.
    heads: Vec<(ProcessId, u32)>,
    /// The payloads, one behind the other.
    bytes: Vec<u8>,
}

impl Default for Parcel {
    fn default() -> Self {
        Self { service: Service::BestEffort, heads: Vec::new(), bytes: Vec::new() }
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
        self.bytes.clear();
        for message in messages {
            self.heads.push((message.to, message.payload.len() as u32));
            self.bytes.extend_from_slice(message.payload);
        }
    }

    /// Bytes it takes in a send buffer.
    pub(crate) fn charge(&self) -> u64 {
        (self.bytes.len() + self.heads.len() * MESSAGE_CHARGE_BYTES as usize) as u64
    }

    /// Calls `with` with the messages as they were.
    #[inline]
    pub(crate) fn unpack<R>(&self, with: impl FnOnce(&[Message<'_>]) -> R) -> R {
        let mut rest = &self.bytes[..];
        let messages = self.heads.iter().map(|&(to, bytes)| {
            let (payload, behind) = rest.split_at(bytes as usize);
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
    submitted_bytes: u64,
    /// As last seen.
    accepted_bytes: u64,
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
    let counter = Counter { parcels, empty, submitted_bytes: 0, accepted_bytes: 0 };
    (counter, Chute { parcels: taken, empty: returned })
}

impl Counter {
    /// Hands a scattering over, if the endpoint will accept it one day. `accepted` reads how many
    /// bytes it has accepted so far.
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
        self.submitted_bytes += need as u64;
        Ok(())
    }

    #[inline]
    fn check_room(&mut self, need: usize, accepted: impl FnOnce() -> u64) -> Result<(), SendError> {
        let is_over = |counter: &Self| {
            let held = counter.submitted_bytes - counter.accepted_bytes;
            held > 0 && held + need as u64 > PARCELS_BYTES_MAX
        };
        if is_over(self) {
            self.accepted_bytes = accepted();
            if is_over(self) {
                let held = self.submitted_bytes - self.accepted_bytes;
                let free = PARCELS_BYTES_MAX.saturating_sub(held) as usize;
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
        if parcel.bytes.capacity() <= KEPT_BYTES_MAX {
            // Full only if the caller has made more parcels than fit, which are freed then.
            let _ = self.empty.push(parcel);
        }
    }
}
