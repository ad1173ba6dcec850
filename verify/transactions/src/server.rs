//! One process: its replica and its client over its endpoint.

use std::collections::{BTreeMap, VecDeque};

use onepipe_base::{Mono, Port, ProcessId, ScatteringId, Timestamp};
use onepipe_endpoint::{Delivery, Endpoint, Event, Message, SendError, Service};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::NodeContext;
use onepipe_transaction::{Client, OutgoingReply, Replica, Reply, Request, State, TransactionId};

use crate::environment::ProcessServer;
use crate::load::{Done, Load, Next, Terminal};
use crate::node::{Node, endpoint_mut};

/// What a terminal is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// The terminal has to be asked what it does next.
    Nothing,
    /// Its transaction is in flight.
    Transaction,
    /// The terminal is asked at this instant.
    Waits(Instant),
    /// The terminal has ended.
    Stopped,
}

/// The replica and the client of a process.
#[derive(Debug)]
pub struct Server<S> {
    pub process: ProcessId,
    pub replica: Option<Replica<S>>,
    pub client: Option<Client>,
    session: u64,
    terminals: Vec<Doing>,
    /// Terminal and virtual time of submission of each transaction in flight.
    in_flight: BTreeMap<TransactionId, (u32, u64)>,
    /// Replies that the endpoint had no space for.
    unsent: VecDeque<OutgoingReply>,
    /// The last barrier that the replica was given.
    answered: Option<Timestamp>,
    /// Whether there may be something to do.
    is_active: bool,
    /// The next alarm.
    alarm_at: Option<Instant>,
}

impl<S: State> ProcessServer for Server<S> {
    fn on_alarm(&mut self) {
        (self.alarm_at, self.is_active) = (None, true);
    }

    fn wake(&mut self) {
        self.is_active = true;
        for terminal in &mut self.terminals {
            if *terminal != Doing::Transaction {
                *terminal = Doing::Nothing;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn on_event(&mut self, now: Mono, endpoint: &mut Endpoint, event: Event) -> bool {
        self.is_active = true;
        match event {
            Event::Delivered(delivery) => self.on_delivered(now, endpoint, delivery),
            Event::Undelivered(delivery) => endpoint.release(delivery),
            Event::SendFailed(failed) => {
                if let Some(replica) = &mut self.replica
                    && failed.service == Service::Reliable
                {
                    replica.on_send_failed(failed.scattering);
                }
                if let Some(client) = &mut self.client {
                    client.on_send_failed(failed.service == Service::Reliable, failed.scattering);
                }
            }
            Event::ProcessFailed(failed) => {
                self.on_process_ended(failed.process, failed.at);
                endpoint.on_failure_handled();
            }
            Event::ProcessLeft(left) => self.on_process_ended(left.process, left.at),
            // The state of its replica may contain writes that other processes have discarded.
            Event::Excluded(_) => return false,
            _ => {}
        }
        true
    }
}

impl<S: State> Server<S> {
    pub fn new(
        process: ProcessId,
        replica: Option<Replica<S>>,
        client: Option<(u64, Client)>,
        terminals: u32,
    ) -> Self {
        let session = client.as_ref().map_or(0, |(session, _)| *session);
        let client = client.map(|(_, client)| client);
        let terminals = if client.is_some() { terminals } else { 0 };
        Self {
            process,
            replica,
            client,
            session,
            terminals: vec![Doing::Nothing; terminals as usize],
            in_flight: BTreeMap::new(),
            unsent: VecDeque::new(),
            answered: None,
            is_active: true,
            alarm_at: None,
        }
    }

    fn on_delivered(&mut self, now: Mono, endpoint: &mut Endpoint, delivery: Delivery) {
        let payload = endpoint.payload(&delivery);
        let from = delivery.from;
        if let Some(client) = self.client.as_mut().filter(|_| Reply::is_reply(payload)) {
            client.on_message(now, from, payload);
        } else if let Some(replica) = self.replica.as_mut().filter(|_| Request::is_request(payload))
        {
            let is_reliable = delivery.service == Service::Reliable;
            replica.on_message(is_reliable, delivery.timestamp, from, payload);
        }
        endpoint.release(delivery);
    }

    fn on_process_ended(&mut self, process: ProcessId, at: Timestamp) {
        if let Some(replica) = &mut self.replica {
            replica.on_process_ended(process, at);
        }
        if let Some(client) = &mut self.client {
            client.on_process_ended(process, at);
        }
    }

    /// Does what is due after all events were handled. `drained` is the commit barrier below which
    /// the endpoint has handed out everything.
    pub fn serve<L: Load<S>>(
        &mut self,
        at: &mut NodeContext<'_>,
        (machine, port): (&mut Node, Port),
        drained: Option<Timestamp>,
        load: &mut L,
    ) {
        if let Some(replica) = &mut self.replica
            && let Some(barrier) = drained
            && self.answered < drained
        {
            self.answered = drained;
            replica.on_barrier(barrier);
            self.is_active |= replica.has_reply();
        }
        if !std::mem::take(&mut self.is_active) {
            return;
        }
        self.send_to_replicas(at, (machine, port));
        self.send_replies(machine, port);
        self.run_client(at, (machine, port), drained, load);
        self.set_alarm(at, port);
    }

    fn send_replies(&mut self, machine: &mut Node, port: Port) {
        let Some(replica) = &mut self.replica else { return };
        while let Some(reply) = self.unsent.pop_front().or_else(|| replica.poll_reply()) {
            let Some(endpoint) = endpoint_mut(machine, port) else { return };
            let message = Message { to: reply.to, payload: &reply.payload };
            if let Err(SendError::BufferFull { .. }) = endpoint.scatter(&[message]) {
                self.is_active = true;
                return self.unsent.push_front(reply);
            }
        }
    }

    /// Sends what the replica has for others of its shard.
    fn send_to_replicas(&mut self, at: &NodeContext<'_>, (machine, port): (&mut Node, Port)) {
        let Some(replica) = &mut self.replica else { return };
        replica.handle_timeout(at.now.mono);
        while let Some(scattering) = replica.poll_scattering(at.now.mono) {
            let Some(endpoint) = endpoint_mut(machine, port) else { return };
            match send(endpoint, scattering.is_reliable, &scattering.messages) {
                Ok(id) => replica.on_scattering_submitted(&scattering, id),
                Err(SendError::BufferFull { .. }) => {
                    self.is_active = true;
                    return replica.on_scattering_refused(scattering);
                }
                // Nothing is sent: the replica repeats requests that are not answered.
                Err(_) => {}
            }
        }
    }

    fn run_client<L: Load<S>>(
        &mut self,
        at: &mut NodeContext<'_>,
        (machine, port): (&mut Node, Port),
        drained: Option<Timestamp>,
        load: &mut L,
    ) {
        let Some(mut client) = self.client.take() else { return };
        client.handle_timeout(at.now.mono);
        loop {
            let mut has_finished = false;
            while let Some(finished) = client.poll_finished() {
                let Some((index, started_ns)) = self.in_flight.remove(&finished.transaction) else {
                    continue;
                };
                let (terminal, at_ns) = (self.terminal(index), at.instant.as_ns());
                load.done(Done { terminal, started_ns, at_ns, outcome: finished.outcome });
                self.terminals[index as usize] = Doing::Nothing;
                has_finished = true;
            }
            self.submit(at.instant, &mut client, load);
            let is_blocked = !send_scatterings(at, (machine, port), &mut client, drained);
            self.is_active |= is_blocked;
            if is_blocked || !has_finished {
                break;
            }
        }
        self.client = Some(client);
    }

    fn terminal(&self, index: u32) -> Terminal {
        Terminal { process: self.process, session: self.session, index }
    }

    /// Submits the next transaction of each terminal without one.
    fn submit<L: Load<S>>(&mut self, now: Instant, client: &mut Client, load: &mut L) {
        for index in 0..self.terminals.len() {
            let is_due = match self.terminals[index] {
                Doing::Nothing => true,
                Doing::Waits(until) => until <= now,
                Doing::Transaction | Doing::Stopped => false,
            };
            if !is_due {
                continue;
            }
            let terminal = self.terminal(index as u32);
            self.terminals[index] = match load.next(now.as_ns(), terminal) {
                Next::Submit(kind, parts) => {
                    let id = client.submit(kind, parts);
                    let id = id.expect("a load has valid parts, and few terminals");
                    self.in_flight.insert(id, (terminal.index, now.as_ns()));
                    Doing::Transaction
                }
                Next::Wait(ns) => Doing::Waits(now.after(ns * NANOSECOND)),
                Next::Stop => Doing::Stopped,
            };
        }
    }

    fn set_alarm(&mut self, at: &mut NodeContext<'_>, port: Port) {
        let of_client = self.client.as_ref().and_then(Client::poll_timeout);
        let of_replica = self.replica.as_ref().and_then(Replica::poll_timeout);
        let deadline = Mono::earlier(of_client, of_replica);
        let deadline = deadline.map(|deadline| {
            let wait_ns = deadline.as_ns().saturating_sub(at.now.mono.as_ns());
            at.instant.after(wait_ns.max(1) * NANOSECOND)
        });
        let waits = self.terminals.iter().filter_map(|terminal| match terminal {
            Doing::Waits(until) => Some(*until),
            _ => None,
        });
        let Some(next) = waits.chain(deadline).min() else { return };
        if self.alarm_at.is_none_or(|alarm_at| next < alarm_at) {
            self.alarm_at = Some(next);
            at.alarm(next.since(at.instant), u32::from(port.0));
        }
    }
}

fn send(
    endpoint: &mut Endpoint,
    is_reliable: bool,
    messages: &[(ProcessId, Vec<u8>)],
) -> Result<ScatteringId, SendError> {
    // The endpoint sends a payload once if consecutive messages have it as one slice.
    let mut payload: &[u8] = &[];
    let messages = messages.iter().map(|(to, next)| {
        if payload != &next[..] {
            payload = next;
        }
        Message { to: *to, payload }
    });
    let messages: Vec<Message<'_>> = messages.collect();
    match is_reliable {
        true => endpoint.scatter_reliably(&messages),
        false => endpoint.scatter(&messages),
    }
}

/// Sends what the client has to send. Returns false if the endpoint has no space.
fn send_scatterings(
    at: &NodeContext<'_>,
    (machine, port): (&mut Node, Port),
    client: &mut Client,
    drained: Option<Timestamp>,
) -> bool {
    while let Some(scattering) = client.poll_scattering(at.now.mono, drained) {
        let Some(endpoint) = endpoint_mut(machine, port) else { return true };
        match send(endpoint, scattering.is_reliable, &scattering.messages) {
            Ok(id) => client.on_submitted(&scattering, id),
            Err(error) => {
                client.on_refused(&scattering);
                return !matches!(error, SendError::BufferFull { .. });
            }
        }
    }
    true
}
