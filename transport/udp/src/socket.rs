//! Opening a socket and detecting what the kernel supports.

use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::{Config, Offload};

/// Opens a non-blocking socket of the address family of `address`, bound as `config` says.
pub(crate) fn open(config: &Config, address: SocketAddr) -> io::Result<(Socket, Offload)> {
    if !(256..=65_000).contains(&config.frame_len_max) {
        let what = format!("frame_len_max = {} is out of range", config.frame_len_max);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    socket.bind(&config.bind.unwrap_or(any).into())?;
    let bytes = config.socket_buffer_bytes.min(i32::MAX as usize) as libc::c_int;
    for (force, ask) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        // Only root may exceed the system's limit; other users get what it allows.
        if set(&socket, libc::SOL_SOCKET, force, bytes).is_err() {
            set(&socket, libc::SOL_SOCKET, ask, bytes)?;
        }
    }
    let offload = match config.offload {
        Offload::Segment if enable_segmentation(&socket) => Offload::Segment,
        Offload::Segment => Offload::Batch,
        less => less,
    };
    Ok((socket, offload))
}

/// Enables the error queue (ICMP errors), for either address family.
pub(crate) fn enable_error_queue(socket: &Socket) {
    // A socket of one family refuses the option of the other, whose errors it cannot have.
    let _ = set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    let _ = set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1);
}

/// Enables GRO and detects GSO. Returns whether the kernel supports both.
fn enable_segmentation(socket: &Socket) -> bool {
    let off = 0;
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, off).is_ok()
        && set(socket, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok()
}

fn set(
    socket: &Socket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the pointer is to a `c_int` of the given length.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), bytes)
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The state of a receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlog {
    /// Bytes of kernel memory in use.
    pub(crate) used: u32,
    /// Size in bytes of kernel memory.
    pub(crate) size: u32,
    /// Datagrams dropped.
    pub(crate) drops: u32,
}

/// Queries the state of the receive buffer.
pub(crate) fn backlog(socket: &Socket) -> Option<Backlog> {
    // Indices of the kernel's `SK_MEMINFO_RMEM_ALLOC`, `_RCVBUF` and `_DROPS`.
    const USED: usize = 0;
    const SIZE: usize = 1;
    const DROPS: usize = 8;
    let mut numbers = [0u32; 9];
    let mut bytes = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the descriptor is open, the pointers are to memory of the given lengths.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    let [used, size, drops] = [USED, SIZE, DROPS].map(|index| numbers[index]);
    (result == 0).then_some(Backlog { used, size, drops })
}

/// What [`poll`] has found.
pub(crate) struct Ready {
    /// The first descriptor has errors in its queue.
    pub(crate) has_errors: bool,
    /// The second descriptor is readable.
    pub(crate) is_rung: bool,
}

/// Blocks until one of two descriptors is readable or `timeout_ns` have passed. May return early.
pub(crate) fn poll(fds: [libc::c_int; 2], timeout_ns: u64) -> Ready {
    let mut fds = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    let count = fds.len() as libc::nfds_t;
    // SAFETY: the array and the timeout are valid for the call; a null mask changes no signals.
    let ready =
        unsafe { libc::ppoll(fds.as_mut_ptr(), count, &raw const timeout, std::ptr::null()) };
    Ready {
        has_errors: ready > 0 && fds[0].revents & libc::POLLERR != 0,
        is_rung: ready > 0 && fds[1].revents & libc::POLLIN != 0,
    }
}
