//! Swarm testing: draws fabrics, groups, loads and faults from a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use onepipe_base::ProcessId;
use onepipe_sim_engine::Random;
use onepipe_sim_network::{LinkFaults, Loss, NodeId};
use onepipe_topology::{Shape, Topology};
use onepipe_wire::GroupId;

use crate::env::{Quorums, SimEnv};
use crate::fault::{FaultEvent, PacketFilter};
use crate::layout::Layout;
use crate::setup::{Load, SendPattern, Setup, Shift};

/// Duration of the fault phase, and time by which all must have recovered, in ns.
const FAULTS_NS: u64 = 5_000_000;
const END_NS: u64 = 400_000_000;
/// Interval of the checks for two leaders during the fault phase, in ns.
const CHECK_NS: u64 = 50_000;

/// Random run: a setup and its faults.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// Seed that the run was drawn from.
    pub seed: u64,
    /// The setup.
    pub setup: Setup,
    /// Faults by time in ns.
    pub timeline: Vec<(u64, FaultEvent)>,
}

/// Outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Violated properties; empty if all hold.
    pub violations: Vec<String>,
    /// Whether a machine panicked.
    pub is_panic: bool,
    /// Network events.
    pub events: u64,
    /// Messages sent.
    pub sent: u64,
    /// Deliveries, each checked.
    pub delivered: u64,
    /// Elections won.
    pub elections: u64,
    /// Messages refused with `Busy`.
    pub busy: u64,
    /// Members that restarted with an empty memory and were refused.
    pub refused_members: u64,
    /// Whether the fabric was partitioned so that no part could continue ([`SimEnv::core`]): then
    /// only safety was checked.
    pub is_partitioned: bool,
    /// Counts of failed leaders and followers, and of changed and lost quorums.
    pub quorums: Quorums,
    /// Frames lost, corrupted, duplicated and delayed.
    pub frames: [u64; 4],
    /// Last events as text, as many as the setup keeps.
    pub trace_lines: Vec<String>,
    /// Hash of the whole history.
    pub trace_hash: u64,
}

impl Swarm {
    /// Draws a run.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::named(seed, "amcast", 0);
        let setup = draw_setup(&mut random, seed);
        let topology = Topology::new(setup.shape, 1).expect("a host has one process");
        let layout = Layout::new(&setup, &topology);
        let mut generator =
            FaultGenerator { random, layout: &layout, topology: &topology, timeline: Vec::new() };
        generator.draw(setup.members as usize / 2);
        // A separate generator, so that the draws of existing seeds do not change.
        generator.random = Random::named(seed, "quorums", 0);
        generator.quorums();
        generator.random = Random::named(seed, "deaf", 0);
        let shift = generator.partial_election(setup.leader_timeout_ns);
        generator.random = Random::named(seed, "memory", 0);
        let announces = generator.restart_members();
        let mut timeline = generator.timeline;
        timeline.sort_by_key(|(at_ns, _)| *at_ns);
        let load = Load { shift, ..setup.load };
        Self { seed, setup: Setup { load, announces, ..setup }, timeline }
    }

    /// Runs the faults, repairs all of them, and checks that all live processes agree in the end.
    pub fn run(&self) -> Outcome {
        let mut env = SimEnv::new(&self.setup);
        for (at_ns, event) in &self.timeline {
            env.schedule(*at_ns, event.clone());
        }
        for event in self.repairs() {
            env.schedule(FAULTS_NS, event);
        }
        for at_ns in (0..=FAULTS_NS).step_by(CHECK_NS as usize) {
            env.run_until(at_ns);
            env.count_split_brain();
        }
        let incomplete = env.run_to_completion(END_NS);
        let mut violations = env.checker().descriptions().to_vec();
        if violations.is_empty() {
            violations.extend(incomplete);
        }
        let stats = env.stats();
        Outcome {
            violations,
            is_panic: false,
            events: stats.events,
            sent: env.checker().sent() as u64,
            delivered: env.checker().delivered(),
            elections: env.checker().elections() as u64,
            busy: env.members().map(|member| member.stats().busy).sum(),
            refused_members: env.refused_members(),
            quorums: env.quorums(),
            is_partitioned: env.core().is_none(),
            frames: [stats.drops.lost, stats.corrupted, stats.duplicated, stats.delayed],
            trace_lines: env.trace_lines().map(str::to_owned).collect(),
            trace_hash: env.trace_hash(),
        }
    }

    /// Like [`Swarm::run`], but reports a panic of a machine as a violation.
    pub fn attempt(&self) -> Outcome {
        catch_unwind(AssertUnwindSafe(|| self.run())).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let violations = vec![format!("a machine panicked: {}", text.unwrap_or_default())];
            Outcome { violations, is_panic: true, ..Outcome::default() }
        })
    }

    /// Removes faults as long as the run still fails, with a limited number of attempts.
    #[must_use]
    pub fn shrunk(&self, attempts_max: u32) -> Self {
        let (mut small, mut attempts, mut at) = (self.clone(), 0, 0);
        while at < small.timeline.len() && attempts < attempts_max {
            let mut smaller = small.clone();
            smaller.timeline.remove(at);
            attempts += 1;
            match smaller.attempt().violations.is_empty() {
                true => at += 1,
                false => small = smaller,
            }
        }
        small
    }

    /// Returns the events that end all faults that do not end by themselves.
    fn repairs(&self) -> Vec<FaultEvent> {
        let ends = self.timeline.iter().filter_map(|(_, event)| match event {
            FaultEvent::Isolate(node) => Some(FaultEvent::Reconnect(*node)),
            FaultEvent::IsolateMany(nodes) => Some(FaultEvent::ReconnectMany(nodes.clone())),
            FaultEvent::MemberLoss(pairs, _) => {
                Some(FaultEvent::MemberLoss(pairs.clone(), PacketFilter::None))
            }
            FaultEvent::CoordinatorLoss(coordinator, _) => {
                Some(FaultEvent::CoordinatorLoss(*coordinator, None))
            }
            _ => None,
        });
        ends.chain([FaultEvent::Links(LinkFaults::default())]).collect()
    }
}

fn draw_setup(random: &mut Random, seed: u64) -> Setup {
    let shape = match random.below(4) {
        0 => Ok(Shape::testbed()),
        1 => Shape::leaf_spine(2, 2, 9),
        2 => Shape::leaf_spine(3, 4, 6),
        _ => Shape::leaf_spine(3, 2, 6),
    };
    let shape = shape.expect("these are fabrics");
    let has_five = shape.switch_count() > 6 && random.happens(400_000);
    let leader_timeout_ns = random.between(60_000, 300_000);
    let pattern = match random.below(3) {
        0 => SendPattern::Every(1_000 * random.between(5_000, 100_000)),
        _ => SendPattern::Eager { pause_ns_max: random.between(1_000, 300_000) },
    };
    let base = Setup::new(shape);
    Setup {
        groups: random.between(1, 3) as u32,
        members: if has_five { 5 } else { 3 },
        replicas: random.between(1, 3) as u32,
        clients: random.between(1, 4) as u32,
        window: random.between(1, 8) as u32,
        rto_min_ns: random.between(20_000, 100_000),
        busy_threshold: if random.happens(300_000) { random.between(1, 4) } else { 64 },
        probe_interval_ns: leader_timeout_ns / 4,
        leader_timeout_ns,
        load: Load { messages: random.between(8, 60) as u32, pattern, ..base.load },
        seed,
        ..base
    }
}

/// Generates random faults.
struct FaultGenerator<'a> {
    random: Random,
    layout: &'a Layout,
    topology: &'a Topology,
    timeline: Vec<(u64, FaultEvent)>,
}

impl FaultGenerator<'_> {
    fn at(&mut self) -> u64 {
        self.random.below(FAULTS_NS * 3 / 4)
    }

    fn schedule(&mut self, at_ns: u64, event: FaultEvent) {
        self.timeline.push((at_ns, event));
    }

    fn pick(&mut self, list: &[ProcessId]) -> ProcessId {
        *self.random.pick(list)
    }

    fn draw(&mut self, faults: usize) {
        if self.random.happens(700_000) {
            let links = self.links();
            self.schedule(0, FaultEvent::Links(links));
        }
        if self.random.happens(700_000) {
            self.crashes(faults);
        }
        if self.random.happens(300_000) {
            let client = self.pick(&self.layout.groups.clients.clone());
            let at_ns = self.at();
            self.schedule(at_ns, FaultEvent::Host(self.layout.node(client)));
        }
        if self.random.happens(500_000) {
            let replicas = self.layout.groups.groups.iter().flat_map(|group| &group.replicas);
            let replica = self.pick(&replicas.copied().collect::<Vec<_>>());
            self.crash_and_restart(replica, 600_000);
        }
        if self.random.happens(300_000) {
            self.crash_and_restart(self.layout.coordinators[0], 500_000);
        }
        for _ in 0..self.random.below(3) {
            let host = NodeId(self.random.below(self.topology.hosts().into()) as u32);
            let (at_ns, ns) = (self.at(), self.random.between(1_000, 1_500_000));
            self.schedule(at_ns, FaultEvent::Pause(host, ns));
        }
        for _ in 0..self.random.below(3) {
            self.false_suspicion();
        }
        if self.random.happens(200_000) {
            let at_ns = self.at();
            self.schedule(at_ns, FaultEvent::LeaseExpiry);
        }
    }

    fn links(&mut self) -> LinkFaults {
        let random = &mut self.random;
        let mut some = |of: u64, most: u64| match random.below(of) {
            0 => random.below(most) as u32,
            _ => 0,
        };
        LinkFaults {
            loss: Loss::uniform(some(1, 60_000) + some(4, 100_000)),
            corrupt_ppm: some(4, 10_000),
            duplicate_ppm: some(2, 200_000),
            reorder_ppm: some(2, 300_000),
            burst_ppm: some(6, 2_000),
            burst_frames: 8,
            delay_ns_max: u64::from(some(1, 400_000)),
            ..LinkFaults::default()
        }
    }

    fn crash_and_restart(&mut self, process: ProcessId, returns_ppm: u32) {
        let (at_ns, node) = (self.at(), self.layout.node(process));
        self.schedule(at_ns, FaultEvent::Host(node));
        if self.random.happens(returns_ppm) {
            let back_ns = at_ns + self.random.between(1, 1_000_000);
            self.schedule(back_ns, FaultEvent::Restart(node));
        }
    }

    /// Crashes members and switches, at most a minority of each group.
    fn crashes(&mut self, faults: usize) {
        let groups = self.layout.groups.groups.clone();
        let mut dead: Vec<ProcessId> = Vec::new();
        for _ in 0..self.random.between(1, 2 * faults as u64 * groups.len() as u64) {
            let group = self.random.below(groups.len() as u64) as usize;
            let victim = match self.random.happens(500_000) {
                true => groups[group].members[0],
                false => self.pick(&groups[group].members),
            };
            let node = self.layout.node(victim);
            let takes_switch = self.random.happens(400_000) && self.is_expendable(node);
            let with: Vec<ProcessId> = match takes_switch {
                true => self.layout.at(node).collect(),
                false => vec![victim],
            };
            let after: Vec<ProcessId> = dead.iter().chain(&with).copied().collect();
            let is_lost = |group: &onepipe_amcast::Group| {
                group.members.iter().filter(|member| after.contains(member)).count() > faults
            };
            if groups.iter().any(is_lost) || dead.contains(&victim) {
                continue;
            }
            dead = after;
            let at_ns = self.at();
            self.schedule(
                at_ns,
                if takes_switch { FaultEvent::Switch(node) } else { FaultEvent::Member(victim) },
            );
        }
    }

    /// Restarts crashed members with an empty memory, in a quarter of the runs; if none crashes,
    /// one does. Returns whether members must announce their incarnations.
    fn restart_members(&mut self) -> bool {
        if !self.random.happens(250_000) {
            return false;
        }
        let is_crash =
            |event: &FaultEvent| matches!(event, FaultEvent::Member(_) | FaultEvent::Switch(_));
        if !self.timeline.iter().any(|(_, event)| is_crash(event)) {
            let groups = self.layout.groups.groups.clone();
            let members = &self.random.pick(&groups).members;
            let (victim, at_ns) = (self.pick(members), self.at());
            self.schedule(at_ns, FaultEvent::Member(victim));
        }
        for (at_ns, event) in self.timeline.clone() {
            if let FaultEvent::Member(victim) = event {
                let back_ns = at_ns + self.random.between(1, 500_000);
                self.schedule(back_ns, FaultEvent::RestartMember(victim));
            }
        }
        true
    }

    /// Returns whether a switch may crash: one coordinator must stay connected.
    fn is_expendable(&self, node: NodeId) -> bool {
        let rack = self.topology.shape().hosts_per_tor();
        let last = self.layout.coordinators.last().expect("coordinators exist");
        node.0 != self.topology.hosts() + self.layout.node(*last).0 / rack
    }

    /// Isolates members of one group in turn, so that the quorum changes; sometimes a majority, so
    /// that there is none.
    fn quorums(&mut self) {
        if !self.random.happens(300_000) {
            return;
        }
        let groups = &self.layout.groups.groups;
        let members = groups[self.random.below(groups.len() as u64) as usize].members.clone();
        let mut at_ns = self.at() / 2;
        for _ in 0..self.random.between(2, 5) {
            let most = if self.random.happens(250_000) { members.len() } else { members.len() / 2 };
            let (first, count) =
                (self.random.below(members.len() as u64), 1 + self.random.below(most as u64));
            let some = (first..first + count).map(|at| members[at as usize % members.len()]);
            let nodes: Vec<NodeId> = some.map(|member| self.layout.node(member)).collect();
            let ns = self.random.between(50_000, 600_000);
            self.schedule(at_ns, FaultEvent::IsolateMany(nodes.clone()));
            self.schedule(at_ns + ns, FaultEvent::ReconnectMany(nodes));
            // The next isolation starts before or some time after these members recover.
            at_ns += self.random.between(ns / 2, 2 * ns);
        }
    }

    /// Lets a leader be suspected, while only some members learn of its replacement. Either the old
    /// and the new leader cannot communicate while the other members receive from both, or the old
    /// leader still receives from other groups while its followers do not, nor what follows there.
    fn partial_election(&mut self, leader_timeout_ns: u64) -> Option<Shift> {
        if !self.random.happens(500_000) {
            return None;
        }
        let groups = self.layout.groups.groups.clone();
        let group = self.random.below(groups.len() as u64) as usize;
        let (leader, followers) =
            groups[group].members.split_first().expect("the group has members");
        // While clients still have many messages to send.
        let at_ns = self.random.between(20_000, 700_000);
        let ns = self.random.between(300_000, 1_500_000);
        let (mut losses, mut shift) = (Vec::new(), None);
        if groups.len() == 1 || self.random.happens(500_000) {
            let next = followers[0];
            let from_ns = at_ns + self.random.between(leader_timeout_ns / 2, leader_timeout_ns);
            losses.push((from_ns, vec![(*leader, next), (next, *leader)], PacketFilter::All));
        } else {
            let of_all = |from: ProcessId| followers.iter().map(move |to| (from, *to));
            let others = groups.iter().enumerate().filter(|(other, _)| *other != group);
            let others = others.flat_map(|(_, group)| group.members.iter().copied());
            let pairs: Vec<_> = of_all(*leader).collect();
            let back = followers.iter().map(|from| (*from, *leader)).collect();
            let before_ns = at_ns.saturating_sub(self.random.between(2_000, 400_000));
            let group = GroupId(group as u16);
            shift = Some(Shift { group, from_ns: at_ns, until_ns: at_ns + ns });
            losses.push((before_ns, back, PacketFilter::Requests));
            losses.push((before_ns, others.flat_map(of_all).collect(), PacketFilter::All));
            losses.push((before_ns, pairs.clone(), PacketFilter::Acks));
            losses.push((at_ns, pairs, PacketFilter::All));
        }
        for (from_ns, pairs, what) in losses {
            self.schedule(from_ns, FaultEvent::MemberLoss(pairs.clone(), what));
            self.schedule(at_ns + ns, FaultEvent::MemberLoss(pairs, PacketFilter::None));
        }
        for coordinator in self.layout.coordinators.clone() {
            self.schedule(at_ns, FaultEvent::CoordinatorLoss(coordinator, Some(*leader)));
            self.schedule(at_ns + ns, FaultEvent::CoordinatorLoss(coordinator, None));
        }
        shift
    }

    /// Lets a live member be suspected, because a coordinator cannot receive from it or its switch
    /// is isolated for a while: then two members believe that they lead.
    fn false_suspicion(&mut self) {
        let groups = self.layout.groups.groups.clone();
        let group = self.random.below(groups.len() as u64) as usize;
        let member = match self.random.happens(700_000) {
            true => groups[group].members[0],
            false => self.pick(&groups[group].members),
        };
        let (at_ns, ns) = (self.at(), self.random.between(50_000, 1_000_000));
        if self.random.happens(500_000) {
            let coordinator = self.pick(&self.layout.coordinators);
            self.schedule(at_ns, FaultEvent::CoordinatorLoss(coordinator, Some(member)));
            self.schedule(at_ns + ns, FaultEvent::CoordinatorLoss(coordinator, None));
        } else {
            let node = self.layout.node(member);
            self.schedule(at_ns, FaultEvent::Isolate(node));
            self.schedule(at_ns + ns, FaultEvent::Reconnect(node));
        }
    }
}
