//! Who is not there, as the kernel has learned it (`IP_RECVERR`, ip(7)).

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::{mem, ptr};

use socket2::Socket;

use crate::receive::address;

/// A control message with an error and the address of who reports it: more than is asked for.
const CONTROL_WORDS: usize = 16;

/// One report of the kernel.
pub(crate) enum Report {
    /// Nobody listens there: its machine has answered "port unreachable".
    Refused(SocketAddr),
    /// Something else, which may pass.
    Other,
}

/// The next report, if there is one.
pub(crate) fn next(socket: &Socket) -> Option<Report> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut byte = 0u8;
    let mut range = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: plain numbers, for which zeros are valid.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut header = libc::msghdr {
        msg_name: (&raw mut name).cast(),
        msg_namelen: size_of::<libc::sockaddr_storage>() as libc::socklen_t,
        msg_iov: &raw mut range,
        msg_iovlen: 1,
        msg_control: control.as_mut_ptr().cast(),
        msg_controllen: size_of_val(&control) as _,
        msg_flags: 0,
    };
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to memory that is alive and ours, with its true lengths.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    if received < 0 {
        return None;
    }
    // The name is whom the refused datagram was for.
    match (is_refusal(&header), address(&name)) {
        (true, Some(to)) => Some(Report::Refused(to)),
        _ => Some(Report::Other),
    }
}

/// Whether a report says that nobody listens there.
fn is_refusal(header: &libc::msghdr) -> bool {
    // SAFETY: the kernel has written the control messages of this header and their length; the
    // macros stay within them.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !ptr::eq(control, ptr::null()) {
        // SAFETY: not null, so it points at a whole control message within the header's memory.
        let (level, kind) = unsafe { ((*control).cmsg_level, (*control).cmsg_type) };
        let is_report = matches!(
            (level, kind),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        if is_report {
            // SAFETY: this message bears one such report, perhaps not aligned for it.
            let report = unsafe {
                libc::CMSG_DATA(control).cast::<libc::sock_extended_err>().read_unaligned()
            };
            let origins = [libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6];
            return report.ee_errno == libc::ECONNREFUSED as u32
                && origins.contains(&report.ee_origin);
        }
        // SAFETY: as for the first.
        control = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
    false
}
