//! How far the recovery from the open failures is.

use onepipe_base::Mono;

/// The failures that are recorded and not resolved, as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum OpenFailures {
    /// No failure is open.
    #[default]
    None,
    /// A process has yet to complete one of them.
    Unnoticed {
        /// When the first of them was decided.
        since: Mono,
    },
    /// All processes have completed them: they can be resolved.
    Noticed {
        /// When the first of them was decided.
        since: Mono,
    },
}

impl OpenFailures {
    /// Adds failures that were decided at `decided`.
    pub(crate) fn add(&mut self, decided: Mono) {
        let since = match *self {
            Self::None => decided,
            Self::Unnoticed { since } | Self::Noticed { since } => since,
        };
        *self = Self::Unnoticed { since };
    }

    /// Notes that all processes have completed all of them. Returns when the first one was decided,
    /// if that is new.
    pub(crate) fn complete(&mut self) -> Option<Mono> {
        let Self::Unnoticed { since } = *self else { return None };
        *self = Self::Noticed { since };
        Some(since)
    }

    pub(crate) fn is_unnoticed(self) -> bool {
        matches!(self, Self::Unnoticed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_failure_needs_another_notice() {
        let at = Mono::from_ns;
        let mut open = OpenFailures::default();
        assert_eq!((open.complete(), open), (None, OpenFailures::None));
        open.add(at(5));
        assert_eq!((open.complete(), open.complete()), (Some(at(5)), None), "reported once");
        assert_eq!(open, OpenFailures::Noticed { since: at(5) });
        open.add(at(9));
        assert_eq!(open, OpenFailures::Unnoticed { since: at(5) }, "since the first");
    }
}
