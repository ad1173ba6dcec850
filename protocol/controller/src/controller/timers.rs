//! What is due: Hello frames, retransmissions, pings, and the report of isolation; and by how much
//! slow nodes lengthen these times.

use alloc::vec::Vec;

use onepipe_base::{Address, Instance, Mono, Now, ProcessId, Psn};
use onepipe_wire::Opcode;

use super::Controller;
use crate::Event;
use crate::evidence::{answerable_at, is_behind_silent_switch, is_silent};
use crate::ping::Due;

impl Controller {
    /// Handles what is due: Hello frames, retransmissions, pings, and the report of isolation.
    pub(super) fn on_timeout(&mut self, now: Now) {
        if self.hello_at().is_none_or(|hello_at| now.mono >= hello_at) {
            self.own_links.start_hellos(now.mono, &self.config);
        }
        if !self.term.is_active() {
            return;
        }
        self.recorder.on_timeout(now.mono);
        if self.broadcast.on_timeout(now.mono, &mut self.stats.retransmissions) {
            self.stats.floods_restarted += 1;
            let unanswered = self.broadcast.round();
            self.plan.on_unanswered(unanswered.map(|round| round.notification.kind()));
            self.broadcast.abandon();
        }
        while let Some(due) = self.pings.pop(now.mono, self.config.retransmit_ns) {
            match due {
                // Nothing is received at all, which says nothing about this process.
                Due::TimedOut(process) if self.own_links.is_stalled(now.mono, &self.config) => {
                    self.pings.start(now.mono, process, self.ping_timeout_ns(now.mono), true);
                }
                Due::Ping(process) => {
                    self.enqueue_frame(Opcode::Ping, process, Psn::FIRST, Vec::new())
                }
                Due::TimedOut(process) => self.on_ping_timeout(now.mono, process),
            }
        }
        if self.own_links.take_isolated(now.mono, &self.config) {
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
            let reception = self.own_links.reception(now);
            let is_suspect = self.suspects.contains(instance);
            let until = answerable_at(&self.graph, instance, reception);
            let is_behind_idle = self.config.switch_idle_ns().is_some_and(|idle_ns| {
                is_behind_silent_switch(&self.graph, instance, now, reception.since, idle_ns)
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
        self.own_links.ping_timeout_ns(now, &self.config)
    }

    //= spec/failure.md#R49
    /// Notes when a switch is received again after it was idle: the processes behind it could
    /// answer nothing meanwhile.
    pub(super) fn note_return(&mut self, now: Mono, instance: Instance) {
        let receiving_since = self.own_links.receiving_since();
        let Some(idle_ns) = self.config.switch_idle_ns() else { return };
        if let (Address::Switch(_), Some(node)) = (instance.address, self.graph.get_mut(instance))
            && is_silent(node, now, receiving_since, idle_ns)
        {
            node.returned_at = Some(now);
        }
    }

    //= spec/failure.md#R46
    /// Returns when the next Hello is due; `None` before the first one.
    pub(super) fn hello_at(&self) -> Option<Mono> {
        let has_open_failure = self.decisions.open().len() > 0;
        let has_unanswered = self.broadcast.round().is_some() || self.pings.due().is_some();
        let is_pending = self.term.is_active() && (has_open_failure || has_unanswered);
        self.own_links.hello_at(&self.config, is_pending)
    }
}
