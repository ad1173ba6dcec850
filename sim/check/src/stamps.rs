//! The timestamps of one incarnation of a process: no two scatterings share one. I2.

use std::collections::VecDeque;

use onepipe_base::{ProcessId, Timestamp};
use onepipe_wire::Service;

use crate::tag::Tag;
use crate::violation::{Rule, ViolationKind, Violations};

/// Number of timestamps that are kept to detect shared ones.
const STAMPS_MAX: usize = 1_024;

/// `(timestamp, service, scattering)`, ascending: both services of a process share one clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    known: VecDeque<(Timestamp, Service, u64)>,
}

impl Stamps {
    //= spec/ordering.md#R2
    /// Records that the scattering `tag` has the timestamp `now`.
    pub fn add(
        &mut self,
        (process, service): (ProcessId, Service),
        tag: Tag,
        now: Timestamp,
        at_ns: u64,
        log: &mut Violations,
    ) {
        // Fast path: the new timestamp is nearly always the highest.
        let position = match self.known.back() {
            Some((last, ..)) if *last >= now => {
                self.known.partition_point(|(stamp, ..)| *stamp < now)
            }
            _ => self.known.len(),
        };
        if let Some(&(stamp, _, other)) = self.known.get(position)
            && stamp == now
        {
            log.add(Rule::I2, at_ns, ViolationKind::SharedStamp { process, tag, other, stamp });
        }
        let entry = (now, service, tag.scattering);
        if self.known.len() < STAMPS_MAX {
            self.known.insert(position, entry);
        } else if position > 0 {
            self.known.pop_front();
            self.known.insert(position - 1, entry);
        }
    }
}
