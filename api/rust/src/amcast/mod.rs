//! Agreed multicast: messages to groups of replicas, in one order, without a stall when members of
//! the groups die.

mod client;
mod replica;

use std::time::Duration;

use onepipe_transport_amcast::MeshDriver;
use onepipe_transport_driver::DrivenMachine;

use crate::deadline::Deadline;

pub use client::{Amcast, WaitError};
pub use replica::{AmcastReplica, StateTransferRequired};

/// Drives a machine until an event satisfies `on_event` or `timeout` has passed. Returns whether
/// one did.
fn drive_until<M: DrivenMachine>(
    mesh_driver: &mut MeshDriver<M>,
    timeout: Duration,
    mut on_event: impl FnMut(&mut M, M::Event) -> bool,
) -> bool {
    let until = Deadline::after(timeout);
    loop {
        let mut is_done = false;
        let progress = mesh_driver.turn(|machine, event| is_done |= on_event(machine, event));
        if is_done {
            return true;
        }
        if until.remaining().is_none() {
            return false;
        }
        mesh_driver.rest(progress);
    }
}
