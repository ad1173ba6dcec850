//! Parameters of regular trees.

/// Maximum number of processes of a fabric (and of an endpoint): 32 Ki hosts with 32 each.
pub const PROCESSES_MAX: u32 = 1 << 20;

/// A regular tree of one to three tiers of switches.
///
/// Each pod has top-of-rack switches (ToR) and spines, each ToR linked to each spine. The cores,
/// and the spines of each pod, are divided evenly among planes; within a plane each spine is linked
/// to each core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub(crate) pods: u32,
    /// ToR switches in a pod.
    pub(crate) tors: u32,
    /// Hosts at a ToR switch.
    pub(crate) hosts: u32,
    /// Spines in a pod; 0 for a single tier.
    pub(crate) spines: u32,
    /// Parallel links between a ToR and a spine.
    pub(crate) tor_links: u32,
    /// Cores of the whole tree; 0 without a third tier.
    pub(crate) cores: u32,
    /// Number of groups of cores that share no spines.
    pub(crate) planes: u32,
    /// Parallel links between a spine and a core.
    pub(crate) core_links: u32,
}

impl Shape {
    /// Returns one switch with `hosts` hosts.
    ///
    /// # Errors
    /// If there are none, or more than a switch has ports.
    pub fn star(hosts: u32) -> Result<Self, ShapeError> {
        Self {
            pods: 1,
            tors: 1,
            hosts,
            spines: 0,
            tor_links: 1,
            cores: 0,
            planes: 1,
            core_links: 1,
        }
        .checked()
    }

    /// Returns two tiers: each leaf is linked to each spine.
    ///
    /// # Errors
    /// If a number is zero or too large.
    pub fn leaf_spine(leaves: u32, spines: u32, hosts_per_leaf: u32) -> Result<Self, ShapeError> {
        if spines == 0 {
            return Err(ShapeError::Zero { field: "spines" });
        }
        Self { tors: leaves, spines, ..Self::star(hosts_per_leaf)? }.checked()
    }

    /// Returns the three-tier fat tree of switches with `k` ports: k pods, k^3/4 hosts, (k/2)^2
    /// cores (Al-Fares et al., SIGCOMM 2008).
    ///
    /// # Errors
    /// If `k` is zero, odd or too large.
    pub fn fat_tree(k: u32) -> Result<Self, ShapeError> {
        if k % 2 == 1 {
            return Err(ShapeError::Odd { k });
        }
        let half = k / 2;
        let cores = half.saturating_mul(half);
        Self { pods: k, tors: half, spines: half, cores, planes: half, ..Self::star(half)? }
            .checked()
    }

    /// Returns the testbed of 1Pipe section 7.1: 32 hosts, 4 ToR, 4 spine and 2 core switches, no
    /// oversubscription.
    ///
    /// The paper gives the numbers, not the cabling. Ten switches carry 32 hosts without
    /// oversubscription when a rack has 8 hosts and links run in bundles of four: 8 from a ToR up
    /// to the 2 spines of its pod, 8 from a spine up to the 2 cores. Every spine reaches both
    /// cores, since "core link and switch failures do not affect connectivity" (section 7.2).
    pub const fn testbed() -> Self {
        Self {
            pods: 2,
            tors: 2,
            hosts: 8,
            spines: 2,
            tor_links: 4,
            cores: 2,
            planes: 1,
            core_links: 4,
        }
    }

    /// As [`Shape::testbed`], with bundles of `links` parallel links instead of four: fewer links
    /// oversubscribe the fabric.
    ///
    /// # Errors
    /// If there are none, or more than a switch has ports.
    pub fn testbed_in_bundles_of(links: u32) -> Result<Self, ShapeError> {
        Self { tor_links: links, core_links: links, ..Self::testbed() }.checked()
    }

    /// Returns the number of hosts.
    pub const fn host_count(&self) -> u32 {
        self.pods * self.tors * self.hosts
    }

    /// Returns the number of hosts at each ToR switch.
    pub const fn hosts_per_tor(&self) -> u32 {
        self.hosts
    }

    /// Returns the number of switches.
    pub const fn switch_count(&self) -> u32 {
        self.tor_count() + self.pods * self.spines + self.cores
    }

    pub(crate) const fn tor_count(&self) -> u32 {
        self.pods * self.tors
    }

    /// Returns the number of spines of a pod in a plane.
    pub(crate) const fn plane_spines(&self) -> u32 {
        self.spines / self.planes
    }

    pub(crate) const fn plane_cores(&self) -> u32 {
        self.cores / self.planes
    }

    /// Returns the lower and upper ports of a ToR, a spine and a core.
    pub(crate) const fn port_counts(&self) -> [(u32, u32); 3] {
        [
            (self.hosts, self.spines * self.tor_links),
            (self.tors * self.tor_links, self.plane_cores() * self.core_links),
            (self.pods * self.plane_spines() * self.core_links, 0),
        ]
    }

    /// Checks the shape. Bounds each number first, so that the products cannot overflow.
    fn checked(self) -> Result<Self, ShapeError> {
        for (field, value) in [("hosts", self.hosts), ("leaves", self.tors), ("pods", self.pods)] {
            if value == 0 {
                return Err(ShapeError::Zero { field });
            }
            at_most(field, value.into(), u16::MAX.into())?;
        }
        at_most("spines", self.spines.into(), u16::MAX.into())?;
        let wide = |value: u32| u64::from(value);
        let hosts = wide(self.pods).saturating_mul(wide(self.tors) * wide(self.hosts));
        at_most("hosts", hosts, PROCESSES_MAX.into())?;
        at_most("cores", self.cores.into(), u16::MAX.into())?;
        let switches = wide(self.pods) * (wide(self.tors) + wide(self.spines)) + wide(self.cores);
        at_most("switches", switches, PROCESSES_MAX.into())?;
        for (lower, upper) in self.port_counts() {
            at_most("ports of a switch", wide(lower) + wide(upper), u16::MAX.into())?;
        }
        Ok(self)
    }
}

pub(crate) fn at_most(field: &'static str, value: u64, max: u64) -> Result<(), ShapeError> {
    if value > max { Err(ShapeError::TooLarge { field, value, max }) } else { Ok(()) }
}

/// A shape that cannot be built, or a text that describes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The text names no known kind of tree.
    #[error("unknown topology; known: testbed, star:8, leaf-spine:4x2x8, fat-tree:8")]
    Unknown,
    /// The numbers after the kind are missing or malformed.
    #[error("malformed numbers; expected {expected}")]
    Malformed {
        /// The expected format.
        expected: &'static str,
    },
    /// A number is zero.
    #[error("{field} must be at least 1")]
    Zero {
        /// What the number counts.
        field: &'static str,
    },
    /// The port count of a fat tree is odd.
    #[error("fat-tree:{k} is odd; half of a switch's ports go up, half down")]
    Odd {
        /// The port count.
        k: u32,
    },
    /// A number exceeds its limit.
    #[error("{field} = {value}, at most {max} are supported")]
    TooLarge {
        /// What the number counts.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The limit.
        max: u64,
    },
}
