//! The hardware of a report.

use std::fmt;
use std::fs;
use std::thread;

use serde::{Deserialize, Serialize};

/// The computer on which a report was measured, as far as known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// Model name of the CPU.
    pub cpu: String,
    /// Cores available to this process.
    pub cores: usize,
    /// Operating system and release.
    pub kernel: String,
}

impl Hardware {
    /// Detects this computer; unknown parts are "unknown".
    pub fn detect() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: cpu(&cpuinfo).unwrap_or("unknown").to_string(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: match release.trim() {
                "" => std::env::consts::OS.to_string(),
                release => format!("{} {release}", std::env::consts::OS),
            },
        }
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} cores, {}", self.cpu, self.cores, self.kernel)
    }
}

/// Returns the CPU's name in the text of `/proc/cpuinfo`: x86 has a model name, others an
/// implementer and a part.
fn cpu(cpuinfo: &str) -> Option<&str> {
    let value = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then_some(value.trim())
        })
    };
    value("model name").or_else(|| value("Hardware")).or_else(|| value("CPU part"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_cpu_name_of_any_architecture() {
        let x86 = "processor\t: 0\nmodel\t\t: 167\nmodel name\t: Some Processor @ 2 GHz\n";
        assert_eq!(cpu(x86), Some("Some Processor @ 2 GHz"));
        assert_eq!(cpu("processor\t: 0\nCPU part\t: 0xd0c\n"), Some("0xd0c"));
        assert_eq!(cpu(""), None);
    }
}
