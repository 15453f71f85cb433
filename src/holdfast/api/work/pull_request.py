"""A task's branch as a pull request: pushed, and opened with `gh` if that is installed, else on a page of its host."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from holdfast.api.work.merge import branch_of
from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Refused
from holdfast.base.text import subject_line
from holdfast.workspaces.git import git
from holdfast.workspaces.git.hardening import search_path

if TYPE_CHECKING:
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import TaskDetails


# https://host/owner/repo.git, ssh://git@host:22/owner/repo, git@host:owner/repo.git
_HOSTED = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^/@]*@)?(?P<host>[A-Za-z0-9.-]+)(?::\d+)?/|(?:[^/@:]+@)?(?P<short>[A-Za-z0-9.-]+):)"
    r"/*(?P<path>[^\s?#]*[^\s?#/])/*"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PullRequest:
    """A pull request to open: the branch, the remote it is pushed to, and its text."""

    repo: str
    remote: str
    branch: str
    base: str
    title: str
    body: str

    @property
    def urls(self) -> list[str]:
        """Return the target of the push, as git resolves it. A login in a URL is not shown."""
        found = git.list_push_urls(self.remote, cwd=self.repo) or [self.remote]
        return [re.sub(r"(?<=://)[^/@]*@", "", url) for url in found]

    @property
    def compare_page(self) -> str | None:
        """Return the page on which a person opens the pull request. None: the host of the remote is not known."""
        found = _HOSTED.fullmatch(self.urls[0])
        if found is None:
            return None
        host, path = (found["host"] or found["short"]).lower(), quote(found["path"].removesuffix(".git"))
        branch, base = quote(self.branch), quote(self.base)
        if "github" in host.split("."):
            return f"https://{host}/{path}/compare/{base}...{branch}?expand=1"
        if "gitlab" in host.split("."):
            query = urlencode({"merge_request[source_branch]": self.branch, "merge_request[target_branch]": self.base})
            return f"https://{host}/{path}/-/merge_requests/new?{query}"
        return None

    @property
    def push_line(self) -> str:
        return shlex.join(["git", "-C", self.repo, "push", "--set-upstream", self.remote, self.branch])


def build_pull_request(task: TaskDetails, *, remote: str | None, base: str | None) -> PullRequest:
    branch, repo = branch_of(task), str(task["repo"])
    known = git.run_sync("remote", cwd=repo)[1].split()
    chosen = remote or ("origin" if "origin" in known or not known else known[0])
    if chosen not in known:
        raise Refused(
            f"{repo} has no remote '{chosen}', so there is nowhere to push {branch} to. Add one: git remote add"
        )
    return PullRequest(
        repo=repo,
        remote=chosen,
        branch=branch,
        base=base or str(task["base_ref"]),
        title=subject_line(task["prompt"]),
        body=f"{task['prompt'].strip()}\n\nMade by Holdfast task {task['id']}.",
    )


def refuse_after_changes(queries: Queries, task: TaskDetails) -> None:
    """Raise Refused while an alert says that the repository's configuration or hooks were changed during a run."""
    ids = {str(row["id"]) for row in queries.repos() if row["path"] == task["repo"]}
    for alert in queries.alerts():
        kind, _, rest = alert["key"].partition(":")
        if kind == "outside" and rest.partition(":")[0] in ids and alert["level"] == "critical":
            raise Refused(
                f"Nothing was pushed: an alert about {task['repo']} is open. {alert['message']} "
                "Look at it, then `holdfast alerts ack`, and try again."
            )


def find_gh() -> str | None:
    return shutil.which("gh", path=search_path())


def open_pull_request(proposal: PullRequest, gh: str, *, draft: bool) -> str:
    """Push the branch, let `gh` open the pull request, and return what `gh` printed: its address. Both steps can be
    repeated: a branch that was pushed already is up to date."""
    push_branch(proposal)
    words = ["pr", "create", "--head", proposal.branch, "--base", proposal.base]
    words += ["--title", proposal.title, "--body", proposal.body, *(["--draft"] if draft else [])]
    env = git.users_own_environment(proposal.repo)
    faults.effect("gh.create")
    done = subprocess.run([gh, *words], cwd=proposal.repo, env=env, check=False, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise Refused(
            f"{proposal.branch} is pushed, but `gh` did not open a pull request (its output is above). "
            "Fix the cause and try again; the branch is not pushed again."
        )
    return done.stdout.decode(errors="replace").strip()


def _is_pushed(proposal: PullRequest) -> bool:
    """True if the known remote branch has the commits of the branch, because a person pushed it by hand."""
    names = (f"refs/heads/{proposal.branch}", f"refs/remotes/{proposal.remote}/{proposal.branch}")
    tips = [git.run_sync("rev-parse", "--verify", "--quiet", name, cwd=proposal.repo)[1].strip() for name in names]
    return tips[0] != "" and tips[0] == tips[1]


def push_branch(proposal: PullRequest) -> None:
    """Push the branch, unless the remote has it already."""
    if _is_pushed(proposal):
        return
    if named := git.list_push_settings(proposal.repo):
        raise Refused(
            f"The repository's own config has settings that a push would use: {', '.join(named)}. An agent could "
            f"have written them, so nothing was pushed. If they are yours, push by hand, then repeat the command: "
            f"{proposal.push_line}"
        )
    if git.push(proposal.remote, proposal.branch, cwd=proposal.repo) != 0:
        raise Refused(f"The branch could not be pushed. Nothing was opened. By hand: {proposal.push_line}")
