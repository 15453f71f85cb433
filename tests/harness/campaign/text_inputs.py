"""The doors by which others' words come in: what a person types, what an agent does and says, settings, trackers.

Each life takes the words through some of them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.harness import tracker_stand_in
from tests.harness.matrix.steps import RAN
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask
from holdfast.base.text import is_misleading

_HOOK = 'cat >> "$WORLD/told"; printf "%s\n" "$HOLDFAST_ALERT_MESSAGE" >> "$WORLD/told-in-words"'


def by_tasks(world: World, words: str) -> None:
    """Prompts, labels, bases, names of files, messages of commits, output, reports, last words on standard error."""
    _put_at_hostile_path(world, words)
    _tell_people(world, "[crash]\nmax_in_window = 1\n")
    base = _branch(world, words)
    (world.root / "words").write_bytes(words.encode(errors="surrogateescape"))
    name = shlex.quote(_as_file(words))
    script = (
        'w=$(cat "$WORLD/words"); printf "%s\\n" "$w"; printf "%s\\n" "$w" >&2\n'
        f"printf '%s' \"$w\" > {name} 2>/dev/null; printf '%s' \"$w\" > text.txt; git add -A\n"
        'git -c user.name="$w" -c user.email=a@localhost commit -qm "$w"; printf "%s" "$w" >> README.md\n'
    )
    report = f'{shlex.join(world.mutation.command)} agent progress "$w"\n'
    _add(world, words, f"{script}{report}", base=base)
    _add(world, words, f'{script}printf "%s" "$w" >&2; exit 1', base=base)
    _add(world, words, f'{script}printf "%s" "$w" >&2; kill -9 $$', base=base)  # people are told of its last words
    world.up("up")


def by_streams(world: World, words: str) -> None:
    """What a CLI prints: its session's id, its model, its tools and their targets, texts, errors; and it is continued
    with the id that it told."""
    _tell_people(world, f'agent = "claude"\nclaude.binary = {json.dumps(str(_fake_claude(world, words)))}\n')

    def work() -> None:
        for prompt in ("stream", words):
            Commands(str(world.home)).add(NewTask(prompt=_text(prompt), directory=str(world.repo), agent="claude"))

    world.client("add", work)
    world.up("up")
    _refuse_options(world)


def by_names(world: World, words: str) -> None:
    """Names in the user's settings, in a repository's, and in a tracker: titles, ids, labels of issues."""
    name = _text(words)
    folder = world.repo / ".beads"
    folder.mkdir()
    (folder / ".gitignore").write_text("*\n")
    issues = [
        {"id": "w-1", "title": name, "description": name, "status": "open", "priority": 1, "issue_type": "task"},
        {"id": f"w-{name[:40]}", "title": "an id", "status": "open", "priority": 2, "issue_type": "task"},
    ]
    (folder / "standin.json").write_text(json.dumps({"issues": issues, "how": {}}))
    tool = [sys.executable, "-I", "-S", str(Path(tracker_stand_in.__file__))]
    command = ["sh", "-c", RAN + "cat > prompt.txt; cat prompt.txt; exit 1"]
    wanted = f'agent = "command"\n[command]\nargv = {json.dumps(command)}\n'
    wanted += f'[tracker]\nkind = "beads"\npoll = "50ms"\ncommand = {json.dumps(tool)}\n'
    _tell_people(world, wanted)
    toml = json.dumps(name, ensure_ascii=True)
    tables = [
        f'[[schedule]]\nname = {toml}\nprompt = {toml}\ncron = "0 0 1 1 *"',
        f"[workflow.{toml}]\n[[workflow.{toml}.stage]]\nname = {toml}\nprompt = {toml}",
        f"[env]\nset = {{ {toml} = {toml} }}\n{toml} = 1",
    ]
    (world.repo / "holdfast.toml").write_text("\n".join([*tables, ""]))
    world.client("init", lambda: Commands(str(world.home)).register(str(world.repo)))
    world.up("up")


TOLD = "told-in-words"  # what whoever is told of alerts got in a variable
SPRUNG = "sprung-by-words"  # a file that only words which are obeyed make
PLACE = "place-"  # how directories begin that have a name of words
LIVES: Mapping[str, Callable[[World, str], None]] = {"tasks": by_tasks, "streams": by_streams, "names": by_names}


def _add(world: World, words: str, script: str, base: str | None) -> None:
    """Refused is well, too: what cannot be stored is not let in."""
    text = _text(words)
    new = NewTask(
        prompt=text,
        directory=str(world.repo),
        command=("sh", "-c", RAN + script, text),
        labels={"by": text},
        base=base,
        preserve_on_failure=True,
    )
    if not world.client("add", lambda: Commands(str(world.home)).add(new)):
        world.client(
            "add",
            lambda: Commands(str(world.home)).add(
                NewTask(prompt="plain", directory=str(world.repo), command=("sh", "-c", RAN + script))
            ),
        )


def _text(words: str) -> str:
    """As it can be typed and stored: bytes that are no text are refused at the front door."""
    return words.encode(errors="replace").decode()


def _as_file(words: str) -> str:
    return (
        words.replace("/", "|")
        .replace("\0", "")
        .encode(errors="surrogateescape")[:200]
        .decode(errors="surrogateescape")
        or "x"
    )


def _put_at_hostile_path(world: World, words: str) -> None:
    """The repository's own directory has such a name; one that is refused (it misleads) stands beside it."""
    place = world.root / (PLACE + _text(_as_file(words))[:60])
    if is_misleading(str(place)):
        shutil.copytree(world.repo, place)
        return
    os.rename(world.repo, place)
    world.repo = place


def _branch(world: World, words: str) -> str | None:
    """A branch with as much of the words as git takes in a name."""
    wanted = "".join(
        letter for letter in _text(words) if letter not in " ~^:?*[\\@{." and ord(letter) > 32 and letter != "\x7f"
    )
    name = f"-{wanted[:60]}".rstrip("/").replace("//", "/")
    done = subprocess.run(
        ["git", "update-ref", f"refs/heads/{name}", "HEAD"], cwd=world.repo, check=False, capture_output=True
    )
    return name if done.returncode == 0 else None


def _tell_people(world: World, more: str = "") -> None:
    """Whoever is told of alerts gets the words too: as JSON and as variables, to a shell that only keeps them."""
    world.configure(f"{more}[notify]\ncommand = {json.dumps(['sh', '-c', _HOOK])}\n")


def _fake_claude(world: World, words: str) -> Path:
    """First it works and dies, then it is continued and fails, with the words in every field."""
    name = _text(words)
    common = {"session_id": name, "uuid": name}
    lines: list[dict[str, object]] = [
        {"type": "system", "subtype": "init", "cwd": name, "model": name, "tools": [name], **common},
        {"type": "assistant", "message": {"id": name, "model": name, "role": "assistant", "content": [
            {"type": "text", "text": name},
            {"type": "tool_use", "id": "t1", "name": name, "input": {"file_path": name, name: name}},
        ]}, **common},
        {"type": "user", "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": name},
        ]}, **common},
    ]  # fmt: skip
    ending = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "result": name,
        "errors": [name],
        **common,
    }
    folder = world.root / "cli"
    folder.mkdir()
    (folder / "lines").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "ending").write_text(f"{json.dumps(ending)}\n")
    (folder / "words").write_bytes(words.encode(errors="surrogateescape"))
    program = folder / "claude"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in --version) echo "2.0.0 (Claude Code)"; exit 0;; esac\n'
        f'for word in "$@"; do printf "%s\\n" "$word" >> {folder}/argv; done\n'
        f"cat > /dev/null; cat {folder}/lines; cat {folder}/words >&2\n"
        f"[ -e {folder}/once ] || {{ : > {folder}/once; kill -9 $$; }}\n"
        f"cat {folder}/ending; exit 1\n"
    )
    program.chmod(0o755)
    return program


def _refuse_options(world: World) -> None:
    """Kept for the judge: an option that nobody but the words could have given."""
    argv = world.root / "cli" / "argv"
    given = argv.read_text(errors="replace").split("\n") if argv.exists() else []
    if any(word.startswith(("--output=", "--upload-pack=", "-x")) for word in given):
        (world.root / SPRUNG).write_text("an option of the CLI was made of them")
