//! A switch: it sends frames on their way, and members of groups live in it.

use onepipe_amcast::{Member, MemberEvent};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{Opcode, parse_header};

use crate::mishap::Muted;
use crate::ways::Ways;

/// A switch with the members that live in its data plane: what they do takes them no time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Element {
    pub ways: Ways,
    members: Vec<Member>,
    deaf: Vec<Deaf>,
}

/// What `src` says to the member `dst`, and so much of it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Deaf {
    src: ProcessId,
    dst: ProcessId,
    to: Muted,
}

impl Element {
    pub fn new(ways: Ways, members: Vec<Member>) -> Self {
        Self { ways, members, deaf: Vec::new() }
    }

    /// A member here does not hear what `src` says.
    pub fn mute(&mut self, (src, dst): (ProcessId, ProcessId), to: Muted) {
        self.deaf.retain(|deaf| (deaf.src, deaf.dst) != (src, dst));
        self.deaf.push(Deaf { src, dst, to });
    }

    fn is_lost(&self, opcode: Opcode, src: ProcessId, dst: ProcessId) -> bool {
        let mut all = self.deaf.iter();
        all.any(|deaf| (deaf.src, deaf.dst) == (src, dst) && deaf.to.has(opcode))
    }

    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member is gone, with all that it knew.
    pub fn kill(&mut self, process: ProcessId) {
        self.members.retain(|member| member.config().process != process);
    }

    fn member(&mut self, process: ProcessId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.config().process == process)
    }
}

impl Machine for Element {
    type Event = (ProcessId, MemberEvent);

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let Ok((header, opcode)) = parse_header(frame) else { return Verdict::Dropped };
        let (src, dst) = (header.src(), header.dst());
        if self.is_lost(opcode, src, dst) {
            return Verdict::Dropped;
        }
        if let Some(member) = self.member(dst) {
            return member.handle_frame(now, Port(0), frame);
        }
        self.ways.port(src, dst).map_or(Verdict::Dropped, Verdict::Forward)
    }

    fn handle_timeout(&mut self, now: Now) {
        for member in &mut self.members {
            if member.poll_timeout().is_some_and(|due| due <= now.mono) {
                member.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        loop {
            let mut polled = self.members.iter_mut();
            let sent = polled.find_map(|member| member.poll_transmit(now, slot))?;
            let (header, opcode) =
                parse_header(&slot[..sent.bytes]).expect("a member has sealed it");
            let (src, dst) = (header.src(), header.dst());
            if self.is_lost(opcode, src, dst) {
                continue;
            }
            // Members of two groups may live in one switch.
            if let Some(member) = self.member(dst) {
                member.handle_frame(now, Port(0), &mut slot[..sent.bytes]);
            } else if let Some(port) = self.ways.port(src, dst) {
                return Some(Transmit { port, ..sent });
            }
        }
    }

    fn poll_event(&mut self) -> Option<(ProcessId, MemberEvent)> {
        let said = |member: &mut Member| Some((member.config().process, member.poll_event()?));
        self.members.iter_mut().find_map(said)
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.members.iter().filter_map(Machine::poll_timeout).min()
    }
}
