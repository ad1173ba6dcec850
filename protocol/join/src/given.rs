//! Settings that were given to a joiner, compared with the terms of the fabric.

use alloc::format;
use alloc::string::{String, ToString};

use onepipe_base::Controllers;
use onepipe_wire::Terms;

/// Name of the link timeout in a mismatch.
const LINK_TIMEOUT: &str = "link timeout (ns)";

/// The settings that were given to a joiner, of those that all nodes must agree on. What was not
/// given is adopted from the terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Given {
    /// Limit of process ids.
    pub processes_max: Option<u32>,
    /// The ids of the controllers.
    pub controllers: Option<Controllers>,
    /// Link timeout in ns. [`Given::check`] does not compare it: a switch may have another one than
    /// the switch above, as nodes whose timeouts differ only notice a dead link at different times.
    pub link_timeout_ns: Option<u64>,
}

/// A setting that differs from the terms of the fabric.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mismatch {
    /// Name of the setting.
    pub setting: &'static str,
    /// Its value here.
    pub ours: String,
    /// Its value in the fabric.
    pub theirs: String,
}

impl Given {
    //= spec/ordering.md#R67
    /// Compares the settings that were given with the terms.
    ///
    /// # Errors
    /// The first setting that differs.
    pub fn check(&self, terms: &Terms) -> Result<(), Mismatch> {
        let theirs = terms.processes_max;
        if let Some(ours) = self.processes_max.filter(|ours| *ours != theirs) {
            let (ours, theirs) = (ours.to_string(), theirs.to_string());
            return Err(Mismatch { setting: "processes", ours, theirs });
        }
        self.check_controllers(terms.controllers)
    }

    /// As [`Given::check`], where only the controllers of the fabric are known.
    ///
    /// # Errors
    /// They differ from those that were given.
    pub fn check_controllers(&self, theirs: Option<Controllers>) -> Result<(), Mismatch> {
        match self.controllers {
            Some(ours) if theirs != Some(ours) => {
                Err(Mismatch { setting: "controllers", ours: ids(Some(ours)), theirs: ids(theirs) })
            }
            _ => Ok(()),
        }
    }

    //= spec/ordering.md#R67
    /// Compares the link timeout that was given with that of the fabric, as processes do.
    ///
    /// # Errors
    /// They differ.
    pub fn check_link_timeout(&self, theirs: u64) -> Result<(), Mismatch> {
        match self.link_timeout_ns.filter(|ours| *ours != theirs) {
            None => Ok(()),
            Some(ours) => {
                let (ours, theirs) = (ours.to_string(), theirs.to_string());
                Err(Mismatch { setting: LINK_TIMEOUT, ours, theirs })
            }
        }
    }
}

/// The terms that a switch states differ from those under which a node has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TermsChange {
    /// The terms under which the node has joined.
    pub adopted: Terms,
    /// The terms that the switch states now.
    pub stated: Terms,
}

impl TermsChange {
    /// Returns the first setting that differs: `ours` is its value in the adopted terms.
    pub fn mismatch(&self) -> Mismatch {
        let Self { adopted, stated } = self;
        if adopted.controllers != stated.controllers {
            let (ours, theirs) = (ids(adopted.controllers), ids(stated.controllers));
            return Mismatch { setting: "controllers", ours, theirs };
        }
        let numbers = |terms: &Terms| {
            [
                ("processes", terms.processes_max.into()),
                (LINK_TIMEOUT, terms.link_timeout_ns),
                ("frame length", terms.frame_len_max.into()),
                ("key", terms.key_epoch.into()),
                ("version of the wire format", terms.version.into()),
            ]
        };
        let mut pairs = numbers(adopted).into_iter().zip(numbers(stated));
        let differing = pairs.find(|(ours, theirs)| ours != theirs);
        let ((setting, ours), (_, theirs)) = differing.unwrap_or((("terms", 0), ("terms", 0)));
        Mismatch { setting, ours: ours.to_string(), theirs: theirs.to_string() }
    }
}

/// Names the ids of controllers.
fn ids(controllers: Option<Controllers>) -> String {
    match controllers {
        None => "none".to_string(),
        Some(Controllers { first, count: 1 }) => first.0.to_string(),
        Some(Controllers { first, count }) => {
            format!("{} to {}", first.0, u64::from(first.0) + u64::from(count.max(1)) - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::ProcessId;

    //= spec/ordering.md#R67
    #[test]
    fn only_given_settings_are_compared() {
        let controllers = |first, count| Controllers { first: ProcessId(first), count };
        let mut terms = Terms {
            processes_max: 16,
            controllers: Some(controllers(14, 2)),
            link_timeout_ns: 1,
            frame_len_max: 1_472,
            key_epoch: 0,
            version: onepipe_wire::VERSION,
        };
        let nothing = Given::default();
        assert_eq!(nothing.check(&terms), Ok(()));
        let same = Given {
            processes_max: Some(16),
            controllers: Some(controllers(14, 2)),
            link_timeout_ns: Some(2),
        };
        assert_eq!(same.check(&terms), Ok(()));
        let other = Given { processes_max: Some(64), ..nothing };
        let (ours, theirs) = ("64".to_string(), "16".to_string());
        let mismatch = Mismatch { setting: "processes", ours, theirs };
        assert_eq!(other.check(&terms), Err(mismatch));
        let (ours, theirs) = ("2".to_string(), "1".to_string());
        let mismatch = Mismatch { setting: "link timeout (ns)", ours, theirs };
        assert_eq!(same.check_link_timeout(terms.link_timeout_ns), Err(mismatch));
        assert_eq!(nothing.check_link_timeout(terms.link_timeout_ns), Ok(()));
        terms.controllers = None;
        let (ours, theirs) = ("14 to 15".to_string(), "none".to_string());
        let mismatch = Mismatch { setting: "controllers", ours, theirs };
        assert_eq!(same.check(&terms), Err(mismatch));
    }
}
