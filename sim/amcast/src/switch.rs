//! Switch that forwards frames and hosts members of groups.

use onepipe_amcast::{Member, MemberEvent};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{Opcode, parse_header};

use crate::fault::PacketFilter;
use crate::routes::Routes;

/// Switch with members in its data plane, which take no time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SwitchNode {
    pub routes: Routes,
    members: Vec<Member>,
    drop_rules: Vec<DropRule>,
}

/// Drops the packets of some kinds from `src` to the member `dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DropRule {
    src: ProcessId,
    dst: ProcessId,
    filter: PacketFilter,
}

impl SwitchNode {
    pub fn new(routes: Routes, members: Vec<Member>) -> Self {
        Self { routes, members, drop_rules: Vec::new() }
    }

    /// Sets which packets from a process to a member here are dropped.
    pub fn set_drop_rule(&mut self, (src, dst): (ProcessId, ProcessId), filter: PacketFilter) {
        self.drop_rules.retain(|rule| (rule.src, rule.dst) != (src, dst));
        self.drop_rules.push(DropRule { src, dst, filter });
    }

    fn is_lost(&self, opcode: Opcode, src: ProcessId, dst: ProcessId) -> bool {
        let mut all = self.drop_rules.iter();
        all.any(|rule| (rule.src, rule.dst) == (src, dst) && rule.filter.matches(opcode))
    }

    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Removes a crashed member with its state. Returns whether all other members of its group
    /// knew its incarnation.
    pub fn kill(&mut self, process: ProcessId) -> bool {
        let was_known = self.member(process).is_some_and(|member| member.is_known_by_all());
        self.members.retain(|member| member.config().process != process);
        was_known
    }

    /// Starts a member.
    pub fn start(&mut self, member: Member) {
        self.members.push(member);
    }

    fn member(&mut self, process: ProcessId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.config().process == process)
    }
}

impl Machine for SwitchNode {
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
        self.routes.port(src, dst).map_or(Verdict::Dropped, Verdict::Forward)
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
                parse_header(&slot[..sent.bytes]).expect("valid output of a member");
            let (src, dst) = (header.src(), header.dst());
            if self.is_lost(opcode, src, dst) {
                continue;
            }
            // A switch may host members of two groups.
            if let Some(member) = self.member(dst) {
                member.handle_frame(now, Port(0), &mut slot[..sent.bytes]);
            } else if let Some(port) = self.routes.port(src, dst) {
                return Some(Transmit { port, ..sent });
            }
        }
    }

    fn poll_event(&mut self) -> Option<(ProcessId, MemberEvent)> {
        let poll = |member: &mut Member| Some((member.config().process, member.poll_event()?));
        self.members.iter_mut().find_map(poll)
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.members.iter().filter_map(Machine::poll_timeout).min()
    }
}
