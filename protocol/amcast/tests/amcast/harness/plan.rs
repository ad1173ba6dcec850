//! Plan of a history: its size, its faults and its steps.

use onepipe_amcast::GroupSet;

/// Deterministic random generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Parameters of a history.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub members: Vec<usize>,
    pub replicas: usize,
    pub clients: usize,
    pub window: u32,
    pub messages: u32,
    pub busy_threshold: u64,
    pub history: usize,
    pub lose_percent: u64,
    pub repeat_percent: u64,
    pub jitter_ns: u64,
    /// Number of members that crash in each group, the leader first; at most f.
    pub crash: usize,
    /// Whether clients and replicas crash as well, at most one of each.
    pub crash_others: bool,
    /// Number of elections without a reason.
    pub elections: u64,
    /// Whether members announce their incarnations.
    pub announces: bool,
}

impl Plan {
    /// Returns a plan with one group and one client, without faults.
    pub fn calm() -> Self {
        Self {
            seed: 1,
            members: vec![3],
            replicas: 2,
            clients: 1,
            window: 8,
            messages: 0,
            busy_threshold: 64,
            history: 1_024,
            lose_percent: 0,
            repeat_percent: 0,
            jitter_ns: 1,
            crash: 0,
            crash_others: false,
            elections: 0,
            announces: false,
        }
    }

    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let groups = 1 + rng.below(3) as usize;
        let five = rng.percent(20);
        let members = (0..groups).map(|_| if five { 5 } else { 3 }).collect();
        Self {
            seed,
            members,
            replicas: 1 + rng.below(2) as usize,
            clients: 1 + rng.below(4) as usize,
            window: 1 + rng.below(8) as u32,
            messages: 8 + rng.below(24) as u32,
            busy_threshold: if rng.percent(30) { 1 + rng.below(4) } else { 64 },
            history: 1_024,
            lose_percent: rng.below(4) * rng.below(10),
            repeat_percent: rng.below(3) * 7,
            jitter_ns: 1 + rng.below(4) * 20_000,
            crash: rng.below(2) as usize * if five { 1 + rng.below(2) as usize } else { 1 },
            crash_others: rng.percent(40),
            elections: if rng.percent(60) { rng.below(6) } else { 0 },
            announces: false,
        }
    }
}

/// Fault of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFault {
    Lost,
    /// Delivered after frames that are sent much later.
    Late,
    /// Delivered, and delivered again late.
    Twice,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    CrashMember(usize),
    /// Restarts a crashed member with an empty memory.
    RestartMember(usize),
    CrashClient(usize),
    CrashReplica(usize),
    /// Elects the member as leader.
    Elect(usize),
    /// Lets the controller check all groups.
    Control,
    /// Lets the client send as many messages as it can.
    Send(usize),
    /// Lets the client send one message to these groups, as soon as it can.
    SendOne(usize, GroupSet),
}
