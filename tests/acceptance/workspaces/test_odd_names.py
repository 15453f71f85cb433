"""File names that are not text, in a plain locale: what agents do with them is kept, and every page shows them."""

from __future__ import annotations

import os

from tests.fleet import Fleet

ODD = "new-\\377"  # as git quotes it


def test_names_that_are_not_text_under_locale_c(fleet: Fleet) -> None:
    """LC_ALL=C for the supervisor and for every command. Branch, checkpoint, salvage and pages hold the bytes."""
    fleet.env.update({"LC_ALL": "C", "LANG": "C"})
    for name in ("PYTHONUTF8", "PYTHONIOENCODING", "PYTHONCOERCECLOCALE", "LC_CTYPE"):
        fleet.env.pop(name, None)
    (fleet.repo / os.fsdecode(b"tracked-\xff")).write_text("t\n")
    fleet.git("add", "--all")
    fleet.git("commit", "--quiet", "-m", "odd")
    work = "printf 1 > \"$(printf 'new-\\377')\"; printf 2 > \"$(printf 'tracked-\\377')\"; printf 3 > café; "
    tasks = {
        (strategy, code): fleet.add(
            "café", "--workspace", strategy, command=("sh", "-c", f"{work}holdfast agent checkpoint; exit {code}")
        )
        for strategy, code in (("worktree", 0), ("worktree", 1), ("clone", 0), ("clone", 1), ("directory", 1))
    }
    supervisor = fleet.up("--agents", 5, "--idle-exit", "0s")
    assert supervisor.wait(timeout=120) == 0, fleet.log()
    for (strategy, code), task in tasks.items():
        shown = fleet.show(task)
        assert shown["state"] == ("failed" if code else "completed")
        where = f"holdfast/{task}"
        if code:
            assert shown["salvages"][0]["files"] == 3
            where = f"back-{strategy}"
            fleet.cli("salvage", "restore", task, "--branch", where)
        listed = fleet.git("ls-tree", "-r", "--name-only", where)
        assert ODD in listed
        assert fleet.git("show", f"{where}:café") == "3"
        pages = [fleet.cli(*words, task) for words in (("why",), ("diff",), ("events",))]
        assert "Traceback" not in "".join(page.stdout + page.stderr for page in pages)
    assert "café" in fleet.cli("ps", "--all").stdout
    told = [event for event in fleet.events() if event["level"] in ("warning", "critical")]
    assert [event for event in told if event["kind"].startswith(("workspace.", "checkpoint."))] == []
    assert "Traceback" not in fleet.log()


def test_a_path_with_a_line_end_is_refused_whole(fleet: Fleet) -> None:
    """What looks like a commit at its end is none: without that, the checkout beside it would be meant."""
    empty = fleet.root / f"{fleet.repo.name}\n{'a' * 40}"
    fleet.git("worktree", "add", "--quiet", "--detach", str(empty))
    fleet.git("checkout", "--quiet", "--orphan", "new", cwd=empty)
    for odd in (fleet.make_repo(fleet.root / "repo\nx", {"f": "f"}), empty):
        assert "has line ends" in fleet.cli("add", "x", "--", "true", cwd=odd, code=2).stderr
    assert fleet.json("ps") == []
