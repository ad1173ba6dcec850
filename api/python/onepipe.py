"""Registered memory of a onepipe fabric, for Python 3.8 and later.

A process registers regions of its memory; others read and write them and execute atomic operations
on them, without its application. All operations are executed in the total order of the fabric. See
docs/guide/memory.md.

The module calls the C interface. ``cargo build -p onepipe-c`` makes the library; its path is in the
environment variable ``ONEPIPE_LIBRARY``, or the system finds it by its name.

>>> import os
>>> fabric = f"python-{os.getpid()}"
>>> owner, client = Pipe.join(fabric, 0), Pipe.join(fabric, 1)
>>> client.wait_for_peers(1)
>>> owner.register(7, 64)
>>> region = client.remote(0, 7)
>>> region.write(16, b"hello")
>>> region.read(16, 5)
b'hello'
>>> region.fetch_add(8, 40)
0
>>> region.compare_and_swap(8, 40, 42)
40
>>> owner.local_read(7, 8, 2)
b'*\\x00'
>>> region.read(60, 8)
Traceback (most recent call last):
    ...
onepipe.Refused: cannot read bytes 60..68 of region 7 of process 0: operation 0 is refused: out of bounds: the region has 64 bytes
>>> owner.local_write(7, 0, b"mine")
>>> region.read(0, 4)
b'mine'
>>> owner.deregister(7)
>>> region.read(0, 4)
Traceback (most recent call last):
    ...
onepipe.Refused: cannot read bytes 0..4 of region 7 of process 0: operation 0 is refused: the owner has no such region
>>> client.leave(); owner.leave()
>>> region.read(0, 4)
Traceback (most recent call last):
    ...
onepipe.Left: this process has left the fabric
"""

import ctypes
import ctypes.util
import os

READ, WRITE, ATOMICS = 1, 2, 4
#: All rights of all processes.
ALL = READ | WRITE | ATOMICS


class Error(Exception):
    """An operation has no result."""


class Refused(Error):
    """The owner refuses the operation; nothing was executed."""


class Unknown(Error):
    """The owner has ended or does not answer; the operation may have been executed."""


class Left(Error):
    """This process has left the fabric."""


_ERRORS = {3: Refused, 4: Unknown, 6: Left, 7: TimeoutError}


def _load():
    path = os.environ.get("ONEPIPE_LIBRARY") or ctypes.util.find_library("onepipe_c")
    if path is None:
        raise ImportError(
            "the library onepipe_c is not found: build it with `cargo build -p onepipe-c`, "
            "and set ONEPIPE_LIBRARY to its path"
        )
    library = ctypes.CDLL(path)
    handle, text, status = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    u32, u64, size = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
    out = ctypes.POINTER(u64)
    functions = {
        "onepipe_join": [text, u32, ctypes.POINTER(handle)],
        "onepipe_join_udp": [text, u32, ctypes.POINTER(handle)],
        "onepipe_wait_for_peers": [handle, size, u32],
        "onepipe_leave": [handle],
        "onepipe_register": [handle, u32, size, u32],
        "onepipe_deregister": [handle, u32],
        "onepipe_local_read": [handle, u32, size, text, size],
        "onepipe_local_write": [handle, u32, size, text, size],
        "onepipe_read": [handle, u32, u32, u64, text, u32],
        "onepipe_write": [handle, u32, u32, u64, text, size],
        "onepipe_compare_and_swap": [handle, u32, u32, u64, u64, u64, out],
        "onepipe_fetch_add": [handle, u32, u32, u64, u64, out],
    }
    for name, arguments in functions.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, status
    library.onepipe_error.argtypes, library.onepipe_error.restype = [], text
    return library


_library = _load()


def _check(status):
    if status != 0:
        text = _library.onepipe_error().decode("utf-8", "replace")
        raise _ERRORS.get(status, Error)(text)


class Pipe:
    """A process of a fabric. Leaves at the end of a ``with`` block."""

    def __init__(self, handle):
        self._handle = handle

    @classmethod
    def join(cls, fabric, process):
        """Joins a fabric in shared memory, by its name."""
        return cls._join(_library.onepipe_join, fabric, process)

    @classmethod
    def join_udp(cls, address, process):
        """Joins through the software switch at ``"host:port"``."""
        return cls._join(_library.onepipe_join_udp, address, process)

    @classmethod
    def _join(cls, function, where, process):
        handle = ctypes.c_void_p()
        _check(function(where.encode(), process, ctypes.byref(handle)))
        return cls(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    def wait_for_peers(self, count, timeout_s=30.0):
        """Waits until this number of other processes have joined."""
        _check(_library.onepipe_wait_for_peers(self._live(), count, int(timeout_s * 1000)))

    def leave(self):
        """Leaves the fabric. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _check(_library.onepipe_leave(handle))

    def register(self, region, size, rights=ALL):
        """Registers a region of ``size`` zero bytes."""
        _check(_library.onepipe_register(self._live(), region, size, rights))

    def deregister(self, region):
        """Removes a region."""
        _check(_library.onepipe_deregister(self._live(), region))

    def local_read(self, region, offset, size):
        """Reads a region of this process."""
        into = ctypes.create_string_buffer(size)
        _check(_library.onepipe_local_read(self._live(), region, offset, into, size))
        return into.raw

    def local_write(self, region, offset, data):
        """Writes to a region of this process, between two operations of others."""
        data = bytes(data)
        _check(_library.onepipe_local_write(self._live(), region, offset, data, len(data)))

    def remote(self, owner, region):
        """Returns a region of process ``owner``."""
        return RemoteRegion(self, owner, region)

    def _live(self):
        if self._handle is None:
            raise Left("this process has left the fabric")
        return self._handle


class RemoteRegion:
    """A region of another process: each method waits for its result."""

    def __init__(self, pipe, owner, region):
        self._pipe, self._owner, self._region = pipe, owner, region

    def read(self, offset, size):
        """Reads ``size`` bytes."""
        into = ctypes.create_string_buffer(size)
        _check(_library.onepipe_read(*self._where(), offset, into, size))
        return into.raw

    def write(self, offset, data):
        """Writes bytes."""
        data = bytes(data)
        _check(_library.onepipe_write(*self._where(), offset, data, len(data)))

    def compare_and_swap(self, offset, expected, value):
        """Replaces the word by ``value`` if it is ``expected``. Returns the word before."""
        before = ctypes.c_uint64()
        _check(
            _library.onepipe_compare_and_swap(
                *self._where(), offset, expected, value, ctypes.byref(before)
            )
        )
        return before.value

    def fetch_add(self, offset, addend):
        """Adds to the word, modulo 2^64. Returns the word before."""
        before = ctypes.c_uint64()
        _check(
            _library.onepipe_fetch_add(*self._where(), offset, addend, ctypes.byref(before))
        )
        return before.value

    def _where(self):
        return self._pipe._live(), self._owner, self._region
