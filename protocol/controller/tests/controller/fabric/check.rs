//! The safety and liveness properties of the fabric.

use onepipe_base::{Address, Instance};
use onepipe_controller::{MemberState, MemberStatus, Record};

use super::{Fabric, Sources};

impl Fabric {
    /// Checks a record that the store has accepted.
    pub fn on_record(&mut self, record: &Record) {
        let Record::Failed(instances) = record else { return };
        for failed in instances {
            let Address::Process(_) = failed.instance.address else { continue };
            let at = failed.at.as_ns();
            let first = *self.decided.entry(failed.instance).or_insert(at);
            if first != at {
                self.report_violation(failed.instance, format!("decided at {first}, then at {at}"));
            }
            let node = self.find(failed.instance.address);
            let is_present = self.nodes[node].instance() == failed.instance;
            let promise = if is_present && self.nodes[node].is_alive {
                Some(self.nodes[node].promise)
            } else {
                self.last_promise.get(&failed.instance).copied()
            };
            if promise.is_some_and(|promise| at > promise) {
                let text =
                    format!("{:?} failed at {at}, has promised {promise:?}", failed.instance);
                self.violations.push((self.never_failing(), text));
            }
        }
        for node in 0..self.nodes.len() {
            self.check_barrier(node);
        }
    }

    /// Checks that a node unaware of a failure has delivered nothing at or above its F.
    pub fn check_barrier(&mut self, node: usize) {
        let receiver = &self.nodes[node];
        let (Some(barrier), true) = (receiver.barrier, receiver.known.is_welcome) else { return };
        let mut late_deliveries = Vec::new();
        for (instance, at) in
            self.decided.iter().filter(|(instance, _)| self.welcome.contains(instance))
        {
            let Address::Process(process) = instance.address else { continue };
            let covers =
                |failure: &onepipe_wire::Failure| failure.covers(process, instance.incarnation);
            let knows = receiver.known.failures.iter().any(covers);
            // Not intended for this receiver are messages of a previous incarnation of its own
            // process (a switch leaves its promise out), of instances that ended before the
            // receiver started, and of those whose promises never reached it: neither did their
            // messages.
            let is_concerned = instance.address != receiver.address
                && self.ended.get(instance).is_none_or(|ended| *ended >= receiver.started_at)
                && receiver.reached_by & self.source_bit(*instance) != 0;
            // An instance has sent nothing before it started.
            let minimum = *at.max(self.started.get(instance).unwrap_or(at));
            if !knows && barrier > minimum && is_concerned {
                late_deliveries.push(format!(
                    "{:?} failed at {at}, but {:?} stands at {barrier} and \
                    does not know",
                    instance,
                    receiver.instance()
                ));
            }
        }
        let instance = receiver.instance();
        for text in late_deliveries {
            self.report_violation(instance, text);
        }
    }

    /// Returns the bit of `instance` in sets of sources.
    fn source_bit(&self, instance: Instance) -> Sources {
        let number = self.sources.iter().position(|source| *source == instance);
        number.map_or(0, |number| 1 << number)
    }

    /// Reports a violation by `instance`; it does not count if the instance turns out to have
    /// failed.
    fn report_violation(&mut self, instance: Instance, text: String) {
        self.violations.push((instance, text));
    }

    /// Returns an instance that never fails.
    fn never_failing(&self) -> Instance {
        Instance { address: Address::Process(self.controllers.first), ..self.nodes[0].instance() }
    }

    /// Checks safety over the whole run.
    pub fn check_safety(&self) -> Result<(), String> {
        let is_failed = |instance: &Instance| self.decided.contains_key(instance);
        match self.violations.iter().find(|(instance, _)| !is_failed(instance)) {
            Some((_, text)) => Err(text.clone()),
            None => Ok(()),
        }
    }

    /// Checks that everything progresses once no fault is active.
    pub fn check_liveness(&self) -> Result<(), String> {
        let active = self.active.ok_or("no replica is active")?;
        let machine = self.replicas[active].machine.as_ref().ok_or("the active replica is down")?;
        let status = machine.status();
        if !status.open.is_empty() {
            return Err(format!("still open: {:?}", status.open));
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let is_part = !node.known.is_excluded && self.connects(active, at);
            if !is_part {
                continue;
            }
            let is_up = |member: &MemberStatus| {
                member.instance == node.instance() && member.state == MemberState::Up
            };
            if !status.members.iter().any(is_up) {
                return Err(format!("{:?} is not known to be up", node.instance()));
            }
            let frozen = node.ports.iter().find(|port_state| !port_state.frozen.is_empty());
            if let Some(port_state) = frozen {
                return Err(format!("{:?} still holds {:?}", node.instance(), port_state.frozen));
            }
            let lag = node.barrier.map(|barrier| self.now - barrier.min(self.now));
            // A node without inputs waits for no one.
            let has_input = node.ports.iter().any(|port_state| port_state.commit.is_some());
            if node.is_process() && has_input && lag.is_none_or(|lag| lag > 1_000_000) {
                return Err(format!("{:?} stands still: {lag:?}", node.instance()));
            }
        }
        Ok(())
    }
}
