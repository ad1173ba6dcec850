//! The device by which frames of the daemon enter the program.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command as Process, Stdio};

use crate::attach::interface_index;
use crate::kernel::KernelError;
use crate::{Attachment, Command, DATAGRAM_HEADERS_LEN, Kernel};

/// A pair of devices: what is written into one arrives at the other, where the program is.
///
/// The pair ends when this value is dropped. After a kill it stays until the next start, which
/// replaces it, and does nothing meanwhile.
#[derive(Debug)]
pub struct Generator {
    name: String,
    socket: OwnedFd,
    /// Frames that the device had no memory for.
    lost: u64,
}

impl Generator {
    /// Makes the pair `NAME` and `NAMEr`, and attaches the program to the second.
    ///
    /// # Errors
    /// `ip` is missing, the process may not make devices, or the kernel refuses the program.
    pub fn open(kernel: &mut Kernel, name: &str) -> Result<(Self, Attachment), KernelError> {
        let system = |what| move |source| KernelError::System { what, source };
        let peer = format!("{name}r");
        // Of a daemon that was killed.
        let _ = ip(&["link", "del", "dev", name]);
        ip(&["link", "add", "dev", name, "type", "veth", "peer", "name", &peer])
            .map_err(system("make a pair of devices with `ip` (Debian package iproute2)"))?;
        let (index, peer_index) = (interface_index(name)?, interface_index(&peer)?);
        let opened = packet_socket(index).map_err(system("open a packet socket"))?;
        let generator = Self { name: name.to_string(), socket: opened, lost: 0 };
        for device in [name, &peer] {
            // Nothing but the daemon's frames is to cross it.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1");
            ip(&["link", "set", "dev", device, "up"])
                .map_err(system("start the generator's devices"))?;
        }
        let attachment = kernel.attach(&peer)?;
        kernel.set_generator(peer_index)?;
        Ok((generator, attachment))
    }

    /// Passes a frame, which begins after [`DATAGRAM_HEADERS_LEN`] bytes of `packet`, to the
    /// program. A frame for which there is no memory is lost, as on a link.
    pub fn send(&mut self, command: Command, packet: &mut [u8]) {
        let Some((headers, frame)) = packet.split_first_chunk_mut::<DATAGRAM_HEADERS_LEN>() else {
            return;
        };
        command.write(frame.len(), headers);
        // SAFETY: the descriptor is open as long as `self`, and the kernel reads `packet.len()`
        // bytes of the slice.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                libc::MSG_DONTWAIT,
            )
        };
        self.lost += u64::from(sent < 0);
    }

    /// Returns how many frames were lost for want of memory.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", "dev", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let mut command = Process::new("ip");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_string())),
    }
}

/// Opens a socket that writes Ethernet frames into the device `ifindex`, and receives nothing.
fn packet_socket(ifindex: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: the call has no pointers. A returned descriptor is open and owned by nothing else.
    let socket = unsafe {
        let descriptor = libc::socket(libc::AF_PACKET, kind, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: ifindex as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the kernel reads the address, whose length is given, during the call.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}
