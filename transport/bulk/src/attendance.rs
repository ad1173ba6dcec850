//! The door of a member while its group is at work.

use std::time::{Duration, Instant};

use onepipe_transport_tcp::Door;

/// Whoever is at the door waits so long, at most, if the group is driven as often.
const LOOK: Duration = Duration::from_millis(50);

/// Looks at the door now and then, so that whoever comes late is told how the group stands.
#[derive(Debug)]
pub(crate) struct Attendance {
    door: Door,
    group: u64,
    next_at: Instant,
}

impl Attendance {
    pub fn new(door: &Door, group: u64) -> Self {
        Self { door: door.clone(), group, next_at: Instant::now() }
    }

    /// Looks, if it is time to.
    pub fn look(&mut self) {
        let now = Instant::now();
        if now >= self.next_at {
            self.next_at = now + LOOK;
            // A door that fails says so to whoever wants to meet there.
            let _ = self.door.attend();
        }
    }
}

/// The group is over.
impl Drop for Attendance {
    fn drop(&mut self) {
        self.door.note_end(self.group);
        let _ = self.door.attend();
    }
}
