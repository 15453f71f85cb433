"""Hostile words stay words: through every door by which others' text comes in, to every view, hook, path and command.

Views are shown on a terminal. What may not be there: escapes and control characters, what turns a line round, what has
no width, bytes that are no text, a line that looks like ours; what may not happen: a command or a path made of words.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.harness.campaign.family import Played, Run, Scope
from tests.harness.campaign.shared_setup import Grounds
from tests.harness.campaign.text_inputs import LIVES, PLACE, SPRUNG, TOLD
from tests.harness.campaign.typed_text import CRASHED, Said, on_terminal
from tests.harness.matrix.cases import Case
from tests.harness.matrix.world import Stuck, World

from holdfast.api.queries import Queries

ESCAPED = "escaped-by-words"
FORGED = "FORGED: task completed"
# Everything that text.clean takes away, written down once more: a family that shares its mistakes would see nothing.
DRIVES = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
# kind → words; {w} is a file that only a shell would make, {p} a name that must appear nowhere on disk.
KINDS: Mapping[str, str] = {
    "escapes": "\x1b[31mred\x1b[2J\x1b[H\x1b]0;owned\x07\x1b]52;c;aGk=\x07\x1bP1$r\x1b\\ \x1b[?1049h\x1b[8mhid\x1b(0",
    "eight-bit": "\x9b31mred \x9d0;owned\x9c \x90q\x9c \x85 \x8d",
    "controls": "a\x07b\x08\x08c\x7fd\x0ee\x0ff\x1ag\x05h\x01",
    "turning": "\u202eturned\u202c \u2066isolated\u2069 \u200fmark\u061c \u202dforced",
    "no-width": "no\u200bthing\u200d\ufeff \U000e0041\U000e0042 \u00ad\u2060 \u2028line\u2029 \ufe0f\U0001f3fb",
    "lines": f"one\n{FORGED}\r{FORGED}\r\n{FORGED}\x0b{FORGED}\x0c{FORGED}\u0085{FORGED}\n\n",
    "bytes": "half \udcff\udcfe\udc80 \udc9b31m",
    "shell": "$(touch {w}) `touch {w}` ; touch {w} & touch {w} | touch {w} ' touch {w} \" $(touch${{IFS}}{w}) \\",
    "options": "--output={w} -o{w} --help --upload-pack=touch${{IFS}}{w} -x",
    "paths": "../../../../{p} /{p} ~/{p} ..\\{p} {p}/../../{p}",
    "formats": "%s%n%1$s {{0}} {{prompt}} ${{HOME}} [bold red]x[/] [@click=app.quit]y[/] </p><script>z</script> ```",
    "long": "w" * 5000 + " 日本語" * 300,
}


class HostileWords(Grounds):
    name = "hostile-words"
    about = "words with escapes, commands, options, paths through every door to every view, hook and path"
    USUAL = 12

    def __init__(self, broken: str = "") -> None:
        super().__init__(broken)
        self._number = 0

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        every = [f"{life}/{kind}" for life in LIVES for kind in KINDS]
        return random.Random(scope.start_from_head).sample(every, min(scope.amount(self.USUAL, len(every)), len(every)))

    def play(self, case: str) -> Played:
        began = time.monotonic()
        self._number += 1
        place = self._root / f"{os.getpid()}-{self._number}"
        world = World(place, self._root / "template", Case("hostile"), self._broken)
        try:
            life, kind = case.split("/")
            found = _play(world, LIVES[life], KINDS[kind])
            log = world.log.read_text(errors="replace")[-2000:] if found and world.log.exists() else ""
            return Played(case, tuple(dict.fromkeys(found)), seconds=time.monotonic() - began, log=log)
        finally:
            world.close()


def _play(world: World, life: Callable[[World, str], None], kind: str) -> list[str]:
    words = kind.replace("{w}", str(world.root / SPRUNG)).replace("{p}", ESCAPED).replace("{{", "{").replace("}}", "}")
    try:
        life(world, words)
        found = [wrong for line, said in _views(world, words) for wrong in _judged(line, said)]
    except Stuck as stuck:
        found = [f"loops: {stuck}"]
    for told in (world.log, world.root / TOLD):
        found += _judged(told.name, Said(0, told.read_bytes() if told.exists() else b"", b""))
    return found + _on_disk(world)


def _views(world: World, words: str) -> Iterator[tuple[str, Said]]:
    queries = Queries(str(world.home))
    ids = [str(row["id"]) for row in queries.tasks(everything=True)]
    lines = [*OF_ALL, *(line.replace("ID", task_id) for task_id in ids[:3] for line in OF_A_TASK)]
    env = {"NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}
    for line in lines:
        yield line, on_terminal(world, *line.split(), env=env)
    for place in world.root.glob(f"{PLACE}*"):
        yield "init", on_terminal(world, "init", cwd=place, env=env)
    for command in REFUSED:  # whoever mistypes is told so, with what was typed
        given = [word.replace("WORDS", words.replace("\0", "")) for word in command.split()]
        yield command, on_terminal(world, *given, env=env)


OF_ALL = (
    "ps --all",
    "ps --all --json",
    "events",
    "events --json",
    "alerts --all",
    "crashes",
    "stats",
    "top --once",
    "workspaces --all",
    "branches",
    "salvage list",
    "worker list",
    "schedule list",
    "workflows",
    "tracker",
    "accounts",
    "dispatch",
    "config show",
    "config check",
    "doctor",
    "sweep --dry-run",
    "purge --dry-run",
    "trust",
    "init",
)
OF_A_TASK = (
    "show ID",
    "show ID --results",
    "show ID --json",
    "why ID",
    "logs ID",
    "logs ID --json",
    "report ID",
    "diff ID",
    "diff ID --stat",
    "salvage show ID",
    "salvage show ID --patch",
)
REFUSED = (
    "show WORDS",
    "add WORDS --base WORDS",
    "add x --agent WORDS",
    "add x --label WORDS",
    "add x --workflow WORDS -- true",
    "logs WORDS",
    "salvage show WORDS",
    "schedule show WORDS",
    "worker start WORDS",
    "accounts open WORDS",
    "config get WORDS",
    "WORDS",
    "add x --after WORDS -- true",
    "ps --label WORDS",
    "add --from WORDS",
    "events --kind WORDS",
    "merge WORDS",
    "restore WORDS",
)


def _judged(line: str, said: Said) -> list[str]:
    wrong = []
    if said.code == CRASHED:
        wrong.append(f"silent: `holdfast {line}` ended by an exception: {said.text[-200:]!a}")
    for found in DRIVES.finditer(said.text):
        around = said.text[max(0, found.start() - 40) : found.end() + 20]
        wrong.append(f"leaked: `holdfast {line}` wrote {found.group()!a} to the terminal: {around!a}")
        break
    if not line.startswith("logs") and any(text.startswith(FORGED) for text in said.text.split("\n")):
        wrong.append(f"leaked: `holdfast {line}` has a line that others wrote as if it were ours")
    return wrong


def _on_disk(world: World) -> list[str]:
    """No shell read the words, and no path was made of them: but by an agent in its own tree, and by us (PLACE)."""
    obeyed = world.root / SPRUNG
    wrong = [f"leaked: the words were obeyed: {obeyed.read_text() or 'by a shell'}"] if obeyed.exists() else []
    for base, folders, files in os.walk(world.root):
        if base.startswith(str(world.home / "workspaces")) or base == str(world.repo):
            continue
        found = [name for name in (*folders, *files) if ESCAPED in name and not name.startswith(PLACE)]
        wrong += [f"leaked: a path was made of words: {base}/{name}" for name in found]
    return wrong
