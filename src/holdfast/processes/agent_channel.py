"""The reader of an agent's reports: JSON lines that the agent appends to `reports` in its run's channel.

An agent writes here with the rights of our user, so nothing is trusted. Links are not followed, and no read blocks.
Reports are read in bounded pieces and accepted only with the run's token. A line that is not a report is counted, and
reading continues.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator

from holdfast.base.text import one_line
from holdfast.core.model import Report, ReportKind
from holdfast.processes.port import ReportBatch

REPORTS = "reports"
MOST_LINE = 4096  # bytes of one report
MOST_MESSAGE = 900  # characters
BLOCK = 128 * 1024  # bytes read at a time, which takes a few milliseconds of the supervisor's loop
MOST_REFUSALS = 100  # per block; later lines of the block are parsed only if they contain the token
MOST_READ = 16 * 1024 * 1024  # bytes of one run's reports; the rest is ignored
_NOT_PLAIN = (errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENODEV)
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotRegularChannelFile(OSError):
    """An object that is not a regular file, or cannot be opened as one."""


class ReportFile:
    """The reports of one run, from an offset on."""

    def __init__(self, directory: str, token: str, offset: int = 0) -> None:
        self._directory = directory
        self._token = token
        self._offset = offset
        self._total = offset  # total bytes read, including files that were replaced or truncated
        self._inode: int | None = None
        self._skipping = False  # inside a line that is too long
        self._overfull = False
        self._stamp: object = None
        self._more = False

    def changed(self) -> bool:
        return self._more or self._look() != self._stamp

    def read(self, *, last: bool = False) -> ReportBatch:
        self._stamp = self._look()  # before the read, so that data written meanwhile is noticed the next time
        self._more = False
        if self._stamp is None:
            return ReportBatch(offset=self._offset)
        try:
            with _open_regular(self._directory, REPORTS) as fd:
                block = self._next_block(fd)
        except FileNotFoundError:
            return ReportBatch(offset=self._offset)
        except NotRegularChannelFile as problem:
            return ReportBatch(offset=self._offset, refused=1, refused_why=str(problem))
        if self._total + len(block) > MOST_READ:
            return self._refuse_rest()
        found: list[Report] = []
        refusals: list[str] = []
        unparsed, token = 0, self._token.encode()
        for line in self._lines(block, refusals, last=last):
            if len(refusals) >= MOST_REFUSALS and token not in line:
                unparsed += 1
                continue
            report = parse_report(line, self._token)
            if isinstance(report, Report):
                found.append(report)
            else:
                refusals.append(report)
        why, refused = refusals[0] if refusals else "", len(refusals) + unparsed
        return ReportBatch(offset=self._offset, reports=found, refused=refused, refused_why=why, more=self._more)

    def _next_block(self, fd: int) -> bytes:
        facts = os.fstat(fd)
        if facts.st_size < self._offset or self._inode not in (None, facts.st_ino):
            self._offset, self._skipping = 0, False  # replaced or truncated: read from the beginning
        self._inode = facts.st_ino
        block = os.pread(fd, BLOCK, self._offset)
        self._more = self._offset + len(block) < facts.st_size
        return block

    def _lines(self, block: bytes, refusals: list[str], *, last: bool) -> Iterator[bytes]:
        """Yield complete lines and advance the offset. An unfinished line is yielded only in the `last` read."""
        *lines, rest = block.split(b"\n")
        for line in lines:
            self._advance(len(line) + 1)
            if self._skipping:
                self._skipping = False
            elif line.strip():
                yield line
        if len(rest) > MOST_LINE or (self._skipping and rest):
            if not self._skipping:
                refusals.append(_TOO_LONG)
            self._skipping = True
            self._advance(len(rest))
        elif rest and last and not self._more:
            self._advance(len(rest))
            yield rest

    def _advance(self, count: int) -> None:
        self._offset += count
        self._total += count

    def _refuse_rest(self) -> ReportBatch:
        self._more = False
        if self._overfull:
            return ReportBatch(offset=self._offset)
        self._overfull = True
        return ReportBatch(
            offset=self._offset, refused=1, refused_why=f"more than {MOST_READ // 1024**2} MiB of reports"
        )

    def _look(self) -> object:
        try:
            found = os.stat(os.path.join(self._directory, REPORTS), follow_symlinks=False)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


_TOO_LONG = f"a line of more than {MOST_LINE} bytes"


def parse_report(line: bytes, token: str) -> Report | str:
    """Return a report, or the reason why the line is not one.

    The reason never quotes the line, which may be hostile or hold another run's token.
    """
    if len(line) > MOST_LINE:
        return _TOO_LONG
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return "a line that is not JSON"
    if not isinstance(said, dict):
        return "a line that is not a JSON object"
    if not token or said.get("token") != token:
        return "a wrong token"
    if said.get("report") not in tuple(ReportKind):
        return "an unknown kind of report"
    message, percent = said.get("message", ""), said.get("percent")
    if not isinstance(message, str):
        return "a message that is not text"
    if percent is not None and not _is_percent(percent):
        return "a percentage that is not a number from 0 to 100"
    printable = message.encode(errors="replace").decode()  # a lone surrogate cannot be stored
    report = Report(kind=ReportKind(said["report"]), message=one_line(printable, MOST_MESSAGE), percent=percent)
    if report.kind is ReportKind.PROGRESS and not str(report):
        return "a progress report without message and percentage"
    return report


def _is_percent(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100


@contextlib.contextmanager
def _open_regular(directory: str, name: str) -> Iterator[int]:
    """Open a regular file directly in that directory. Errors of the machine (such as out of descriptors) are raised."""
    try:
        folder = os.open(directory, _FLAGS | os.O_DIRECTORY)
        try:
            fd = os.open(name, _FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise NotRegularChannelFile(f"'{name}' cannot be opened as a plain file") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotRegularChannelFile(f"'{name}' is not a plain file")
        yield fd
    finally:
        os.close(fd)


def read_regular_file(path: str, most: int) -> bytes:
    """Return a regular file's content, up to `most` bytes. Never blocks, whatever the agent put in its place."""
    with _open_regular(os.path.dirname(path), os.path.basename(path)) as fd:
        pieces, left = [], most
        while left > 0 and (piece := os.read(fd, min(left, 1024 * 1024))):
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)
