"""Canaries: where they are planted, and the search for them in everything that a case left and showed."""

from __future__ import annotations

import base64
import contextlib
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from tests.harness.matrix.world import World

RAW = ("out.log", "err.log", "reports")  # what an agent wrote
NOT_OURS = ("workspaces", "shadows")  # what agents made: it is theirs, and the user's
TOOLS_LOGS = "setup-logs"  # what set-up commands and gates printed
LEAST = 12  # letters in a row that would be a leak


class Plants:
    """The canaries of one case, by where they were planted."""

    def __init__(self, seed: str) -> None:
        chance = random.Random(seed)
        letters = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"

        def word(length: int) -> str:
            return "".join(chance.choices(letters, k=length))

        self.values = {
            "env.set": word(28),
            "env.pass": word(24) + '"\\' + word(6),
            "own": word(32),
            "proxy": word(20),
            "account": word(40),
            "notify.secret": word(24),
            "notify.webhook": word(30),
            "github": "gh" + "p_" + word(36),
            "jwt": f"ey{'J'}{word(20)}.ey{'J'}{word(24)}.{word(30)}",
            "key-block": f"-----BEGIN PRIVATE KEY-----\n{word(60)}\n{word(60)}\n-----END PRIVATE KEY-----",
            "address": f"https://tess:{word(18)}@127.0.0.1:9/x",
        }

    def environment(self) -> dict[str, str]:
        """Of the supervisor."""
        return {
            "PASSED_SECRET": self.values["env.pass"],
            "OWN_API_KEY": self.values["own"],
            "UV_PUBLISH_TOKEN": self.values["own"],
            "https_proxy": f"http://me:{self.values['proxy']}@127.0.0.1:9",
            "HOOK_ADDRESS": f"http://127.0.0.1:9/hook/{self.values['notify.webhook']}",
        }


def raw_words(world: World) -> str:
    found = [path for name in RAW for path in world.home.glob(f"runs/*/**/{name}")]
    found += (world.home / TOOLS_LOGS).glob("*")
    return "".join(path.read_text(errors="replace") for path in found)


def _pieces(plants: Plants) -> list[bytes]:
    """What must not be found: parts of every value, even as it is disguised; not the words around them."""
    words = [*plants.values.values(), *(quote(value, safe="") for value in plants.values.values())]
    secrets = [piece for value in words for piece in value.split() if "PRIVATE" not in piece and "://" not in piece]
    secrets += [plants.values["address"].split(":")[2].split("@")[0]]
    secrets += [base64.b64encode(f"tess:{value}".encode()).decode()[8:-4] for value in plants.values.values()]
    found = []
    for secret in secrets:
        if len(secret) >= LEAST and not secret.startswith("-----"):
            found += [secret[at : at + LEAST] for at in range(4, len(secret) - LEAST + 1, LEAST // 2)]
    return [piece.encode() for piece in dict.fromkeys(found) if piece.isalnum()]


def search(world: World, plants: Plants) -> Iterator[str]:
    pieces = _pieces(plants)
    for path in _searched(world):
        data = path.read_bytes()
        leaked = next((piece for piece in pieces if piece in data), None)
        if leaked is not None:
            at = data.index(leaked)
            around = data[max(0, at - 60) : at + 30].decode(errors="replace").replace("\n", " ")
            yield f"leaked: a secret is in {path.relative_to(world.root)}: …{around}…"
    yield from _open_to_others(world.home)


def _searched(world: World) -> Iterator[Path]:
    for name in ("log", "shown", "hook-got", "backup.tar"):
        if (world.root / name).exists():
            yield world.root / name
    for path in world.home.rglob("*"):
        inside = path.relative_to(world.home).parts
        raw = path.name in RAW or inside[0] in (*NOT_OURS, TOOLS_LOGS)
        if path.is_file() and not path.is_symlink() and not raw:
            yield path


def _open_to_others(home: Path) -> Iterator[str]:
    """Nobody else may read what is there, whatever it is. What agents made is behind directories of ours."""
    for path in (home, *home.rglob("*")):
        inside = path.relative_to(home).parts
        behind = len(inside) > 2 and (inside[0] in NOT_OURS or inside[2] == "channel")
        if behind and not path.name.endswith(".owner.json"):
            continue
        with contextlib.suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o077:
                yield f"leaked: {path.relative_to(home)} is open to others: {stat.filemode(mode)}"


def environments(world: World, plants: Plants) -> Iterator[str]:
    """An agent gets what it was given, and nothing else of what the supervisor has."""
    with contextlib.suppress(FileNotFoundError):
        saw = (world.root / "agent-saw").read_text(errors="replace")
        for source in ("own", "account", "notify.secret", "notify.webhook"):
            if plants.values[source] in saw:
                yield f"leaked: the agent's environment has the secret of {source}"
        for source in ("env.set", "env.pass"):
            if plants.values[source] not in saw:
                yield f"lost: the agent's environment lacks the value of {source}"
