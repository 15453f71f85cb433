"""Our own configuration for every git call: nothing that a repository or an agent writes into a config is in force.

These tests hold on any git, because they ask git itself which settings it has. `newest` is the git of
scripts/setup_git.sh, which has hooks in its configuration.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet import Fleet
from tests.harness.campaign import traps
from tests.harness.campaign.traps import Ground, make_trap, settings_of, sprung
from tests.harness.engines.newest_git import newest_git

from holdfast.base.errors import UsageError
from holdfast.workspaces.git import config_file, git, git_versions
from holdfast.workspaces.git.config_file import COMMANDS_FROM_USER, FROM_REPOSITORY, FROM_USER, parse_config
from holdfast.workspaces.git.config_view import ConfigViews, drop_stale_views, locate
from holdfast.workspaces.git.hardening import FOR_USERS, HARDENED, by_environment

WHO = ("-c", "user.name=U", "-c", "user.email=u@localhost")
# Keys that no git has yet, and one of each kind that runs something.
UNKNOWN = (
    '[future "x"]\n\tcommand = evil\n[core]\n\tnewCommand = evil\n[hook "x"]\n\tevent = pre-commit\n\tcommand = evil\n'
)
HOOKED = '[hook "e"]\n' + "".join(
    f"\tevent = {event}\n"
    for event in (
        "reference-transaction",
        "post-checkout",
        "pre-commit",
        "post-index-change",
        "post-commit",
        "pre-push",
    )
)


@pytest.fixture(params=["system", "newest"])
def any_git(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The machine's git, and the newest one."""
    if request.param == "newest":
        monkeypatch.setenv("PATH", f"{newest_git()}:{os.environ['PATH']}")
    return str(request.param)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a worktree, and a configuration with every trap that there is."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "user").mkdir()
    made = tmp_path / "repo"
    for words in (["init", "-q", "-b", "main", "."], [*WHO, "commit", "-q", "--allow-empty", "-m", "one"]):
        made.mkdir(exist_ok=True)
        subprocess.run(["git", *words], cwd=made, check=True)
    subprocess.run(["git", "worktree", "add", "-q", str(tmp_path / "tree")], cwd=made, check=True)
    (tmp_path / "user/.gitconfig").write_text(
        "[user]\n\tname = U\n\temail = u@localhost\n[alias]\n\tst = status\n[core]\n\tpager = less\n"
        '[hook "mine"]\n\tevent = pre-commit\n\tcommand = mine\n[filter "lfs"]\n\tclean = git-lfs clean\n'
    )
    ground = Ground(made / ".git", make_trap(tmp_path / "traps", tmp_path / "sprung"), tmp_path / "beside")
    with open(made / ".git/config", "a", encoding="utf-8") as file:
        file.write(settings_of(traps.TRAPS, ground) + UNKNOWN)
    return made


def in_force(line: list[str], env: dict[str, str], cwd: str) -> Iterator[tuple[str, str]]:
    """(scope, key) of every setting that git has in a call, as git itself says."""
    words = ["config", "--list", "--show-scope", "-z", "--includes"]
    done = subprocess.run([*line, *words], cwd=cwd, env=env, capture_output=True, text=True, check=True)
    listed = done.stdout.split("\0")
    return ((scope, entry.partition("\n")[0]) for scope, entry in zip(listed[::2], listed[1::2], strict=False))


OURS = frozenset(setting.partition("=")[0].lower() for setting in (*HARDENED, *FOR_USERS))


def refused_keys(found: Iterator[tuple[str, str]], *, commands: bool = False) -> list[tuple[str, str]]:
    """The settings that nobody allowed."""
    return [
        (scope, key)
        for scope, key in found
        if key not in OURS
        and not (scope in ("local", "worktree") and FROM_REPOSITORY.fullmatch(key))
        and not (scope == "global" and FROM_USER.fullmatch(key))
        and not (scope == "global" and commands and COMMANDS_FROM_USER.fullmatch(key))
    ]


def call_of(cwd: str, **env: str) -> tuple[list[str], dict[str, str], str]:
    """The beginning of a call as every call of ours has it, its environment and its directory."""
    git.view_of_sync(cwd)
    call = git.prepare_call(["config"], cwd=cwd, env=env)
    return call.line[:-1], call.env, call.cwd


def test_only_allowed_settings_are_in_force(any_git: str, repo: Path, tmp_path: Path) -> None:
    """Security F0: in a checkout, a worktree, a git directory, with GIT_DIR, in another git that reads the repository
    for a fetch, and where the user's own filters are wanted."""
    tree, common = tmp_path / "tree", repo / ".git"
    calls = {
        "checkout": call_of(str(repo)),
        "worktree": call_of(str(tree)),
        "common": call_of(str(common)),
        "git-dir": call_of(str(tmp_path), GIT_DIR=str(common)),
        "nothing": call_of(str(tmp_path)),
        "root": call_of("/"),
    }
    for name, call in calls.items():
        assert refused_keys(in_force(*call)) == [], name
    fetch = git.prepare_call(["fetch", str(common), "main"], cwd=str(tree))
    upload = next(word for word in fetch.line if word.startswith("--upload-pack="))
    other = upload.removeprefix("--upload-pack=").removesuffix("git-upload-pack")
    assert refused_keys(in_force(["sh", "-c", f'{other} git "$@"', "sh"], fetch.env, str(common))) == []
    with_filters = {**calls["checkout"][1], **git.view_of_sync(str(repo)).user_environment(commands=True)}
    found = list(in_force(["git"], with_filters, str(repo)))
    assert refused_keys(iter(found), commands=True) == []
    assert ("global", "filter.lfs.clean") in found
    own = [key for scope, key in in_force(["git"], git.users_own_environment(str(repo)), str(repo)) if scope == "local"]
    assert [key for key in own if key not in OURS and not FROM_REPOSITORY.fullmatch(key)] == [], (
        "for a push, and for gh"
    )
    assert ("command", "hook.mine.enabled") in in_force(["git"], git.users_own_environment(str(repo)), str(repo))


def test_the_test_above_can_fail(repo: Path) -> None:
    plain = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    named = {key for _scope, key in refused_keys(in_force(["git"], plain, str(repo)))}
    assert {"hook.x.command", "future.x.command", "core.newcommand", "filter.trapclean.clean", "alias.st"} <= named


def test_a_changed_configuration_counts_at_once(repo: Path) -> None:
    """What is safe in it; the rest never."""
    assert git.run_sync("config", "core.autocrlf", cwd=str(repo))[0] == 1
    subprocess.run(["git", "config", "core.autocrlf", "input"], cwd=repo, check=True)
    subprocess.run(["git", "config", "hook.late.command", "evil"], cwd=repo, check=True)
    assert git.run_sync("config", "core.autocrlf", cwd=str(repo))[1] == "input\n"
    assert git.run_sync("config", "hook.late.command", cwd=str(repo))[0] == 1


def test_refs_are_stored_where_the_repository_is(repo: Path) -> None:
    """Red team R1-10: git 2.55 takes an address as the storage of refs, and would write into another repository."""
    for value, kept in (("files:///elsewhere", False), ("reftable", True), ("files", True)):
        found = config_file.allow([("extensions.refstorage", value)])
        assert bool(found) == kept


def test_the_users_identity_is_kept_wherever_it_is_written(repo: Path, tmp_path: Path) -> None:
    """A file that is included for this directory only, and changed later."""
    user, work = tmp_path / "user", tmp_path / "user/work.gitconfig"
    assert git.run_sync("config", "user.email", cwd=str(repo))[1] == "u@localhost\n"
    with open(user / ".gitconfig", "a", encoding="utf-8") as file:
        file.write(f'[includeIf "gitdir:{repo}/"]\n\tpath = work.gitconfig\n')
    assert git.run_sync("config", "user.email", cwd=str(repo))[1] == "u@localhost\n"
    work.write_text("[user]\n\temail = work@localhost\n")
    assert git.run_sync("config", "user.email", cwd=str(repo))[1] == "work@localhost\n"
    assert git.run_sync("config", "user.email", cwd=str(tmp_path))[1] == "u@localhost\n"


def test_a_view_of_a_repository_that_is_gone_is_deleted(repo: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", "--no-local", "--upload-pack=git-upload-pack", str(tmp_path / "tree"),
                    str(tmp_path / "other")], check=True, env={"PATH": os.environ["PATH"]})  # fmt: skip
    views = ConfigViews(FOR_USERS)
    kept, gone = views.of(locate(str(repo))), views.of(locate(str(tmp_path / "other")))
    subprocess.run(["rm", "-r", str(tmp_path / "other")], check=True)
    drop_stale_views(os.environ["HOLDFAST_HOME"])
    assert os.path.isdir(kept.path)
    assert not os.path.lexists(gone.path)


@pytest.mark.parametrize(
    "text",
    [
        "[a]\n\tb = c\n",
        '[a "B.c"]\n\td = "e # f" ; g\n',
        "[a]b=c\n[A]\n\tB = d # e\n",
        '[a]\n\tb = "c\\"d\\\\e\\tf"\n',
        "[a]\n\tb\n\tc =\n\td = e   \n",
        "[a]\n\tb = one \\\n  two\n",
        "# [x]\n[a.b]\n\tc = d\n; e = f\n",
        '[a "x\\"y\\\\z"]\n\tb = c\r\n',
        '[a]\n\tb = c d  e\n\tb-c = "  d "\n',
    ],
)
def test_a_config_file_is_read_as_git_reads_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_bytes(text.encode())
    listed = subprocess.run(["git", "config", "--file", "config", "-z", "--list"], cwd=tmp_path, capture_output=True,
                            text=True, check=True).stdout  # fmt: skip
    entries = [entry.partition("\n") for entry in listed.split("\0") if entry]
    expected = [(key, value if separator else "true") for key, separator, value in entries]
    assert parse_config(text) == expected
    (tmp_path / "config").write_text(config_file.render_config(expected))
    assert parse_config((tmp_path / "config").read_text()) == expected


@pytest.mark.parametrize("workspace", ["worktree", "clone"])
def test_hooks_of_a_configuration_do_not_run(any_git: str, fleet: Fleet, workspace: str) -> None:
    """Security F0: a hostile archive has them in the user's repository, and the agent writes them into its own."""
    witness = fleet.root / "sprung"
    command = shlex.quote(str(make_trap(fleet.root / "traps", witness)))
    hook = f"{HOOKED}\tcommand = {command} hook\n"
    with open(fleet.repo / ".git/config", "a", encoding="utf-8") as file:
        file.write(hook)
    planted = fleet.root / "planted"
    planted.write_text(hook)
    script = f'cat {planted} >> "$(git rev-parse --git-common-dir)/config"; echo w > y; git stash -uq; echo x > z'
    fleet.env["PATH"] = os.environ["PATH"]
    task = fleet.queue(script, workspace=workspace)
    fleet.up()
    fleet.wait_state(task, "completed")
    fleet.wait_clean()
    fleet.cli("diff", task)
    fleet.cli("merge", task)
    assert (fleet.repo / "z").read_text() == "x\n"
    assert sprung(witness) == []
    if any_git == "newest":  # the trap is a trap: who types git springs it
        subprocess.run(
            ["git", "commit", "-q", "--allow-empty", "-m", "by hand"], cwd=fleet.repo, env=fleet.env, check=True
        )
        assert sprung(witness)


def test_every_variable_of_a_call_is_ours(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIT_* of the user's shell, and settings that it passes on, are not in force (R-TREE-04)."""
    for name, value in by_environment([("core.autocrlf", "true")]).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.eol=crlf'")
    _line, env, _cwd = call_of(str(repo))
    assert not {"GIT_CONFIG_COUNT", "GIT_DIR", "GIT_CONFIG_PARAMETERS"} & set(env)


def _log_of(program: Path, answer: str = "") -> Path:
    """A git that writes down its starts. `answer`: what it says about its version."""
    log = program.parent / "starts"
    program.parent.mkdir(exist_ok=True)
    said = f'case " $* " in *" version "*) echo "git version {answer}"; exit;; esac\n' if answer else ""
    program.write_text(f'#!/bin/sh\necho "$*" >> {log}\n{said}exec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    return log


def test_the_version_is_asked_once_for_each_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And anew when the program changes, when the answer is old, and where nobody could be right about it."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    log = _log_of(tmp_path / "bin" / "git", "2.40.1")
    monkeypatch.setenv("PATH", f"{log.parent}:{os.environ['PATH']}")
    assert [git_versions.version(), git_versions.version()] == [(2, 40, 1)] * 2
    assert len(log.read_text().splitlines()) == 1
    _log_of(tmp_path / "bin" / "git", "2.31.9")
    assert git_versions.version() == (2, 31, 9)
    with pytest.raises(UsageError, match=r"is 2\.31\.9; Holdfast needs 2\.39"):
        git_versions.refuse_old_git()
    assert len(log.read_text().splitlines()) == 2
    kept = tmp_path / "home" / "git-config" / "git-version.json"
    for spoilt in (
        "{}",
        "[",
        '{"stamp": null, "at": 0, "version": [9]}',
        kept.read_text().replace('"at": 1', '"at": 9'),
    ):
        kept.write_text(spoilt)
        assert git_versions.version() == (2, 31, 9)
    assert len(log.read_text().splitlines()) == 6


def _repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path, Path]:
    """Two repositories, the user's configuration, and a log of git's starts."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    users = tmp_path / "user" / ".gitconfig"
    users.parent.mkdir()
    users.write_text("[user]\n\tname = One\n")
    for name in ("one", "two"):
        subprocess.run(["git", "init", "-q", str(tmp_path / name)], check=True)
    log = _log_of(tmp_path / "bin" / "git")
    monkeypatch.setenv("PATH", f"{log.parent}:{os.environ['PATH']}")
    return tmp_path / "one", tmp_path / "two", users, log


def _listings(log: Path) -> int:
    return sum("--show-origin" in line for line in log.read_text().splitlines())


def test_settings_that_are_the_same_everywhere_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, users, log = _repositories(tmp_path, monkeypatch)
    for repo in (one, two, one):
        assert git.view_of_sync(str(repo)).value("user.name") == "One"
    assert _listings(log) == 1
    users.write_text('[user]\n\tname = Other\n[filter "x"]\n\tclean = cat\n')
    for repo in (two, one):
        assert git.view_of_sync(str(repo)).value("user.name") == "Other"
        assert git.run_sync("config", "filter.x.clean", cwd=str(repo))[0] == 1  # only where a checkout needs it
    assert _listings(log) == 2


def test_settings_with_a_condition_are_listed_for_each_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, users, log = _repositories(tmp_path, monkeypatch)
    (tmp_path / "user" / "two.inc").write_text("[user]\n\tname = Two\n")
    assert git.view_of_sync(str(two)).value("user.name") == "One"
    users.write_text(f'{users.read_text()}[includeIf "gitdir:{two}/"]\n\tpath = two.inc\n')
    for _ in range(2):
        assert git.view_of_sync(str(one)).value("user.name") == "One"
        assert git.view_of_sync(str(two)).value("user.name") == "Two"
    assert _listings(log) == 3
