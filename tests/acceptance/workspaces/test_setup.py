"""Set-up, copies and teardown of workspaces, driven from outside."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fleet import Fleet, lives, processes_of, wait_until


def configure(fleet: Fleet, text: str) -> None:
    """In the user's own file: what stands there needs no trust."""
    path = Path(fleet.env["HOME"]) / ".config" / "holdfast" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_workspace_is_furnished_before_its_agent_and_torn_down_after_it(fleet: Fleet) -> None:
    """R-TREE-13: files that git does not carry come along, nothing tracked is overwritten, no link is followed, nothing
    that was brought is published; set-up runs once per workspace, in order; a failing teardown changes nothing."""
    outside = fleet.root / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    for name, text in (("src/.env", "KEY=1"), ("src/app.py", "changed"), ("local/deep/x.conf", "x"), ("skip.me", "")):
        (fleet.repo / name).parent.mkdir(parents=True, exist_ok=True)
        (fleet.repo / name).write_text(text)
    (fleet.repo / ".env.link").symlink_to(outside / "secret")
    (fleet.repo / "away").symlink_to(outside)
    (fleet.repo / "src" / ".env").chmod(0o640)
    (fleet.repo / "local" / os.fsdecode(b"odd\xff")).touch()
    told = fleet.root / "told"
    configure(
        fleet,
        f"""[workspace]
copy = ["**/.env", "src/*.py", "local", ".env.link", "away/secret"]
setup = [
    "echo one >> {told}; (setsid sleep 1000 &)",
    "echo two $HOLDFAST_TASK_ID $HOLDFAST_CHECKOUT >> {told}; pwd >> {told}",
]
teardown = ["cat result >> {told}; echo broken; exit 3", "echo end >> {told}"]
""",
    )
    script = "cat src/.env local/deep/x.conf src/app.py; ls -A; pwd; touch result"
    task = fleet.add("use it", command=("sh", "-c", script))
    broken = fleet.add("fail", command=("sh", "-c", "echo made >> result; exit 1"))
    fleet.up("--agents", 1)
    shown = fleet.wait_state(task, "completed")
    fleet.wait_state(broken, "failed")
    fleet.wait_clean()
    output = fleet.cli("logs", task).stdout
    assert "KEY=1" in output
    assert "print('hello')" in output  # what the branch has stays as it is
    assert ".env.link" not in output
    assert "away" not in output
    lines = told.read_text().splitlines()
    workspace = shown["workspace"]["path"]
    assert lines[:3] == ["one", f"two {task} {fleet.repo.resolve()}", workspace]
    assert lines[3:] == ["end", "one", f"two {broken} {fleet.repo.resolve()}", lines[6], "made", "end"]
    assert shown["outcome"] == "completed"
    files = fleet.git("ls-tree", "-r", "--name-only", f"holdfast/{task}").split()
    assert files == ["README.md", "result", "src/app.py"]  # what we brought is not the agent's work
    events = {event["kind"]: event for event in fleet.events(task)}
    furnished = events["workspace.furnished"]["data"]
    assert furnished["copied"] == ["local/deep/x.conf", "local/odd�", "src/.env"]
    assert list(furnished["left"]) == [".env.link"]
    warning = events["workspace.teardown-failed"]
    assert warning["level"] == "warning"
    log = Path(warning["reason"].split("its output: ")[1].removesuffix("."))
    assert "broken" in log.read_text()
    assert not [command for command in processes_of(fleet.root).values() if "sleep 1000" in command]


def test_a_set_up_that_fails_hangs_or_is_interrupted(fleet: Fleet) -> None:
    """R-TREE-05: a failing set-up is a launch error that shows the end of its output; no agent runs. One that hangs is
    ended with all it started: by its deadline, by a cancel, by the next supervisor. The workspace goes in every case,
    and one whose set-up was interrupted by a crash is made again."""
    pids, set_up, ran = (fleet.root / name for name in ("pids", "set-up", "ran"))
    configure(fleet, "[workspace]\nsetup = ['echo fine; touch begun', 'sh \"$HOLDFAST_CHECKOUT/../set-up\"']\n")
    agent = ("sh", "-c", f"echo ran >> {ran}")
    hang = f"(setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' &) ; echo $$ >> {pids}; exec sleep 1000"

    def hanging() -> list[int]:
        return [int(pid) for pid in pids.read_text().split()]

    pids.touch()

    set_up.write_text("echo the cause >&2; exit 7")
    task = fleet.add("x", command=agent)
    supervisor = fleet.up("--agents", 1)
    failed = fleet.wait_state(task, "failed")
    assert failed["outcome"] == "launch_error"
    assert "ended with exit code 7. The end of its output: the cause — the whole output: " in failed["reason"]
    log = Path(failed["reason"].split("the whole output: ")[1].split(". Fix")[0])
    assert log.read_text().splitlines() == [
        "$ echo fine; touch begun",
        "fine",
        '$ sh "$HOLDFAST_CHECKOUT/../set-up"',
        "the cause",
        "(ended with exit code 7)",
    ]

    set_up.write_text(hang)
    late = fleet.add("y", command=agent, env={"HOLDFAST_WORKSPACE_SETUP_TIMEOUT": "1s"})
    assert "took longer than 1s and was ended" in fleet.wait_state(late, "failed")["reason"]
    assert not any(map(lives, hanging()))
    pids.write_text("")

    unwanted = fleet.add("z", command=agent)
    wait_until(lambda: len(hanging()) == 2, "the set-up hangs")
    fleet.cli("cancel", unwanted)
    assert fleet.wait_state(unwanted, "cancelled")["runs"] == []
    assert not any(map(lives, hanging()))
    pids.write_text("")

    crashed = fleet.add("w", command=agent)
    wait_until(lambda: len(hanging()) == 2, "the set-up hangs")
    fleet.kill_supervisor(supervisor)
    set_up.write_text("[ -e begun ] && [ ! -e half ] && touch half")
    assert any(map(lives, hanging()))
    fleet.up("--idle-exit", "0s").wait()
    assert fleet.show(crashed)["state"] == "completed"
    assert not any(map(lives, hanging()))
    assert ran.read_text() == "ran\n"
    assert fleet.worktrees() == []
    assert [str(item) for item in (fleet.home / "workspaces").rglob("*") if item.name != ".trash"] == []


def test_set_up_commands_of_a_repository_need_trust(fleet: Fleet) -> None:
    """ADR 0010: a clone's file could run commands; nothing is queued until somebody has looked at them."""
    (fleet.repo / "holdfast.toml").write_text('[workspace]\nsetup = ["touch owned"]\n')
    refused = fleet.cli("add", "x", "--", "true", code=None)
    assert refused.returncode != 0
    assert "workspace.setup" in refused.stderr
    fleet.cli("trust", "--yes")
    fleet.add("x", command=("true",))
