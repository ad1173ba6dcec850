//! What the door of a member knows of its group.

use onepipe_transport_tcp::Listener;

/// As long as this lives the group is at work: so whoever comes late is told.
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

/// The group is over.
impl Drop for GroupStateGuard {
    fn drop(&mut self) {
        self.listener.end_group(self.group);
    }
}
