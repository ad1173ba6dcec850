//! Identifiers, each a type of its own.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// Returns the number as an index into a flat array.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A process: one endpoint of the fabric. Small and dense, so that it indexes arrays.
    ProcessId(u32)
}
id! {
    /// A machine (computer) that runs processes.
    HostId(u32)
}
id! {
    /// A network element that aggregates barriers.
    SwitchId(u32)
}
id! {
    /// A node's local number of one of its links.
    Port(u16)
}
id! {
    /// The incarnation of a process or switch. A node that restarts under the same id takes a
    /// higher one, so that packets of its previous incarnations are recognised as stale.
    Incarnation(u32)
}

/// A scattering of one process, numbered from 0 in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScatteringId(pub u64);

/// The address of a node on a link: a process or a switch (docs/design/failure.md, "Who is on a
/// link?"). On the wire a process is its id, a switch its id with the highest bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A process. Ids lie below 2^31.
    Process(ProcessId),
    /// A switch. Ids lie below 2^31 - 1.
    Switch(SwitchId),
}

impl Address {
    /// Wire encoding of "no address".
    pub const NONE_BITS: u32 = u32::MAX;
    const SWITCH_BIT: u32 = 1 << 31;

    /// Returns the wire encoding.
    pub const fn to_bits(self) -> u32 {
        match self {
            Self::Process(process) => process.0 & !Self::SWITCH_BIT,
            Self::Switch(switch) => switch.0 | Self::SWITCH_BIT,
        }
    }

    /// Decodes the wire encoding; `None` for [`Address::NONE_BITS`].
    #[inline]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            Self::NONE_BITS => None,
            bits if bits & Self::SWITCH_BIT != 0 => {
                Some(Self::Switch(SwitchId(bits & !Self::SWITCH_BIT)))
            }
            bits => Some(Self::Process(ProcessId(bits))),
        }
    }
}

/// The process ids that a fabric reserves for its controllers: `count` consecutive ids from
/// `first` on, at least one (docs/design/failure.md, "Where is the controller?").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Controllers {
    /// The first replica.
    pub first: ProcessId,
    /// Number of replicas, active or not.
    pub count: u32,
}

impl Controllers {
    /// Returns whether `process` is a controller.
    pub const fn contains(self, process: ProcessId) -> bool {
        process.0.wrapping_sub(self.first.0) < self.count
    }

    /// Returns all controller ids, ascending.
    pub fn iter(self) -> impl Iterator<Item = ProcessId> {
        (0..self.count).map(move |index| ProcessId(self.first.0.wrapping_add(index)))
    }
}

/// A process together with its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessInstance {
    /// The process.
    pub process: ProcessId,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

/// A process or switch together with its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance {
    /// The process or switch.
    pub address: Address,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_the_ids_of_their_range() {
        let controllers = Controllers { first: ProcessId(7), count: 2 };
        assert!(controllers.iter().all(|process| controllers.contains(process)));
        assert!(!controllers.contains(ProcessId(6)) && !controllers.contains(ProcessId(9)));
    }

    #[test]
    fn address_bits_round_trip() {
        for address in [
            Address::Process(ProcessId(0)),
            Address::Process(ProcessId((1 << 20) - 1)),
            Address::Switch(SwitchId(0)),
            Address::Switch(SwitchId((1 << 31) - 2)),
        ] {
            assert_eq!(Address::from_bits(address.to_bits()), Some(address));
        }
        assert_eq!(Address::from_bits(Address::NONE_BITS), None);
    }
}
