//! Scatterings with large payloads that are not ordered yet.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{ProcessId, ScatteringId};
use onepipe_endpoint::{Message, Service};
use onepipe_wire::{LargeControl, LargeObject};
use xxhash_rust::xxh3::xxh3_64;

/// Maximum number of scatterings submitted to the endpoint by this crate itself whose failures are
/// tracked. Failures of older ones are reported with the endpoint's id.
const TRACKED_MAX: usize = 4_096;
const _: () = assert!(TRACKED_MAX > 0, "the last scattering is tracked");

/// One message of a scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub to: ProcessId,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Content {
    /// Offset and length in the buffer of small payloads.
    Small(usize, usize),
    /// Index of the object.
    Object(usize),
}

/// A large payload, shared by all messages that carry it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    pub descriptor: LargeObject,
    /// The bytes, until the group takes them.
    pub memory: Vec<u8>,
    /// The receivers other than this process.
    pub receivers: Vec<ProcessId>,
    /// Whether this process is a receiver, too.
    pub is_for_self: bool,
    pub is_invited: bool,
    /// All receivers have the payload.
    pub is_whole: bool,
}

/// A scattering in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scattering {
    pub id: ScatteringId,
    pub service: Service,
    pub parts: Vec<Part>,
    pub objects: Vec<Object>,
    small: Vec<u8>,
    pub bytes: u64,
    /// Whether its payloads count towards the limit of payloads in flight.
    pub is_started: bool,
}

impl Scattering {
    /// Copies the messages. Equal payloads share an object. Objects are numbered from `group`.
    pub fn new(
        service: Service,
        id: ScatteringId,
        messages: &[Message<'_>],
        large_threshold_bytes: usize,
        own: ProcessId,
        group: u64,
    ) -> Self {
        let (mut objects, mut small) = (Vec::<Object>::new(), Vec::new());
        let mut parts = Vec::with_capacity(messages.len());
        for Message { to, payload } in messages {
            let content = if payload.len() > large_threshold_bytes {
                // A receiver gets each object once.
                let same = |object: &Object| {
                    let has_it =
                        if *to == own { object.is_for_self } else { object.receivers.contains(to) };
                    !has_it && object.memory == *payload
                };
                let at = objects.iter().position(same).unwrap_or_else(|| {
                    objects.push(Object::new(payload, group + objects.len() as u64));
                    objects.len() - 1
                });
                let object = &mut objects[at];
                match *to == own {
                    true => object.is_for_self = true,
                    false => object.receivers.push(*to),
                }
                Content::Object(at)
            } else {
                let from = small.len();
                put_message(payload, |bytes| small.extend_from_slice(bytes));
                Content::Small(from, small.len() - from)
            };
            parts.push(Part { to: *to, content });
        }
        debug_assert_eq!(parts.len(), messages.len(), "a part for each message");
        debug_assert!(!objects.is_empty(), "one without a large payload needs no group");
        let bytes = bytes_of(messages);
        Self { id, service, parts, objects, small, bytes, is_started: false }
    }

    /// Returns whether all payloads have reached all their receivers.
    pub fn is_whole(&self) -> bool {
        self.objects.iter().all(|object| object.is_whole)
    }

    /// Appends the small payloads and descriptors of all messages to `bytes`. Returns the receiver
    /// of each message, and the start and end of its part of `bytes`.
    pub fn write(&self, bytes: &mut Vec<u8>) -> Vec<(ProcessId, usize, usize)> {
        let mut ranges = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let from = bytes.len();
            match part.content {
                Content::Small(begin, length) => {
                    bytes.extend_from_slice(&self.small[begin..begin + length]);
                }
                Content::Object(object) => {
                    let descriptor = self.objects[object].descriptor;
                    LargeControl::write_descriptor(descriptor, |part| {
                        bytes.extend_from_slice(part)
                    });
                }
            }
            ranges.push((part.to, from, bytes.len()));
        }
        ranges
    }

    /// Panics if the payloads of the scattering contradict each other.
    fn check_invariants(&self) {
        for part in &self.parts {
            match part.content {
                Content::Small(begin, length) => {
                    assert!(begin + length <= self.small.len(), "a small payload was copied");
                }
                Content::Object(object) => {
                    let object = self.objects.get(object).expect("a large payload has an object");
                    let has_it = object.is_for_self || !object.receivers.is_empty();
                    assert!(has_it, "an object has a receiver");
                }
            }
        }
        for object in &self.objects {
            let len = object.memory.len() as u64;
            assert!(len == object.descriptor.bytes || len == 0, "the group takes all bytes");
            assert!(object.is_invited || !object.is_whole, "receivers are invited first");
            assert!(self.is_started || !object.is_invited, "a payload in flight is counted");
        }
    }

    /// Returns the group of the object of the message at `index`, if it carries one.
    pub fn object_at(&self, index: usize) -> Option<u64> {
        match self.parts.get(index)?.content {
            Content::Object(object) => Some(self.objects[object].descriptor.group),
            Content::Small(..) => None,
        }
    }
}

impl Object {
    fn new(payload: &[u8], group: u64) -> Self {
        let (bytes, digest) = (payload.len() as u64, xxh3_64(payload));
        Self {
            descriptor: LargeObject { group, bytes, digest },
            memory: payload.to_vec(),
            receivers: Vec::new(),
            is_for_self: false,
            is_invited: false,
            is_whole: false,
        }
    }
}

/// Returns the bytes of all payloads of a scattering.
pub(crate) fn bytes_of(messages: &[Message<'_>]) -> u64 {
    messages.iter().map(|message| message.payload.len() as u64).sum()
}

/// Writes an application message, escaped if it looks like a control message.
pub(crate) fn put_message(payload: &[u8], mut put: impl FnMut(&[u8])) {
    match LargeControl::is_control(payload) {
        true => LargeControl::write_escaped(payload, put),
        false => put(payload),
    }
}

/// Why a scattering of the endpoint was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// To invite the receivers of this object.
    Invitation(u64),
    /// To order these messages, with the object of each that carries one.
    Descriptors(ScatteringId, Vec<Option<u64>>),
    /// To withdraw this object.
    Withdrawal(u64),
}

/// Scatterings with large payloads at this process as their sender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Outgoing {
    pub queue: VecDeque<Scattering>,
    /// Bytes of all scatterings in the queue.
    pub bytes: u64,
    /// Scatterings that this crate itself has submitted to the endpoint, in order of submission.
    tracked: VecDeque<(Service, ScatteringId, Purpose)>,
    /// Pending withdrawals.
    pub withdrawn: VecDeque<(Service, u64, ProcessId)>,
    /// Maps of scattering ids, by service.
    ids: [IdMap; 2],
    /// Number of groups so far.
    pub groups: u32,
}

/// Maps the endpoint's scattering ids, which include control messages, to the application's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct IdMap {
    next: u64,
    /// `(endpoint id, offset)`: the offset to add from that id on, modulo 2^64.
    offsets: VecDeque<(u64, u64)>,
}

impl IdMap {
    fn next(&mut self) -> ScatteringId {
        self.next += 1;
        ScatteringId(self.next - 1)
    }

    /// Returns the application's id of a scattering just accepted by the endpoint.
    #[inline]
    fn map_new(&mut self, endpoint: ScatteringId) -> ScatteringId {
        let id = self.next();
        let offset = id.0.wrapping_sub(endpoint.0);
        debug_assert!(self.next > 0, "an id was given");
        if self.offsets.back().map_or(0, |(_, offset)| *offset) != offset {
            if self.offsets.len() == TRACKED_MAX {
                self.offsets.pop_front();
            }
            self.offsets.push_back((endpoint.0, offset));
        }
        id
    }

    fn application_id(&self, endpoint: ScatteringId) -> ScatteringId {
        let offset = self.offsets.iter().rev().find(|(from, _)| *from <= endpoint.0);
        ScatteringId(endpoint.0.wrapping_add(offset.map_or(0, |(_, offset)| *offset)))
    }

    /// Returns a lower bound of the application's ids of the scatterings that the endpoint names by
    /// `endpoint` or a higher id. Such ids do not ascend with those of the endpoint, as the latter
    /// include control messages.
    fn lowest_from(&self, endpoint: ScatteringId) -> ScatteringId {
        let later = self.offsets.iter().filter(|(from, _)| *from > endpoint.0);
        let later = later.map(|(from, offset)| ScatteringId(from.wrapping_add(*offset)));
        later.chain([self.application_id(endpoint)]).min().unwrap_or(endpoint)
    }
}

impl Outgoing {
    /// Returns the id of the next scattering with a large payload.
    pub fn next_id(&mut self, service: Service) -> ScatteringId {
        self.ids[service as usize].next()
    }

    /// Returns the application's id of a scattering just accepted by the endpoint.
    #[inline]
    pub fn map_new_id(&mut self, service: Service, endpoint: ScatteringId) -> ScatteringId {
        self.ids[service as usize].map_new(endpoint)
    }

    /// Returns the application's id of a scattering that the endpoint names.
    pub fn map_id(&self, service: Service, endpoint: ScatteringId) -> ScatteringId {
        self.ids[service as usize].application_id(endpoint)
    }

    /// Returns a lower bound of the application's ids of the scatterings that the endpoint names by
    /// `endpoint` or a higher id.
    pub fn lowest_id_from(&self, service: Service, endpoint: ScatteringId) -> ScatteringId {
        self.ids[service as usize].lowest_from(endpoint)
    }

    /// Returns the ids of the scatterings with large payloads that are not ordered, or were ordered
    /// and may have failed since.
    pub fn unordered_ids(&self, service: Service) -> impl Iterator<Item = ScatteringId> + '_ {
        let queued = self.queue.iter().filter(move |queued| queued.service == service);
        let tracked = self.tracked.iter().filter(move |(of, ..)| *of == service);
        let tracked = tracked.filter_map(|(.., purpose)| match purpose {
            Purpose::Descriptors(id, _) => Some(*id),
            Purpose::Invitation(_) | Purpose::Withdrawal(_) => None,
        });
        queued.map(|queued| queued.id).chain(tracked)
    }

    /// Returns the number of payloads in flight.
    pub fn in_flight(&self) -> usize {
        let is_sending = self.queue.iter().filter(|scattering| scattering.is_started);
        is_sending.map(|scattering| scattering.objects.len()).sum()
    }

    /// Returns the object of a group, and the index of its scattering.
    pub fn object_mut(&mut self, group: u64) -> Option<(usize, &mut Object)> {
        let mut objects = self.queue.iter_mut().enumerate().flat_map(|(at, scattering)| {
            scattering.objects.iter_mut().map(move |object| (at, object))
        });
        objects.find(|(_, object)| object.descriptor.group == group)
    }

    /// Panics if the counts contradict the scatterings.
    pub fn check_invariants(&self, objects_max: usize) {
        let bytes: u64 = self.queue.iter().map(|scattering| scattering.bytes).sum();
        assert_eq!(self.bytes, bytes, "submitted is the sum of the scatterings");
        let started = self.queue.iter().take_while(|scattering| scattering.is_started).count();
        let is_waiting = |scattering: &Scattering| !scattering.is_started;
        assert!(self.queue.iter().skip(started).all(is_waiting), "they start in order");
        assert!(self.in_flight() <= objects_max || started == 1, "payloads in flight are bounded");
        self.queue.iter().for_each(Scattering::check_invariants);
        assert!(self.tracked.len() <= TRACKED_MAX, "what is tracked is bounded");
        for ids in &self.ids {
            assert!(ids.offsets.len() <= TRACKED_MAX, "offsets are bounded");
            assert!(ids.offsets.iter().is_sorted_by_key(|(from, _)| from), "ids ascend");
        }
    }

    pub fn remove(&mut self, at: usize) -> Option<Scattering> {
        let scattering = self.queue.remove(at)?;
        debug_assert!(self.bytes >= scattering.bytes, "its bytes were counted");
        self.bytes -= scattering.bytes;
        Some(scattering)
    }

    pub fn track(&mut self, service: Service, id: ScatteringId, purpose: Purpose) {
        if self.tracked.len() == TRACKED_MAX {
            self.tracked.pop_front();
        }
        self.tracked.push_back((service, id, purpose));
    }

    /// Returns the purpose of a scattering of the endpoint; `None` for one of the application.
    pub fn purpose(&self, of_service: Service, of: ScatteringId) -> Option<&Purpose> {
        let is = |(service, id, _): &&(Service, ScatteringId, Purpose)| {
            (*service, *id) == (of_service, of)
        };
        self.tracked.iter().find(is).map(|(.., purpose)| purpose)
    }

    /// Returns whether any scattering is tracked.
    #[inline]
    pub fn is_tracking(&self) -> bool {
        !self.tracked.is_empty()
    }

    /// Forgets the tracked scatterings, once all outcomes are known and reported.
    pub fn stop_tracking(&mut self) {
        self.tracked.clear();
        for ids in &mut self.ids {
            let old = ids.offsets.len().saturating_sub(1);
            ids.offsets.drain(..old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_id_covers_scatterings_behind_control_messages() {
        let mut ids = IdMap::default();
        for id in 0..10 {
            assert_eq!(ids.map_new(ScatteringId(id)), ScatteringId(id));
        }
        // One with a large payload, for which the endpoint numbers 10 to 29 are control messages.
        assert_eq!(ids.next(), ScatteringId(10));
        for id in [30, 31] {
            assert_eq!(ids.map_new(ScatteringId(id)), ScatteringId(id - 19));
        }
        assert_eq!(ids.lowest_from(ScatteringId(3)), ScatteringId(3));
        for control in 11..30 {
            assert_eq!(ids.lowest_from(ScatteringId(control)), ScatteringId(11), "{control}");
        }
        assert_eq!(ids.lowest_from(ScatteringId(31)), ScatteringId(12));
    }
}
