//! The member daemon.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use onepipe_amcast::{Member, MemberEvent};
use onepipe_transport_amcast::{Directory, Mesh, MeshDriver, OpenError, Options, open};
use onepipe_transport_clock::reduce_wakeup_latency;
use onepipe_transport_driver::{Doorbell, Progress};

use crate::Report;

/// Member of a group with a socket, for one thread.
#[derive(Debug)]
pub struct MemberDaemon {
    mesh_driver: MeshDriver<Member>,
}

/// Reason why a member has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The stop flag was set.
    Stopped,
    /// The member lags by more than others retain, and cannot catch up.
    Behind,
    /// The others have received an earlier incarnation of this member: it has restarted with an
    /// empty memory, and must not take part.
    Refused,
}

impl Ended {
    /// Returns how an event ends a member, if it does.
    pub const fn by(event: MemberEvent) -> Option<Self> {
        match event {
            MemberEvent::Behind => Some(Self::Behind),
            MemberEvent::Refused => Some(Self::Refused),
            MemberEvent::Leads(_) => None,
        }
    }
}

impl MemberDaemon {
    /// Opens the socket of the member that `directory` lists at address `at`. The member does
    /// nothing before the first turn.
    ///
    /// # Errors
    /// [`OpenError`]. Other members need not be reachable yet.
    pub fn new(
        directory: &Directory,
        at: SocketAddr,
        options: &Options,
    ) -> Result<Self, OpenError> {
        Ok(Self { mesh_driver: open(directory, (at, "member"), options, Member::new)? })
    }

    /// Runs one turn: handles received frames and sends output.
    pub fn turn(&mut self, mut on_event: impl FnMut(MemberEvent)) -> Progress {
        self.mesh_driver.turn(|_, event| on_event(event))
    }

    /// Waits as the idle strategy demands, given the progress of the last turn.
    pub fn rest(&mut self, progress: Progress) {
        self.mesh_driver.rest(progress);
    }

    /// Runs until `stop` is set or the member cannot take part any more. Ring the doorbell after
    /// setting `stop`.
    pub fn run(&mut self, stop: &AtomicBool, mut on_event: impl FnMut(MemberEvent)) -> Ended {
        reduce_wakeup_latency();
        let mut ended = None;
        while !stop.load(Ordering::Acquire) {
            let progress = self.turn(|event| {
                ended = ended.or(Ended::by(event));
                on_event(event);
            });
            if let Some(ended) = ended {
                return ended;
            }
            self.rest(progress);
        }
        Ended::Stopped
    }

    /// Returns the doorbell that wakes the daemon when it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.mesh_driver.doorbell()
    }

    /// Returns the socket.
    pub fn mesh(&self) -> &Mesh {
        self.mesh_driver.transport()
    }

    /// Returns counters and state.
    pub fn report(&self) -> Report {
        let driver = &self.mesh_driver;
        Report::new(driver.machine(), driver.transport(), driver.duty())
    }
}
