//! The settings that all processes of a fabric must agree on.

use onepipe_base::Controllers;
use onepipe_endpoint::ReceiveMode;
use onepipe_transport_shm::Config as SegmentConfig;
use onepipe_transport_udp::{Given, Mismatch};
use onepipe_wire::Terms;

/// Link timeout on one shared machine, in ns: must exceed the time that a live process may be off
/// its core. 30 ms suffice on a machine with two cores; this is thrice that, for overload.
const LINK_TIMEOUT_NS: u64 = 100_000_000;
/// Link timeout in a fabric with controllers, in ns. A timeout excludes the process there, so it is
/// long: on two overloaded cores a live process was off its core for 0.1 s (measured). Deaths do
/// not wait for it: the kernel reports them at once (shared memory), or refuses datagrams (UDP).
pub(crate) const EXCLUSION_TIMEOUT_NS: u64 = 1_000_000_000;
/// Limit of process ids where none was given.
const DEFAULT_PROCESSES: u32 = 64;

/// What was given to a process, of the settings that all must agree on. `None`: adopted from the
/// fabric.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    /// The settings that a switch states.
    pub given: Given,
    /// Stated in shared memory only.
    pub receive_mode: Option<ReceiveMode>,
}

impl Agreed {
    /// Returns the limit of process ids where the fabric states none.
    pub(crate) fn processes_max(&self) -> u32 {
        self.given.processes_max.unwrap_or(DEFAULT_PROCESSES)
    }

    /// Returns the link timeout where the fabric states none.
    pub(crate) fn link_timeout_ns(&self, controllers: Option<Controllers>) -> u64 {
        let default = if controllers.is_some() { EXCLUSION_TIMEOUT_NS } else { LINK_TIMEOUT_NS };
        self.given.link_timeout_ns.unwrap_or(default)
    }

    /// Returns the receive mode where the fabric states none.
    pub(crate) fn receive_mode(&self) -> ReceiveMode {
        self.receive_mode.unwrap_or(ReceiveMode::Separate)
    }

    /// Returns the terms of a segment that this process creates.
    pub(crate) fn of_new_segment(&self) -> SegmentConfig {
        SegmentConfig {
            processes_max: self.processes_max(),
            controllers: self.given.controllers,
            link_timeout_ns: self.link_timeout_ns(self.given.controllers),
            has_merged_order: self.receive_mode() == ReceiveMode::Merged,
            ..SegmentConfig::default()
        }
    }

    //= spec/ordering.md#R67
    /// Compares what was given with the terms of a switch.
    ///
    /// # Errors
    /// The first setting that differs.
    pub(crate) fn check(&self, terms: &Terms) -> Result<(), Mismatch> {
        self.given.check(terms)?;
        self.given.check_link_timeout(terms.link_timeout_ns)
    }

    //= spec/ordering.md#R67
    /// Compares what was given with the terms of a segment, which may be for more processes.
    ///
    /// # Errors
    /// The first setting that differs.
    pub(crate) fn check_segment(&self, segment: &SegmentConfig) -> Result<(), Mismatch> {
        self.given.check_controllers(segment.controllers)?;
        self.given.check_link_timeout(segment.link_timeout_ns)?;
        let theirs = receive_mode_of(segment);
        let Some(ours) = self.receive_mode.filter(|ours| *ours != theirs) else { return Ok(()) };
        let (ours, theirs) = (name(ours).to_owned(), name(theirs).to_owned());
        Err(Mismatch { setting: "receive mode", ours, theirs })
    }
}

/// Returns the receive mode that a segment states.
pub(crate) fn receive_mode_of(segment: &SegmentConfig) -> ReceiveMode {
    if segment.has_merged_order { ReceiveMode::Merged } else { ReceiveMode::Separate }
}

fn name(mode: ReceiveMode) -> &'static str {
    match mode {
        ReceiveMode::Separate => "separate",
        ReceiveMode::Merged => "merged",
    }
}
