//! The switch in the kernel: an XDP program that handles the frames of a switch of form chip, and
//! the maps that it shares with the daemon.
//!
//! scattering → send → `[switch in the kernel]` → receive → reorder → deliver
//!
//! The program (`src/kernel/switch.bpf.c`) has two registers for each link, rewrites each passing
//! frame with the minimum over all live links, and redirects it to the device of its receiver.
//! Everything else passes up to the daemon's socket: joins, leaves, beacons, floods, frames that
//! list receivers, and frames of unknown links. The daemon runs `protocol/switch`, decides which
//! links live, and writes that into the maps: `Kernel`. What the daemon sends goes through the
//! program as well, by a device of its own, the generator: so beacons carry what the program has
//! promised, and leave behind the frames that left before. Why it is built so:
//! `docs/design/xdp.md`.
//!
//! Without the feature `kernel` only the layouts exist, so that the workspace builds without clang.
//!
//! # Invariants
//! - The program never promises more than the minimum over the live links, and never less than
//!   before on the same output.
//! - It changes no frame that it does not send.
//! - Its attachments end with the process that made them: no forwarding outlives the daemon.

#[cfg(all(feature = "kernel", not(all(target_os = "linux", target_endian = "little"))))]
compile_error!("the kernel program runs on little-endian Linux; build without the feature `xdp`");

mod counters;
mod layout;

#[cfg(feature = "kernel")]
mod attach;
#[cfg(feature = "kernel")]
mod generator;
#[cfg(feature = "kernel")]
mod kernel;
#[cfg(feature = "kernel")]
mod test_run;

pub use counters::Counters;
pub use layout::{
    Command, DATAGRAM_HEADERS_LEN, Neighbour, PORTS_MAX, Register, Stamp, release_content,
};

#[cfg(feature = "kernel")]
pub use attach::{Attachment, interface_index};
#[cfg(feature = "kernel")]
pub use generator::Generator;
#[cfg(feature = "kernel")]
pub use kernel::{Config, Kernel, KernelError};
#[cfg(feature = "kernel")]
pub use test_run::{Action, TestRun};

/// The object that clang has compiled, with a program `receive` that a device of a host needs to
/// receive redirected frames, if the device is a veth.
#[cfg(feature = "kernel")]
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/switch.bpf.o"));
