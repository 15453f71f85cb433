"""A git configuration file: how it is read and written, and which of its keys we put in force.

The lists name what is allowed. A key that git invents tomorrow is not in them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

Setting = tuple[str, str]

# Keys that a repository's own configuration may set: the format of its files, how content is stored, who commits, and
# where remotes are. No value of these is ever run.
_FROM_REPOSITORY = (
    r"core\.(repositoryformatversion|bare|filemode|symlinks|ignorecase|precomposeunicode|protecthfs|protectntfs|"
    r"autocrlf|eol|safecrlf|checkroundtripencoding|trustctime|checkstat|sharedrepository|sparsecheckout|"
    r"sparsecheckoutcone|logallrefupdates|abbrev)|index\.sparse|i18n\.commitencoding|"
    r"extensions\.(objectformat|compatobjectformat|refstorage|partialclone|preciousobjects|noop|relativeworktrees)|"
    r"(user|author|committer)\.(name|email)|user\.useconfigonly|"
    r"remote\..+\.(url|pushurl|fetch|promisor|partialclonefilter|gh-resolved)|"
    r"branch\..+\.(remote|merge|pushremote)|submodule\..+\.url|"
    r"merge\.(verifysignatures|renames|renamelimit|directoryrenames)|diff\.(renames|renamelimit|algorithm)|"
    r"receive\.(denycurrentbranch|denynonfastforwards|denydeletes)|"
    r"uploadpack\.(allowfilter|allowanysha1inwant|allowreachablesha1inwant|allowtipsha1inwant)"
)
FROM_REPOSITORY = re.compile(_FROM_REPOSITORY, re.DOTALL)
# Keys that the user's own configuration may set in every call.
FROM_USER = re.compile(_FROM_REPOSITORY + r"|safe\.directory|core\.(excludesfile|attributesfile)", re.DOTALL)
# Keys that it may set where a checkout, a commit or a merge needs them: commands that the user chose, and addresses.
COMMANDS_FROM_USER = re.compile(
    r"filter\..+\.(clean|smudge|process|required)|merge\..+\.(driver|name|recursive)|core\.sshcommand|ssh\.variant|gpg\..+|"
    r"url\..+\.(insteadof|pushinsteadof)|http\.(sslverify|sslcainfo|sslcapath|proxy)",
    re.DOTALL,
)
# Values that these keys may have: git 2.55 takes an address as a storage of refs.
_WORDS = {
    "extensions.refstorage": ("files", "reftable"),
    "extensions.objectformat": ("sha1", "sha256"),
    "extensions.compatobjectformat": ("sha1", "sha256"),
}
# Keys whose value git runs, reads further settings from, or takes another address from. Their names end alike, so a
# key that a later git invents is likely to be among them.
_RUNS_COMMANDS = re.compile(
    r"(alias|pager|include|includeif|protocol|url|hook|sendemail)\..+|"
    r".+(command|cmd|program|helper|editor|textconv|external|driver|clean|smudge|process|browser|httpd|askpass|proxy|"
    r"fsmonitor|hook|hookspath|templatedir|difffilter|uploadpack|receivepack|vcs|tunnel|transferagent)|"
    r".+\.(path|update)",
    re.DOTALL,
)
_RUNS_NOTHING = frozenset(
    ["", "true", "false", "yes", "no", "on", "off", "0", "1", "checkout", "merge", "rebase", "none"]
)
_FILE_KEYS = frozenset(["core.excludesfile", "core.attributesfile"])


def allow(settings: Iterable[Setting], allowed: re.Pattern[str] = FROM_REPOSITORY) -> list[Setting]:
    """Return the settings whose key is allowed. A setting that should name a file is left out if it names something
    else than a plain file."""
    return [(key, value) for key, value in settings if allowed.fullmatch(key) and _is_plain(key, value)]


def list_commands(settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings that make git run a command, include a file or use another address."""
    return [
        (key, value) for key, value in settings if _RUNS_COMMANDS.fullmatch(key) and value.lower() not in _RUNS_NOTHING
    ]


def _is_plain(key: str, value: str) -> bool:
    if key in _FILE_KEYS:
        return os.path.isfile(os.path.expanduser(value))
    return key not in _WORDS or value.lower() in _WORDS[key]


_HEADER = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}


def parse_config(text: str) -> list[Setting]:
    """Return (key, value) of a configuration file. Includes are not followed. What git would refuse is left out.

    A mistake here cannot run anything: only keys of the allow-list are written to the view.
    """
    found: list[Setting] = []
    section, at = "", 0
    text = text.removeprefix("\ufeff")
    while at < len(text):
        char = text[at]
        if char in " \t\r\n":
            at += 1
        elif char in "#;":
            at = _end_of_line(text, at)
        elif char == "[" and (header := _HEADER.match(text, at)):
            section = header[1].lower()
            if header[2] is not None:
                section += "." + re.sub(r"\\(.)", r"\1", header[2])
            at = header.end()
        elif (key := _NAME.match(text, at)) and section:
            value, at = _parse_value(text, key.end())
            found.append((f"{section}.{key[0].lower()}", value))
        else:
            at = _end_of_line(text, at)
    return found


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _parse_value(text: str, at: int) -> tuple[str, int]:
    """Return the value that follows a name, and the position after it. A name alone means `true`."""
    while at < len(text) and text[at] in " \t":
        at += 1
    if at >= len(text) or text[at] != "=":
        return "true", _end_of_line(text, at)
    at += 1
    value, kept, quoted = "", 0, False  # `kept`: the length without unquoted blanks at the end
    while at < len(text) and text[at] != "\n":
        char = text[at]
        at += 1
        if char == '"':
            quoted = not quoted
            kept = len(value)
        elif char == "\\":
            following = text[at : at + 1]
            at += 1
            if following not in ("\n", "\r"):
                value += _ESCAPED.get(following, "")
                kept = len(value)
            elif following == "\r":
                at += 1
        elif not quoted and char in "#;":
            return value[:kept], _end_of_line(text, at)
        elif quoted or char not in " \t\r":
            value += char
            kept = len(value)
        elif value:
            value += char
    return value[:kept], at


def render_config(settings: Iterable[Setting]) -> str:
    """Return the text of a configuration file. A key that cannot be written is left out."""
    lines = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        below, _, name = rest.rpartition(".")
        if "\n" in key or "\0" in key + value:
            continue
        head = f"[{section} {_quote(below)}]" if below else f"[{section}]"
        lines.append(f"{head}\n\t{name} = {_quote(value)}\n")
    return "".join(lines)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\b", "\\b") + '"'
