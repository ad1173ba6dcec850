//! One process: its owner and its client over its endpoint.

use std::collections::VecDeque;

use onepipe_base::{Mono, Port, ProcessId, ScatteringId, Timestamp};
use onepipe_endpoint::{Delivery, Endpoint, Event, Message, SendError, Service};
use onepipe_memory::{MemoryOwner, OutgoingReply, OutgoingScattering, Reply, Request};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::NodeContext;
use onepipe_table::TableClient;
use onepipe_verify_transactions::{Node, ProcessServer, endpoint_mut};

use crate::load::{Command, Load};
use crate::terminals::Terminals;

/// The owner and the client of a process.
#[derive(Debug)]
pub struct Server {
    pub owner: Option<MemoryOwner>,
    pub client: Option<TableClient>,
    pub(crate) terminals: Terminals,
    /// Replies that the endpoint had no space for.
    unsent: VecDeque<OutgoingReply>,
    /// The last barrier that the owner was given.
    passed: Option<Timestamp>,
    /// Whether there may be something to do.
    is_active: bool,
    /// The next alarm.
    alarm_at: Option<Instant>,
}

impl ProcessServer for Server {
    fn on_alarm(&mut self) {
        (self.alarm_at, self.is_active) = (None, true);
    }

    fn wake(&mut self) {
        self.is_active = true;
        self.terminals.wake();
    }

    fn on_event(&mut self, now: Mono, endpoint: &mut Endpoint, event: Event) -> bool {
        self.is_active = true;
        match event {
            Event::Delivered(delivery) => self.on_delivered(now, endpoint, delivery),
            Event::Undelivered(delivery) => endpoint.release(delivery),
            Event::SendFailed(failed) => {
                if let Some(client) = &mut self.client {
                    let is_reliable = failed.service == Service::Reliable;
                    client.on_send_failed(now, is_reliable, failed.scattering);
                }
            }
            Event::ProcessFailed(failed) => {
                self.on_process_ended(failed.process, failed.at);
                endpoint.on_failure_handled();
            }
            Event::ProcessLeft(left) => self.on_process_ended(left.process, left.at),
            // The memory may have what other processes have discarded.
            Event::Excluded(_) => return false,
            _ => {}
        }
        true
    }

    fn in_flight(&self) -> usize {
        self.terminals.in_flight()
    }
}

impl Server {
    pub(crate) fn new(
        owner: Option<MemoryOwner>,
        client: Option<TableClient>,
        terminals: Terminals,
    ) -> Self {
        Self {
            owner,
            client,
            terminals,
            unsent: VecDeque::new(),
            passed: None,
            is_active: true,
            alarm_at: None,
        }
    }

    fn on_delivered(&mut self, now: Mono, endpoint: &mut Endpoint, delivery: Delivery) {
        let payload = endpoint.payload(&delivery);
        let (from, at) = (delivery.from, delivery.timestamp);
        if let Some(client) = self.client.as_mut().filter(|_| Reply::is_reply(payload)) {
            client.on_message(now, from, payload);
        } else if let Some(owner) = self.owner.as_mut().filter(|_| Request::is_request(payload)) {
            owner.on_message(delivery.service == Service::Reliable, at, from, payload);
        }
        endpoint.release(delivery);
    }

    fn on_process_ended(&mut self, process: ProcessId, at: Timestamp) {
        if let Some(owner) = &mut self.owner {
            owner.on_process_ended(process, at);
        }
        if let Some(client) = &mut self.client {
            client.on_process_ended(process, at);
        }
    }

    /// Does what is due after all events were handled. `drained` is the commit barrier below which
    /// the endpoint has handed out everything.
    pub(crate) fn serve(
        &mut self,
        at: &mut NodeContext<'_>,
        (machine, port): (&mut Node, Port),
        drained: Option<Timestamp>,
        load: &mut impl Load,
    ) {
        if let Some(owner) = &mut self.owner
            && let Some(barrier) = drained
            && self.passed < drained
        {
            self.passed = drained;
            owner.on_barrier(barrier);
        }
        if let Some(endpoint) = endpoint_mut(machine, port) {
            endpoint.await_commit(self.owner.as_ref().and_then(MemoryOwner::awaited));
            self.send_replies(endpoint);
        }
        if !std::mem::take(&mut self.is_active) {
            return;
        }
        self.run_client(at, (machine, port), load);
        self.set_alarm(at, port);
    }

    fn send_replies(&mut self, endpoint: &mut Endpoint) {
        let Some(owner) = &mut self.owner else { return };
        while let Some(reply) = self.unsent.pop_front().or_else(|| owner.poll_reply()) {
            let message = Message { to: reply.to, payload: &reply.payload };
            if let Err(SendError::BufferFull { .. }) = endpoint.send_unordered(message) {
                self.is_active = true;
                return self.unsent.push_front(reply);
            }
        }
    }

    fn run_client(
        &mut self,
        at: &NodeContext<'_>,
        (machine, port): (&mut Node, Port),
        load: &mut impl Load,
    ) {
        let Some(client) = &mut self.client else { return };
        client.handle_timeout(at.now.mono);
        loop {
            let mut has_finished = false;
            while let Some(finished) = client.poll_finished() {
                self.terminals.on_finished(at.instant, finished, load);
                has_finished = true;
            }
            self.terminals.run(at.instant, load, |key, command| match command {
                Command::LookUp => client.look_up(key),
                Command::Delete => client.delete(key),
                Command::Insert(value) => client.insert(key, &value).expect("a value's length"),
                Command::Update(value) => client.update(key, &value).expect("a value's length"),
            });
            let Some(endpoint) = endpoint_mut(machine, port) else { return };
            let is_blocked = !send_scatterings(at.now.mono, endpoint, client);
            self.is_active |= is_blocked;
            if is_blocked || !has_finished {
                return;
            }
        }
    }

    fn set_alarm(&mut self, at: &mut NodeContext<'_>, port: Port) {
        let deadline = self.client.as_ref().and_then(TableClient::poll_timeout);
        let deadline = deadline.map(|deadline| {
            let wait_ns = deadline.as_ns().saturating_sub(at.now.mono.as_ns());
            at.instant.after(wait_ns.max(1) * NANOSECOND)
        });
        let Some(next) = self.terminals.next_at().into_iter().chain(deadline).min() else { return };
        if self.alarm_at.is_none_or(|alarm_at| next < alarm_at) {
            self.alarm_at = Some(next);
            at.alarm(next.since(at.instant), u32::from(port.0));
        }
    }
}

fn send(
    endpoint: &mut Endpoint,
    scattering: &OutgoingScattering,
) -> Result<ScatteringId, SendError> {
    // The endpoint sends a payload once if consecutive messages have it as one slice.
    let mut payload: &[u8] = &[];
    let messages = scattering.messages.iter().map(|(to, next)| {
        if payload != &next[..] {
            payload = next;
        }
        Message { to: *to, payload }
    });
    let messages: Vec<Message<'_>> = messages.collect();
    match *messages {
        [message] if scattering.is_unordered => endpoint.send_unordered(message),
        _ if scattering.is_reliable => endpoint.scatter_reliably(&messages),
        _ => endpoint.scatter(&messages),
    }
}

/// Sends what the client has to send. Returns false if the endpoint has no space.
fn send_scatterings(now: Mono, endpoint: &mut Endpoint, client: &mut TableClient) -> bool {
    while let Some(scattering) = client.poll_scattering(now) {
        match send(endpoint, &scattering) {
            Ok(id) => client.on_submitted(&scattering, id),
            Err(SendError::BufferFull { .. }) => {
                client.on_refused(&scattering);
                return false;
            }
            Err(_) => client.on_unsendable(&scattering),
        }
    }
    true
}
