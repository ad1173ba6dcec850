//! Runs the program on a frame, without any device.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use crate::Kernel;
use crate::kernel::KernelError;

/// `BPF_PROG_TEST_RUN` of enum bpf_cmd.
const PROG_TEST_RUN: libc::c_int = 10;

/// What the program wants to be done with a frame: the values of enum xdp_action that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drops the frame.
    Drop,
    /// Passes it up to the host.
    Pass,
    /// Sends it.
    Redirect,
    /// Something else, which the program never returns.
    Other(u32),
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct TestRun {
    /// What is to be done with the frame.
    pub action: Action,
    /// The frame with its headers, as the program leaves it after the last repetition.
    pub frame: Vec<u8>,
    /// Mean time of a repetition, in ns.
    pub ns: u32,
}

/// The part of union bpf_attr for test runs.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    program: u32,
    result: u32,
    data_in_len: u32,
    data_out_len: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_in_len: u32,
    context_out_len: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    reserved: u32,
}

/// struct xdp_md.
#[repr(C)]
#[derive(Default)]
struct Context {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

impl Kernel {
    /// Runs the program `repeat` times on `packet`, an Ethernet frame, as if it had arrived on the
    /// device `ifindex`. Each repetition gets the packet as the one before has left it.
    ///
    /// # Errors
    /// The kernel refuses it: the packet is shorter than an Ethernet header, for example.
    pub fn test_run(
        &self,
        ifindex: u32,
        packet: &[u8],
        repeat: u32,
    ) -> Result<TestRun, KernelError> {
        let program = self.direct()?.as_fd();
        let mut frame = vec![0; packet.len() + 256];
        let context = Context {
            data_end: packet.len() as u32,
            ingress_ifindex: ifindex,
            ..Context::default()
        };
        let mut attributes = Attributes {
            program: program.as_raw_fd() as u32,
            data_in_len: packet.len() as u32,
            data_out_len: frame.len() as u32,
            data_in: packet.as_ptr() as u64,
            data_out: frame.as_mut_ptr() as u64,
            repeat,
            context_in_len: size_of::<Context>() as u32,
            context_in: std::ptr::from_ref(&context) as u64,
            ..Attributes::default()
        };
        // SAFETY: the attributes have the layout of union bpf_attr for this command and live during
        // the call. The kernel reads `data_in_len` bytes at `data_in` and `context_in_len` bytes at
        // `context_in`, and writes at most `data_out_len` bytes at `data_out`; each is the length
        // of the buffer there, which is borrowed here.
        // `test_run_stays_within_its_buffers` checks it.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                PROG_TEST_RUN,
                std::ptr::from_mut(&mut attributes),
                size_of::<Attributes>(),
            )
        };
        if result != 0 {
            let source = io::Error::last_os_error();
            return Err(KernelError::System { what: "run the kernel program on a frame", source });
        }
        frame.truncate(attributes.data_out_len as usize);
        let action = match attributes.result {
            1 => Action::Drop,
            2 => Action::Pass,
            4 => Action::Redirect,
            other => Action::Other(other),
        };
        Ok(TestRun { action, frame, ns: attributes.duration })
    }
}
