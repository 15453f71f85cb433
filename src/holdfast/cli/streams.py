"""Before anything else runs: standard streams that exist and can print anything, and files that we may open again."""

from __future__ import annotations

import io
import os
import sys


def settle_in() -> None:
    """What a shell, a cron job or a service may have left in an odd state."""
    _open_closed_streams()
    _speak_utf8()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a prompt may have letters that the terminal has not
    mask = os.umask(0o077)
    os.umask(mask & ~0o700)  # a mask that takes our own rights away would lock us out of our own files


def _speak_utf8() -> None:
    """In a locale of the last century Python could not even name a file `é`: start again, with UTF-8 for everything."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode and sys.orig_argv:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _open_closed_streams() -> None:
    """A closed stream leads nowhere; otherwise the next file we open would get its number, and our output."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - lives as long as we


def drop(number: int) -> None:
    """Nobody can take what we write there: what is still buffered must not fail again when we end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
