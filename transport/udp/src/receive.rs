//! Receiving many batches per system call.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::{mem, ptr};

use socket2::Socket;

/// Memory for one batch: the length of the longest datagram.
pub(crate) const BATCH_BYTES_MAX: usize = 65_536;
/// Maximum number of batches received per system call.
const CALL_BATCHES: usize = 16;
/// Size of the control messages, and some to spare.
const CONTROL_WORDS: usize = 8;

/// Memory for the arguments of system calls.
pub(crate) struct Receiver {
    headers: Vec<libc::mmsghdr>,
    ranges: Vec<libc::iovec>,
    controls: Vec<[u64; CONTROL_WORDS]>,
    addresses: Vec<libc::sockaddr_storage>,
    wants_addresses: bool,
    /// The kernel has reported an error of an earlier send.
    pub(crate) has_reports: bool,
}

// SAFETY: the pointers in the headers and ranges are set again for every system call and unused
// after it; everything kept is plain memory.
unsafe impl Send for Receiver {}

/// A received batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedBatch {
    /// Length in bytes of the whole batch.
    pub(crate) bytes: usize,
    /// Length of each frame, except perhaps the last.
    pub(crate) segment_bytes: usize,
    /// The datagram did not fit its memory.
    pub(crate) is_truncated: bool,
}

impl Receiver {
    /// Receives at most `batch_max` batches per call; requests source addresses if
    /// `wants_addresses`.
    pub(crate) fn new(batch_max: usize, wants_addresses: bool) -> Self {
        let batch_max = batch_max.clamp(1, CALL_BATCHES);
        // SAFETY: all of these are plain integers and pointers, for which zeros are valid.
        let (header, range, name) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        Self {
            headers: vec![header; batch_max],
            ranges: vec![range; batch_max],
            controls: vec![[0; CONTROL_WORDS]; batch_max],
            addresses: vec![name; batch_max],
            wants_addresses,
            has_reports: false,
        }
    }

    /// Returns the size of the memory that `receive` needs.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.headers.len() * BATCH_BYTES_MAX
    }

    /// Receives batches, each at a multiple of [`BATCH_BYTES_MAX`] of `memory`. Returns their
    /// number, zero when none has arrived.
    pub(crate) fn receive(&mut self, socket: &Socket, memory: &mut [u8]) -> usize {
        let batches = memory.chunks_exact_mut(BATCH_BYTES_MAX);
        for (at, batch) in batches.enumerate().take(self.headers.len()) {
            self.ranges[at] =
                libc::iovec { iov_base: batch.as_mut_ptr().cast(), iov_len: batch.len() };
            let name = &raw mut self.addresses[at];
            let name_len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            self.headers[at].msg_hdr = libc::msghdr {
                msg_name: if self.wants_addresses { name.cast() } else { ptr::null_mut() },
                msg_namelen: if self.wants_addresses { name_len } else { 0 },
                msg_iov: &raw mut self.ranges[at],
                msg_iovlen: 1,
                msg_control: self.controls[at].as_mut_ptr().cast(),
                msg_controllen: size_of::<[u64; CONTROL_WORDS]>() as _,
                msg_flags: 0,
            };
        }
        let count = self.headers.len() as libc::c_uint;
        let flags = libc::MSG_DONTWAIT;
        let headers = self.headers.as_mut_ptr();
        // An error of an earlier send is returned here once, without consuming datagrams: try
        // again.
        for _ in 0..2 {
            // SAFETY: every header was just set to memory, control and address that are alive and
            // exclusively borrowed, with their true lengths.
            let received = unsafe {
                libc::recvmmsg(socket.as_raw_fd(), headers, count, flags as _, ptr::null_mut())
            };
            if received >= 0 {
                return received as usize;
            }
            if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
                break;
            }
            self.has_reports = true;
        }
        0
    }

    /// Returns the batch at `at` of the last call.
    pub(crate) fn batch(&self, at: usize) -> ReceivedBatch {
        let header = &self.headers[at];
        let bytes = header.msg_len as usize;
        let segment_bytes =
            segment_bytes(&header.msg_hdr).filter(|segment| (1..bytes).contains(segment));
        ReceivedBatch {
            bytes,
            segment_bytes: segment_bytes.unwrap_or(bytes),
            is_truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        }
    }

    /// Returns the source address of the batch at `at` of the last call.
    pub(crate) fn source(&self, at: usize) -> Option<SocketAddr> {
        self.wants_addresses.then(|| address(&self.addresses[at])).flatten()
    }
}

/// Returns the segment length reported by GRO, if the kernel coalesced frames.
fn segment_bytes(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has written the control messages of this header and their length; the
    // macros stay within them.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !control.is_null() {
        // SAFETY: not null, so it points at a whole control message within the header's memory.
        let (level, kind) = unsafe { ((*control).cmsg_level, (*control).cmsg_type) };
        if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
            // SAFETY: this message carries one `int`.
            let number = unsafe { libc::CMSG_DATA(control).cast::<libc::c_int>().read_unaligned() };
            return usize::try_from(number).ok();
        }
        // SAFETY: as for the first.
        control = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
    None
}

/// Converts an address that the kernel has written; `None` for an unknown family.
pub(crate) fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let name: *const libc::sockaddr_storage = name;
    // SAFETY: the storage is larger than and aligned for every kind of address, valid for any bits,
    // and its family says which kind the kernel has written.
    unsafe {
        match libc::c_int::from((*name).ss_family) {
            libc::AF_INET => {
                let v4 = &*name.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = &*name.cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let udp_port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, udp_port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}
