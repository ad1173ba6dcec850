//! Drives one node: passes frames and timeouts in, and takes frames and events out.

use onepipe_base::{Machine, Port, Verdict};
use onepipe_sim_engine::{Instant, NANOSECOND};

use crate::part::{Event, NO_LINK};
use crate::pool::FrameRef;
use crate::run::Run;
use crate::{Application, HopKind, NodeContext};

impl<M: Machine, A: Application<M>> Run<'_, M, A> {
    /// Handles the arrival of a frame at the end of a link.
    ///
    /// The top byte of every word of the trace is the kind of the event: 1 for an arrival, 2 for an
    /// alarm, 3 for an expired timer, 4 for a fault.
    #[inline]
    pub(crate) fn on_arrive(&mut self, link_index: u32, frame: FrameRef, epoch: u32) {
        let ends = self.shared.ends[link_index as usize];
        let (port, node, index) = (ends.to_port, ends.to, self.index(ends.to));
        if self.shared.epoch(link_index) != epoch {
            self.scratch.stats.drops.link_down += 1;
            return self.part.pool.free(frame);
        }
        if self.part.nodes[index].machine.is_none() {
            self.scratch.stats.drops.node_down += 1;
            return self.part.pool.free(frame);
        }
        let bytes = self.part.pool.bytes(frame);
        self.scratch.stats.on_hop(HopKind::of_frame(bytes));
        let digest = digest(bytes);
        let word = 1 << 56 | u64::from(link_index) << 16 | bytes.len() as u64;
        self.trace.note(self.part.now, word, digest);
        self.trace.line(self.part.now, || format_arrival(link_index, node.index(), port, bytes));
        if self.is_for_off_chip_cpu(index, frame) {
            return self.send_to_cpu(index, port, frame);
        }
        self.admit(index, port, frame);
    }

    /// Passes a frame to the machine as soon as its CPU is free.
    #[inline]
    pub(crate) fn admit(&mut self, index: usize, port: Port, frame: FrameRef) {
        let ready = self.ready_at(index);
        if ready > self.part.now || !self.part.nodes[index].ring.is_empty() {
            return self.enqueue_rx(index, port, frame, ready);
        }
        self.process_frame(index, port, frame);
        self.drain(index);
    }

    /// Handles the expiry of a machine's timer.
    pub(crate) fn on_wake(&mut self, index: usize) {
        let node = &mut self.part.nodes[index];
        // Events cannot be unscheduled: if the timer was set to an earlier instant in the meantime,
        // or the node has crashed, this event is stale.
        if node.wake_at != self.part.now || node.machine.is_none() {
            return;
        }
        node.wake_at = Instant::END;
        if node.free_at > self.part.now {
            let free_at = node.free_at;
            return self.run_at(index, free_at);
        }
        self.run_timers(index);
        self.drain(index);
    }

    /// Runs a node whose CPU or NIC was busy: its timers, the waiting frames, and its output.
    pub(crate) fn on_run(&mut self, index: usize) {
        let node = &mut self.part.nodes[index];
        // As in `on_wake`, the event may be stale.
        if node.run_at != self.part.now || node.machine.is_none() {
            return;
        }
        node.run_at = Instant::END;
        if node.free_at > self.part.now {
            let free_at = node.free_at;
            return self.run_at(index, free_at);
        }
        self.run_timers(index);
        while self.part.nodes[index].free_at <= self.part.now {
            let Some((port, frame)) = self.part.nodes[index].ring.pop_front() else { break };
            self.process_frame(index, port, frame);
        }
        self.drain(index);
        if !self.part.nodes[index].ring.is_empty() {
            self.run_at(index, self.part.nodes[index].free_at);
        }
    }

    pub(crate) fn on_alarm(&mut self, index: usize, incarnation: u32, token: u32) {
        if self.part.nodes[index].incarnation != incarnation {
            return;
        }
        let word = 2 << 56 | u64::from(self.id(index).0) << 32 | u64::from(token);
        self.trace.note(self.part.now, word, 0);
        self.command(index, |at, machine, application| application.on_alarm(at, machine, token));
    }

    /// Runs the machine's timers if they are due.
    fn run_timers(&mut self, index: usize) {
        let node = &mut self.part.nodes[index];
        let Some(machine) = &mut node.machine else { return };
        let now = node.clock.read(self.part.now);
        if machine.poll_timeout().is_some_and(|deadline| deadline <= now.mono) {
            machine.handle_timeout(now);
            self.trace.note(self.part.now, 3 << 56 | u64::from(self.id(index).0), 0);
        }
    }

    /// Passes a frame to the machine and forwards it if the machine says so.
    #[inline]
    fn process_frame(&mut self, index: usize, port: Port, frame: FrameRef) {
        let id = self.id(index);
        let node = &mut self.part.nodes[index];
        let machine = node.machine.as_mut().expect("checked by the caller: the node is up");
        let now = node.clock.read(self.part.now);
        let is_host = node.is_host;
        let cpu_ns = if is_host {
            let cpu_ns = self.application.cpu_ns(id, self.part.pool.bytes(frame));
            self.shared.config.cpu.receive_ns + cpu_ns
        } else {
            0
        };
        let mut verdict = machine.handle_frame(now, port, self.part.pool.bytes_mut(frame));
        while let Verdict::Replicate(out) = verdict {
            let copy = self.part.pool.duplicate(frame);
            self.transmit(index, out, copy);
            let node = &mut self.part.nodes[index];
            let machine = node.machine.as_mut().expect("it still runs");
            verdict = machine.handle_frame(now, port, self.part.pool.bytes_mut(frame));
        }
        match verdict {
            Verdict::Consumed => self.part.pool.free(frame),
            Verdict::Dropped => {
                self.scratch.stats.drops.rejected += 1;
                self.part.pool.free(frame);
            }
            Verdict::Forward(out) | Verdict::Replicate(out) => self.transmit(index, out, frame),
        }
        self.charge_cpu(index, cpu_ns * NANOSECOND);
    }

    /// Drains a machine after an input: polls events, then frames, until neither is left (driver
    /// rule D2), then schedules its timer and the alarms that the application has requested.
    pub(crate) fn drain(&mut self, index: usize) {
        if self.part.nodes[index].is_host {
            self.drain_host(index);
        } else {
            self.drain_switch(index);
        }
        self.set_timer(index);
        while let Some((instant, node, token)) = self.scratch.alarms.pop() {
            let incarnation = self.part.nodes[self.index(node)].incarnation;
            let alarm = Event::Alarm { node: node.0, incarnation, token };
            self.part.queue.schedule(instant, alarm);
        }
    }

    fn drain_host(&mut self, index: usize) {
        loop {
            let mut is_done = true;
            while let Some(event) = self.poll_event(index) {
                self.deliver_event(index, event);
                is_done = false;
            }
            self.notify_drained(index);
            is_done &= self.transmit_host(index) == 0;
            if is_done {
                // Frames between processes of the host may have raised events in the meantime.
                match self.poll_event(index) {
                    Some(event) => self.deliver_event(index, event),
                    None => break,
                }
            }
        }
    }

    fn drain_switch(&mut self, index: usize) {
        while let Some(event) = self.poll_event(index) {
            self.deliver_event(index, event);
        }
        while self.transmit_one(index) {}
    }

    /// Polls frames while the NIC has space. Returns the number of frames.
    fn transmit_host(&mut self, index: usize) -> u32 {
        let nic_link = self.nic_link(index);
        let limit_ps = self.nic_backlog_ps();
        let mut count = 0;
        loop {
            let free_at = self.part.nodes[index].free_at;
            if free_at > self.part.now {
                self.run_at(index, free_at);
                return count;
            }
            if nic_link != NO_LINK {
                let link = &self.part.links[self.slot_of(nic_link)];
                let waiting_ps = link.free_at.since(self.part.now);
                if waiting_ps >= limit_ps {
                    let space_at = self.part.now.after(waiting_ps - limit_ps / 4);
                    self.run_at(index, space_at);
                    return count;
                }
            }
            if !self.transmit_one(index) {
                return count;
            }
            count += 1;
            self.charge_cpu(index, self.shared.config.cpu.send_ns * NANOSECOND);
        }
    }

    /// Polls one event of a machine.
    #[inline]
    fn poll_event(&mut self, index: usize) -> Option<M::Event> {
        let event = self.part.nodes[index].machine.as_mut()?.poll_event()?;
        self.step().then_some(event)
    }

    /// Polls one frame and sends it. Returns whether there was one.
    #[inline]
    fn transmit_one(&mut self, index: usize) -> bool {
        if !self.step() {
            return false;
        }
        let id = self.id(index);
        let node = &mut self.part.nodes[index];
        let Some(machine) = &mut node.machine else { return false };
        let now = node.clock.read(self.part.now);
        let Some(transmit) = machine.poll_transmit(now, &mut self.scratch.slot) else {
            return false;
        };
        self.scratch.stats.polled += 1;
        let bytes = &self.scratch.slot[..transmit.bytes];
        if node.is_host {
            let cpu_ns = self.application.cpu_ns(id, bytes);
            self.charge_cpu(index, cpu_ns * NANOSECOND);
        }
        let frame = self.part.pool.put(&self.scratch.slot[..transmit.bytes]);
        if self.has_off_chip_cpu(index) {
            self.send_to_chip(index, transmit.port, frame);
        } else {
            self.transmit(index, transmit.port, frame);
        }
        true
    }

    fn deliver_event(&mut self, index: usize, event: M::Event) {
        let id = self.id(index);
        let node = &mut self.part.nodes[index];
        let is_current = node.is_current(self.part.now);
        let Some(machine) = &mut node.machine else { return };
        let (mut busy_ps, mut crash_requested) = (0, false);
        let at = NodeContext {
            instant: self.part.now,
            node: id,
            now: node.clock.read(self.part.now),
            is_current,
            alarms: &mut self.scratch.alarms,
            busy_ps: &mut busy_ps,
            crash_requested: &mut crash_requested,
        };
        self.application.on_event(at, machine, event);
        self.apply_requests(index, busy_ps, crash_requested);
    }

    fn notify_drained(&mut self, index: usize) {
        let id = self.id(index);
        let node = &mut self.part.nodes[index];
        let is_current = node.is_current(self.part.now);
        let Some(machine) = &mut node.machine else { return };
        let (mut busy_ps, mut crash_requested) = (0, false);
        let at = NodeContext {
            instant: self.part.now,
            node: id,
            now: node.clock.read(self.part.now),
            is_current,
            alarms: &mut self.scratch.alarms,
            busy_ps: &mut busy_ps,
            crash_requested: &mut crash_requested,
        };
        self.application.on_drained(at, machine);
        self.apply_requests(index, busy_ps, crash_requested);
    }

    /// Schedules the machine's timer unless an earlier one is already scheduled.
    ///
    /// A host that waits for space in its NIC has not been drained, and its deadline may belong to
    /// the frame that did not fit. Its timers run when it is polled again.
    #[inline]
    fn set_timer(&mut self, index: usize) {
        let node = &mut self.part.nodes[index];
        if node.run_at != Instant::END {
            return;
        }
        let Some(deadline) = node.machine.as_ref().and_then(M::poll_timeout) else { return };
        if node.deadline.0 != deadline {
            node.deadline = (deadline, node.clock.instant_of(deadline));
        }
        let at = node.deadline.1.max(self.part.now);
        if at < node.wake_at {
            node.wake_at = at;
            let wake = Event::Wake { node: self.part.first_node + index as u32 };
            self.part.queue.schedule(at, wake);
        }
    }

    /// Schedules the next poll of a host at `at`, unless an earlier one is already scheduled.
    fn run_at(&mut self, index: usize, at: Instant) {
        let node = &mut self.part.nodes[index];
        let at = at.max(self.part.now);
        if at < node.run_at {
            node.run_at = at;
            let run = Event::Run { node: self.part.first_node + index as u32 };
            self.part.queue.schedule(at, run);
        }
    }

    /// Returns when the CPU of a node can process a frame that arrives now.
    #[inline]
    fn ready_at(&self, index: usize) -> Instant {
        let node = &self.part.nodes[index];
        let poll_ps = self.shared.config.cpu.poll_ns * NANOSECOND;
        if poll_ps == 0 || !node.is_host {
            return node.free_at;
        }
        node.free_at.max(Instant::from_ps(self.part.now.as_ps().next_multiple_of(poll_ps)))
    }

    fn enqueue_rx(&mut self, index: usize, port: Port, frame: FrameRef, ready: Instant) {
        let ring = &mut self.part.nodes[index].ring;
        if ring.len() >= self.shared.config.cpu.ring_frames_max {
            self.scratch.stats.drops.ring_full += 1;
            return self.part.pool.free(frame);
        }
        ring.push_back((port, frame));
        self.run_at(index, ready);
    }

    /// Returns the link at a host's NIC: the last port of the host.
    fn nic_link(&self, index: usize) -> u32 {
        let node = &self.part.nodes[index];
        self.shared.ports[node.first_port + node.ports - 1]
    }
}

/// Returns what a frame contributes to the trace hash. The two checksums in its header cover the
/// whole frame.
#[inline]
fn digest(bytes: &[u8]) -> u64 {
    let Some(checks) = bytes.get(onepipe_wire::CHECKS_AT) else {
        return bytes.iter().fold(1, |hash, byte| hash.wrapping_mul(31) + u64::from(*byte));
    };
    let (end_to_end, hop) = checks.split_at(8);
    let end_to_end = u64::from_be_bytes(end_to_end.try_into().expect("eight bytes"));
    let hop = u64::from_be_bytes(hop.try_into().expect("eight bytes"));
    end_to_end.rotate_left(32) ^ hop
}

fn format_arrival(link: u32, node: usize, port: Port, bytes: &[u8]) -> String {
    let arrival = format!("link={link} node={node} port={} bytes={}", port.0, bytes.len());
    let Ok((header, opcode)) = onepipe_wire::parse_header(bytes) else {
        return format!("{arrival} not a frame");
    };
    // Any time will do: only the 48 bits that the frame carries are printed.
    let near = onepipe_base::Timestamp::from_ns(1 << 60);
    format!(
        "{arrival} {opcode:?} {}->{} psn={} ts={} barrier={} commit={}",
        header.src().0,
        header.dst().0,
        header.psn().0,
        header.message_ts(near).to_wire().bits(),
        header.promises(near).barrier.to_wire().bits(),
        header.promises(near).commit.to_wire().bits(),
    )
}
