//! The state of a group at its member's listener.

use onepipe_transport_tcp::Listener;

/// Marks the group as ended at the listener when dropped, so that late members learn of it.
#[derive(Debug)]
pub(crate) struct GroupStateGuard {
    listener: Listener,
    group: u64,
}

impl GroupStateGuard {
    pub fn new(listener: &Listener, group: u64) -> Self {
        Self { listener: listener.clone(), group }
    }
}

impl Drop for GroupStateGuard {
    fn drop(&mut self) {
        self.listener.end_group(self.group);
    }
}
