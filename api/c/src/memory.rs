//! Regions of this process, and operations on those of others.

use std::ffi::c_void;
use std::slice;

use onepipe::memory::{OperationError, Processes, RegionId, RemoteRegion, Rights};
use onepipe::{Pipe, ProcessId};

use crate::error::{Failure, Status, run};
use crate::pipe::{OnepipeHandle, with_pipe};

/// Rights of the header.
const READ: u32 = 1;
const WRITE: u32 = 2;
const ATOMICS: u32 = 4;

/// Returns the bytes at `bytes`.
///
/// # Safety
/// `bytes` is null or valid for reads of `len` bytes, which no thread writes during `'a`.
unsafe fn bytes_at<'a>(bytes: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::new(Status::Argument, "the bytes are NULL")),
        // SAFETY: by the contract of this function.
        (false, _) => Ok(unsafe { slice::from_raw_parts(bytes.cast(), len) }),
    }
}

/// Copies `from` to `bytes`.
///
/// # Safety
/// `bytes` is null or valid for writes of the length of `from`.
unsafe fn copy_to(bytes: *mut c_void, from: &[u8]) -> Result<(), Failure> {
    match (bytes.is_null(), from) {
        (_, []) => Ok(()),
        (true, _) => Err(Failure::new(Status::Argument, "the bytes are NULL")),
        (false, _) => {
            // SAFETY: by the contract of this function; `from` is memory of this library.
            unsafe { bytes.cast::<u8>().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
            Ok(())
        }
    }
}

/// Returns the range of `len` bytes from `offset` on of a region of this process.
fn part(region: &mut [u8], offset: usize, len: usize) -> Result<&mut [u8], Failure> {
    let bytes = region.len();
    let end = offset.checked_add(len);
    end.and_then(|end| region.get_mut(offset..end)).ok_or_else(|| {
        let text = format!("out of bounds: the region has {bytes} bytes");
        Failure::new(Status::Refused, text)
    })
}

/// Registers a region of zero bytes.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_register(
    handle: *mut OnepipeHandle,
    region: u32,
    len: usize,
    rights: u32,
) -> Status {
    let register = |pipe: &mut Pipe| {
        if rights & !(READ | WRITE | ATOMICS) != 0 {
            return Err(Failure::new(Status::Argument, format!("{rights} names unknown rights")));
        }
        let of = |right| if rights & right == 0 { Processes::None } else { Processes::All };
        let rights = Rights { read: of(READ), write: of(WRITE), atomics: of(ATOMICS) };
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|error| Failure::of(Status::Limit, &error))?;
        bytes.resize(len, 0u8);
        Ok(pipe.register(RegionId(region), bytes, rights)?)
    };
    // SAFETY: the contract is the same.
    run(|| unsafe { with_pipe(handle, register) })
}

/// Removes a region.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_deregister(handle: *mut OnepipeHandle, region: u32) -> Status {
    // SAFETY: the contract is the same.
    run(|| unsafe { with_pipe(handle, |pipe| Ok(pipe.deregister(RegionId(region))?)) })
}

/// Copies bytes out of a region of this process.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`. `bytes` is null
/// or valid for writes of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_local_read(
    handle: *mut OnepipeHandle,
    region: u32,
    offset: usize,
    bytes: *mut c_void,
    len: usize,
) -> Status {
    let read = |pipe: &mut Pipe| {
        pipe.with_region(RegionId(region), |region| {
            // SAFETY: by the contract of this function.
            unsafe { copy_to(bytes, part(region, offset, len)?) }
        })?
    };
    // SAFETY: the contract is the same.
    run(|| unsafe { with_pipe(handle, read) })
}

/// Copies bytes into a region of this process.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`. `bytes` is null
/// or valid for reads of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_local_write(
    handle: *mut OnepipeHandle,
    region: u32,
    offset: usize,
    bytes: *const c_void,
    len: usize,
) -> Status {
    let write = |pipe: &mut Pipe| {
        // SAFETY: by the contract of this function.
        let bytes = unsafe { bytes_at(bytes, len) }?;
        pipe.with_region(RegionId(region), |region| {
            part(region, offset, len).map(|part| part.copy_from_slice(bytes))
        })?
    };
    // SAFETY: the contract is the same.
    run(|| unsafe { with_pipe(handle, write) })
}

/// Runs an operation on a region of a process.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`.
unsafe fn operate<R>(
    handle: *mut OnepipeHandle,
    (owner, region): (u32, u32),
    operation: impl FnOnce(&mut RemoteRegion<'_>) -> Result<R, OperationError>,
) -> Result<R, Failure> {
    let operate =
        |pipe: &mut Pipe| Ok(operation(&mut pipe.remote(ProcessId(owner), RegionId(region)))?);
    // SAFETY: the contract is the same.
    unsafe { with_pipe(handle, operate) }
}

/// Reads bytes of a region.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`. `bytes` is null
/// or valid for writes of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_read(
    handle: *mut OnepipeHandle,
    owner: u32,
    region: u32,
    offset: u64,
    bytes: *mut c_void,
    len: u32,
) -> Status {
    run(|| {
        // SAFETY: the contract is the same.
        let read = unsafe { operate(handle, (owner, region), |region| region.read(offset, len)) }?;
        if read.len() != len as usize {
            return Err(Failure::new(Status::Unknown, "the owner returns another length"));
        }
        // SAFETY: by the contract of this function, as the length was checked.
        unsafe { copy_to(bytes, &read) }
    })
}

/// Writes bytes to a region.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`. `bytes` is null
/// or valid for reads of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_write(
    handle: *mut OnepipeHandle,
    owner: u32,
    region: u32,
    offset: u64,
    bytes: *const c_void,
    len: usize,
) -> Status {
    run(|| {
        // SAFETY: by the contract of this function.
        let bytes = unsafe { bytes_at(bytes, len) }?;
        // SAFETY: the contract is the same.
        unsafe { operate(handle, (owner, region), |region| region.write(offset, bytes)) }?;
        Ok(())
    })
}

/// Replaces a word if it has the expected value.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`. `before` is null
/// or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_compare_and_swap(
    handle: *mut OnepipeHandle,
    owner: u32,
    region: u32,
    offset: u64,
    expected: u64,
    value: u64,
    before: *mut u64,
) -> Status {
    // SAFETY: the contract is the same.
    run(|| unsafe {
        word(handle, (owner, region), before, |region| {
            region.compare_and_swap(offset, expected, value)
        })
    })
}

/// Adds to a word.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`. `before` is null
/// or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onepipe_fetch_add(
    handle: *mut OnepipeHandle,
    owner: u32,
    region: u32,
    offset: u64,
    addend: u64,
    before: *mut u64,
) -> Status {
    // SAFETY: the contract is the same.
    run(|| unsafe {
        word(handle, (owner, region), before, |region| region.fetch_add(offset, addend))
    })
}

/// Runs an operation on a word, and stores the word before.
///
/// # Safety
/// `handle` is null, or was returned by a join and not passed to `onepipe_leave`. `before` is null
/// or valid for a write.
unsafe fn word(
    handle: *mut OnepipeHandle,
    of: (u32, u32),
    before: *mut u64,
    operation: impl FnOnce(&mut RemoteRegion<'_>) -> Result<u64, OperationError>,
) -> Result<(), Failure> {
    if before.is_null() {
        return Err(Failure::new(Status::Argument, "the word before has no address"));
    }
    // SAFETY: the contract is the same.
    let word = unsafe { operate(handle, of, operation) }?;
    // SAFETY: by the contract of this function.
    unsafe { before.write(word) };
    Ok(())
}
