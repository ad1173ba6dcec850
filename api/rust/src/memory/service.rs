//! Registered memory of a process: its owner and its client, and which scatterings are theirs.

use std::collections::VecDeque;
use std::fmt;

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_endpoint::{Message, SendError};
use onepipe_memory::{
    Completed, MemoryClient, MemoryOwner, Operation, OutgoingReply, OutgoingScattering, Region,
    RegionId, RegisterError, Reply, RequestId, Rights, SubmitError,
};
use onepipe_wire::{MARKED_HEADER_LEN, MarkedMessage, Service};

use super::options::{MemoryOptions, MemoryStats};
use crate::pipe_endpoint::PipeEndpoint;

/// Upper bound of what a reply has beside the results of its operations, in bytes: the mark, the
/// request and the timestamp.
const REPLY_OVERHEAD_BYTES: u64 = 64;
/// Number of remembered scatterings below which none is looked for that can be forgotten.
const REMEMBERED_MIN: usize = 1_024;

/// The bytes of a region.
pub(crate) struct RegionBytes(Box<dyn Bytes>);

/// What has the bytes of a region: a vector, or a file mapping.
trait Bytes: AsRef<[u8]> + AsMut<[u8]> + Send {}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Send> Bytes for B {}

impl AsRef<[u8]> for RegionBytes {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl AsMut<[u8]> for RegionBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        (*self.0).as_mut()
    }
}

impl fmt::Debug for RegionBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionBytes").field("len", &self.as_ref().len()).finish()
    }
}

/// The machines of registered memory, between the endpoint and the application.
#[derive(Debug)]
pub(crate) struct MemoryService {
    owner: MemoryOwner<RegionBytes>,
    client: MemoryClient,
    pending_max: usize,
    /// A reply and a request that wait for free space in the send buffers.
    refused_reply: Option<MarkedScattering>,
    refused_request: Option<(OutgoingScattering, MarkedScattering)>,
    /// The machines may have something to send.
    has_output: bool,
    /// A request was submitted or received.
    is_used: bool,
    /// Number of marked messages that are truncated, or of an unknown kind.
    malformed: u64,
    /// Scatterings whose failures are not the application's, by service.
    own_scatterings: [OwnScatterings; 2],
    completed: VecDeque<Completed>,
}

impl MemoryService {
    /// Creates the machines of a process that can send messages of at most `message_len_max` bytes.
    /// `session` ascends over the starts of the process.
    pub(crate) fn new(options: MemoryOptions, session: u64, message_len_max: u64) -> Self {
        let MemoryOptions { mut owner, client } = options;
        let reply_len_max = message_len_max.saturating_sub(REPLY_OVERHEAD_BYTES);
        owner.reply_len_max = owner.reply_len_max.min(reply_len_max);
        Self {
            owner: MemoryOwner::new(owner),
            client: MemoryClient::new(session, client),
            pending_max: usize::try_from(client.pending_max).unwrap_or(usize::MAX),
            refused_reply: None,
            refused_request: None,
            has_output: false,
            is_used: false,
            malformed: 0,
            own_scatterings: Default::default(),
            completed: VecDeque::new(),
        }
    }

    /// Registers a region.
    pub(crate) fn register(
        &mut self,
        id: RegionId,
        bytes: impl AsRef<[u8]> + AsMut<[u8]> + Send + 'static,
        rights: Rights,
    ) -> Result<(), RegisterError> {
        self.owner.register(id, Region::new(RegionBytes(Box::new(bytes)), rights))
    }

    /// Removes a region. Returns whether there was one.
    pub(crate) fn deregister(&mut self, id: RegionId) -> bool {
        self.owner.deregister(id).is_some()
    }

    pub(crate) fn region(&self, id: RegionId) -> Option<&[u8]> {
        self.owner.region(id).map(Region::bytes)
    }

    pub(crate) fn region_mut(&mut self, id: RegionId) -> Option<&mut [u8]> {
        self.owner.region_mut(id).map(Region::bytes_mut)
    }

    /// Replaces the rights of a region. Returns whether there is one.
    pub(crate) fn set_rights(&mut self, id: RegionId, rights: Rights) -> bool {
        self.owner.region_mut(id).map(|region| region.set_rights(rights)).is_some()
    }

    /// Submits a request, which leaves when the endpoint is next polled.
    pub(crate) fn submit(
        &mut self,
        batches: &[(ProcessId, &[Operation<'_>])],
    ) -> Result<RequestId, SubmitError> {
        self.check_completed()?;
        let request = self.client.submit(batches)?;
        (self.has_output, self.is_used) = (true, true);
        Ok(request)
    }

    /// Submits a batch that the owner executes when it is delivered.
    pub(crate) fn submit_in_owner_order(
        &mut self,
        owner: ProcessId,
        batch: &[Operation<'_>],
    ) -> Result<RequestId, SubmitError> {
        self.check_completed()?;
        let request = self.client.submit_in_owner_order(owner, batch)?;
        (self.has_output, self.is_used) = (true, true);
        Ok(request)
    }

    /// Checks the number of requests in flight and of completions that were not taken, together:
    /// some requests may have completed while others have not.
    fn check_completed(&self) -> Result<(), SubmitError> {
        match self.completed.len() + self.client.in_flight() < self.pending_max {
            true => Ok(()),
            false => Err(SubmitError::Full(self.pending_max as u64)),
        }
    }

    /// Returns the next request that has completed.
    pub(crate) fn poll_completed(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }

    /// Passes all requests that have completed to `completions`, which is empty. Returns whether
    /// there are any.
    pub(crate) fn fetch_completed(&mut self, completions: &mut VecDeque<Completed>) -> bool {
        debug_assert!(completions.is_empty(), "completions that were not read would be lost");
        std::mem::swap(&mut self.completed, completions);
        !completions.is_empty()
    }

    /// Returns the completion of a request, if it has completed.
    pub(crate) fn take_completed(&mut self, request: RequestId) -> Option<Completed> {
        let at = self.completed.iter().position(|completed| completed.request == request)?;
        self.completed.remove(at)
    }

    /// Handles a delivered message of registered memory, without its mark.
    pub(crate) fn on_message(
        &mut self,
        now: Mono,
        (service, at, from): (Service, Timestamp, ProcessId),
        body: &[u8],
    ) {
        self.is_used = true;
        match Reply::is_reply(body) {
            true => self.client.on_message(now, from, body),
            false => self.owner.on_message(service == Service::Reliable, at, from, body),
        }
        self.on_changed();
    }

    /// Handles that everything below the commit barrier was delivered.
    pub(crate) fn on_barrier(&mut self, commit_barrier: Timestamp) {
        self.has_output |= self.awaited().is_some();
        self.owner.on_barrier(commit_barrier);
    }

    /// Whether a request was submitted or received: else the barrier is of no interest.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Counts a marked message that is truncated, or of an unknown kind.
    pub(crate) fn on_malformed(&mut self) {
        self.malformed += 1;
    }

    /// Counters since joining.
    pub(crate) fn stats(&self) -> MemoryStats {
        MemoryStats {
            owner: self.owner.stats(),
            client: self.client.stats(),
            malformed: self.malformed,
        }
    }

    /// The newest timestamp of a read that waits until the commit barrier is above it.
    #[inline]
    pub(crate) fn awaited(&self) -> Option<Timestamp> {
        self.owner.awaited()
    }

    /// Handles that a process has ended.
    pub(crate) fn on_process_ended(&mut self, process: ProcessId, at: Timestamp) {
        self.owner.on_process_ended(process, at);
        self.client.on_process_ended(process, at);
        self.on_changed();
    }

    pub(crate) fn on_process_started(&mut self, process: ProcessId) {
        self.client.on_process_started(process);
    }

    /// Handles the failure of a message. Returns whether it was one of registered memory.
    pub(crate) fn on_send_failed(
        &mut self,
        now: Mono,
        service: Service,
        scattering: ScatteringId,
    ) -> bool {
        if !self.is_own(service, scattering) {
            return false;
        }
        self.client.on_send_failed(now, service == Service::Reliable, scattering);
        self.on_changed();
        true
    }

    /// Whether a scattering was sent by this service.
    pub(crate) fn is_own(&self, service: Service, scattering: ScatteringId) -> bool {
        self.own_scatterings[service as usize].contains(scattering)
    }

    /// Handles that the deadline may have passed.
    pub(crate) fn handle_timeout(&mut self, now: Mono) {
        if self.client.poll_timeout().is_some_and(|due| due <= now) {
            self.client.handle_timeout(now);
            self.on_changed();
        }
    }

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Mono> {
        self.client.poll_timeout()
    }

    /// Whether [`MemoryService::send`] may have something to send.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.has_output
    }

    /// Collects completions, and notes that there may be something to send.
    fn on_changed(&mut self) {
        self.has_output = true;
        while let Some(completed) = self.client.poll_completed() {
            self.completed.push_back(completed);
        }
    }

    /// Submits replies and requests, as far as the send buffer has free space.
    #[cold]
    pub(crate) fn send(&mut self, now: Mono, endpoint: &mut PipeEndpoint) {
        let mut is_blocked = false;
        while let Some(reply) = self.refused_reply.take().or_else(|| self.next_reply()) {
            match reply.submit(endpoint) {
                Ok(id) => self.remember(Service::BestEffort, id, endpoint),
                Err(SendError::BufferFull { .. }) => {
                    (self.refused_reply, is_blocked) = (Some(reply), true);
                    break;
                }
                // This process has left or was excluded, which its clients learn.
                Err(_) => {}
            }
        }
        loop {
            let next = self.refused_request.take().or_else(|| self.next_request(now));
            let Some((request, scattering)) = next else { break };
            match scattering.submit(endpoint) {
                Ok(id) => {
                    self.client.on_submitted(&request, id);
                    self.remember(scattering.service, id, endpoint);
                }
                Err(SendError::BufferFull { .. }) => {
                    (self.refused_request, is_blocked) = (Some((request, scattering)), true);
                    break;
                }
                Err(_) => {
                    self.client.on_unsendable(&request);
                    self.on_changed();
                }
            }
        }
        self.has_output = is_blocked;
    }

    fn next_reply(&mut self) -> Option<MarkedScattering> {
        let OutgoingReply { to, payload } = self.owner.poll_reply()?;
        Some(MarkedScattering::new(Service::BestEffort, true, &[(to, payload)]))
    }

    fn next_request(&mut self, now: Mono) -> Option<(OutgoingScattering, MarkedScattering)> {
        let request = self.client.poll_scattering(now)?;
        let service = match request.is_reliable {
            true => Service::Reliable,
            false => Service::BestEffort,
        };
        let scattering = MarkedScattering::new(service, request.is_unordered, &request.messages);
        Some((request, scattering))
    }

    fn remember(&mut self, service: Service, id: ScatteringId, endpoint: &PipeEndpoint) {
        let own = &mut self.own_scatterings[service as usize];
        own.push(id, || endpoint.resolved_below(service));
    }
}

/// A scattering whose messages bear the mark.
#[derive(Debug)]
struct MarkedScattering {
    service: Service,
    /// Whether the only message is sent without an order.
    is_unordered: bool,
    messages: Vec<(ProcessId, Vec<u8>)>,
}

impl MarkedScattering {
    fn new(service: Service, is_unordered: bool, messages: &[(ProcessId, Vec<u8>)]) -> Self {
        let mark = |payload: &Vec<u8>| {
            let mut marked = Vec::with_capacity(MARKED_HEADER_LEN + payload.len());
            MarkedMessage::Memory(payload).write(|part| marked.extend_from_slice(part));
            marked
        };
        let messages = messages.iter().map(|(to, body)| (*to, mark(body))).collect();
        Self { service, is_unordered, messages }
    }

    fn submit(&self, endpoint: &mut PipeEndpoint) -> Result<ScatteringId, SendError> {
        let messages: Vec<Message<'_>> =
            self.messages.iter().map(|(to, payload)| Message { to: *to, payload }).collect();
        match *messages {
            [message] if self.is_unordered => endpoint.send_unordered(message),
            _ => endpoint.scatter(self.service, &messages),
        }
    }
}

/// Ids of scatterings of one service, ascending, until their outcomes are known.
#[derive(Debug, Default)]
struct OwnScatterings {
    ids: VecDeque<ScatteringId>,
    /// Number of ids at which those are forgotten whose outcomes are known.
    limit: usize,
}

impl OwnScatterings {
    /// Adds the id of the scattering that was submitted last. `resolved_below` returns an id below
    /// which all outcomes are known; it takes long, and is called when the number has doubled.
    fn push(&mut self, id: ScatteringId, resolved_below: impl FnOnce() -> ScatteringId) {
        debug_assert!(self.ids.back().is_none_or(|last| *last < id), "ids ascend");
        if self.ids.len() >= self.limit.max(REMEMBERED_MIN) {
            let below = resolved_below();
            let resolved = self.ids.partition_point(|own| *own < below);
            self.ids.drain(..resolved);
            self.limit = 2 * self.ids.len();
        }
        self.ids.push_back(id);
    }

    fn contains(&self, id: ScatteringId) -> bool {
        self.ids.binary_search(&id).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_scatterings_with_known_outcomes_only() {
        let mut own = OwnScatterings::default();
        for id in 0..10_000 {
            // The last hundred are in flight; every second one is the application's.
            let below = ScatteringId(2 * id - id.min(100));
            own.push(ScatteringId(2 * id), || below);
            assert!(own.ids.len() <= REMEMBERED_MIN + 1, "{}", own.ids.len());
            for in_flight in (2 * id - id.min(100)).div_ceil(2)..=id {
                assert!(own.contains(ScatteringId(2 * in_flight)), "{in_flight} of {id}");
            }
            assert!(!own.contains(ScatteringId(2 * id + 1)));
        }
    }
}
