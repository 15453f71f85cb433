"""What a supervisor gets of the files with schedules: good, broken and untrusted ones; and the task of a fire."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet import Fleet

from holdfast.api.home.init import give_trust, question, revoke_trust
from holdfast.base.errors import HoldfastError
from holdfast.core.model import Repo, Task
from holdfast.core.schedules.schedule import Schedule
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperLock, HelperRunner
from holdfast.store.open import open_store
from holdfast.wiring.schedules import RepoScheduleFiles
from holdfast.workspaces.git.git import Git

HEAD = 'agent = "command"\n[command]\nargv = ["sh"]\n'
MONDAY = 1_794_794_400.0


def table(name: str, more: str = "") -> str:
    return f'[[schedule]]\nname = "{name}"\ncron = "0 2 * * *"\nprompt = "true"\n{more}'


@pytest.fixture
def scene(fleet: Fleet) -> Iterator[Scene]:
    with fleet.as_its_user():
        yield Scene(fleet)


class Scene:
    def __init__(self, fleet: Fleet) -> None:
        self.home = str(fleet.home)
        self.top = str(fleet.repo)
        self.own = fleet.repo / "holdfast.toml"
        self.workspace_users = fleet.root / "config.toml"
        os.environ["HOLDFAST_CONFIG"] = str(self.workspace_users)
        self.workspace_users.write_text(HEAD)
        self.store = open_store(self.home, create=True)
        self.schedule_files = self.fresh()

    def fresh(self) -> RepoScheduleFiles:
        return RepoScheduleFiles(self.home, Git(HelperRunner(Children(), HelperLock(self.home))))

    @property
    def repos(self) -> list[Repo]:
        return [Repo(id="r", path=self.top, common_dir=os.path.join(self.top, ".git"))]

    def trust(self) -> None:
        give_trust(self.home, question(self.home, self.top))

    def names(self, file: Path) -> list[str] | None:
        found = self.schedule_files.read(self.repos).schedules.get(str(file))
        return None if found is None else [schedule.name for schedule in found]

    def problem(self, file: Path) -> str:
        return self.schedule_files.read(self.repos).problems.get(str(file), "")

    def fire(self, file: Path) -> Task:
        (schedule,) = self.schedule_files.read(self.repos).schedules[str(file)]
        return self.accept(self.schedule_files, schedule)

    def accept(self, timetables: RepoScheduleFiles, schedule: Schedule) -> Task:
        return self.store.write(asyncio.run(timetables.resolve_task(schedule, MONDAY, "me")))


def test_trust_decides_about_a_repositorys_schedules(scene: Scene) -> None:
    """R-CRON-01: not taken without it; a changed word keeps what was trusted; taking it back ends them. Every
    step is seen by the stamp."""
    stamps = [scene.schedule_files.stamp(scene.repos)]
    scene.own.write_text(table("own"))
    stamps.append(scene.schedule_files.stamp(scene.repos))
    assert scene.names(scene.own) == []
    assert f"`holdfast trust {scene.top}`" in scene.problem(scene.own)
    scene.trust()
    stamps.append(scene.schedule_files.stamp(scene.repos))
    assert (scene.names(scene.own), scene.problem(scene.own)) == (["own"], "")
    scene.own.write_text(table("own", 'priority = 3\nlabels = { area = "web" }\n'))
    stamps.append(scene.schedule_files.stamp(scene.repos))
    assert scene.names(scene.own) is None, "what was trusted holds"
    assert "holdfast trust" in scene.problem(scene.own)
    revoke_trust(scene.home, scene.top)
    stamps.append(scene.schedule_files.stamp(scene.repos))
    assert scene.names(scene.own) == []
    assert len(set(stamps)) == len(stamps)
    assert scene.schedule_files.stamp(scene.repos) == stamps[-1]


def test_a_broken_file_is_a_problem_only_for_what_it_is_about(scene: Scene) -> None:
    """R-CRON-01: its schedules of before hold; a file without any is no concern of schedules."""
    scene.workspace_users.write_text(
        HEAD + f'[[schedule]]\nname = "a"\ncron = "x"\nprompt = "p"\nrepo = "{scene.top}"\n'
    )
    assert scene.names(scene.workspace_users) is None
    assert f"{scene.workspace_users}:6: schedule.cron: 'x' has 1 field" in scene.problem(scene.workspace_users)
    scene.own.write_text("[health]\ngarce = 3\n")
    assert (scene.names(scene.own), scene.problem(scene.own)) == ([], "")
    scene.own.write_text(table("a"))
    scene.workspace_users.write_text(HEAD + table("a", f'repo = "{scene.top}"\n'))
    assert scene.names(scene.workspace_users) == ["a"]
    assert "in your" not in scene.problem(scene.own)
    assert f"in {scene.workspace_users} already; give one of them another name" in scene.problem(scene.own)


def test_the_task_of_a_fire(scene: Scene) -> None:
    """R-CRON-02: it knows its schedule and the moment it is for; a file that breaks afterwards changes nothing about
    its settings; what cannot be is refused before anything is written."""
    scene.own.write_text('[health]\ngrace = "7s"\n' + table("own", 'priority = 3\nlabels = { area = "web" }\n'))
    scene.trust()
    task = scene.fire(scene.own)
    assert (task.spec.schedule, task.spec.fire_time) == ("own", "2026-11-16T02:00:00Z")
    assert dict(task.spec.labels) == {"area": "web", "schedule": "own"}
    assert (task.spec.base_ref, task.spec.priority, task.spec.grace) == ("main", 3, 7.0)
    (schedule,) = scene.schedule_files.read(scene.repos).schedules[str(scene.own)]
    scene.own.write_text("[[schedule]]\nbroken")
    assert scene.problem(scene.own)
    task = scene.accept(scene.schedule_files, schedule)
    assert task.spec.grace == 7.0
    with pytest.raises(HoldfastError, match=r"holdfast\.toml:2"):
        scene.accept(scene.fresh(), schedule)
    os.rename(scene.top, f"{scene.top}-gone")
    with pytest.raises(HoldfastError, match="There is no directory"):
        scene.accept(scene.schedule_files, schedule)
    assert scene.names(scene.own) is None
    assert not scene.problem(scene.own), "a repository that is not there says nothing"


def test_a_range_is_what_it_is_at_the_fire(scene: Scene, fleet: Fleet) -> None:
    """R-CRON-05: `base`..`ref` are looked up then, by git, in what its repository knows; a name that stands for nothing
    refuses the fire."""
    first = fleet.git("rev-parse", "main")
    fleet.git("commit", "--quiet", "--allow-empty", "-m", "More")
    more = f'repo = "{scene.top}"\nref = "main"\nbase = '
    scene.workspace_users.write_text(HEAD + table("nightly", f'{more}"main@{{1}}"\n'))
    task = scene.fire(scene.workspace_users)
    assert (task.spec.base_ref, task.spec.range_base) == ("main", first)
    scene.workspace_users.write_text(HEAD + table("nightly", f'{more}"main@{{1 day ago}}"\n'))
    assert scene.fire(scene.workspace_users).spec.range_base in (first, fleet.git("rev-parse", "main"))
    scene.workspace_users.write_text(HEAD + table("nightly", f'{more}"nowhere"\n'))
    with pytest.raises(HoldfastError, match="'nowhere' is not a commit or branch in"):
        scene.fire(scene.workspace_users)
    scene.workspace_users.write_text(HEAD + table("nightly", f'workflow = "review-swarm"\n{more}"main@{{1}}"\n'))
    swarm = scene.fire(scene.workspace_users).spec
    assert (swarm.workflow, len(swarm.stages[0].members), swarm.range_base) == ("review-swarm", 4, first)
