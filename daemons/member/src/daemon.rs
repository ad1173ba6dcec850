//! A member one can start.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use onepipe_amcast::{Member, MemberEvent};
use onepipe_transport_amcast::{Directory, Mesh, MeshDriver, OpenError, Options, open};
use onepipe_transport_clock::reduce_wakeup_latency;
use onepipe_transport_driver::{Doorbell, Progress};

use crate::Report;

/// A member: one thread, one socket.
#[derive(Debug)]
pub struct MemberDaemon {
    station: MeshDriver<Member>,
}

/// Why a member has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Told,
    /// It has missed more than others keep: it can follow no more.
    Behind,
}

impl MemberDaemon {
    /// The member that `directory` names at `at`. It has its socket, and does nothing else before
    /// it gets its turns.
    ///
    /// # Errors
    /// [`OpenError`]. That others do not answer is none: they are waited for.
    pub fn new(
        directory: &Directory,
        at: SocketAddr,
        options: &Options,
    ) -> Result<Self, OpenError> {
        Ok(Self { station: open(directory, (at, "member"), options, Member::new)? })
    }

    /// Takes what has arrived, says what is to be said.
    pub fn turn(&mut self, mut on_event: impl FnMut(MemberEvent)) -> Progress {
        self.station.turn(|_, event| on_event(event))
    }

    /// Rests as the idle strategy says, given what the last turn did.
    pub fn rest(&mut self, progress: Progress) {
        self.station.rest(progress);
    }

    /// Works until `stop` is set, or it is of no use any more. Ring the doorbell after setting it.
    pub fn run(&mut self, stop: &AtomicBool, mut on_event: impl FnMut(MemberEvent)) -> Ended {
        reduce_wakeup_latency();
        let mut is_behind = false;
        while !stop.load(Ordering::Acquire) {
            let progress = self.turn(|event| {
                is_behind |= event == MemberEvent::Behind;
                on_event(event);
            });
            if is_behind {
                return Ended::Behind;
            }
            self.rest(progress);
        }
        Ended::Told
    }

    /// What wakes it when it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.station.doorbell()
    }

    /// The socket that it speaks through.
    pub fn mesh(&self) -> &Mesh {
        self.station.transport()
    }

    /// What it has done.
    pub fn report(&self) -> Report {
        Report::new(self.station.machine(), self.station.transport())
    }
}
