//! Attaching the program to network devices.

use aya::programs::xdp::XdpLinkId;
use aya::programs::{ProgramError, XdpFlags};

use crate::Kernel;
use crate::kernel::{KernelError, program_mut};

/// A device to which the program is attached until [`Kernel::detach`] or the end of the process.
#[derive(Debug)]
pub struct Attachment {
    /// Index of the device.
    pub ifindex: u32,
    link: XdpLinkId,
}

impl Kernel {
    /// Attaches the program to the device `name`. It ends with the process at the latest, however
    /// that ends: the kernel detaches it with the last descriptor.
    ///
    /// # Errors
    /// There is no such device, another program is attached to it, or its driver has no XDP.
    pub fn attach(&mut self, name: &str) -> Result<Attachment, KernelError> {
        let ifindex = interface_index(name)?;
        let program = program_mut(&mut self.ebpf, "enter")?;
        let attached = program.attach_to_if_index(ifindex, XdpFlags::DRV_MODE);
        let link = attached.map_err(|source| refusal(name, source))?;
        Ok(Attachment { ifindex, link })
    }

    /// Detaches the program from a device: its traffic is that of the host again.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn detach(&mut self, attachment: Attachment) -> Result<(), KernelError> {
        Ok(program_mut(&mut self.ebpf, "enter")?.detach(attachment.link)?)
    }
}

/// Returns why the device `name` does not take the program.
fn refusal(name: &str, source: ProgramError) -> KernelError {
    let code = match &source {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    };
    let device = name.to_string();
    match code {
        Some(libc::EOPNOTSUPP) => KernelError::NoXdp(device),
        Some(libc::EBUSY) => KernelError::Attached(device),
        _ => KernelError::Program(source),
    }
}

/// Returns the index of the device `name`.
///
/// # Errors
/// There is none.
pub fn interface_index(name: &str) -> Result<u32, KernelError> {
    let path = format!("/sys/class/net/{name}/ifindex");
    let unknown = || KernelError::Device(name.to_string());
    if name.contains('/') {
        return Err(unknown());
    }
    let text = std::fs::read_to_string(path).map_err(|_| unknown())?;
    text.trim().parse().map_err(|_| unknown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_devices_are_named() {
        assert_eq!(interface_index("lo").ok(), Some(1));
        for name in ["no-such-device", "../lo"] {
            let error = interface_index(name).expect_err("no device").to_string();
            assert!(error.contains(name) && error.contains("ip link"), "{error}");
        }
    }
}
