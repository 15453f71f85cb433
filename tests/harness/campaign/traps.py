"""Traps for git: whatever a repository can hold to make git run a command. Each leaves a witness when it springs.

A trap that springs inside an agent's run is the agent's own affair; what springs elsewhere ran as us.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_TRAP = """#!/bin/sh
[ -n "$HOLDFAST_RUN_ID" ] && exit 0
who=$1 above=$PPID
for level in 1 2 3 4; do
    who="$who, by $(tr '\\0' ' ' < /proc/$above/cmdline | sed 's/-c [^ ]* //g')"
    above=$(sed -n 's/^PPid:[^0-9]*//p' /proc/$above/status)
done
printf '%s\\n' "$who" >> "{witness}"
"""
HOOKS = (
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "pre-receive",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "update",
)
# Committed with the repository: which file goes through what.
ATTRIBUTES = """\
*.clean filter=trapclean
*.smudge filter=trapsmudge
*.process filter=trapprocess
*.conv diff=trapconv
*.diff diff=trapdiff
*.merge merge=trapmerge
"""
FILES = tuple(f"file.{end}" for end in ("clean", "smudge", "process", "conv", "diff", "merge", "plain"))
ELSEWHERE = "http://127.0.0.1:9/evil.git"


@dataclass(frozen=True, slots=True)
class Ground:
    """Where traps are set: a git directory, the trap itself, and a place for what belongs to it."""

    git_dir: Path
    trap: Path
    used_by_other_runs: Path
    config: str = "config"  # in the git directory


def make_trap(folder: Path, witness: Path) -> Path:
    folder.mkdir()
    trap = folder / "trap"
    trap.write_text(_TRAP.format(witness=witness))
    trap.chmod(0o755)
    return trap


def sprung(witness: Path) -> list[str]:
    try:
        return witness.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


# name → settings; @ is a program that springs the trap of that name: one word, since some are run without a shell.
# A promisor is who is asked for objects that are missing.
_PROMISOR = ("extensions.partialClone = evil", "remote.evil.promisor = true")
_PAGED = ("branch", "cat-file", "config", "diff", "fetch", "grep", "log", "push", "show", "status", "tag", "worktree")
SETTINGS: dict[str, tuple[str, ...]] = {
    "hooks-path": ("core.hooksPath = {beside}/hooks",),
    "fsmonitor": ("core.fsmonitor = @",),
    "clean": ("filter.trapclean.clean = @ && cat", "filter.trapclean.required = true"),
    "smudge": ("filter.trapsmudge.smudge = @ && cat", "filter.trapsmudge.required = true"),
    "process": ("filter.trapprocess.process = @",),
    "textconv": ("diff.trapconv.textconv = @ && cat", "diff.trapconv.cachetextconv = true"),
    "diff-driver": ("diff.trapdiff.command = @",),
    "diff-external": ("diff.external = @",),
    "merge-driver": ("merge.trapmerge.driver = @ %A", "merge.trapmerge.recursive = text"),
    "pager": ("core.pager = @", *(f"pager.{name} = @" for name in _PAGED)),
    "editor": ("core.editor = @", "sequence.editor = @"),
    "gpg": (
        "gpg.program = @",
        "commit.gpgSign = true",
        "tag.gpgSign = true",
        "log.showSignature = true",
        "merge.verifySignatures = true",
        "push.gpgSign = if-asked",
    ),
    "gpg-ssh": (
        "gpg.format = ssh",
        "gpg.ssh.program = @",
        "gpg.ssh.defaultKeyCommand = @",
        "commit.gpgSign = true",
        "log.showSignature = true",
    ),
    "credential": ("credential.helper = !@", f"credential.{ELSEWHERE}.helper = !@", "core.askPass = @"),
    "alternate-refs": ("core.alternateRefsCommand = @", "core.alternateRefsPrefixes = refs/heads"),
    "instead-of": ("core.sshCommand = @", "url.ssh://127.0.0.1:9/.insteadOf = /"),
    "instead-of-ext": ("url.ext::@ %S .insteadOf = /", "protocol.allow = always"),
    "upload-hook": ("uploadpack.packObjectsHook = @", "uploadpack.allowFilter = true"),
    "receive-pack": ("remote.origin.receivepack = @", "remote.origin.uploadpack = @"),
    "promisor-path": (*_PROMISOR, "remote.evil.url = {beside}/other.git", "remote.evil.uploadpack = @"),
    "promisor-ssh": (*_PROMISOR, "remote.evil.url = ssh://127.0.0.1:9/evil.git", "core.sshCommand = @"),
    "promisor-ext": (*_PROMISOR, "remote.evil.url = ext::@ %S", "protocol.allow = always"),
    "promisor-git": (*_PROMISOR, "remote.evil.url = git://127.0.0.1:9/evil.git", "core.gitProxy = @"),
    "submodules": (
        "submodule.recurse = true",
        "submodule.active = .",
        "submodule.sub.active = true",
        "submodule.sub.update = !@",
        "submodule.sub.url = ext::@ %S",
        "submodule.sub.fetchRecurseSubmodules = true",
        "submodule.sub.ignore = none",
        "fetch.recurseSubmodules = true",
        "push.recurseSubmodules = on-demand",
        "status.submoduleSummary = true",
        "diff.submodule = diff",
        "diff.ignoreSubmodules = none",
        "protocol.allow = always",
    ),
    "aliases": tuple(f"alias.{name} = !@" for name in ("status", "diff", "log", "config", "add", "commit", "fetch")),
    "odd-jobs": (
        "trailer.x.command = @",
        "trailer.x.cmd = @",
        "interactive.diffFilter = @",
        "gc.auto = 1",
        "maintenance.auto = true",
        "hook.evil.command = @",
        "hook.evil.event = pre-commit",
        "hook.evil.event = reference-transaction",
        "hook.evil.event = post-checkout",
    ),
}
HOOKS_TRAP, ALTERNATES_TRAP = "hooks", "alternate-refs"
TRAPS: tuple[str, ...] = (HOOKS_TRAP, *SETTINGS)
# Those that keep a repository from working at all, or get in the way of another one: each for itself.
ALONE = frozenset(name for name in TRAPS if name.startswith(("promisor", "instead-of", "gpg-ssh")))
TOGETHER = "all"


def names_of(word: str) -> list[str]:
    """`all`, or names joined by a comma."""
    return [name for name in TRAPS if name not in ALONE] if word == TOGETHER else word.split(",")


def settings_of(names: Sequence[str], ground: Ground) -> str:
    lines = []
    for name in names:
        for setting in SETTINGS.get(name, ()):
            filled = setting.replace("@", str(ground.used_by_other_runs / f"spring-{name}")).replace(
                "{beside}", str(ground.used_by_other_runs)
            )
            key, _, value = filled.partition(" = ")
            section, _, rest = key.partition(".")
            middle, _, last = rest.rpartition(".")
            head = f'{section} "{middle}"' if middle else section
            lines.append(f'[{head}]\n\t{last} = "{value}"\n')
    return "".join(lines)


def set_traps(names: Sequence[str], ground: Ground) -> None:
    """In the git directory itself. Nothing of it springs while it is set: files are written, git is not called."""
    ground.used_by_other_runs.mkdir(exist_ok=True)
    folders = [ground.git_dir / "hooks"] if HOOKS_TRAP in names else []
    folders += [ground.used_by_other_runs / "hooks"] if "hooks-path" in names else []
    for folder in folders:
        folder.mkdir(exist_ok=True)
        for hook in HOOKS:
            (folder / hook).write_text(f"#!/bin/sh\n{ground.trap} {folder.name}-{hook}\n")
            (folder / hook).chmod(0o755)
    for name in names:
        program = ground.used_by_other_runs / f"spring-{name}"
        program.write_text(f"#!/bin/sh\nexec {ground.trap} {name}\n")
        program.chmod(0o755)
    other = ground.used_by_other_runs / "other.git"
    if not other.exists():
        subprocess.run(["git", "init", "-q", "--bare", str(other)], check=True)
    if ALTERNATES_TRAP in names:
        (ground.git_dir / "objects" / "info").mkdir(parents=True, exist_ok=True)
        (ground.git_dir / "objects" / "info" / "alternates").write_text(f"{other}/objects\n")
    with open(ground.git_dir / ground.config, "a", encoding="utf-8") as file:
        file.write(settings_of(names, ground))


def shell_that_sets(names: Sequence[str], ground: Ground, git_dir: str, config: str = "config") -> str:
    """The same as lines for an agent's shell, in which `git_dir` is an expression."""
    stage = ground.used_by_other_runs / f"planted-{len(list(ground.used_by_other_runs.glob('planted-*')))}"
    stage.mkdir()
    set_traps(names, Ground(stage, ground.trap, ground.used_by_other_runs, "config"))
    lines = [f'cat "{stage}/config" >> "{git_dir}/{config}"']
    if HOOKS_TRAP in names:
        lines += [f'mkdir -p "{git_dir}/hooks"', f'cp -p "{stage}/hooks/"* "{git_dir}/hooks/"']
    if ALTERNATES_TRAP in names:
        lines += [
            f'mkdir -p "{git_dir}/objects/info"',
            f'cp "{stage}/objects/info/alternates" "{git_dir}/objects/info/"',
        ]
    return "".join(f"{line}\n" for line in lines)
