"""Files that workflows name: prompts and scenarios, beside the file of settings that names them."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from typing import Any

from holdfast.base.errors import UsageError
from holdfast.base.text import is_text
from holdfast.config.reading import bytes_of
from holdfast.config.tablevalues import words as text
from holdfast.config.values import shown

LARGEST = 64 * 1024  # of one
LARGEST_TOGETHER = 1024 * 1024  # of all that one file of settings names
MOST_DOTS = 1000  # on a line of TOML: config/read_file.py says why
Steps = tuple[Mapping[str, Any], ...]


class FilesBeside:
    """`inside`: a repository's file may only name what lies in the repository, whatever symbolic links say."""

    def __init__(self, folder: str, *, inside: bool) -> None:
        self._folder = folder
        self._inside = inside
        self._room = LARGEST_TOGETHER

    def prompt(self, value: object) -> tuple[str, str]:
        """Its path and its text; ValueError says what is wrong."""
        path, content = self._read(value)
        if not is_text(content):
            raise ValueError(f"{path} is not text (it has NUL bytes)")
        return path, content

    def scenario(self, value: object) -> Steps:
        """The steps of a scenario, written here or in a file; ValueError says what is wrong."""
        from holdfast.rehearsal.scenario import check

        document: object = {"step": value}
        name = "here"
        if isinstance(value, str):
            name, content = self._read(value)
            document = _parsed(name, content)
        try:
            return tuple(check(document, name))
        except UsageError as error:
            raise ValueError(str(error).rstrip(".")) from None

    def _read(self, value: object) -> tuple[str, str]:
        word = text(value)
        path = os.path.join(self._folder, word if self._inside else os.path.expanduser(word))
        if self._inside:
            self._refuse_outside(word)
        if self._room <= 0:
            raise ValueError(f"the files of workflows have more than {LARGEST_TOGETHER // 1024} KiB together")
        try:
            content = bytes_of(path, LARGEST)
        except FileNotFoundError:
            raise ValueError(f"there is no file {shown_path(path)}") from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ValueError(f"{shown_path(path)} cannot be read: {why}") from None
        self._room -= len(content)
        try:
            return os.path.normpath(path), content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"{shown_path(path)} cannot be read: it is not UTF-8 text") from None

    def _refuse_outside(self, word: str) -> None:
        root = os.path.realpath(self._folder)
        real = os.path.realpath(os.path.join(root, word))
        within = os.path.relpath(real, root).split(os.sep)
        if os.path.isabs(word) or within[0] == ".." or ".git" in within:
            raise ValueError(f"'{shown(word)}' is not a file of this repository; name one inside it")


def shown_path(path: str) -> str:
    return " ".join(os.path.normpath(path).split())[-500:]  # a message is one line


def _parsed(path: str, content: str) -> object:
    if any(row.count(".") > MOST_DOTS for row in content.split("\n")):
        raise ValueError(f"{shown_path(path)} cannot be read: it is nested too deeply")
    try:
        return json.loads(content) if path.endswith(".json") else tomllib.loads(content)
    except RecursionError:
        raise ValueError(f"{shown_path(path)} cannot be read: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{shown_path(path)} cannot be read: {error}") from None
