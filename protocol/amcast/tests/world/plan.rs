//! What happens in a history: how large it is, what goes wrong, and what is done when.

use onepipe_amcast::GroupSet;

/// SplitMix64: the same draws for ever.
#[derive(Clone, Debug)]
pub struct Draws(pub u64);

impl Draws {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What a history is drawn from.
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
    /// Members that crash in each group, the leader first; at most f.
    pub crash: usize,
    /// Whether clients and replicas crash, too: one of each at most.
    pub crash_others: bool,
    /// Elections that nobody needed.
    pub elections: u64,
}

impl Plan {
    /// One group and one client, and nothing goes wrong.
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
        }
    }

    pub fn draw(seed: u64) -> Self {
        let mut draws = Draws(seed);
        let groups = 1 + draws.below(3) as usize;
        let five = draws.percent(20);
        let members = (0..groups).map(|_| if five { 5 } else { 3 }).collect();
        Self {
            seed,
            members,
            replicas: 1 + draws.below(2) as usize,
            clients: 1 + draws.below(4) as usize,
            window: 1 + draws.below(8) as u32,
            messages: 8 + draws.below(24) as u32,
            busy_threshold: if draws.percent(30) { 1 + draws.below(4) } else { 64 },
            history: 1_024,
            lose_percent: draws.below(4) * draws.below(10),
            repeat_percent: draws.below(3) * 7,
            jitter_ns: 1 + draws.below(4) * 20_000,
            crash: draws.below(2) as usize * if five { 1 + draws.below(2) as usize } else { 1 },
            crash_others: draws.percent(40),
            elections: if draws.percent(60) { draws.below(6) } else { 0 },
        }
    }
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Lost,
    /// It comes behind what is said long after it.
    Late,
    /// It comes, and once more when it is late.
    Twice,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    CrashMember(usize),
    CrashClient(usize),
    CrashReplica(usize),
    /// The member is told to lead.
    Elect(usize),
    /// The controller looks after all groups.
    Control,
    /// The client sends what it can.
    Send(usize),
    /// The client sends one message to these groups, as soon as it can.
    SendOne(usize, GroupSet),
}
