//! Replicas that end and say so last, and what goes on without them.

use std::collections::BTreeSet;

use onepipe_base::ProcessId;
use onepipe_log::LogReplica;

use super::run::fabric;
use super::store::{ListStore, Store};
use super::{Fabric, process};

/// Limit on the steps until everything is complete. Only a run that never ends reaches it.
const END_STEPS: usize = 100_000;
/// Timeouts within which the others go on. A replica gives up a round that it joins after 200.
const TIMEOUTS_MAX: u64 = 60;

impl<S: Store> Fabric<S> {
    /// Ends a replica, which says so last. Returns whether the others will receive that: the fabric
    /// may lose the message (`is_lost`), and delivers it to all receivers or to none.
    pub fn leave(&mut self, index: usize, is_lost: bool) -> bool {
        let node = &mut self.nodes[index];
        let (mut last, mut has_said) = (Vec::new(), false);
        if let (Some(replica), None) = (&mut node.replica, &node.start) {
            replica.leave();
            last.extend(std::iter::from_fn(|| replica.poll_scattering()));
        }
        for scattering in last.into_iter().filter(|_| !is_lost) {
            let sent = self.ordered.len();
            self.send(process(index), scattering);
            has_said = self.ordered.len() > sent;
        }
        self.crash(index);
        has_said
    }

    /// The replicas that run, and whose end the fabric has not decided.
    pub fn running(&self) -> BTreeSet<ProcessId> {
        let is_running =
            |index: &usize| self.nodes[*index].replica.is_some() && !self.nodes[*index].is_excluded;
        (0..self.nodes.len()).filter(is_running).map(process).collect()
    }

    /// Whether all replicas have received all events of the reliable service.
    pub fn has_all_ordered(&self) -> bool {
        (0..self.nodes.len()).all(|node| !self.has_ordered(node))
    }

    /// Returns whether a member is in a change of the view that nothing goes on with: no replica
    /// has a timeout after which it sends anything.
    pub fn is_stuck(&self) -> bool {
        let has_round = |one: &LogReplica| one.is_whole() && !one.is_serving();
        self.has_all_ordered()
            && self.members().any(has_round)
            && self.members().all(|one| one.poll_timeout().is_none())
    }

    /// Lets the replicas that run go on without the others: clients append, and everything
    /// completes in a view of those that run.
    pub fn go_on_without_ended(&mut self) -> Result<(), String> {
        for user in 0..self.users.len() {
            self.append(user);
        }
        let until = self.now.after_ns(TIMEOUTS_MAX * self.replica_options.timeout_ns);
        for _ in 0..END_STEPS {
            if self.step() {
                self.check()?;
            } else if self.now > until {
                break;
            } else if self.is_complete_of(&self.running()) {
                return self.check_payloads();
            } else if !self.advance() {
                return Err("nothing is pending, and the log does not go on".into());
            }
        }
        let views: Vec<_> = self.members().map(LogReplica::view).collect();
        Err(format!("the log does not go on: {views:?}"))
    }
}

/// Lets a replica leave and return, and after some events of its return `leaver` leave, which may
/// be the same one. No controller decides on an end.
pub fn leave_beside_return(events: usize, first: usize, leaver: usize) -> Result<(), String> {
    let mut fabric = fabric::<ListStore>();
    fabric.lacks_controller = true;
    fabric.append_together();
    fabric.leave(first, false);
    fabric.go_on_without_ended()?;
    fabric.restart(first);
    fabric.append_together();
    for _ in 0..events {
        if !fabric.step() {
            fabric.advance();
        }
        fabric.check()?;
    }
    fabric.leave(leaver, false);
    fabric.go_on_without_ended()?;
    fabric.restart(leaver);
    fabric.finish()
}
