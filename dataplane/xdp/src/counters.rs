//! What became of the frames: one counter for each verdict of the program.

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Numbers of frames by what became of them, in the order of `enum verdict` in
        /// `src/kernel/switch.bpf.c`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Counters {
            /// The names of all counters, in their order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Returns the counters whose values are `values`; missing ones are 0.
            pub fn from_values(values: impl IntoIterator<Item = u64>) -> Self {
                let mut values = values.into_iter();
                Self { $($name: values.next().unwrap_or(0),)* }
            }

            /// Returns all values, in the order of [`Counters::NAMES`].
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name),*]
            }
        }
    };
}

counters! {
    /// Forwarded to the receiver's link.
    forwarded,
    /// Forwarded without a fresh promise, because no live link feeds the output.
    forwarded_unfed,
    /// Frames of the daemon sent.
    sent,
    /// Reports of the daemon that it has replicated what was passed up.
    released,
    /// Beacons, solicits and joins: counted, and passed up.
    consumed,
    /// Frames that list receivers, passed up for replication.
    detoured,
    /// Control frames, passed up.
    control,
    /// Frames of addresses that are no link, passed up.
    unknown_link,
    /// Frames to processes without a route, passed up.
    unknown_receiver,
    /// Frames under another identity than was admitted on the link, passed up.
    misattributed,
    /// Other traffic of the devices, passed up.
    not_ours,
    /// Dropped: shorter than their headers say.
    dropped_truncated,
    /// Dropped: of another version, or with a wrong hop tag.
    dropped_malformed,
    /// Dropped: with an unknown opcode.
    dropped_opcode,
    /// Dropped: with a promise too far ahead of the clock.
    dropped_ahead,
    /// Dropped: the route leads back to the input.
    dropped_back,
    /// Dropped: the hop limit is used up.
    dropped_hops,
    /// Dropped: the output has no neighbour, no device, or nothing that a beacon could promise.
    dropped_output,
}

impl Counters {
    /// Returns how many frames were dropped.
    pub fn dropped(&self) -> u64 {
        let is_drop = |name: &&str| name.starts_with("dropped");
        let named = Self::NAMES.iter().zip(self.values());
        named.filter(|(name, _)| is_drop(name)).map(|(_, value)| value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_names_have_one_order() {
        let counters = Counters::from_values(1..);
        assert_eq!(counters.forwarded, 1);
        assert_eq!(counters.values().len(), Counters::NAMES.len());
        assert_eq!(counters.values().last(), Some(&counters.dropped_output));
        let dropped = Counters::from_values(counters.values().iter().map(|_| 1)).dropped();
        assert_eq!(dropped, 7);
    }

    #[test]
    fn counters_are_those_of_the_program() {
        let program = include_str!("kernel/switch.bpf.c");
        let (_, verdicts) = program.split_once("enum verdict {").expect("the verdicts");
        let (verdicts, _) = verdicts.split_once("VERDICTS").expect("their end");
        let verdicts: Vec<String> =
            verdicts.split(',').map(|name| name.trim().to_lowercase()).collect();
        assert_eq!(verdicts[..verdicts.len() - 1], *Counters::NAMES);
    }
}
