//! What is due: Hello frames, retransmissions, pings, and the report of isolation; and by how much
//! slow nodes lengthen these times.

use alloc::vec::Vec;

use onepipe_base::{Address, Instance, Mono, Now, ProcessId, Psn};
use onepipe_wire::Opcode;

use super::Controller;
use crate::evidence::{answerable_at, is_behind_silent_switch, is_silent};
use crate::graph::process_of;
use crate::ping::Due;
use crate::{Event, Links};

/// After this many heartbeats without an answer the switch may have restarted.
const SILENT_HEARTBEATS: u64 = 3;
/// A replica is isolated after this many heartbeats without any frame, at the earliest.
const ISOLATED_HEARTBEATS: u64 = 10;
/// Number of frequent Hello frames after a change. With the intervals of daemons they last 100 ms,
/// as long as nodes announce a change frequently.
const AWAKE_HELLOS: u64 = 50;

impl Controller {
    /// Handles what is due: Hello frames, retransmissions, pings, and the report of isolation.
    pub(super) fn on_timeout(&mut self, now: Now) {
        if self.hello_at().is_none_or(|hello_at| now.mono >= hello_at) {
            self.own_links.hello_sent = Some(now.mono);
            let unanswered_ns = SILENT_HEARTBEATS * self.config.heartbeat_interval_ns;
            let last_seen = self.own_links.last_seen;
            if last_seen.is_none_or(|last_seen| now.mono.since_ns(last_seen) > unanswered_ns) {
                self.wake(now.mono);
            }
            self.own_links.hello_ports = match self.config.links {
                Links::Uplink => 0..1,
                Links::Mesh(count) => 0..count,
            };
        }
        if self.active.is_none() {
            return;
        }
        self.persist_queue.on_timeout(now.mono);
        if self.broadcast.on_timeout(now.mono, &mut self.stats.retransmissions) {
            self.stats.floods_restarted += 1;
            self.unanswered_kind = self.broadcast.round().map(|round| round.notification.kind());
            self.broadcast.abandon();
        }
        while let Some(due) = self.pings.pop(now.mono, self.config.retransmit_ns) {
            match due {
                // Nothing is received at all, which says nothing about this process.
                Due::TimedOut(process) if self.is_receive_stalled(now.mono) => {
                    self.pings.start(now.mono, process, self.ping_timeout_ns(now.mono), true);
                }
                Due::Ping(process) => {
                    self.enqueue_frame(Opcode::Ping, process, Psn::FIRST, Vec::new())
                }
                Due::TimedOut(process) => self.on_ping_timeout(now.mono, process),
            }
        }
        if self.isolated_at().is_some_and(|at| at <= now.mono) {
            self.own_links.is_isolated = true;
            self.notify(Event::Isolated);
        }
    }

    //= spec/failure.md#R29
    /// Declares a process dead that does not answer and that another process wants to reach, as if
    /// all its links were dead.
    fn on_ping_timeout(&mut self, now: Mono, process: ProcessId) {
        if let Some(instance) = self.graph.newest(Address::Process(process))
            && !self.decisions.has_failed(instance)
        {
            //= spec/failure.md#R49
            let receiving_since = self.own_links.receiving_since;
            let is_suspect = self.suspects.contains(instance);
            let until = answerable_at(self.gaps.ns(now), &self.graph, instance, receiving_since);
            let is_behind_idle = self.config.switch_idle_ns().is_some_and(|idle_ns| {
                is_behind_silent_switch(&self.graph, instance, now, receiving_since, idle_ns)
            });
            let proves_nothing = is_suspect || is_behind_idle || now < until;
            if self.config.silent_after_ns > 0 && proves_nothing {
                return self.pings.start(now, process, self.ping_timeout_ns(now), true);
            }
            self.stats.pings_unanswered += 1;
            self.suspects.declare_dead(instance);
            self.notify(Event::PingTimedOut(instance));
            self.schedule_evaluation(now);
        }
    }

    //= spec/failure.md#R64
    /// Returns how long a process may take to answer a ping, in ns.
    pub(super) fn ping_timeout_ns(&self, now: Mono) -> u64 {
        self.config.ping_timeout_ns.max(self.gaps.ns(now))
    }

    //= spec/failure.md#R64
    /// Measures by how much a frame of `instance` is later than its announcements are at rest. Time
    /// in which this replica received nothing does not count.
    pub(super) fn measure_gap(&mut self, now: Mono, instance: Instance) {
        let is_measured = self.config.silent_after_ns > 0 && self.config.heartbeat_interval_ns > 0;
        if !is_measured || process_of(instance).is_none() {
            return;
        }
        let Some(last_seen) = self.graph.get(instance).and_then(|node| node.last_seen) else {
            return;
        };
        let gap_ns = now.since_ns(last_seen.max(self.own_links.receiving_since));
        let controllers = u64::from(self.config.controllers.count);
        let rest_ns = self.config.heartbeat_interval_ns.saturating_mul(controllers);
        self.gaps.on_response(now, gap_ns.saturating_sub(rest_ns));
    }

    //= spec/failure.md#R49
    /// Notes when a switch is received again after it was idle: the processes behind it could
    /// answer nothing meanwhile.
    pub(super) fn note_return(&mut self, now: Mono, instance: Instance) {
        let receiving_since = self.own_links.receiving_since;
        let Some(idle_ns) = self.config.switch_idle_ns() else { return };
        if let (Address::Switch(_), Some(node)) = (instance.address, self.graph.get_mut(instance))
            && is_silent(node, now, receiving_since, idle_ns)
        {
            node.returned_at = Some(now);
        }
    }

    /// Whether nothing was received for half the time that a process has for an answer.
    pub(super) fn is_receive_stalled(&self, now: Mono) -> bool {
        let pause_ns = self.own_links.last_seen.map_or(0, |last_seen| now.since_ns(last_seen));
        pause_ns > self.config.ping_timeout_ns / 2
    }

    /// When to report that this replica is isolated.
    pub(super) fn isolated_at(&self) -> Option<Mono> {
        let last_seen = self.own_links.last_seen.filter(|_| !self.own_links.is_isolated)?;
        let after_ns = ISOLATED_HEARTBEATS * self.config.heartbeat_interval_ns;
        Some(last_seen.after_ns(self.config.isolated_after_ns.max(after_ns)))
    }

    /// Sends Hello frames at the fast interval for a while: something has changed.
    pub(super) fn wake(&mut self, now: Mono) {
        let awake_ns = AWAKE_HELLOS.saturating_mul(self.config.hello_interval_ns);
        self.own_links.awake_until = self.own_links.awake_until.max(now.after_ns(awake_ns));
    }

    //= spec/failure.md#R46
    /// When the next Hello is due; `None` before the first one. A switch that has restarted reaches
    /// this replica only after a Hello, so they are frequent while anything is to be sent.
    pub(super) fn hello_at(&self) -> Option<Mono> {
        let sent = self.own_links.hello_sent?;
        let has_open_failure = self.decisions.open().len() > 0;
        let has_unanswered = self.broadcast.round().is_some() || self.pings.due().is_some();
        let is_pending = sent < self.own_links.awake_until
            || (self.active.is_some() && (has_open_failure || has_unanswered));
        Some(sent.after_ns(match self.config.heartbeat_interval_ns {
            heartbeat_ns if !is_pending => heartbeat_ns.max(self.config.hello_interval_ns),
            _ => self.config.hello_interval_ns,
        }))
    }
}
