//! Switches whose machine runs on a CPU outside the switching chip.

use onepipe_base::{Machine, Port};
use onepipe_sim_engine::NANOSECOND;
use onepipe_wire::{Opcode, header_unchecked};

use crate::Application;
use crate::part::Event;
use crate::pool::FrameRef;
use crate::run::Run;

/// The cost of running a switch's machine outside the chip: on the switch's own CPU, or on a host
/// that acts as its delegate (docs/design/forms.md, "What differs between a chip, a switch's
/// processor and a delegate?"). Hop-only frames (beacons, announcements) travel to the CPU, and
/// every frame that the machine writes travels back to the chip. All other frames are forwarded by
/// the chip without delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffChipCpu {
    /// Delay from the chip to the CPU, in ns: the wire, and the time until the CPU polls.
    pub to_cpu_ns: u64,
    /// Delay from the CPU to the chip, in ns.
    pub to_chip_ns: u64,
    /// CPU time for each received frame, in ns. Frames are processed one after the other.
    pub receive_ns: u64,
    /// CPU time for each frame that the machine writes, in ns.
    pub send_ns: u64,
    /// Largest backlog of the CPU, in ns. Frames beyond it are dropped.
    pub backlog_ns_max: u64,
}

/// Where the machines of switches run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In the data plane of the chip.
    #[default]
    Chip,
    /// On the switch's own CPU.
    SwitchCpu,
    /// On a host that acts for the switch.
    Delegate,
}

impl Placement {
    /// All placements.
    pub const ALL: [Self; 3] = [Self::Chip, Self::SwitchCpu, Self::Delegate];

    /// Returns the name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chip => "chip",
            Self::SwitchCpu => "switch-cpu",
            Self::Delegate => "delegate",
        }
    }

    /// Returns the costs that 1Pipe reports. A delegate's detour takes 2 us per switch in total
    /// (section 7.2, "Message delivery latency"). A switch CPU is notified by interrupts, which add
    /// 10 us (section 6.1), and one core sustains a beacon interval of 10 us at 32 ports (section
    /// 7.2, "CPU overhead"): 64 frames per interval, so 156 ns per frame.
    pub const fn off_chip_cpu(self) -> Option<OffChipCpu> {
        match self {
            Self::Chip => None,
            Self::SwitchCpu => Some(OffChipCpu {
                to_cpu_ns: 10_000,
                to_chip_ns: 0,
                receive_ns: 156,
                send_ns: 156,
                backlog_ns_max: 200_000,
            }),
            Self::Delegate => Some(OffChipCpu {
                to_cpu_ns: 1_000,
                to_chip_ns: 1_000,
                receive_ns: 0,
                send_ns: 0,
                backlog_ns_max: 200_000,
            }),
        }
    }

    /// Returns the shortest beacon interval that the placement sustains at 32 ports, in ns.
    pub const fn beacon_interval_ns_min(self) -> u64 {
        match self {
            Self::Chip | Self::Delegate => 0,
            Self::SwitchCpu => 10_000,
        }
    }
}

impl<M: Machine, A: Application<M>> Run<'_, M, A> {
    /// Whether an arriving frame must be passed to the off-chip CPU.
    #[inline]
    pub(crate) fn is_for_off_chip_cpu(&self, index: usize, frame: FrameRef) -> bool {
        self.shared.config.off_chip_cpu.is_some() && !self.part.nodes[index].is_host && {
            let opcode = header_unchecked(self.part.pool.bytes(frame))
                .and_then(|header| header.opcode().ok());
            opcode.is_some_and(Opcode::is_hop_only)
        }
    }

    /// Whether frames written by the node's machine must first travel to its chip.
    #[inline]
    pub(crate) fn has_off_chip_cpu(&self, index: usize) -> bool {
        self.shared.config.off_chip_cpu.is_some() && !self.part.nodes[index].is_host
    }

    /// Sends a frame from the chip to the CPU; drops the frame if the CPU's backlog is full.
    #[cold]
    pub(crate) fn send_to_cpu(&mut self, index: usize, port: Port, frame: FrameRef) {
        let Some(off_chip_cpu) = self.shared.config.off_chip_cpu else { return };
        let arrives_at = self.part.now.after(off_chip_cpu.to_cpu_ns * NANOSECOND);
        let node = &mut self.part.nodes[index];
        let starts_at = node.off_chip_free_at.max(arrives_at);
        if starts_at.since(arrives_at) > off_chip_cpu.backlog_ns_max * NANOSECOND {
            self.scratch.stats.drops.ring_full += 1;
            return self.part.pool.free(frame);
        }
        node.off_chip_free_at = starts_at.after(off_chip_cpu.receive_ns * NANOSECOND);
        let (processed_at, incarnation) = (node.off_chip_free_at, node.incarnation as u16);
        let node = self.id(index).0;
        let event = Event::CpuArrival { node, frame, port: port.0, incarnation };
        self.part.queue.schedule(processed_at, event);
    }

    /// Sends a frame from the CPU to the chip; drops the frame if the CPU's backlog is full.
    #[cold]
    pub(crate) fn send_to_chip(&mut self, index: usize, port: Port, frame: FrameRef) {
        let Some(off_chip_cpu) = self.shared.config.off_chip_cpu else { return };
        let node = &mut self.part.nodes[index];
        let free_at = node.off_chip_free_at.max(self.part.now);
        if free_at.since(self.part.now) > off_chip_cpu.backlog_ns_max * NANOSECOND {
            self.scratch.stats.drops.ring_full += 1;
            return self.part.pool.free(frame);
        }
        node.off_chip_free_at = free_at.after(off_chip_cpu.send_ns * NANOSECOND);
        let arrives_at = node.off_chip_free_at.after(off_chip_cpu.to_chip_ns * NANOSECOND);
        let incarnation = node.incarnation as u16;
        let node = self.id(index).0;
        let event = Event::ChipArrival { node, frame, port: port.0, incarnation };
        self.part.queue.schedule(arrives_at, event);
    }

    /// Passes a frame that the CPU has processed to the machine.
    #[cold]
    pub(crate) fn on_cpu_arrival(
        &mut self,
        index: usize,
        port: Port,
        frame: FrameRef,
        incarnation: u16,
    ) {
        if self.is_stale(index, incarnation) {
            self.scratch.stats.drops.node_down += 1;
            return self.part.pool.free(frame);
        }
        self.admit(index, port, frame);
    }

    /// Sends a frame of the machine that has arrived at the chip.
    #[cold]
    pub(crate) fn on_chip_arrival(
        &mut self,
        index: usize,
        port: Port,
        frame: FrameRef,
        incarnation: u16,
    ) {
        if self.is_stale(index, incarnation) {
            self.scratch.stats.drops.node_down += 1;
            return self.part.pool.free(frame);
        }
        self.transmit(index, port, frame);
    }

    /// Whether the incarnation for which an event was scheduled has ended.
    fn is_stale(&self, index: usize, incarnation: u16) -> bool {
        let node = &self.part.nodes[index];
        node.machine.is_none() || node.incarnation as u16 != incarnation
    }
}
