//! The handler of SIGBUS, the signal by which the kernel reports an access to a page that its file
//! does not have (any more).
//!
//! A process of the same user can shorten a file that others have mapped. Compositors protect
//! themselves against clients in the same way (`wl_shm_buffer_begin_access` of libwayland): the
//! handler maps zeros over the whole mapping, marks it as lost ([`crate::mapping_table`]), and
//! returns, so that the access is repeated and succeeds. Every other SIGBUS goes to the handler
//! that was installed before, or kills the process as if there were none.
//!
//! The handler is installed once, at the first mapping. A program that installs another one later
//! must pass on what it does not know, as this one does; else shortened files kill it.

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::mapping_table;

/// The action that was installed before; null: the default one.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

type Handler = extern "C" fn(libc::c_int);
type InfoHandler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs the handler, unless an earlier call has.
pub(crate) fn install() -> io::Result<()> {
    static IS_INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut is_installed = IS_INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_installed {
        return Ok(());
    }
    let previous = action(None)?;
    // Other threads may be in the handler before this function ends, so they find it then.
    publish_previous(previous);
    // SAFETY: all zeros is a valid `sigaction`; what matters is set below.
    let mut handler: libc::sigaction = unsafe { mem::zeroed() };
    handler.sa_sigaction = on_sigbus as InfoHandler as usize;
    // The previous handler is called with the mask that it has asked for, and on the alternative
    // stack, where the thread has one: the standard library needs it to report stack overflows.
    handler.sa_mask = previous.sa_mask;
    handler.sa_flags = libc::SA_SIGINFO
        | libc::SA_ONSTACK
        | previous.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
    let replaced = action(Some(&handler))?;
    if replaced.sa_sigaction != previous.sa_sigaction {
        // Another thread of the program has installed a handler between the two calls.
        publish_previous(replaced);
    }
    *is_installed = true;
    Ok(())
}

/// Returns the action of SIGBUS, and replaces it if there is a `next` one.
fn action(next: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let next = next.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: all zeros is a valid `sigaction`.
    let mut previous: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: both pointers are valid for the call, or null; the handler in `next` is
    // async-signal-safe (`on_sigbus`).
    match unsafe { libc::sigaction(libc::SIGBUS, next, &raw mut previous) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(previous),
    }
}

/// Makes the previous action known to the handler. It is never freed, as a handler may read it at
/// any time; there is one for each process.
fn publish_previous(previous: libc::sigaction) {
    PREVIOUS.store(Box::into_raw(Box::new(previous)), Ordering::Release);
}

/// Handles SIGBUS. Async-signal-safe: it takes no lock, allocates nothing, and preserves `errno`.
extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel, or a handler that passes the signal on, gives a valid `siginfo_t`, which
    // has an address if the signal reports a fault (`si_code` above 0).
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // SAFETY: the address of this thread's `errno` is valid as long as the thread exists.
    let errno = unsafe { &mut *libc::__errno_location() };
    let saved = *errno;
    let is_handled = code == libc::BUS_ADRERR && mapping_table::replace(address);
    *errno = saved;
    if !is_handled {
        pass_on(signal, info, context, code);
    }
}

/// Does what would have happened without this crate.
fn pass_on(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    code: libc::c_int,
) {
    let previous = PREVIOUS.load(Ordering::Acquire);
    // SAFETY: null, or what `publish_previous` has published, which is never freed or changed.
    let (handler, flags) = unsafe { previous.as_ref() }
        .map_or((libc::SIG_DFL, 0), |previous| (previous.sa_sigaction, previous.sa_flags));
    // Signals that a process has sent, rather than the kernel, have codes up to 0.
    let is_sent = code <= 0;
    match handler {
        libc::SIG_IGN if is_sent => return,
        // The kernel does not let a process ignore its own faults.
        libc::SIG_DFL | libc::SIG_IGN => return die(signal, is_sent),
        _ => {}
    }
    if flags & libc::SA_RESETHAND != 0 {
        PREVIOUS.store(ptr::null_mut(), Ordering::Release);
    }
    if flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the program has installed this address as a handler with SA_SIGINFO.
        let handler = unsafe { mem::transmute::<usize, InfoHandler>(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: the program has installed this address as a handler without SA_SIGINFO.
        let handler = unsafe { mem::transmute::<usize, Handler>(handler) };
        handler(signal);
    }
}

/// Restores the default action, by which the process dies: when the access is repeated after the
/// handler has returned, or by the signal sent once more.
fn die(signal: libc::c_int, is_sent: bool) {
    // SAFETY: both calls are async-signal-safe and take numbers only.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        if is_sent {
            libc::raise(signal);
        }
    }
}
