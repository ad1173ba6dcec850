//! The endpoint of a pipe: for messages that fit a buffer, or for payloads of any size.

use onepipe_base::{Machine, Mono, Now, Port, ScatteringId, Transmit, Verdict};
use onepipe_endpoint::{
    self as endpoint, Delivery, Endpoint, MESSAGE_CHARGE_BYTES, Message, OpenScattering, SendError,
};
use onepipe_large::{Event as LargeEvent, LargeEndpoint, SendError as LargeError};
use onepipe_wire::{MARKED_HEADER_LEN, Service};

use crate::Received;

/// A plain endpoint, or one that also takes payloads of any size.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one value per process, stored inline")]
pub(crate) enum PipeEndpoint {
    Plain(Endpoint),
    AnySize(Box<LargeEndpoint>),
}

/// A delivered message whose payload is still buffered.
#[derive(Debug)]
pub(crate) enum BufferedMessage {
    /// In the endpoint's receive buffer.
    Message(Delivery),
    /// A large payload, in private memory.
    Large(onepipe_large::Delivery),
    /// The same with a payload that is escaped, as it begins with the mark.
    EscapedMessage(Delivery),
    EscapedLarge(onepipe_large::Delivery),
}

impl BufferedMessage {
    /// The message with its payload.
    #[inline]
    pub(crate) fn received<'a>(&self, payload: &'a [u8]) -> Received<&'a [u8]> {
        match self {
            Self::Message(Delivery { service, timestamp, from, index, .. })
            | Self::EscapedMessage(Delivery { service, timestamp, from, index, .. }) => {
                let (service, timestamp, from, index) = (*service, *timestamp, *from, *index);
                Received { service, timestamp, from, index, payload }
            }
            Self::Large(of) | Self::EscapedLarge(of) => {
                let (service, timestamp, from, index) =
                    (of.service, of.timestamp, of.from, of.index);
                Received { service, timestamp, from, index, payload }
            }
        }
    }

    /// The message without the header before its payload, which is escaped.
    pub(crate) fn escaped(self) -> Self {
        match self {
            Self::Message(delivery) => Self::EscapedMessage(delivery),
            Self::Large(delivery) => Self::EscapedLarge(delivery),
            escaped => escaped,
        }
    }
}

/// An event of the endpoint.
#[derive(Debug)]
pub(crate) enum EndpointEvent {
    Delivered(BufferedMessage),
    /// A message that is handed back, because this process leaves.
    Undelivered(BufferedMessage),
    /// Any event without a message.
    Other(endpoint::Event),
}

impl PipeEndpoint {
    #[inline]
    pub(crate) fn endpoint(&self) -> &Endpoint {
        match self {
            Self::Plain(endpoint) => endpoint,
            Self::AnySize(large) => large.endpoint(),
        }
    }

    /// The inner endpoint, for commands that do not concern messages.
    #[inline]
    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint {
        match self {
            Self::Plain(endpoint) => endpoint,
            Self::AnySize(large) => large.endpoint_mut(),
        }
    }

    #[inline]
    pub(crate) fn scatter(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        match (self, service) {
            (Self::Plain(endpoint), Service::BestEffort) => endpoint.scatter(messages),
            (Self::Plain(endpoint), Service::Reliable) => endpoint.scatter_reliably(messages),
            (Self::AnySize(large), Service::BestEffort) => {
                large.scatter(messages).map_err(to_send_error)
            }
            (Self::AnySize(large), Service::Reliable) => {
                large.scatter_reliably(messages).map_err(to_send_error)
            }
        }
    }

    /// Submits a best-effort message that is delivered on arrival.
    #[inline]
    pub(crate) fn send_unordered(
        &mut self,
        message: Message<'_>,
    ) -> Result<ScatteringId, SendError> {
        match self {
            Self::Plain(endpoint) => endpoint.send_unordered(message),
            Self::AnySize(large) => large.send_unordered(message).map_err(to_send_error),
        }
    }

    #[inline]
    pub(crate) fn payload(&self, buffered: &BufferedMessage) -> &[u8] {
        match buffered {
            BufferedMessage::Message(delivery) => self.endpoint().payload(delivery),
            BufferedMessage::Large(delivery) => self.large_payload(delivery),
            BufferedMessage::EscapedMessage(delivery) => {
                without_header(self.endpoint().payload(delivery))
            }
            BufferedMessage::EscapedLarge(delivery) => without_header(self.large_payload(delivery)),
        }
    }

    fn large_payload(&self, delivery: &onepipe_large::Delivery) -> &[u8] {
        match self {
            Self::Plain(_) => &[],
            Self::AnySize(large) => large.payload(delivery),
        }
    }

    #[inline]
    pub(crate) fn release(&mut self, buffered: BufferedMessage) {
        match (self, buffered) {
            (
                endpoint,
                BufferedMessage::Message(delivery) | BufferedMessage::EscapedMessage(delivery),
            ) => endpoint.endpoint_mut().release(delivery),
            (
                Self::AnySize(large),
                BufferedMessage::Large(delivery) | BufferedMessage::EscapedLarge(delivery),
            ) => large.release(delivery),
            (Self::Plain(_), _) => {}
        }
    }

    /// The next event if it is a message that was delivered in place: the frequent case of
    /// [`PipeEndpoint::poll_event`], which returns all others. See [`Endpoint::poll_delivery`].
    #[inline(always)]
    pub(crate) fn poll_delivery(&mut self) -> Option<Delivery> {
        match self {
            Self::Plain(endpoint) => endpoint.poll_delivery(),
            Self::AnySize(_) => None,
        }
    }

    #[inline]
    pub(crate) fn poll_event(&mut self) -> Option<EndpointEvent> {
        match self {
            Self::Plain(endpoint) => endpoint.poll_event().map(|event| match event {
                endpoint::Event::Delivered(delivery) => {
                    EndpointEvent::Delivered(BufferedMessage::Message(delivery))
                }
                endpoint::Event::Undelivered(delivery) => {
                    EndpointEvent::Undelivered(BufferedMessage::Message(delivery))
                }
                other => EndpointEvent::Other(other),
            }),
            Self::AnySize(large) => loop {
                if let Some(endpoint_event) = endpoint_event(large.poll_event()?) {
                    return Some(endpoint_event);
                }
            },
        }
    }

    /// Whether the outcomes of all submitted messages are known.
    pub(crate) fn is_drained(&self) -> bool {
        match self {
            Self::Plain(endpoint) => endpoint.is_drained(),
            Self::AnySize(large) => large.is_drained(),
        }
    }

    /// An id below which the outcome of every scattering of a service is known, and every failure
    /// was polled.
    pub(crate) fn resolved_below(&self, service: Service) -> ScatteringId {
        match self {
            Self::Plain(endpoint) => endpoint.resolved_below(service),
            Self::AnySize(large) => large.resolved_below(service),
        }
    }

    /// Length of the longest message that can be sent, in bytes.
    pub(crate) fn message_len_max(&self) -> u64 {
        match self {
            Self::Plain(endpoint) => {
                let config = endpoint.config();
                let buffer = config.send_buffer_bytes_max as u64;
                let charge = u64::from(MESSAGE_CHARGE_BYTES);
                u64::from(config.message_len_max).min(buffer.saturating_sub(charge))
            }
            Self::AnySize(large) => {
                large.config().object_len_max.min(large.config().sent_bytes_max)
            }
        }
    }

    /// The reliable scatterings without an outcome.
    pub(crate) fn open_scatterings(&self) -> Vec<OpenScattering> {
        match self {
            Self::Plain(endpoint) => endpoint.open_scatterings(),
            Self::AnySize(large) => large.open_scatterings(),
        }
    }

    /// Cancels a reliable scattering. Returns false if it is not open.
    pub(crate) fn cancel(&mut self, scattering: ScatteringId) -> bool {
        match self {
            Self::Plain(endpoint) => endpoint.cancel(scattering),
            Self::AnySize(large) => large.cancel(scattering),
        }
    }

    /// Starts to leave.
    pub(crate) fn leave(&mut self) {
        match self {
            Self::Plain(endpoint) => endpoint.leave(),
            Self::AnySize(large) => large.leave(),
        }
    }

    #[inline]
    pub(crate) fn wants_transmit(&self) -> bool {
        match self {
            Self::Plain(endpoint) => endpoint.wants_transmit(),
            Self::AnySize(large) => large.wants_transmit(),
        }
    }

    #[inline]
    pub(crate) fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Plain(endpoint) => endpoint.handle_frame(now, port, frame),
            Self::AnySize(large) => large.handle_frame(now, port, frame),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Now) {
        match self {
            Self::Plain(endpoint) => endpoint.handle_timeout(now),
            Self::AnySize(large) => large.handle_timeout(now),
        }
    }

    #[inline]
    pub(crate) fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Plain(endpoint) => endpoint.poll_transmit(now, slot),
            Self::AnySize(large) => large.poll_transmit(now, slot),
        }
    }

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Plain(endpoint) => endpoint.poll_timeout(),
            Self::AnySize(large) => large.poll_timeout(),
        }
    }
}

/// Returns the payload of an escaped message.
#[cold]
fn without_header(escaped: &[u8]) -> &[u8] {
    escaped.get(MARKED_HEADER_LEN..).unwrap_or_default()
}

fn endpoint_event(event: LargeEvent) -> Option<EndpointEvent> {
    let other = match event {
        LargeEvent::Delivered(delivery) => {
            return Some(EndpointEvent::Delivered(buffered(delivery)));
        }
        LargeEvent::Undelivered(delivery) => {
            return Some(EndpointEvent::Undelivered(buffered(delivery)));
        }
        LargeEvent::SendFailed(failed) => endpoint::Event::SendFailed(failed),
        LargeEvent::LinkLost(port) => endpoint::Event::LinkLost(port),
        LargeEvent::ProcessFailed(failed) => endpoint::Event::ProcessFailed(failed),
        LargeEvent::ProcessLeft(left) => endpoint::Event::ProcessLeft(left),
        LargeEvent::Excluded(at) => endpoint::Event::Excluded(at),
        LargeEvent::Recovered(complete) => endpoint::Event::Recovered(complete),
        // There are no other events yet; the type is non-exhaustive.
        _ => return None,
    };
    Some(EndpointEvent::Other(other))
}

fn buffered(delivery: onepipe_large::Delivery) -> BufferedMessage {
    match delivery.into_message() {
        Ok(message) => BufferedMessage::Message(message),
        Err(large) => BufferedMessage::Large(large),
    }
}

/// Converts the error of a large endpoint.
fn to_send_error(refused: LargeError) -> SendError {
    match refused {
        LargeError::Endpoint(refused) => refused,
        LargeError::TooLarge { index, bytes, max } => SendError::MessageTooLarge {
            index,
            len: bytes as usize,
            max: u32::try_from(max).unwrap_or(u32::MAX),
        },
        LargeError::Full { need, free } => {
            SendError::BufferFull { need: need as usize, free: free as usize }
        }
        // There are no other errors yet; the type is non-exhaustive.
        _ => SendError::Left,
    }
}
