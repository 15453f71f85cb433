"""The keeper fork server: one small process per supervisor that has keeper.py loaded and forks keepers (ADR 0014).

A forked keeper starts several times as fast as a new interpreter and shares most of its memory with the others.
Standard library only, one thread, nothing imported later.

Run as `python -I -S -X utf8 keeper_fork_server.py SOCKET_FD ROOM`, where ROOM is only a long text. Each keeper
overwrites the command line that it inherits, so that `ps` shows whose keeper it is.

A request begins with a length, sent together with the descriptors of lock, ready pipe and log. Then come that many
bytes: the run directory, a NUL, the agent's environment as JSON. The answer is the keeper's pid, or the error. Each
keeper is forked twice, so that it becomes the supervisor's own child (the supervisor is the nearest subreaper). When
the supervisor ends, its end of the socket closes and the server ends too.
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

import keeper  # type: ignore[import-not-found]  # keeper.py in this folder: this program runs without the package

LENGTH = 8
DESCRIPTORS = 3
WARM_UPS = 20


def read_exactly(channel: socket.socket, count: int) -> bytes:
    """Return `count` bytes, or fewer when the supervisor is gone."""
    blocks = []
    while count > 0:
        block = channel.recv(min(count, 1 << 20))
        if not block:
            break
        blocks.append(block)
        count -= len(block)
    return b"".join(blocks)


def fork_keeper(channel: socket.socket, request: bytes, descriptors: list[int]) -> bytes:
    """Fork a keeper and return its pid as text.

    The process between server and keeper ends at once, so that the supervisor becomes the keeper's parent.
    """
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
        run_keeper(request, *descriptors)
    os.close(told_w)
    os.waitpid(middle, 0)
    pid = os.read(told_r, 32)
    os.close(told_r)
    keeper.fault_point("cradle.born")
    return pid or b"error: the keeper could not be forked"


def run_keeper(request: bytes, lock: int, ready: int, log: int) -> None:
    """Run the keeper in this forked process. Never returns."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(log)
        directory, _, environment = request.partition(b"\0")
        set_process_title(os.fsencode(keeper.__file__), directory)
        keeper.run_keeper(os.fsdecode(directory), lock, ready, environment)
    except BaseException:  # noqa: BLE001 - any error goes to keeper.log, and must not return into the server's loop
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def set_process_title(*words: bytes) -> None:
    """Change what `ps` shows of this process: overwrite the memory where the kernel put the command line."""
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
            answer = fork_keeper(channel, request, descriptors)
        except OSError as error:
            answer = f"error: {error.strerror}".encode()
        for descriptor in descriptors:
            os.close(descriptor)
        channel.sendall(answer.ljust(DESCRIPTORS * LENGTH))


def warm_up() -> None:
    """Run what every keeper runs, without any effect, before the first fork.

    The interpreter adapts its code in memory while it runs. Pages written before the fork are shared by all keepers,
    pages written after it are not.
    """
    for _time in range(WARM_UPS):
        keeper.read_counter(keeper.nearest_oom_counter(""), "oom_kill")
        keeper.process_stat(os.getpid())
        keeper.boot_id()
        keeper.KeeperCgroups({"groups": [], "settings": []})
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
    # The closed socket would end the server as well, but not while it is stopped (SIGSTOP).
    keeper.prctl(keeper.PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    keeper.set_faults(os.environ)  # keepers inherit them: they look at no other environment
    warm_up()
    gc.collect()
    gc.disable()
    gc.freeze()  # the collector never touches the objects that exist now, so their pages stay shared
    try:
        serve(channel)
    except (ConnectionError, BrokenPipeError):
        return


if __name__ == "__main__":
    main()
