//! The threads of a process.

use onepipe_sim_traffic::CpuTimes;
use serde::{Deserialize, Serialize};

/// The threads of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Threads {
    /// One that sends and one that receives and acknowledges ([`CpuTimes::PAPER`]).
    #[default]
    Two,
    /// One, which sends acknowledgements, too ([`CpuTimes::ONE_THREAD`]).
    One,
}

impl Threads {
    /// Returns the CPU times of the testbed's processes.
    pub(crate) fn cpu(self) -> CpuTimes {
        match self {
            Self::Two => CpuTimes::PAPER,
            Self::One => CpuTimes::ONE_THREAD,
        }
    }
}
