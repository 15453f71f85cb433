"""Where traps for git are set (traps.py): by an archive that the user unpacked, or by an agent in whatever it reaches.

Each gives what the agents type after their first commit, and which workspaces they have.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from tests.harness.campaign import traps
from tests.harness.campaign.traps import Ground
from tests.harness.matrix.world import World

Plant = Callable[[World, Sequence[str], Ground], tuple[str, str]]
COMMIT = "git -c commit.gpgSign=false -c user.name=A -c user.email=a@localhost commit -q --no-verify"
_COMMON = "$(git rev-parse --path-format=absolute --git-common-dir)"
_OWN = "$(git rev-parse --path-format=absolute --git-dir)"
_BY_HAND = {"HOLDFAST_RUN_ID": "the user"}  # what springs by the user's own git is not ours


def by_hand(world: World, script: str) -> None:
    env = {**os.environ, **_BY_HAND}
    subprocess.run(["sh", "-c", script], cwd=world.repo, env=env, check=False, capture_output=True)


def _in_config(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    """As an archive brings it: the user unpacked it and works in it."""
    traps.set_traps(names, ground)
    return "", "worktree"


def _in_config_for_clones(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    traps.set_traps(names, ground)
    return "", "clone"


def _included(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    traps.set_traps(names, Ground(ground.git_dir, ground.trap, ground.used_by_other_runs, "evil"))
    with open(ground.git_dir / "config", "a", encoding="utf-8") as file:
        file.write('[include]\n\tpath = evil\n[includeIf "gitdir:/**"]\n\tpath = evil\n')
    return "", "worktree"


def _by_agent(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    return traps.shell_that_sets(names, ground, _COMMON), "worktree"


def _in_worktree_config(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    lines = traps.shell_that_sets(names, ground, _OWN, "config.worktree")
    return f'printf "[extensions]\\n\\tworktreeConfig = true\\n" >> "{_COMMON}/config"\n' + lines, "worktree"


def _in_clone(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    return traps.shell_that_sets(names, ground, "$PWD/.git"), "clone"


def _in_checkout(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    return traps.shell_that_sets(names, ground, _COMMON), "none"


def _nested(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    """A repository inside, tracked as a link, at another commit and with changes of its own."""
    lines = traps.shell_that_sets(names, ground, "$PWD/nested/.git")
    made = (
        f'git clone -q "{world.root}/origin.git" nested && git add nested 2>/dev/null && {COMMIT} -m nested\n'
        f"cd nested && echo other >> file.plain && {COMMIT} -am other; cd ..\n"
    )
    return made + lines + "for name in nested/file.*; do echo more >> $name; done\n", "worktree"


def _nested_in_clone(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    return _nested(world, names, ground)[0] + traps.shell_that_sets(["submodules"], ground, "$PWD/.git"), "clone"


def _submodule(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    """A submodule of the user's repository, populated there; its own config is hostile, and the agent's too."""
    by_hand(
        world,
        "git -c protocol.file.allow=always submodule --quiet add --name sub ../origin.git sub && git commit -qm sub",
    )
    traps.set_traps(names, Ground(ground.git_dir / "modules" / "sub", ground.trap, ground.used_by_other_runs))
    traps.set_traps(["submodules"], ground)
    lines = traps.shell_that_sets(names, ground, "$PWD/sub/.git")
    made = f'rmdir sub && git clone -q "{world.root}/origin.git" sub\n'
    return made + lines + "for name in sub/file.*; do echo more >> $name; done\n", "worktree"


def _other_git(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    """The agent's `.git` leads to a repository of its own making."""
    lines = traps.shell_that_sets(names, ground, "$PWD/evil.git")
    return (
        f'git clone -q --bare "{world.root}/origin.git" evil.git\n{lines}echo "gitdir: evil.git" > .git\n',
        "worktree",
    )


def _own_git(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    lines = traps.shell_that_sets(names, ground, "$PWD/.git")
    return (
        f'rm .git && git clone -q "{world.root}/origin.git" own && mv own/.git .git && rm -rf own\n{lines}',
        "worktree",
    )


def _common_dir(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    """The worktree's entry says that its repository is another one."""
    lines = traps.shell_that_sets(names, ground, "$PWD/evil.git")
    made = f'entry="{_OWN}"; git clone -q --bare "{world.root}/origin.git" evil.git\n'
    return f'{made}{lines}echo "$PWD/evil.git" > "$entry/commondir"\n', "worktree"


def _links(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    """Directories of the tree, and the git directory's own, lead out of it; `core.worktree` does too."""
    lines = traps.shell_that_sets(names, ground, _COMMON)
    made = (
        f'rm -rf src && ln -s "{world.root}/outside" src && ln -sfn "{world.root}/outside/deep" deep\n'
        f'printf "[core]\\n\\tworktree = {world.root}/outside\\n" >> "{_COMMON}/config"\n'
    )
    return made + lines, "worktree"


def _root_link(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    """The workspace itself becomes a link to somewhere else."""
    lines = traps.shell_that_sets(names, ground, _COMMON)
    return (
        f'{lines}here=$PWD; cd /; mv "$here" "$here.moved"; ln -s "{world.root}/outside" "$here"; cd "$here.moved"\n',
        "worktree",
    )


def _linked_repo(world: World, names: Sequence[str], ground: Ground) -> tuple[str, str]:
    """The user's checkout is reached by a link, and its `.git` is one."""
    real = world.root / "real"
    shutil.move(str(world.repo), str(real))
    shutil.move(str(real / ".git"), str(world.root / "real.git"))
    (real / ".git").symlink_to(world.root / "real.git")
    world.repo.symlink_to(real)
    traps.set_traps(names, ground)
    return "", "worktree"


# Where the checker cannot tell whose files are whose, or the agent itself took its tree away.
BLIND = frozenset(["checkout", "root-link"])
PLACES: Mapping[str, Plant] = {
    "config": _in_config,
    "config-clone": _in_config_for_clones,
    "include": _included,
    "agent": _by_agent,
    "worktree-config": _in_worktree_config,
    "clone": _in_clone,
    "checkout": _in_checkout,
    "nested": _nested,
    "nested-clone": _nested_in_clone,
    "submodule": _submodule,
    "git-file": _other_git,
    "git-folder": _own_git,
    "commondir": _common_dir,
    "links": _links,
    "root-link": _root_link,
    "linked-repo": _linked_repo,
}
