"""Secrets and modes, from outside: canaries in every place, and who can find them afterwards. The campaign's family
`canaries` has the many ways; here are real processes with environments of their own."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from tests.fleet import Fleet, processes_of, wait_until
from tests.receivers import WebReceiver, web_receiver

OWN, PASSED, HELD, HOOK, SIGNING = (  # this run's own: another one may have its words on command lines right now
    f"cAnary-0f-{word}-7q2Xv{os.getpid()}" for word in ("own", "passed", "held", "hook", "signing")
)
ALL = (OWN, PASSED, HELD, HOOK, SIGNING)
RAW = ("out.log", "err.log")


def configure(fleet: Fleet, receiver: WebReceiver) -> dict[str, str]:
    """The user's file, for everybody; and the environment that only the supervisor has."""
    (fleet.root / "signing").write_text(SIGNING)
    settings = fleet.root / "config.toml"
    settings.write_text(
        f'env.pass = ["PASSED_TOKEN"]\nenv.set = {{ HELD_TOKEN = "{HELD}", COLOUR = "blue" }}\n'
        f'[crash]\nmax_in_window = 1\n[notify]\nwebhook = "env:HOOK"\nsecret = "file:{fleet.root}/signing"\n'
    )
    fleet.env["HOLDFAST_CONFIG"] = str(settings)
    hook = f"http://127.0.0.1:{receiver.port}/hook/{HOOK}"
    return {"OWN_API_KEY": OWN, "PASSED_TOKEN": PASSED, "HOOK": hook, "UV_PUBLISH_TOKEN": OWN}


def found_in(fleet: Fleet) -> list[str]:
    """Files of the home with a canary in them, but for the raw logs."""
    found = os.walk(fleet.home)  # unlike rglob it does not mind what goes meanwhile
    files = [Path(folder, name) for folder, _folders, names in found for name in names if name not in RAW]
    plain = [path for path in files if path.is_file()]  # a pipe would be waited for
    return [f"{word} in {path}" for path in plain for word in ALL if word.encode() in _read(path)]


def test_no_secret_is_kept_shown_or_sent(fleet: Fleet) -> None:
    """An agent tells all that it knows and dies: not the store, nor its backups, the log, a view, a notice, an argument
    list or another agent's environment has it. The raw logs do, and only `--raw` shows them."""
    with web_receiver() as receiver:
        secret = configure(fleet, receiver)
        (fleet.root / "known").write_text(" ".join(ALL))
        tell = f"env; cat {fleet.root}/known; cat {fleet.root}/known >&2; "
        subtask = f'{sys.executable} -m holdfast add "do $(cat {fleet.root}/known)" --workspace directory -- true; '
        crashes = fleet.add("crash", command=("sh", "-c", tell + subtask + "kill -SEGV $$"))
        waits = fleet.add("wait", command=("sh", "-c", tell + f"touch {fleet.root}/waits; exec sleep 1000"))
        fleet.up("--agents", 2, env=secret)
        fleet.wait_state(crashes, "failed")
        wait_until((fleet.root / "waits").exists, "the other agent has told it")
        wait_until(lambda: receiver.received, "people are told of the crash")

        run = fleet.show(crashes)["runs"][-1]["id"]
        raw = (fleet.home / "runs" / run / "out.log").read_text()
        assert PASSED in raw
        assert f"HELD_TOKEN={HELD}" in raw, "its agent was given it"
        assert f"OWN_API_KEY={OWN}" not in raw
        assert f"UV_PUBLISH_TOKEN={OWN}" not in raw
        fleet.cli("backup")
        shown = [
            ("logs", crashes),
            ("logs", crashes, "--err"),
            ("logs", crashes, "--json"),
            ("show", crashes),
            ("why", waits),
        ]
        shown += [
            ("logs", waits),
            ("events", "--json"),
            ("alerts", "--json"),
            ("crashes", "--json"),
            ("report", crashes),
        ]
        for words in shown:
            said = fleet.cli(*words)
            assert [word for word in ALL if word in said.stdout + said.stderr] == [], words
        assert "[redacted: PASSED_TOKEN]" in fleet.cli("logs", crashes).stdout, "its name says which it was"
        assert raw in fleet.cli("logs", crashes, "--raw").stdout
        [asked] = [row["prompt"] for row in fleet._queries().tasks(everything=True) if row["prompt"].startswith("do ")]
        assert asked.count("[redacted: ") == len(ALL), "its command knows what the supervisor knows"
        assert [word for word in ALL for got in receiver.received if word.encode() in got.body] == []

        everybody = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        lists = [_read(entry / "cmdline") for entry in everybody]
        assert not any(word.encode() in line for line in lists for word in ALL), "on a command line"
        fleet.cli("cancel", waits)
        fleet.wait_state(waits, "cancelled")
        fleet.wait_clean()
    assert found_in(fleet) == []
    assert [word for word in ALL if word in fleet.log()] == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_secret_of_env_set_comes_from_its_file_and_must_be_there(fleet: Fleet) -> None:
    """Not stored with the task: a new value is the one that counts, and none fails the launch, with the remedy."""

    def settings(name: str, text: str) -> str:
        (fleet.root / name).write_text(text)
        return str(fleet.root / name)

    kept = settings("kept.toml", f'env.set = {{ DEPLOY_TOKEN = "{OWN}" }}\n')
    emptied = settings("emptied.toml", f'env.set = {{ DEPLOY_TOKEN = "{PASSED}" }}\n')
    changed = fleet.add("x", command=("sh", "-c", "echo $DEPLOY_TOKEN > seen"), env={"HOLDFAST_CONFIG": kept})
    without = fleet.add("x", command=("true",), env={"HOLDFAST_CONFIG": emptied})
    settings("kept.toml", f'env.set = {{ DEPLOY_TOKEN = "{HELD}" }}\n')
    settings("emptied.toml", "")
    fleet.up("--agents", 2)
    fleet.wait_state(changed, "completed")
    assert fleet.file_on_branch(f"holdfast/{changed}", "seen") == HELD, "a key that was changed meanwhile"
    failed = fleet.wait_state(without, "failed")
    assert "env.set.DEPLOY_TOKEN is a secret, which is not kept with the task" in failed["reason"]
    refused = fleet.cli("add", "x", "--", "true", env={"HOLDFAST_ENV_SET": f"DEPLOY_TOKEN={OWN}"}, code=2)
    assert "Secrets are not stored with tasks" in refused.stderr
    assert OWN not in refused.stderr
    fleet.wait_clean()
    assert found_in(fleet) == []


def test_a_coloured_secret_is_not_put_together_again(fleet: Fleet) -> None:
    """Text was redacted first and cleaned later: without its escapes the whole key was shown (F5)."""
    settings = fleet.root / "config.toml"
    settings.write_text(f'env.set = {{ HELD_TOKEN = "{HELD}" }}\n')
    fleet.env["HOLDFAST_CONFIG"] = str(settings)
    half, other = HELD[:9], HELD[9:]
    ways = (f"{half}\\033[01;31m\\033[K{other}\\033[m", f"{half}\\342\\200\\213{other}", f"{half}\\000{other}")
    script = fleet.root / "script"  # not in the command, which is kept as the user wrote it
    script.write_text("\n".join(f"printf '{way}\\n' >&2" for way in ways) + "\nexit 1\n")
    failed = fleet.add("x", command=("sh", str(script)))
    fleet.up()
    fleet.wait_state(failed, "failed")
    fleet.cli("backup")
    for words in (("why", failed), ("show", failed), ("report", failed), ("logs", failed, "--err")):
        said = fleet.cli(*words).stdout
        assert HELD not in said, words
        assert other not in said, words
    assert "[redacted: HELD_TOKEN]" in fleet.cli("logs", failed, "--err").stdout
    fleet.wait_clean()
    (row,) = fleet.show(failed)["runs"]
    assert row["error_tail"].count("[redacted: HELD_TOKEN]") == len(ways), row["error_tail"]
    stored = [path for path in fleet.home.rglob("*") if path.is_file() and path.name not in RAW]
    assert [path for path in stored if other.encode() in _read(path)] == []


def test_a_secret_of_a_trusted_repository_is_not_shown_by_logs(fleet: Fleet) -> None:
    """Only the repository's file has it: neither the user's settings nor anybody's environment."""
    (fleet.repo / "holdfast.toml").write_text(f'env.set = {{ DEPLOY_TOKEN = "{HELD}" }}\n')
    fleet.cli("trust", "--yes")
    task = fleet.add("x", command=("sh", "-c", "echo it is $DEPLOY_TOKEN"))
    fleet.up()
    fleet.wait_state(task, "completed")
    assert fleet.cli("logs", task).stdout == "it is [redacted: DEPLOY_TOKEN]\n"


def test_a_task_waits_while_the_file_of_its_secret_is_half_written(fleet: Fleet) -> None:
    """A slip in a file of settings, while a fleet works, is no end of what was queued in good order."""
    own = fleet.root / "own.toml"
    good = f'env.set = {{ DEPLOY_TOKEN = "{HELD}" }}\n'
    own.write_text(good)
    task_id = fleet.add("x", command=("sh", "-c", "echo $DEPLOY_TOKEN > seen"), env={"HOLDFAST_CONFIG": str(own)})
    own.write_text("env.set = { DEPLOY_")
    fleet.up()
    wait_until(lambda: {"attempt.trouble", "task.failed"} & set(fleet.kinds(task_id)), "its file cannot be read")
    own.write_text(good)
    done = fleet.wait_state(task_id, "completed", "failed")
    assert (done["state"], len(done["runs"])) == ("completed", 1), "no run was begun, and lost, for it"
    assert fleet.file_on_branch(f"holdfast/{task_id}", "seen") == HELD
    fleet.wait_clean()


def test_who_takes_an_agent_over_knows_its_secrets_too(fleet: Fleet) -> None:
    """They stand in a file that only the task names: what its agent says to the next supervisor is redacted as well."""
    own = fleet.root / "own.toml"
    own.write_text(f'env.set = {{ DEPLOY_TOKEN = "{HELD}" }}\n')
    script = (
        f"touch {fleet.root}/works; until [ -e {fleet.root}/go ]; do sleep 0.05; done; echo $DEPLOY_TOKEN; "
        """printf '{"token":"%s","report":"complete","message":"with %s"}\\n' "$HOLDFAST_RUN_TOKEN" "$DEPLOY_TOKEN" """
        '>> "$HOLDFAST_CHANNEL/reports"'
    )
    task_id = fleet.add("x", command=("sh", "-c", script), env={"HOLDFAST_CONFIG": str(own)})
    first = fleet.up()
    wait_until((fleet.root / "works").exists, "its agent works")
    fleet.wait_started(task_id)
    fleet.kill_supervisor(first)
    fleet.up()
    wait_until(lambda: "task.adopted" in fleet.kinds(task_id), "it is adopted")
    (fleet.root / "go").touch()
    done = fleet.wait_state(task_id, "completed")
    assert "complete: with [redacted: DEPLOY_TOKEN]" in done["reason"]
    fleet.wait_clean()
    channel = fleet.home / "runs" / done["runs"][0]["id"] / "channel"
    assert [line for line in found_in(fleet) if str(channel) not in line] == []


def test_everything_of_ours_is_its_owners_alone_whatever_the_umask(fleet: Fleet) -> None:
    """A home that has seen success, failure, a set-up, salvage, a checkpoint, reports, a crash, a backup; umask 0."""
    old = os.umask(0)
    fleet.may_be_warm = False  # the warm server has a umask of its own
    try:
        set_up = {"HOLDFAST_WORKSPACE_SETUP": "'echo set up'"}
        fleet.add("good", command=("sh", "-c", "mkdir deep; echo 1 > deep/file"), env=set_up)
        fleet.add("bad", command=("sh", "-c", "echo 1 > left; exit 1"))
        fleet.add_scenario({"report": {"kind": "checkpoint", "message": "so far"}}, {"crash": "SIGKILL"})
        fleet.cli("up", "--detach", "--idle-exit", "0s", "--agents", 2, env={"HOLDFAST_CRASH_MAX_IN_WINDOW": "1"})
        wait_until(lambda: _have_ended(fleet) and fleet.supervisor_pid() is None, "all have ended, and the supervisor")
        wait_until(lambda: processes_of(fleet.home) == {}, "nobody opens or closes anything any more")
        fleet.cli("backup")
    finally:
        os.umask(old)
    assert list(fleet.home.rglob("*.db")), "there is something to look at"
    assert list(_open_to_others(fleet.home)) == []


def _have_ended(fleet: Fleet) -> bool:
    return all(row["state"] in ("completed", "failed") for row in fleet._queries().tasks(everything=True))


def _open_to_others(home: Path) -> list[str]:
    """But for what agents and git made inside of directories of ours."""
    theirs = {("workspaces", 3), ("shadows", 3), ("runs", 4)}
    found = []
    for path in (home, *home.rglob("*")):
        inside = path.relative_to(home).parts
        mode = path.lstat().st_mode
        behind = any(inside[:1] == (name,) and len(inside) >= depth for name, depth in theirs)
        ours = path.name.endswith(".owner.json")
        if (ours or not behind) and not stat.S_ISLNK(mode) and mode & 0o077:
            found.append(f"{stat.filemode(mode)} {'/'.join(inside)}")
    return found
