"""A hostile repository runs nothing as us (docs/security.md): traps for git, each shown to spring without our care."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fleet import PATIENCE, Fleet, wait_until
from tests.harness import ROOT
from tests.harness.campaign.traps import Ground, make_trap, set_traps, sprung
from tests.harness.engines.newest_git import newest_git

from holdfast.api.work.pull_request import PullRequest, push_branch
from holdfast.base.errors import Refused, UsageError
from holdfast.workspaces.git import git, git_versions
from holdfast.workspaces.git.hardening import environment, search_path

MISSING = "1" * 40


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """A repository with one commit, another one to fetch from, and a trap."""
    for name in ("repo", "source"):
        subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path / name)], check=True)
        who = ["-c", "user.name=A", "-c", "user.email=a@localhost"]
        subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", name], cwd=tmp_path / name, check=True)
    trap = make_trap(tmp_path / "traps", tmp_path / "sprung")
    return Ground(tmp_path / "repo" / ".git", trap, tmp_path / "beside")


@pytest.mark.parametrize(
    ("trap", "words"),
    [
        ("alternate-refs", "fetch -q {source} main"),
        ("instead-of", "fetch -q {source} main"),
        ("promisor-path", f"cat-file -e {MISSING}"),
        ("promisor-ssh", f"cat-file -e {MISSING}"),
        ("promisor-git", f"cat-file -e {MISSING}"),
    ],
)
def test_git_runs_no_command_that_a_repository_names(ground: Ground, tmp_path: Path, trap: str, words: str) -> None:
    """Found by `hostile-repo`: who lends objects, where a path leads, who has what is missing. The git that a person
    types springs each of them, so the trap is a trap."""
    set_traps([trap], ground)
    repo, line = ground.git_dir.parent, words.format(source=tmp_path / "source").split()
    git.run_sync(*line, cwd=str(repo))
    assert sprung(tmp_path / "sprung") == []
    subprocess.run(["git", *line], cwd=repo, check=False, capture_output=True)
    assert any(found.startswith(trap) for found in sprung(tmp_path / "sprung"))


def done(fleet: Fleet, script: str) -> str:
    task = fleet.queue(script)
    fleet.up()
    fleet.wait_state(task, "completed")
    fleet.wait_clean()
    return task


def test_files_that_a_repository_says_are_elsewhere(fleet: Fleet) -> None:
    """Found by `hostile-repo:links`: with `core.worktree` in a shared config, `init` wrote its file to another
    directory, and `merge` looked there for changes, and would have written the merged files there."""
    task = done(fleet, "echo work > work.txt")
    outside = fleet.root / "outside"
    outside.mkdir()
    (outside / "README.md").write_text("of the user\n")
    fleet.git("config", "core.worktree", str(outside))
    refused = fleet.cli("init", code=2).stderr
    assert "core.worktree" in refused
    assert str(outside) in refused
    assert "fast-forward" in fleet.cli("merge", task).stdout
    assert [path.name for path in outside.iterdir()] == ["README.md"]
    assert (fleet.repo / "work.txt").read_text() == "work\n"


def submodule_with_a_filter(fleet: Fleet, filter_command: str) -> None:
    """`gh` asks for the status of the checkout, and git goes into its submodules to say."""
    fleet.git("-c", "core.fsmonitor=false", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add",
              str(fleet.repo), "sub")  # fmt: skip
    inside = fleet.repo / "sub"
    (inside / ".gitattributes").write_text("* filter=trap\n")
    fleet.git("config", "filter.trap.clean", filter_command, cwd=inside)
    (inside / "README.md").write_text("changed\n")
    fleet.git("config", "submodule.sub.ignore", "none")


def test_a_push_runs_no_command_of_the_repository_unasked(fleet: Fleet) -> None:
    """`pr` pushes with the user's credentials: a command that an agent may have written into the shared config is
    named and not run. Who pushes by hand may continue."""
    task = done(fleet, "echo work > work.txt")
    origin, tools = fleet.root / "origin.git", fleet.root / "tools"
    fleet.git("init", "--quiet", "--bare", str(origin))
    fleet.git("remote", "add", "origin", str(origin))
    trap = make_trap(tools, fleet.root / "sprung")
    (tools / "gh").write_text("#!/bin/sh\nexec git status --porcelain\n")
    (tools / "gh").chmod(0o755)
    with_gh = {"PATH": f"{tools}:{os.environ['PATH']}"}
    fleet.git("config", "remote.origin.receivepack", f"{trap} receive; git-receive-pack")
    fleet.git("config", "core.fsmonitor", f"{trap} fsmonitor")
    submodule_with_a_filter(fleet, f"{trap} clean; cat")
    refused = fleet.cli("pr", task, code=1, env=with_gh).stderr
    assert "remote.origin.receivepack" in refused
    assert sprung(fleet.root / "sprung") == []
    by_hand = shlex.split(refused.rpartition("then repeat the command: ")[2])
    subprocess.run(by_hand, env={**fleet.env, "HOLDFAST_RUN_ID": "by hand"}, check=True, capture_output=True)
    fleet.cli("pr", task, env=with_gh)
    assert sprung(fleet.root / "sprung") == []


@pytest.mark.parametrize("which", ["own", "newest"])
def test_no_pager_and_no_hook_of_the_configuration_runs_on_a_terminal(fleet: Fleet, which: str) -> None:
    """Findings F0 and F4: a pager needs a terminal, hooks in a configuration need git 2.54. The same git, typed by a
    person there, springs them."""
    task = done(fleet, "echo work > work.txt")
    origin = fleet.root / "origin.git"
    fleet.git("init", "--quiet", "--bare", str(origin))
    fleet.git("remote", "add", "origin", str(origin))
    if which == "newest":
        fleet.env["PATH"] = f"{newest_git()}:{fleet.env['PATH']}"

    def typed_git(*words: str, **streams: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["git", *words], cwd=fleet.repo, env=fleet.env, **streams)  # type: ignore[call-overload, no-any-return]

    ground = Ground(fleet.repo / ".git", make_trap(fleet.root / "traps", fleet.root / "sprung"), fleet.root / "beside")
    set_traps(["pager", "odd-jobs"], ground)
    for words in (("diff", task), ("branches",), ("pr", task), ("merge", task), ("branches", "prune", "--all-ended")):
        type_on_terminal(fleet.start, *words)
    assert fleet.git("for-each-ref", cwd=origin) != "", "it was pushed"
    assert sprung(fleet.root / "sprung") == []
    for words in (("push", "origin", "main"), ("branch", "--list")):
        type_on_terminal(typed_git, *words)
        assert any(found.startswith("pager") for found in sprung(fleet.root / "sprung")), words
        (fleet.root / "sprung").unlink()
    assert typed_git("branch", "other").wait() == 0
    assert any(found.startswith("odd-jobs") for found in sprung(fleet.root / "sprung")) == (which == "newest")


@pytest.mark.parametrize(
    "key",
    [
        "http.proxy",
        "http.sslVerify",
        "http.extraHeader",
        "http.https://example.org/.sslCAInfo",
        "https.proxy",
        "credential.helper",
        "credential.https://example.org.helper",
        "url.{origin}.insteadOf",
        "url.{origin}.pushInsteadOf",
        "core.sshCommand",
        "core.askPass",
        "core.gitProxy",
        "gpg.program",
        "remote.origin.proxy",
        "remote.origin.vcs",
        "remote.origin.serverOption",
    ],
)
def test_a_push_is_refused_by_the_name_of_a_setting(fleet: Fleet, key: str) -> None:
    """Findings F4 and F9: where a push goes, through what, and with which login, are the user's own settings. One in
    the repository's configuration, in a worktree's or in an included file may be an agent's."""
    origin = fleet.root / "origin.git"
    fleet.git("init", "--quiet", "--bare", str(origin))
    fleet.git("remote", "add", "origin", str(origin))
    fleet.git("branch", "work")
    proposal = PullRequest(repo=str(fleet.repo), remote="origin", branch="work", base="main", title="t", body="b")
    key, included = key.format(origin=origin), fleet.root / "included"
    section, _, name = key.rpartition(".")
    shown = f"{section}.{name.lower()}"  # as git lists it
    config, of_worktree = fleet.repo / ".git" / "config", fleet.repo / ".git" / "config.worktree"
    with fleet.as_its_user():
        for file in (config, of_worktree, included):
            fleet.git("config", "--file", str(config), "include.path", str(included))
            fleet.git("config", "--file", str(file), key, "x")
            with pytest.raises(Refused) as refused:
                push_branch(proposal)
            assert f"settings that a push would use: {shown}. An agent could have written them" in str(refused.value)
            fleet.git("config", "--file", str(file), "--unset", key)
        assert fleet.git("for-each-ref", cwd=origin) == ""
        push_branch(proposal)
    assert fleet.git("for-each-ref", "--format=%(refname)", cwd=origin) == "refs/heads/work"


def type_on_terminal(start: Callable[..., subprocess.Popen[bytes]], *words: str) -> None:
    ours, its = os.openpty()
    process = start(*words, stdin=its, stdout=its, stderr=its)
    os.close(its)
    with contextlib.suppress(OSError):  # nobody has the other end any more
        while os.read(ours, 65536):
            pass
    os.close(ours)
    process.wait(timeout=PATIENCE)


def test_a_push_into_a_directory_runs_nothing_of_that_directory(fleet: Fleet) -> None:
    """An agent can turn the remote into a repository of its own, hooks included, and have a push be signed with a key
    that a command names."""
    task = done(fleet, "echo work > work.txt")
    origin, tools = fleet.root / "origin.git", fleet.root / "tools"
    fleet.git("init", "--quiet", "--bare", str(origin))
    fleet.git("remote", "add", "origin", str(origin))
    trap = make_trap(tools, fleet.root / "sprung")
    (origin / "hooks").mkdir(exist_ok=True)
    for hook in ("pre-receive", "update", "post-receive", "reference-transaction"):
        (origin / "hooks" / hook).symlink_to(trap)
    (tools / "gh").write_text("#!/bin/sh\nexec git status --porcelain\n")
    (tools / "gh").chmod(0o755)
    with_gh = {"PATH": f"{tools}:{os.environ['PATH']}"}
    fleet.git("config", "gpg.ssh.defaultKeyCommand", str(trap))
    fleet.git("config", f"url.{origin}.insteadOf", "ssh://127.0.0.1:9/of-the-user.git")
    refused = fleet.cli("pr", task, code=1, env=with_gh).stderr
    assert "gpg.ssh.defaultkeycommand" in refused
    assert "insteadof" in refused
    fleet.git("config", "--unset", "gpg.ssh.defaultKeyCommand")
    fleet.git("config", "--remove-section", f"url.{origin}")
    fleet.cli("pr", task, env=with_gh)
    assert sprung(fleet.root / "sprung") == []
    assert f"holdfast/{task}" in fleet.git("for-each-ref", cwd=origin), "it was pushed all the same"


def test_who_looks_at_the_checkout_for_a_request_runs_no_filter_of_its_config(fleet: Fleet) -> None:
    """`gh` asks for the status: a file that was touched goes through its filter then."""
    task = done(fleet, "echo work > work.txt")
    origin, tools = fleet.root / "origin.git", fleet.root / "tools"
    fleet.git("init", "--quiet", "--bare", str(origin))
    fleet.git("remote", "add", "origin", str(origin))
    trap = make_trap(tools, fleet.root / "sprung")
    (tools / "gh").write_text("#!/bin/sh\ngit status --porcelain && git diff && git log -1\n")
    (tools / "gh").chmod(0o755)
    (fleet.repo / ".git/info").mkdir(exist_ok=True)
    (fleet.repo / ".git/info/attributes").write_text("* filter=trap diff=trap\n")
    os.utime(fleet.repo / "README.md", (1, 1))
    fleet.git("config", "filter.trap.clean", f"{trap} clean; cat")
    fleet.git("config", "diff.trap.textconv", f"{trap} textconv; cat")
    fleet.git("config", "gpg.program", str(trap))
    fleet.git("config", "format.pretty", "%G?")
    fleet.git("update-ref", f"refs/remotes/origin/holdfast/{task}", f"holdfast/{task}")  # as if it were pushed
    fleet.cli("pr", task, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    assert sprung(fleet.root / "sprung") == []


def test_a_remote_on_this_machine_runs_nothing_when_objects_are_missing(fleet: Fleet) -> None:
    """Red team R1-1: a partial clone in an archive, whose remote is a repository inside it. That one is partial too,
    and its own config names the command by which it would ask for objects."""
    trap = make_trap(fleet.root / "traps", fleet.root / "sprung")
    evil = fleet.repo / ".git" / "evil.git"
    fleet.git("clone", "--quiet", "--bare", str(fleet.repo), str(evil))
    blob = fleet.git("hash-object", "-w", "README.md")
    for place in (fleet.repo / ".git", evil):
        (place / "objects" / blob[:2] / blob[2:]).unlink(missing_ok=True)
        for pack in (place / "objects" / "pack").glob("*"):
            pack.unlink()
    lines = ["extensions.partialClone origin", "core.repositoryFormatVersion 1", "remote.origin.promisor true"]
    lines.append("remote.origin.partialCloneFilter blob:none")
    for place, url in ((fleet.repo / ".git", f"file://{evil}"), (evil, "ssh://127.0.0.1:9/x.git")):
        for line in (*lines, f"remote.origin.url {url}"):
            fleet.git("config", "--file", str(place / "config"), *line.split())
    allowed = [("uploadpack.allowFilter", "true"), ("uploadpack.allowAnySHA1InWant", "true")]
    for key, value in (*allowed, ("core.sshCommand", f"{trap} ssh")):
        fleet.git("config", "--file", str(evil / "config"), key, value)
    task = fleet.queue("true")
    fleet.up()
    fleet.wait_state(task, "failed")  # the object is nowhere
    assert sprung(fleet.root / "sprung") == []


@pytest.mark.parametrize("workspace", ["worktree", "clone", "directory"])
def test_a_diff_asks_no_repository_inside_the_tree(fleet: Fleet, workspace: str) -> None:
    """Red team R1-9: an agent's index names a repository in its tree, and `git add` asks that one for its state, with
    the filter that its config names."""
    trap = make_trap(fleet.root / "traps", fleet.root / "sprung")
    script = (
        f"git init -q sub; cd sub; echo '* filter=x' > .gitattributes; echo a > f; git add .; "
        f"git -c user.name=a -c user.email=a@x commit -qm a; git config filter.x.clean '{trap} clean; cat'; "
        f"echo b > f; cd ..; git add sub 2>/dev/null; echo new > new.txt; touch {fleet.root}/ready; "
        f"while [ -e {fleet.root}/ready ]; do sleep 0.05; done"
    )
    task = fleet.queue(script, workspace=workspace)
    fleet.up()
    wait_until(lambda: (fleet.root / "ready").exists(), "the agent is ready")
    assert "new.txt" in fleet.cli("diff", task).stdout
    (fleet.root / "ready").unlink()
    fleet.wait_state(task, "completed", "failed")
    assert sprung(fleet.root / "sprung") == []


def test_what_a_person_reads_is_what_is_pushed(fleet: Fleet) -> None:
    """Red team R1-7: `git replace` shows other content in the place of a commit's own."""
    script = (
        "echo good > f; git add f; git commit -qm good; good=$(git rev-parse HEAD:f); "
        "echo evil > f; git commit -qam evil; git replace $(git rev-parse HEAD:f) $good"
    )
    task = done(fleet, script)
    assert "evil" in fleet.cli("diff", task).stdout


def test_programs_are_not_looked_for_where_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", ".:/usr/bin::bin:/bin")
    assert search_path() == "/usr/bin:/bin"
    assert environment()["PATH"] == "/usr/bin:/bin"
    monkeypatch.setenv("PATH", ".")
    with pytest.raises(UsageError, match="git could not be started"):
        git_versions.version()


def test_a_case_of_the_family() -> None:
    """One place and all traps together; `make faults` plays others by its seed."""
    campaign = [sys.executable, "-m", "tests.harness.campaign", "--replay", "hostile-repo:agent/all/good"]
    done = subprocess.run(campaign, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.endswith("held\n")
