//! ICMP errors from the socket's error queue (`IP_RECVERR`, ip(7)).

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::{mem, ptr};

use socket2::Socket;

use crate::receive::address;

/// Size of a control message with an error and the reporting address, and some to spare.
const CONTROL_WORDS: usize = 16;

/// One report of the error queue.
pub(crate) enum Report {
    /// Port unreachable: no process listens at the address.
    Refused(SocketAddr),
    /// Another error, which may be transient.
    Other,
}

/// Returns the next report, if there is one.
pub(crate) fn next(socket: &Socket) -> Option<Report> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut byte = 0u8;
    let mut range = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: plain integers, for which zeros are valid.
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
    // SAFETY: the header points to memory that is alive and exclusively borrowed, with its true
    // length.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    if received < 0 {
        return None;
    }
    // The address is the destination of the refused datagram.
    match (is_refusal(&header), address(&name)) {
        (true, Some(to)) => Some(Report::Refused(to)),
        _ => Some(Report::Other),
    }
}

/// Whether a report is a port unreachable error.
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
            // SAFETY: this message carries one such report, perhaps unaligned.
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
