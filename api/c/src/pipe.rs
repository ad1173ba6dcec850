//! Joining, waiting and leaving.

use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onepipe::{Builder, Pipe};

use crate::error::{Failure, Status, run};

/// A process of a fabric: `onepipe` of the header.
pub struct OnepipeHandle(Mutex<Pipe>);

/// Calls `use_pipe` with the pipe of a handle.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`.
pub(crate) unsafe fn with_pipe<R>(
    handle: *const OnepipeHandle,
    use_pipe: impl FnOnce(&mut Pipe) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: by the contract of this function the handle is null or valid.
    let handle = unsafe { handle.as_ref() };
    let Some(OnepipeHandle(pipe)) = handle else {
        return Err(Failure::new(Status::Argument, "the handle is NULL"));
    };
    use_pipe(&mut pipe.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Joins, and stores the handle.
///
/// # Safety
/// `text` is null or a C string; `handle` is null or valid for a write.
unsafe fn join(
    text: *const c_char,
    process: u32,
    handle: *mut *mut OnepipeHandle,
    settings: impl FnOnce(Builder, &str) -> Builder,
) -> Result<(), Failure> {
    if text.is_null() || handle.is_null() {
        return Err(Failure::new(Status::Argument, "an argument is NULL"));
    }
    // SAFETY: by the contract of this function `text` is a C string.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|error| Failure::of(Status::Argument, &error))?;
    let builder = settings(Pipe::builder().process(process), text);
    let pipe = builder.join().map_err(|error| Failure::of(Status::Join, &error))?;
    let joined = Box::into_raw(Box::new(OnepipeHandle(Mutex::new(pipe))));
    // SAFETY: by the contract of this function `handle` is valid for a write.
    unsafe { handle.write(joined) };
    Ok(())
}

/// Joins a fabric in shared memory.
///
/// # Safety
/// `fabric` is null or a C string; `handle` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_join(
    fabric: *const c_char,
    process: u32,
    handle: *mut *mut OnepipeHandle,
) -> Status {
    // SAFETY: the contract is the same.
    run(|| unsafe { join(fabric, process, handle, |builder, name| builder.fabric(name)) })
}

/// Joins through the software switch at `address`.
///
/// # Safety
/// `address` is null or a C string; `handle` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_join_udp(
    address: *const c_char,
    process: u32,
    handle: *mut *mut OnepipeHandle,
) -> Status {
    // SAFETY: the contract is the same.
    run(|| unsafe { join(address, process, handle, |builder, address| builder.udp(address)) })
}

/// Waits until `count` other processes have joined.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_wait_for_peers(
    handle: *mut OnepipeHandle,
    count: usize,
    timeout_ms: u32,
) -> Status {
    let wait = |pipe: &mut Pipe| {
        let timeout = Duration::from_millis(timeout_ms.into());
        match pipe.wait_for_peers(count, timeout) {
            true => Ok(()),
            false => Err(Failure::new(Status::Timeout, "the other processes have not joined")),
        }
    };
    // SAFETY: the contract is the same.
    run(|| unsafe { with_pipe(handle, wait) })
}

/// Leaves the fabric and frees the handle.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to this function before. No other
/// thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_leave(handle: *mut OnepipeHandle) -> Status {
    run(|| {
        if handle.is_null() {
            return Ok(());
        }
        // SAFETY: by the contract of this function, the handle was made by a join, and this is its
        // last use.
        let OnepipeHandle(pipe) = *unsafe { Box::from_raw(handle) };
        let mut pipe = pipe.into_inner().unwrap_or_else(PoisonError::into_inner);
        pipe.leave().map_err(|error| Failure::of(Status::Unknown, &error))
    })
}
