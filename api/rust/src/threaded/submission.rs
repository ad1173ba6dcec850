//! Scatterings on their way from the caller's thread to the driving thread.

use onepipe_base::ProcessId;
use onepipe_endpoint::{MESSAGE_CHARGE_BYTES, Message, SendError};
use onepipe_wire::Service;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::pipe_endpoint::SubmitLimits;

/// Maximum number of scatterings in the submission queue.
const REQUESTS_MAX: usize = 1024;
/// Maximum number of bytes in the submission queue, charges included; a single scattering may be
/// longer.
pub(crate) const REQUESTS_BYTES_MAX: u64 = 4 << 20;
/// A request with more memory than this is freed instead of recycled.
const RECYCLED_BYTES_MAX: usize = 64 << 10;
/// Scatterings of up to this many messages are unpacked without the heap.
const MESSAGES_ON_STACK: usize = 32;

/// A packed scattering.
#[derive(Debug)]
pub(crate) struct SendRequest {
    pub(crate) service: Service,
    /// Destination and length of each message.
    headers: Vec<(ProcessId, u32)>,
    /// The concatenated payloads.
    bytes: Vec<u8>,
}

impl Default for SendRequest {
    fn default() -> Self {
        Self { service: Service::BestEffort, headers: Vec::new(), bytes: Vec::new() }
    }
}

impl SendRequest {
    /// The destinations of its messages, in order.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.headers.iter().map(|(to, _)| *to)
    }

    fn pack(&mut self, service: Service, messages: &[Message<'_>]) {
        self.service = service;
        self.headers.clear();
        self.bytes.clear();
        for message in messages {
            self.headers.push((message.to, message.payload.len() as u32));
            self.bytes.extend_from_slice(message.payload);
        }
    }

    /// Returns the number of bytes that the request takes in a send buffer.
    pub(crate) fn charge(&self) -> u64 {
        (self.bytes.len() + self.headers.len() * MESSAGE_CHARGE_BYTES as usize) as u64
    }

    /// Calls `with` with the original messages.
    #[inline]
    pub(crate) fn unpack<R>(&self, with: impl FnOnce(&[Message<'_>]) -> R) -> R {
        let mut rest = &self.bytes[..];
        let messages = self.headers.iter().map(|&(to, bytes)| {
            let (payload, behind) = rest.split_at(bytes as usize);
            rest = behind;
            Message { to, payload }
        });
        if self.headers.len() > MESSAGES_ON_STACK {
            return with(&messages.collect::<Vec<_>>());
        }
        let mut array = [Message { to: ProcessId(0), payload: &[] }; MESSAGES_ON_STACK];
        array.iter_mut().zip(messages).for_each(|(slot, message)| *slot = message);
        with(&array[..self.headers.len()])
    }
}

/// The caller's end of the submission queue.
#[derive(Debug)]
pub(crate) struct Submitter {
    requests: Producer<SendRequest>,
    empty: Consumer<SendRequest>,
    submitted_bytes: u64,
    /// Bytes that the endpoint has accepted, as last read.
    accepted_bytes: u64,
}

/// The driving thread's end of the submission queue.
#[derive(Debug)]
pub(crate) struct SubmissionQueue {
    pub(crate) requests: Consumer<SendRequest>,
    empty: Producer<SendRequest>,
}

pub(crate) fn submission_queue() -> (Submitter, SubmissionQueue) {
    let (requests, taken) = RingBuffer::new(REQUESTS_MAX);
    let (returned, empty) = RingBuffer::new(REQUESTS_MAX);
    let submitter = Submitter { requests, empty, submitted_bytes: 0, accepted_bytes: 0 };
    (submitter, SubmissionQueue { requests: taken, empty: returned })
}

impl Submitter {
    /// Submits a scattering that the endpoint can accept at some time. `accepted` reads the number
    /// of bytes that the endpoint has accepted so far.
    #[inline]
    pub(crate) fn submit(
        &mut self,
        limits: &SubmitLimits,
        service: Service,
        messages: &[Message<'_>],
        accepted: impl FnOnce() -> u64,
    ) -> Result<(), SendError> {
        let need = limits.check(messages)?;
        self.check_capacity(need, accepted)?;
        let mut request = self.empty.pop().unwrap_or_default();
        request.pack(service, messages);
        // There is capacity: checked above, and only this thread fills the ring.
        if self.requests.push(request).is_err() {
            return Err(SendError::BufferFull { need, free: 0 });
        }
        self.submitted_bytes += need as u64;
        Ok(())
    }

    #[inline]
    fn check_capacity(
        &mut self,
        need: usize,
        accepted: impl FnOnce() -> u64,
    ) -> Result<(), SendError> {
        let is_over = |submitter: &Self| {
            let held = submitter.submitted_bytes - submitter.accepted_bytes;
            held > 0 && held + need as u64 > REQUESTS_BYTES_MAX
        };
        if is_over(self) {
            self.accepted_bytes = accepted();
            if is_over(self) {
                let held = self.submitted_bytes - self.accepted_bytes;
                let free = REQUESTS_BYTES_MAX.saturating_sub(held) as usize;
                return Err(SendError::BufferFull { need, free });
            }
        }
        if self.requests.cached_slots() == 0 && self.requests.is_full() {
            return Err(SendError::BufferFull { need, free: 0 });
        }
        Ok(())
    }
}

impl SubmissionQueue {
    /// Recycles the memory of a request.
    pub(crate) fn recycle(&mut self, request: SendRequest) {
        if request.bytes.capacity() <= RECYCLED_BYTES_MAX {
            // Full only if the caller has allocated more requests than fit; they are freed.
            let _ = self.empty.push(request);
        }
    }
}
