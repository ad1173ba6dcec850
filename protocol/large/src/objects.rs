//! Bulk groups: receiving payloads, and the progress of own ones.

use alloc::vec::Vec;

use onepipe_base::{Port, ProcessId, Timestamp};
use onepipe_bulk::PIECE_FRONT_LEN;
use onepipe_bulk::{Config as GroupConfig, Event as GroupEvent, Group, GroupId, Member, Reason};
use onepipe_endpoint::{Links, Service};
use onepipe_wire::LargeObject;
use xxhash_rust::xxh3::xxh3_64;

use crate::LargeEndpoint;
use crate::incoming::Arrival;
use crate::submit::is_group_of;

/// A parsed invitation.
pub(crate) struct Invitation {
    pub object: LargeObject,
    pub block_len: u32,
    pub piece_len: u16,
    /// The members, the sender first.
    pub members: Vec<ProcessId>,
}

impl LargeEndpoint {
    /// Handles an invitation. Invitations are ordered messages, so all members handle an invitation
    /// at about the same time.
    pub(crate) fn on_invitation(
        &mut self,
        from: ProcessId,
        service: Service,
        invitation: Invitation,
    ) {
        let own = self.config.endpoint.process;
        let Invitation { object, piece_len, ref members, .. } = invitation;
        let rank = members.iter().position(|member| *member == own);
        let fits = usize::from(piece_len) + PIECE_FRONT_LEN <= self.config.endpoint.frame_len_max;
        let is_known = self.incoming.arrivals.contains_key(&object.group);
        let is_from_sender = members.first() == Some(&from) && is_group_of(object.group, from);
        let Some(rank) = rank.filter(|_| fits && is_from_sender && !is_known) else {
            self.stats.invalid += 1;
            return;
        };
        // This process has aborted its own object since it sent the invitation.
        if from == own && self.outgoing.object_mut(object.group).is_none() {
            return;
        }
        let Ok(mut group) = Group::new(self.group_config(&invitation, rank)) else {
            self.stats.invalid += 1;
            return;
        };
        if from == own {
            let is_sending = self
                .outgoing
                .object_mut(object.group)
                .is_some_and(|(_, object)| group.send(core::mem::take(&mut object.memory)).is_ok());
            if !is_sending {
                return;
            }
        } else {
            self.incoming.arrivals.insert(object.group, Arrival::new(from, service, object));
        }
        self.groups.insert(group);
        self.process_groups_and_advance();
    }

    fn group_config(&self, invitation: &Invitation, rank: usize) -> GroupConfig {
        let endpoint = &self.config.endpoint;
        let port = |process: ProcessId| match endpoint.links {
            Links::Uplink => Port(0),
            Links::Overlay => Port(1),
            Links::Mesh => Port(process.0 as u16),
        };
        let member = |process: &ProcessId| Member {
            process: *process,
            port: port(*process),
            link: self.config.link,
        };
        let dead_after_ns = self.config.dead_after_ns;
        debug_assert!(rank < invitation.members.len(), "this process is a member");
        let members = invitation.members.iter().map(member).collect();
        let id = GroupId(invitation.object.group);
        let config = GroupConfig::new(id, members, rank as u32, endpoint.incarnation);
        GroupConfig {
            piece_len: invitation.piece_len.into(),
            frame_len_max: endpoint.frame_len_max,
            block_len: invitation.block_len,
            objects_max: 1,
            lookahead_blocks: 4,
            object_len_max: self.config.object_len_max,
            dead_after_ns,
            keepalive_ns: config.keepalive_ns.min(dead_after_ns / 4).max(1),
            ..config
        }
    }

    /// Handles the events of all groups, and removes finished groups.
    pub(crate) fn poll_groups(&mut self) {
        use onepipe_base::Machine as _;
        while let Some((GroupId(group), event)) = self.groups.poll_event() {
            match self.outgoing.object_mut(group).map(|(at, _)| at) {
                Some(at) => self.on_own_group(at, group, event),
                None => self.on_group(group, event),
            }
        }
        while let Some(GroupId(group)) = self.finished_group() {
            self.save_object(group);
            self.groups.remove(GroupId(group));
        }
    }

    /// Returns a group that is closed at all members.
    fn finished_group(&self) -> Option<GroupId> {
        let done = self.groups.iter().find(|group| group.is_done());
        done.map(|group| group.config().group)
    }

    /// Handles an event of a group that carries an own payload.
    fn on_own_group(&mut self, at: usize, group: u64, event: GroupEvent) {
        match event {
            GroupEvent::Stable { memory, .. } => {
                let service = self.outgoing.queue[at].service;
                let mut own = None;
                if let Some((_, object)) = self.outgoing.object_mut(group) {
                    object.is_whole = true;
                    own = object.is_for_self.then_some(object.descriptor);
                }
                if let Some(descriptor) = own {
                    self.insert_own_object(
                        self.config.endpoint.process,
                        service,
                        descriptor,
                        memory,
                    );
                }
            }
            // A payload must reach all of its receivers: the failure of one aborts the scattering.
            GroupEvent::Failed(_) | GroupEvent::Closed(_) | GroupEvent::Lost { .. } => {
                let is_open =
                    self.outgoing.object_mut(group).is_some_and(|(_, object)| !object.is_whole);
                if is_open {
                    self.abort(at);
                }
            }
            _ => {}
        }
    }

    /// Handles an event of a group that carries a payload of another process, or an own payload
    /// whose scattering is ordered or aborted.
    fn on_group(&mut self, group: u64, event: GroupEvent) {
        match event {
            GroupEvent::Announced { bytes, .. } => self.on_memory_requested(group, bytes),
            GroupEvent::Delivered { .. } => self.on_complete(group),
            GroupEvent::Stable { memory, .. } => {
                if let Some(arrival) = self.incoming.arrivals.get_mut(&group) {
                    arrival.memory = Some(memory);
                    self.forget_if_released(group);
                }
            }
            GroupEvent::Failed(failure) if failure.rank == 0 => {
                self.on_sender_lost(group, failure.reason);
            }
            GroupEvent::Closed(_) | GroupEvent::Lost { .. } => {
                let is_whole = |arrival: &Arrival| arrival.is_whole;
                if !self.incoming.arrivals.get(&group).is_none_or(is_whole) {
                    self.drop_object(group);
                }
            }
            _ => {}
        }
    }

    fn on_memory_requested(&mut self, group: u64, bytes: u64) {
        let Some(arrival) = self.incoming.arrivals.get(&group) else {
            return self.leave_group(group);
        };
        if arrival.descriptor.bytes != bytes || bytes > self.config.object_len_max {
            if let Some(group) = self.groups.get_mut(GroupId(group)) {
                group.decline(0);
            }
            return self.drop_object(group);
        }
        self.incoming.waiting_for_memory.push_back(group);
        self.allocate_memory();
    }

    /// Allocates memory for waiting groups, in order, as far as the limit allows.
    fn allocate_memory(&mut self) {
        while let Some(group) = self.incoming.waiting_for_memory.front().copied() {
            let Some(arrival) = self.incoming.arrivals.get_mut(&group) else {
                self.incoming.waiting_for_memory.pop_front();
                continue;
            };
            let bytes = arrival.descriptor.bytes;
            if self.incoming.bytes + bytes > self.config.received_bytes_max {
                return;
            }
            self.incoming.waiting_for_memory.pop_front();
            let memory = alloc::vec![0; bytes as usize];
            let bulk_group = self.groups.get_mut(GroupId(group));
            if bulk_group.is_some_and(|group| group.provide(0, memory).is_ok()) {
                debug_assert!(!arrival.has_memory, "a payload gets memory once");
                arrival.has_memory = true;
                self.incoming.bytes += bytes;
            }
        }
    }

    /// Handles the complete arrival of a payload: verifies its digest.
    fn on_complete(&mut self, group: u64) {
        let Some(arrival) = self.incoming.arrivals.get_mut(&group) else { return };
        let bytes = self.groups.get_mut(GroupId(group)).and_then(|group| group.bytes(0));
        if bytes.map(xxh3_64) == Some(arrival.descriptor.digest) {
            debug_assert!(arrival.has_memory, "a complete payload has memory");
            arrival.is_whole = true;
            self.stats.objects_received += 1;
        } else {
            self.stats.invalid += 1;
            self.drop_object(group);
        }
    }

    /// Handles that the sender of a payload has failed in its group, or left it.
    fn on_sender_lost(&mut self, group: u64, reason: Reason) {
        let has_controllers = self.config.endpoint.controllers.is_some();
        let Some(arrival) = self.incoming.arrivals.get_mut(&group) else { return };
        if !arrival.is_whole || (reason == Reason::Left && !arrival.is_ordered) {
            // A sender orders only complete payloads, and leaves a group only if it will not order
            // the payload.
            return self.drop_object(group);
        }
        // The sender may have sent the descriptor before it failed. With controllers, the failure
        // timestamp decides; without, a descriptor arrives within the timeout or not at all.
        if !(arrival.service == Service::Reliable && has_controllers) {
            arrival.drop_at = Some(self.now.after_ns(self.config.dead_after_ns));
        }
    }

    /// Handles the failure of a process: it has ordered nothing from `at` on.
    pub(crate) fn on_process_failed(&mut self, process: ProcessId, at: Timestamp) {
        let groups: Vec<(u64, bool)> = self
            .incoming
            .arrivals
            .iter_mut()
            .filter(|(_, arrival)| arrival.from == process)
            .map(|(group, arrival)| {
                arrival.failed_at = Some(at);
                (*group, arrival.is_whole)
            })
            .collect();
        for (group, is_whole) in groups {
            if !is_whole {
                self.drop_object(group);
            }
        }
        // A payload must reach all of its receivers: abort every scattering to the failed process.
        while let Some(at) = self.outgoing.queue.iter().position(|scattering| {
            let is_for = |receivers: &Vec<ProcessId>| receivers.contains(&process);
            scattering.objects.iter().any(|object| is_for(&object.receivers))
        }) {
            self.abort(at);
        }
    }

    /// Handles that the endpoint has no more events: every deliverable message was delivered. A
    /// payload of a failed process that is not ordered although the commit barrier has reached the
    /// failure timestamp never will be.
    pub(crate) fn on_drained(&mut self) {
        if self.outgoing.is_tracking() && self.endpoint.is_drained() {
            self.outgoing.stop_tracking();
        }
        if self.incoming.arrivals.is_empty() {
            return;
        }
        let commit = self.endpoint.commit_barrier();
        let is_over = |(group, arrival): (&u64, &Arrival)| {
            let is_past_failure =
                arrival.failed_at.is_some_and(|at| commit.is_some_and(|now| now >= at));
            (is_past_failure && !arrival.is_ordered).then_some(*group)
        };
        let over: Vec<u64> = self.incoming.arrivals.iter().filter_map(is_over).collect();
        over.into_iter().for_each(|group| self.drop_object(group));
    }

    /// Drops payloads whose time has expired.
    pub(crate) fn drop_overdue(&mut self) {
        let now = self.now;
        let is_over = |(group, arrival): (&u64, &Arrival)| {
            arrival.drop_at.is_some_and(|at| at <= now).then_some(*group)
        };
        let over: Vec<u64> = self.incoming.arrivals.iter().filter_map(is_over).collect();
        for group in over {
            if let Some(arrival) = self.incoming.arrivals.get_mut(&group) {
                arrival.drop_at = None;
                if !arrival.is_ordered {
                    self.drop_object(group);
                }
            }
        }
    }

    /// Drops a payload that will not be ordered.
    pub(crate) fn drop_object(&mut self, group: u64) {
        self.leave_group(group);
        if self.forget(group) {
            self.stats.objects_dropped += 1;
        }
    }

    /// Drops a payload, and allocates its memory to waiting groups. Returns whether it was present.
    pub(crate) fn forget(&mut self, group: u64) -> bool {
        let is_removed = self.incoming.forget(group).is_some();
        self.allocate_memory();
        is_removed
    }

    pub(crate) fn leave_group(&mut self, group: u64) {
        if let Some(group) = self.groups.get_mut(GroupId(group)) {
            group.leave();
        }
    }

    pub(crate) fn close_group(&mut self, group: u64) {
        if let Some(group) = self.groups.get_mut(GroupId(group)) {
            // Cannot fail: this process is the root.
            let _ = group.close();
        }
    }

    /// Copies the payload of a finished group if it may still be needed.
    fn save_object(&mut self, group: u64) {
        let Some(arrival) = self.incoming.arrivals.get_mut(&group) else { return };
        if arrival.memory.is_none() && arrival.is_whole {
            let bytes = self.groups.get_mut(GroupId(group)).and_then(|group| group.bytes(0));
            arrival.memory = bytes.map(<[u8]>::to_vec);
        }
    }

    /// Returns the bytes of a complete payload.
    pub(crate) fn object(&self, group: u64) -> &[u8] {
        let memory =
            self.incoming.arrivals.get(&group).and_then(|arrival| arrival.memory.as_deref());
        let in_group = || self.groups.get(GroupId(group)).and_then(|group| group.bytes(0));
        memory.or_else(in_group).unwrap_or(&[])
    }

    /// Handles a descriptor. Returns whether its payload has been received completely.
    pub(crate) fn on_descriptor(&mut self, from: ProcessId, descriptor: LargeObject) -> bool {
        let arrival = self.incoming.arrivals.get_mut(&descriptor.group);
        let Some(arrival) = arrival.filter(|arrival| {
            arrival.is_whole && arrival.descriptor == descriptor && arrival.from == from
        }) else {
            self.stats.orphans += 1;
            return false;
        };
        debug_assert!(!arrival.is_released, "a payload is released after its delivery");
        arrival.is_ordered = true;
        arrival.drop_at = None;
        true
    }

    /// Marks a payload as released. Returns its memory if the group does not need it.
    pub(crate) fn release_object(&mut self, group: u64) -> Option<Vec<u8>> {
        let arrival = self.incoming.arrivals.get_mut(&group)?;
        arrival.is_released = true;
        self.forget_if_released(group)
    }

    /// Removes a payload that is ordered and released, once its group does not need it.
    fn forget_if_released(&mut self, group: u64) -> Option<Vec<u8>> {
        let arrival =
            self.incoming.arrivals.get_mut(&group).filter(|arrival| arrival.is_released)?;
        let memory = arrival.memory.take()?;
        debug_assert!(arrival.is_ordered, "only a delivered payload is released");
        self.forget(group);
        Some(memory)
    }
}
