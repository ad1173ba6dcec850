//! Sending many GSO batches per system call.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use socket2::{SockAddr, Socket};

use crate::gso::{GsoBatch, IoRange};

/// Maximum number of batches per system call.
const CALL_BATCHES: usize = 64;
/// Maximum number of ranges per system call; a batch has at most twice as many ranges as frames.
const CALL_RANGES: usize = 1024;
/// Size of a control message with one number, aligned, and some to spare.
const CONTROL_WORDS: usize = 4;

static ZEROS: [u8; 65_536] = [0; 65_536];

/// Memory for the arguments of system calls.
pub(crate) struct Sender {
    headers: Vec<libc::mmsghdr>,
    ranges: Vec<libc::iovec>,
    controls: Vec<[u64; CONTROL_WORDS]>,
    /// The destination of each header.
    destinations: Vec<usize>,
    batch_max: usize,
    /// Simulates a path that does not support GSO.
    #[cfg(test)]
    pub(crate) rejects_gso: bool,
}

// SAFETY: the pointers in the headers and ranges are set again for every system call and unused
// after it; everything kept is plain memory.
unsafe impl Send for Sender {}

/// The result of a system call.
pub(crate) enum Sent {
    /// The first `n` batches were sent.
    Batches(usize),
    /// None was sent: the socket's buffer is full.
    Blocked,
    /// The first batch was refused.
    Refused(io::Error),
}

impl Sender {
    /// Sends at most `batch_max` batches per call.
    pub(crate) fn new(batch_max: usize) -> Self {
        let batch_max = batch_max.min(CALL_BATCHES);
        Self {
            headers: Vec::with_capacity(batch_max),
            ranges: Vec::with_capacity(CALL_RANGES),
            controls: vec![[0; CONTROL_WORDS]; batch_max],
            destinations: Vec::with_capacity(batch_max),
            batch_max,
            #[cfg(test)]
            rejects_gso: false,
        }
    }

    /// Starts to prepare a new system call.
    pub(crate) fn clear(&mut self) {
        self.headers.clear();
        self.ranges.clear();
        self.destinations.clear();
    }

    /// Whether nothing is staged.
    pub(crate) fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Returns the destination of the staged batch at `index`.
    pub(crate) fn destination(&self, index: usize) -> usize {
        self.destinations[index]
    }

    /// Adds a batch to the system call. Returns false when the call is full.
    ///
    /// `memory` and `to` must not change until the call is made ([`Sender::send_batch`]) or
    /// cleared.
    pub(crate) fn stage(
        &mut self,
        memory: &[u8],
        batch: &GsoBatch,
        ranges: &[IoRange],
        destination: usize,
        to: Option<&SockAddr>,
    ) -> bool {
        // Neither vector may grow: headers point into them.
        if self.headers.len() >= self.batch_max || self.ranges.len() + ranges.len() > CALL_RANGES {
            return false;
        }
        let first = self.ranges.len();
        self.ranges.extend(ranges.iter().map(|range| to_iovec(memory, *range)));
        let control = &mut self.controls[self.headers.len()];
        let control_bytes = if batch.frames > 1 {
            write_gso_control(control, batch.segment_bytes as u16)
        } else {
            0
        };
        let header = libc::msghdr {
            msg_name: to.map_or(ptr::null_mut(), |to| to.as_ptr().cast_mut().cast()),
            msg_namelen: to.map_or(0, SockAddr::len),
            msg_iov: &raw mut self.ranges[first],
            msg_iovlen: ranges.len() as _,
            msg_control: control.as_mut_ptr().cast(),
            msg_controllen: control_bytes as _,
            msg_flags: 0,
        };
        self.headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        self.destinations.push(destination);
        true
    }

    /// Makes the system call with the staged batches.
    ///
    /// # Safety
    /// The staged memory and addresses must still be alive and unchanged.
    pub(crate) unsafe fn send_batch(&mut self, socket: &Socket) -> Sent {
        #[cfg(test)]
        if self.rejects_gso && self.headers[0].msg_hdr.msg_controllen > 0 {
            return Sent::Refused(io::Error::from_raw_os_error(libc::EIO));
        }
        let count = self.headers.len() as libc::c_uint;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: every header points to ranges and control that are alive, as the vectors have not
        // grown since, and to memory and an address that are, by the caller's guarantee.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), count, flags as _)
        };
        if sent >= 0 {
            return Sent::Batches(sent as usize);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS) => Sent::Blocked,
            _ => Sent::Refused(error),
        }
    }

    /// Sends one batch segment by segment, for a kernel or a path without GSO. Returns the number
    /// of segments sent.
    ///
    /// Each segment is one frame, perhaps with padding. Its parts are cut from the front of
    /// `ranges`, where contiguous frames share a range.
    pub(crate) fn send_segments(
        &mut self,
        socket: &Socket,
        memory: &[u8],
        batch: &GsoBatch,
        ranges: &[IoRange],
        to: Option<&SockAddr>,
    ) -> usize {
        let mut rest = ranges.iter().copied();
        let mut range = rest.next();
        let mut sent = 0;
        for segment in 0..batch.frames {
            let mut need = batch.segment_bytes.min(batch.bytes - segment * batch.segment_bytes);
            let single = GsoBatch { segment_bytes: need, bytes: need, frames: 1, ..*batch };
            let mut parts = [IoRange::Zeros(0); 4];
            let mut count = 0;
            while let Some(current) = range
                && need > 0
                && count < parts.len()
            {
                let (part, left) = split(current, need);
                parts[count] = part;
                count += 1;
                need -= part.bytes();
                range = left.or_else(|| rest.next());
            }
            self.clear();
            let is_staged = self.stage(memory, &single, &parts[..count], 0, to);
            // SAFETY: `memory` and `to` are borrowed as long as this call lasts.
            let single_sent = unsafe { self.send_batch(socket) };
            sent += usize::from(is_staged && matches!(single_sent, Sent::Batches(1)));
        }
        self.clear();
        sent
    }
}

/// Splits a range into its first `need` bytes and the rest.
fn split(range: IoRange, need: usize) -> (IoRange, Option<IoRange>) {
    let bytes = range.bytes();
    if bytes <= need {
        return (range, None);
    }
    match range {
        IoRange::Bytes { at, .. } => {
            let left = IoRange::Bytes { at: at + need, bytes: bytes - need };
            (IoRange::Bytes { at, bytes: need }, Some(left))
        }
        IoRange::Zeros(_) => (IoRange::Zeros(need), Some(IoRange::Zeros(bytes - need))),
    }
}

/// Converts a range for the kernel, which only reads it, though the type has a mutable pointer.
fn to_iovec(memory: &[u8], range: IoRange) -> libc::iovec {
    let bytes = match range {
        IoRange::Bytes { at, bytes } => &memory[at..at + bytes],
        IoRange::Zeros(bytes) => &ZEROS[..bytes],
    };
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Writes the control message that makes the kernel segment a batch. Returns its length.
fn write_gso_control(control: &mut [u64; CONTROL_WORDS], segment_bytes: u16) -> usize {
    const NUMBER_LEN: u32 = size_of::<u16>() as u32;
    // SAFETY: these compute lengths only.
    let (space, length) = unsafe { (libc::CMSG_SPACE(NUMBER_LEN), libc::CMSG_LEN(NUMBER_LEN)) };
    debug_assert!(space as usize <= size_of_val(control));
    let header: *mut libc::cmsghdr = control.as_mut_ptr().cast();
    // SAFETY: `control` has space for the header and the number behind it (asserted above), and is
    // aligned for both, being 64-bit words.
    unsafe {
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = length as _;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(segment_bytes);
    }
    space as usize
}
