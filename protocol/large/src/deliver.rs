//! Events of the endpoint: passes messages on, and handles control messages.

use onepipe_endpoint::{
    Delivery as EndpointDelivery, Event as EndpointEvent, Outcome, SendFailed, Service,
};
use onepipe_wire::{ESCAPE_HEADER_LEN, LargeControl, LargeObject};

use crate::event::Storage;
use crate::objects::Invitation;
use crate::outgoing::Purpose;
use crate::{Delivery, Event, LargeEndpoint};

/// A parsed control message that does not borrow from the endpoint's buffer, so that the buffer can
/// be released before the message is handled.
enum Control {
    Escaped,
    Invitation(Invitation),
    Descriptor(LargeObject),
    Withdrawn(u64),
    Invalid,
}

impl LargeEndpoint {
    /// Translates an event of the endpoint for the application.
    #[inline]
    pub(crate) fn on_event(&mut self, event: EndpointEvent) -> Option<Event> {
        match event {
            EndpointEvent::Delivered(message) => {
                if LargeControl::is_control(self.endpoint.payload(&message)) {
                    return self.on_control(message);
                }
                Some(Event::Delivered(to_delivery(message, 0)))
            }
            EndpointEvent::Undelivered(message) => self.on_undelivered(message),
            other => self.on_other_event(other),
        }
    }

    /// Handles a message that is handed back: messages between endpoints are of no use any more.
    #[cold]
    fn on_undelivered(&mut self, message: EndpointDelivery) -> Option<Event> {
        if !LargeControl::is_control(self.endpoint.payload(&message)) {
            return Some(Event::Undelivered(to_delivery(message, 0)));
        }
        match self.on_control(message) {
            Some(Event::Delivered(delivery)) => Some(Event::Undelivered(delivery)),
            _ => None,
        }
    }

    #[cold]
    fn on_other_event(&mut self, event: EndpointEvent) -> Option<Event> {
        self.has_work = true;
        match event {
            EndpointEvent::SendFailed(failed) => self.on_send_failed(failed),
            EndpointEvent::LinkLost(port) => Some(Event::LinkLost(port)),
            EndpointEvent::ProcessFailed(failed) => {
                self.on_process_failed(failed.process, failed.at);
                Some(Event::ProcessFailed(failed))
            }
            EndpointEvent::ProcessLeft(left) => {
                self.on_process_failed(left.process, left.at);
                Some(Event::ProcessLeft(left))
            }
            EndpointEvent::Excluded(at) => {
                while !self.outgoing.queue.is_empty() {
                    self.abort(0);
                }
                Some(Event::Excluded(at))
            }
            EndpointEvent::Recovered(at) => Some(Event::Recovered(at)),
            // Deliveries are handled by the caller, and there are no other events in this version.
            _ => None,
        }
    }

    #[cold]
    fn on_control(&mut self, message: EndpointDelivery) -> Option<Event> {
        self.has_work = true;
        let control = match LargeControl::parse(self.endpoint.payload(&message)) {
            Ok(Some(LargeControl::Escaped(_))) => Control::Escaped,
            Ok(Some(LargeControl::Invitation { object, block_len, piece_len, members })) => {
                let members = members.iter().collect();
                Control::Invitation(Invitation { object, block_len, piece_len, members })
            }
            Ok(Some(LargeControl::Descriptor(object))) => Control::Descriptor(object),
            Ok(Some(LargeControl::Withdrawn(group))) => Control::Withdrawn(group),
            Ok(None) | Err(_) => Control::Invalid,
        };
        let (from, service) = (message.from, message.service);
        match control {
            Control::Escaped => {
                return Some(Event::Delivered(to_delivery(message, ESCAPE_HEADER_LEN)));
            }
            Control::Descriptor(object) => {
                let EndpointDelivery { timestamp, index, .. } = message;
                let (bytes, storage) = (object.bytes, Storage::Object(object.group));
                let delivery = Delivery { service, timestamp, from, index, bytes, storage };
                self.endpoint.release(message);
                return self.on_descriptor(from, object).then_some(Event::Delivered(delivery));
            }
            Control::Invitation(invitation) => {
                self.endpoint.release(message);
                self.on_invitation(from, service, invitation);
            }
            Control::Withdrawn(group) => {
                self.endpoint.release(message);
                let arrival = self.incoming.arrivals.get(&group);
                if arrival.is_some_and(|arrival| arrival.from == from && !arrival.is_ordered) {
                    self.drop_object(group);
                }
            }
            Control::Invalid => {
                self.endpoint.release(message);
                self.stats.invalid += 1;
            }
        }
        None
    }

    /// Reports the failure of an application's message, with the application's id.
    fn on_send_failed(&mut self, failed: SendFailed) -> Option<Event> {
        match self.outgoing.purpose(failed.service, failed.scattering).cloned() {
            None => {
                let scattering = self.outgoing.map_id(failed.service, failed.scattering);
                Some(Event::SendFailed(SendFailed { scattering, ..failed }))
            }
            Some(Purpose::Invitation(group)) => {
                if let Some((at, object)) = self.outgoing.object_mut(group)
                    && !object.is_whole
                {
                    self.abort(at);
                }
                None
            }
            Some(Purpose::Descriptors(scattering, objects)) => {
                let object = objects.get(usize::from(failed.index)).copied().flatten();
                if let Some(group) = object {
                    self.on_not_ordered(failed.service, group, &failed);
                }
                Some(Event::SendFailed(SendFailed { scattering, ..failed }))
            }
            Some(Purpose::Withdrawal(group)) => {
                // A reliable withdrawal is lost only for receivers that have failed.
                if failed.service == Service::BestEffort {
                    self.on_not_ordered(failed.service, group, &failed);
                }
                None
            }
        }
    }

    /// Handles that a receiver has the payload of `group` but not the message that orders it: sends
    /// a withdrawal, so that the receiver drops the payload. Only after a loss: an unreachable
    /// receiver has no payload, or drops it when it detects that this process has left the group.
    fn on_not_ordered(&mut self, service: Service, group: u64, failed: &SendFailed) {
        if failed.outcome == Outcome::Lost {
            self.outgoing.withdrawn.push_back((service, group, failed.to));
            self.advance();
        }
    }
}

/// Returns a message whose payload begins after `skip` bytes.
#[inline]
fn to_delivery(message: EndpointDelivery, skip: usize) -> Delivery {
    let EndpointDelivery { service, timestamp, from, index, len, .. } = message;
    debug_assert!(skip as u64 <= u64::from(len), "a parsed message has its header");
    let bytes = u64::from(len) - skip as u64;
    let storage = Storage::Message { delivery: message, skip };
    Delivery { service, timestamp, from, index, bytes, storage }
}
