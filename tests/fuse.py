"""The smallest FUSE file system there is: an empty directory, mounted under any name that a kernel would show."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_LOOKUP, _GETATTR, _INIT, _DESTROY = 1, 3, 26, 38
_DETACH = 2


@contextlib.contextmanager
def mounted_as(kind: str, at: Path) -> Iterator[None]:
    """`at` looks like a mount of type `kind` (for example fuse.sshfs). Skips by name where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"NOT RUN: a FUSE mount needs /dev/fuse: {error.strerror}")
    options = f"fd={device},rootmode=40700,user_id={os.getuid()},group_id={os.getgid()}".encode()
    if libc.mount(b"nowhere:/", os.fsencode(at), kind.encode(), 0, options) != 0:
        os.close(device)
        pytest.skip(f"NOT RUN: a FUSE mount needs root: {os.strerror(ctypes.get_errno())}")
    server = threading.Thread(target=_serve, args=(device,), daemon=True)
    server.start()
    try:
        yield
    finally:
        libc.umount2(os.fsencode(at), _DETACH)
        server.join(timeout=10)
        os.close(device)


def _serve(device: int) -> None:
    """Answers until it is unmounted."""
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError:
            return  # ENODEV: it is gone
        _length, opcode, unique, _node = struct.unpack_from("<IIQQ", request)
        if opcode == _DESTROY:
            return
        body, problem = _answer(opcode)
        with contextlib.suppress(OSError):
            os.write(device, struct.pack("<IiQ", 16 + len(body), -problem, unique) + body)


def _answer(opcode: int) -> tuple[bytes, int]:
    if opcode == _INIT:
        return struct.pack("<IIIIHHIIHHI", 7, 31, 0, 0, 1, 1, 4096, 1, 0, 0, 0).ljust(64, b"\0"), 0
    if opcode == _GETATTR:
        times = struct.pack("<QQQQQQIII", 1, 0, 0, 0, 0, 0, 0, 0, 0)
        owner = struct.pack("<IIIIIII", 0o40700, 2, os.getuid(), os.getgid(), 0, 4096, 0)
        return struct.pack("<QII", 1, 0, 0) + times + owner, 0
    return b"", errno.ENOENT if opcode == _LOOKUP else errno.ENOSYS
