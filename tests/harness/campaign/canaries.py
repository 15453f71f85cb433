"""Secrets that get out: one is planted in every place that a secret can come from, an agent or a tool tells it, and
then every file of the home and everything that is shown is searched for it.

A case is SOURCE/LIFE/DISGUISE: whose value is told, on which way it could get into the store, and how it is written.
What agents and tools print is kept raw in logs of its own, which only their owner can read (docs/security.md): those
are not searched, but looked at first, since a secret that nobody told shows nothing.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import quote

from tests.harness.campaign.family import Played, Run, Scope
from tests.harness.campaign.plant_repo import Plants, environments, raw_words, search
from tests.harness.campaign.shared_setup import Grounds
from tests.harness.matrix.cases import Case
from tests.harness.matrix.steps import RAN, write
from tests.harness.matrix.world import Stuck, World

from holdfast.api.commands import Commands, NewTask
from holdfast.api.home.backup import make_backup
from holdfast.checker import violations
from holdfast.core.workflows.draft import AgentChoice, StageDraft, WorkflowDraft

PROMPT = "tell it"
HOOK = 'cat > "$WORLD/hook-got"; env > "$WORLD/hook-saw"; cat "$WORLD/told" >&2; exit 1'


def _report(kind: str) -> str:
    line = f'{{"token":"\'"$HOLDFAST_RUN_TOKEN"\'","report":"{kind}","message":\'"$(cat $WORLD/quoted)"\'}}'
    return f"""printf '%s\\n' '{line}' >> "$HOLDFAST_CHANNEL/reports"\n"""


# Plays Claude Code: its first conversation grows too long, and the next one is told of it.
CLAUDE = """\
#!/bin/sh
cat > /dev/null
say() { printf '%s\\n' "$1"; }
say '{"type":"system","subtype":"init","session_id":"s","model":"m","tools":[]}'
say '{"type":"assistant","session_id":"s","message":{"content":[{"type":"text","text":'"$(cat $WORLD/quoted)"'}]}}'
if [ -e $WORLD/cli-error ]; then
    say '{"type":"result","subtype":"success","is_error":true,"session_id":"s","result":'"$(cat $WORLD/quoted)"'}'
    exit 1
elif [ -e $WORLD/once ]; then
    say '{"type":"result","subtype":"success","is_error":false,"session_id":"s","result":"done"}'
else
    touch $WORLD/once
    say '{"type":"result","subtype":"success","is_error":true,"session_id":"s","terminal_reason":"prompt_too_long"}'
    exit 1
fi
"""
SAW = 'env > "$WORLD/agent-saw"\n'
TELL, TELL_ERRORS = "cat $WORLD/told\n", "cat $WORLD/told >&2\n"
SUBTASK = 'sh $WORLD/holdfast add "do $(cat $WORLD/told)" --workspace directory -- true > /dev/null 2>&1\n'
LIVES: dict[str, str] = {  # what the agent's shell does; the others are in _add
    "success": TELL + TELL_ERRORS,
    "failure": TELL + TELL_ERRORS + "exit 3\n",
    "crash": TELL + TELL_ERRORS + "kill -SEGV $$\n",
    "progress": TELL + _report("progress"),
    "complete": TELL + _report("complete"),
    "fail": TELL + _report("fail") + "exit 1\n",
    "checkpoint": TELL + _report("checkpoint") + write("kept.txt", "kept"),
    "subtask": TELL + SUBTASK,
    "setup": TELL,
    "gate": TELL,
    "review": TELL + "echo VERDICT: changes\n",
    "file-name": TELL + ': > "made-$(tr -dc A-Za-z0-9_.- < $WORLD/told | head -c 99)"\nexit 1\n',
    "commit": TELL + "echo 1 > made; git add made; git commit -qF $WORLD/told\n",
    "hand-over": "",
    "cli-error": "",
}
OF_CLAUDE = ("hand-over", "cli-error")
DISGUISES: dict[str, Callable[[str], str]] = {
    "plain": lambda value: value,
    "sentence": lambda value: f"The key {value}, which was refused, is wrong.",
    "json": json.dumps,
    "base64": lambda value: base64.b64encode(f"tess:{value}".encode()).decode(),
    "address": lambda value: f"https://127.0.0.1:9/x?key={quote(value, safe='')}&y=1",
    "coloured": lambda value: f"key={value[:7]}\x1b[01;31m\x1b[K{value[7:]}\x1b[m\x1b[K refused",
    "long": lambda value: f"{value} " + "many words follow this, so that whoever keeps only an end cuts it " * 600,
}
SHAPES = ("github", "jwt", "key-block", "address")  # known by their shape: only as they are


class Canaries(Grounds):
    name = "canaries"
    about = "a secret planted in every place and told in every way is in no file, event, view or notice"
    USUAL = 24

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        every = [
            f"{source}/{life}/{disguise}"
            for source in Plants("").values
            for life in LIVES
            for disguise in DISGUISES
            if _makes_sense(source, life, disguise)
        ]
        chance = random.Random(scope.start_from_head)
        chance.shuffle(every)
        return every[: scope.amount(self.USUAL, len(every))]

    def play(self, case: str) -> Played:
        source, life, disguise = case.split("/")
        began = time.monotonic()
        world = World(
            self._root / f"canary-{os.getpid()}-{time.monotonic_ns()}",
            self._root / "template",
            Case(self.name),
            self._broken,
        )
        plants = Plants(case)
        told = DISGUISES[disguise](plants.values[source])
        (world.root / "told").write_text(told)
        (world.root / "quoted").write_text(json.dumps(told[:2000]))
        _configure(world, plants, life, source)
        missed = ""
        try:
            with _environment(plants.environment()):
                found = list(_live(world, life))
                raw = raw_words(world)
                if told.strip()[:200] not in raw and json.dumps(told.strip()[:200])[1:-1] not in raw:
                    missed = "nobody told it"
                found += search(world, plants)
            found += environments(world, plants)
        except Stuck as stuck:
            found = [f"loops: {stuck}"]
        finally:
            log = world.log.read_text(errors="replace")[-3000:] if world.log.exists() else ""
            world.close()
        return Played(
            case, tuple(dict.fromkeys(found)), missed, seconds=time.monotonic() - began, log=log if found else ""
        )


def _makes_sense(source: str, life: str, disguise: str) -> bool:
    """Shapes are known as they are. An agent's own command knows what the agent has, and what it can read of the
    supervisor's environment: not that of a supervisor that was forked, as here."""
    if life == "file-name":  # of letters that a name can have
        return disguise == "plain" and source not in ("key-block", "address", "env.pass")
    if life == "subtask" and source not in (*SHAPES, "env.set", "env.pass", "proxy"):
        return False
    return source not in SHAPES or disguise in ("plain", "sentence", "long")


def _configure(world: World, plants: Plants, life: str, source: str) -> None:
    (world.root / "claude").write_text(CLAUDE)
    (world.root / "claude").chmod(0o700)
    (world.root / "holdfast").write_text(f'exec {shlex.join(world.mutation.command)} "$@"\n')
    for name in ("account", "notify.secret"):
        (world.root / name).write_text(plants.values[name] + "\n")
    webhook = 'webhook = "env:HOOK_ADDRESS"\n' if source == "notify.webhook" else ""
    setup = '[workspace]\nsetup = ["cat $WORLD/told; exit 1"]\n' if life == "setup" else ""
    world.configure(
        f'env.pass = ["PASSED_SECRET", "WITNESS", "WORLD", "PYTHONPATH"]\n'
        f"env.set = {{ DEPLOY_TOKEN = {json.dumps(plants.values['env.set'])} }}\n"
        f"[crash]\nmax_in_window = 1\n"
        f'[notify]\nattempts = 1\ncommand = ["sh", "-c", {json.dumps(HOOK)}]\n'
        f'secret = "file:{world.root}/notify.secret"\n{webhook}'
        f'[claude]\nbinary = "{world.root}/claude"\n'
        f'[accounts.claude.work]\nenv.ANTHROPIC_AUTH_TOKEN = "file:{world.root}/account"\n{setup}'
    )


@contextlib.contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """Of every process that is forked meanwhile."""
    kept = {name: os.environ.get(name) for name in (*more, "HOLDFAST_ENV_PASS")}
    os.environ.update(more)
    os.environ.pop("HOLDFAST_ENV_PASS", None)  # the file says it
    try:
        yield
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _live(world: World, life: str) -> Iterator[str]:
    """Add it, let it live, look at it in every way that there is."""
    world.client("add", lambda: _add(world, life))
    world.up("up")
    if not world.acknowledged():
        yield "lost: the task was never added"
        return
    task = world.acknowledged()[0]
    world.client("views", lambda: _show(world, _views(task)))
    world.client(
        "backup", lambda: make_backup(str(world.home), str(world.root / "backup.tar"), store_only=False, force=True)
    )
    yield from (str(found) for found in violations(str(world.home), at_rest=True, witness=str(world.witness)))


def _views(task: str) -> list[list[str]]:
    of_task = [
        ["logs", task],
        ["logs", task, "--err"],
        ["logs", task, "--json"],
        ["show", task],
        ["show", task, "--json"],
    ]
    of_task += [
        ["show", task, "--prompt"],
        ["why", task],
        ["report", task],
        ["events", "--json"],
        ["crashes", "--json"],
    ]
    return [*of_task, ["alerts", "--all", "--json"], ["ps", "--all"], ["stats"], ["top", "--once"], ["salvage", "list"]]


def _show(world: World, views: Sequence[Sequence[str]]) -> None:
    from holdfast.cli.main import run

    fd = os.open(world.root / "shown", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    for words in views:
        run(list(words))


def _add(world: World, life: str) -> None:
    where, script = str(world.repo), RAN + SAW + LIVES[life]
    new = NewTask(prompt=PROMPT, directory=where, command=("sh", "-c", script))
    if life in ("gate", "review"):
        work = StageDraft(name="build", chosen=AgentChoice(command=("sh", "-c", script)))
        stages: tuple[StageDraft, ...]
        if life == "gate":
            stages = (StageDraft(name="build", chosen=work.chosen, gate="cat $WORLD/told; exit 1", retry=1),)
        else:
            stages = (work, StageDraft(name="review", chosen=work.chosen, reviews=True, back_to="build", max_turns=1))
        new = NewTask(prompt=PROMPT, directory=where, workflow=WorkflowDraft(name="canary", stages=stages))
    if life in OF_CLAUDE:
        (world.root / life).touch()
        new = NewTask(prompt=PROMPT, directory=where, agent="claude", account="work", permission="edit")
    world.acknowledge(Commands(str(world.home)).add(new).id)
