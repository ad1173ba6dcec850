//! Names of things, each a type of its own.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number as an index into a flat array.
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
    /// A machine that runs processes.
    HostId(u32)
}
id! {
    /// A network element that aggregates barriers.
    SwitchId(u32)
}
id! {
    /// A node's own number for one of its links.
    Port(u16)
}
id! {
    /// One life of a process. A process that restarts under the same id takes a higher one, so
    /// that packets of its former life are recognised.
    Incarnation(u32)
}

/// A scattering of one process, numbered from 0 in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScatteringId(pub u64);
