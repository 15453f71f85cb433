"""The cradle: one small process per supervisor that has keeper.py loaded, and forks keepers from it (ADR 0014).

Run as `python -I -S -X utf8 keeper_fork_server.py SOCKET_FD ROOM`, where ROOM is only a long word: each keeper writes
over our command line, so that `ps` shows whose keeper it is. A keeper that is forked here starts several times as fast
as a new interpreter and shares most of its memory with the others. Standard library only, one thread, nothing imported
later.

A request is a length, the descriptors of lock, ready pipe and log beside it, and as many bytes: the run directory, a
NUL, the agent's environment as JSON. The answer is the keeper's pid, or the error. Each keeper is forked twice, so that
it becomes the supervisor's own child (the supervisor is the nearest subreaper). When the supervisor ends, its end of
the socket closes and we end too.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import keeper  # type: ignore[import-not-found]  # the file beside us: we run without the package

LENGTH = 8
DESCRIPTORS = 3
WARM_UPS = 20


def read_exactly(channel: socket.socket, count: int) -> bytes:
    """`count` bytes, or fewer when the supervisor is gone."""
    blocks = []
    while count > 0:
        block = channel.recv(min(count, 1 << 20))
        if not block:
            break
        blocks.append(block)
        count -= len(block)
    return b"".join(blocks)


def bear(channel: socket.socket, request: bytes, descriptors: list[int]) -> bytes:
    """Fork a keeper; its pid as text. The one in the middle ends at once, which gives its child to the supervisor."""
    told_r, told_w = os.pipe()
    keeper.fault_point("cradle.fork", may_fail=True)
    middle = os.fork()
    if middle == 0:
        channel.close()
        os.close(told_r)
        child = os.fork()
        if child != 0:
            os.write(told_w, str(child).encode())
            os._exit(0)
        os.close(told_w)
        live_as_keeper(request, *descriptors)
    os.close(told_w)
    os.waitpid(middle, 0)
    pid = os.read(told_r, 32)
    os.close(told_r)
    keeper.fault_point("cradle.born")
    return pid or b"error: the keeper could not be forked"


def live_as_keeper(request: bytes, lock: int, ready: int, log: int) -> None:
    """Be the keeper, from here to its end. Never returns."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(log)
        directory, _, environment = request.partition(b"\0")
        be_called(os.fsencode(keeper.__file__), directory)
        keeper.keep(os.fsdecode(directory), lock, ready, environment)
    except BaseException:  # noqa: BLE001 - whatever it is belongs into keeper.log, and must not run on as a cradle
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def be_called(*words: bytes) -> None:
    """What `ps` shows of us from now on: the memory where the kernel put our command line, overwritten."""
    fields = keeper.read_file("/proc/self/stat").rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    line = b"".join(word + b"\0" for word in words)[: end - start - 1]
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)


def serve(channel: socket.socket) -> None:
    while True:
        header, descriptors, _flags, _address = socket.recv_fds(channel, LENGTH, DESCRIPTORS)
        header += read_exactly(channel, LENGTH - len(header)) if header else b""
        request = read_exactly(channel, int.from_bytes(header, "big"))
        if len(header) < LENGTH or len(descriptors) < DESCRIPTORS or len(request) < int.from_bytes(header, "big"):
            return  # the supervisor is gone
        try:
            answer = bear(channel, request, descriptors)
        except OSError as error:
            answer = f"error: {error.strerror}".encode()
        for descriptor in descriptors:
            os.close(descriptor)
        channel.sendall(answer.ljust(DESCRIPTORS * LENGTH))


def warm_up() -> None:
    """Do what every keeper does, without any effect: the interpreter adapts its code while it runs, and what it has
    written here before the fork is shared by all keepers instead of written anew by each."""
    for _time in range(WARM_UPS):
        keeper.counter("/proc/vmstat", "oom_kill")
        keeper.process_stat(os.getpid())
        keeper.boot_id()
        keeper.Cgroups({"groups": [], "settings": []})
        json.loads(json.dumps({"environment": dict(os.environ), "limits": [1, 2.5, None]}))
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        poller = select.poll()
        poller.register(read, select.POLLIN)
        poller.poll(0)
        os.close(read)
        os.close(write)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    keeper.prctl(keeper.PR_SET_PDEATHSIG, signal.SIGKILL)  # the closed socket says the same, unless we are stopped
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    keeper.set_faults(os.environ)  # keepers inherit them: they look at no other environment
    warm_up()
    gc.collect()
    gc.disable()
    gc.freeze()  # what is here now is never looked at again, so its pages stay shared
    try:
        serve(channel)
    except (ConnectionError, BrokenPipeError):
        return


if __name__ == "__main__":
    main()
