//! Events of the endpoint: passes messages on, and handles control messages.

use onepipe_endpoint::{Delivery as Message, Event as Told, Outcome, SendFailed, Service};
use onepipe_wire::{ESCAPE_HEADER_LEN, LargeControl, LargeObject};

use crate::event::Held;
use crate::objects::Invitation;
use crate::outgoing::Purpose;
use crate::{Delivery, Event, LargeEndpoint};

/// A parsed control message.
enum Note {
    Quoted,
    Invitation(Invitation),
    Descriptor(LargeObject),
    Withdrawn(u64),
    /// Malformed.
    Misread,
}

impl LargeEndpoint {
    /// Translates an event of the endpoint for the application.
    #[inline]
    pub(crate) fn on_event(&mut self, event: Told) -> Option<Event> {
        match event {
            Told::Delivered(message) => {
                if LargeControl::is_control(self.endpoint.payload(&message)) {
                    return self.on_note(message);
                }
                Some(Event::Delivered(as_message(message, 0)))
            }
            other => self.on_news(other),
        }
    }

    #[cold]
    fn on_news(&mut self, event: Told) -> Option<Event> {
        self.is_restless = true;
        match event {
            Told::SendFailed(failed) => self.on_send_failed(failed),
            Told::LinkLost(port) => Some(Event::LinkLost(port)),
            Told::ProcessFailed(failed) => {
                self.on_process_failed(failed.process, failed.at);
                Some(Event::ProcessFailed(failed))
            }
            Told::Excluded(at) => {
                while !self.outgoing.queue.is_empty() {
                    self.abort(0);
                }
                Some(Event::Excluded(at))
            }
            Told::Recovered(at) => Some(Event::Recovered(at)),
            // Deliveries are handled by the caller, and there are no other events in this version.
            _ => None,
        }
    }

    #[cold]
    fn on_note(&mut self, message: Message) -> Option<Event> {
        self.is_restless = true;
        let note = match LargeControl::parse(self.endpoint.payload(&message)) {
            Ok(Some(LargeControl::Escaped(_))) => Note::Quoted,
            Ok(Some(LargeControl::Invitation { object, block_len, piece_len, members })) => {
                let members = members.iter().collect();
                Note::Invitation(Invitation { object, block_len, piece_len, members })
            }
            Ok(Some(LargeControl::Descriptor(object))) => Note::Descriptor(object),
            Ok(Some(LargeControl::Withdrawn(group))) => Note::Withdrawn(group),
            Ok(None) | Err(_) => Note::Misread,
        };
        let (from, service) = (message.from, message.service);
        match note {
            Note::Quoted => return Some(Event::Delivered(as_message(message, ESCAPE_HEADER_LEN))),
            Note::Descriptor(object) => {
                let Message { timestamp, index, .. } = message;
                let (bytes, held) = (object.bytes, Held::Object(object.group));
                let delivery = Delivery { service, timestamp, from, index, bytes, held };
                self.endpoint.release(message);
                return self.on_descriptor(from, object).then_some(Event::Delivered(delivery));
            }
            Note::Invitation(invitation) => {
                self.endpoint.release(message);
                self.on_invitation(from, service, invitation);
            }
            Note::Withdrawn(group) => {
                self.endpoint.release(message);
                let arrival = self.incoming.arrivals.get(&group);
                if arrival.is_some_and(|it| it.from == from && !it.is_ordered) {
                    self.drop_object(group);
                }
            }
            Note::Misread => {
                self.endpoint.release(message);
                self.stats.misbehaved += 1;
            }
        }
        None
    }

    /// Reports the failure of an application's message, with the application's id.
    fn on_send_failed(&mut self, failed: SendFailed) -> Option<Event> {
        match self.outgoing.purpose(&failed).cloned() {
            None => {
                let scattering = self.outgoing.id_of(failed.service, failed.scattering);
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
            Some(Purpose::Order(scattering, objects)) => {
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

    /// A receiver has a payload that will not be ordered: withdraws it. Only if the message was
    /// lost: an unreachable receiver has nothing, or will detect that this process has left.
    fn on_not_ordered(&mut self, service: Service, group: u64, failed: &SendFailed) {
        if failed.outcome == Outcome::Lost {
            self.outgoing.withdrawn.push_back((service, group, failed.to));
            self.advance();
        }
    }
}

/// Returns a message whose payload begins after `skip` bytes.
#[inline]
fn as_message(message: Message, skip: usize) -> Delivery {
    let Message { service, timestamp, from, index, len, .. } = message;
    let bytes = u64::from(len) - skip as u64;
    let held = Held::Message { delivery: message, skip };
    Delivery { service, timestamp, from, index, bytes, held }
}
