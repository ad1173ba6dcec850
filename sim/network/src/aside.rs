//! Switches whose machines run on processors beside their chips.

use onepipe_base::{Machine, Port};
use onepipe_sim_engine::NANOSECOND;
use onepipe_wire::{Opcode, header_unchecked};

use crate::Application;
use crate::network::{Event, Network};
use crate::pool::FrameRef;

/// What it costs that a switch's machine runs on a processor beside the chip: the switch's own, or
/// that of a host which stands for it (design: ordering.md section 6). Frames for the neighbours of
/// a link (beacons and the like) take the way to the processor; whatever the machine writes takes
/// the way back; all others pass the chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aside {
    /// From the chip to the processor, in ns: on the wire, and until the processor looks.
    pub there_ns: u64,
    /// From the processor to the chip, in ns.
    pub back_ns: u64,
    /// The processor's time for each frame that it takes, in ns; one frame after the other.
    pub receive_ns: u64,
    /// The processor's time for each frame that it writes, in ns.
    pub send_ns: u64,
    /// A processor that is further behind than this loses frames, in ns.
    pub backlog_ns_max: u64,
}

/// Where the switches' machines run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In the data plane.
    #[default]
    Chip,
    /// On the switch's own processor.
    SwitchCpu,
    /// On a host that stands for the switch.
    Delegate,
}

impl Placement {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Chip, Self::SwitchCpu, Self::Delegate];

    /// Its name, as the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chip => "chip",
            Self::SwitchCpu => "switch-cpu",
            Self::Delegate => "delegate",
        }
    }

    /// What it costs, as 1Pipe's text has it. A delegate's detour takes 2 us a switch, all in all
    /// (section 7.2, "Message delivery latency"). A switch's processor is told by interrupts, which
    /// add 10 us (section 6.1), and one core sustains an interval of 10 us at 32 ports (section
    /// 7.2, "CPU overhead"): 64 frames, so 156 ns each.
    pub const fn aside(self) -> Option<Aside> {
        match self {
            Self::Chip => None,
            Self::SwitchCpu => Some(Aside {
                there_ns: 10_000,
                back_ns: 0,
                receive_ns: 156,
                send_ns: 156,
                backlog_ns_max: 200_000,
            }),
            Self::Delegate => Some(Aside {
                there_ns: 1_000,
                back_ns: 1_000,
                receive_ns: 0,
                send_ns: 0,
                backlog_ns_max: 200_000,
            }),
        }
    }

    /// The shortest interval between beacons that its processor sustains at 32 ports, in ns.
    pub const fn beacon_interval_ns_min(self) -> u64 {
        match self {
            Self::Chip | Self::Delegate => 0,
            Self::SwitchCpu => 10_000,
        }
    }
}

impl<M: Machine, A: Application<M>> Network<M, A> {
    /// Whether a frame that has arrived at a switch is for the processor beside its chip.
    #[inline]
    pub(crate) fn is_for_aside(&self, index: usize, frame: FrameRef) -> bool {
        self.config.aside.is_some() && !self.nodes[index].is_host && {
            let opcode =
                header_unchecked(self.pool.bytes(frame)).and_then(|header| header.opcode().ok());
            opcode.is_some_and(Opcode::is_hop_only)
        }
    }

    /// Whether what the machine of a node writes has a way to its chip before it.
    #[inline]
    pub(crate) fn is_aside(&self, index: usize) -> bool {
        self.config.aside.is_some() && !self.nodes[index].is_host
    }

    /// A frame sets out from the chip to the processor.
    #[cold]
    pub(crate) fn go_aside(&mut self, index: usize, port: Port, frame: FrameRef) {
        let Some(aside) = self.config.aside else { return };
        let there = self.now.after(aside.there_ns * NANOSECOND);
        let node = &mut self.nodes[index];
        let ready = node.aside_free_at.max(there);
        if ready.since(there) > aside.backlog_ns_max * NANOSECOND {
            self.stats.drops.ring_full += 1;
            return self.pool.free(frame);
        }
        node.aside_free_at = ready.after(aside.receive_ns * NANOSECOND);
        let (reached_at, life) = (node.aside_free_at, node.life as u16);
        let event = Event::Reach { node: index as u32, frame, port: port.0, life };
        self.queue(index).schedule(reached_at, event);
    }

    /// A frame sets out from the processor to the chip.
    #[cold]
    pub(crate) fn come_back(&mut self, index: usize, port: Port, frame: FrameRef) {
        let Some(aside) = self.config.aside else { return };
        let node = &mut self.nodes[index];
        let free_at = node.aside_free_at.max(self.now);
        if free_at.since(self.now) > aside.backlog_ns_max * NANOSECOND {
            self.stats.drops.ring_full += 1;
            return self.pool.free(frame);
        }
        node.aside_free_at = free_at.after(aside.send_ns * NANOSECOND);
        let back_at = node.aside_free_at.after(aside.back_ns * NANOSECOND);
        let event = Event::Back { node: index as u32, frame, port: port.0, life: node.life as u16 };
        self.queue(index).schedule(back_at, event);
    }

    /// A frame has reached the processor.
    #[cold]
    pub(crate) fn on_reach(&mut self, index: usize, port: Port, frame: FrameRef, life: u16) {
        if self.is_gone(index, life) {
            self.stats.drops.node_down += 1;
            return self.pool.free(frame);
        }
        self.admit(index, port, frame);
    }

    /// A frame is back at the chip.
    #[cold]
    pub(crate) fn on_back(&mut self, index: usize, port: Port, frame: FrameRef, life: u16) {
        if self.is_gone(index, life) {
            self.stats.drops.node_down += 1;
            return self.pool.free(frame);
        }
        self.depart(index, port, frame);
    }

    /// Whether the life of a node that this was on its way for is over.
    fn is_gone(&self, index: usize, life: u16) -> bool {
        let node = &self.nodes[index];
        node.machine.is_none() || node.life as u16 != life
    }
}
