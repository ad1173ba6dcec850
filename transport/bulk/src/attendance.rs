//! What the door of a member knows of its group.

use onepipe_transport_tcp::Door;

/// As long as this lives the group is at work: so whoever comes late is told.
#[derive(Debug)]
pub(crate) struct Attendance {
    door: Door,
    group: u64,
}

impl Attendance {
    pub fn new(door: &Door, group: u64) -> Self {
        Self { door: door.clone(), group }
    }
}

/// The group is over.
impl Drop for Attendance {
    fn drop(&mut self) {
        self.door.note_end(self.group);
    }
}
