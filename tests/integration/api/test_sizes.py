"""Sizes of trees: bit by bit, whole in the end, and nothing that vanishes meanwhile stops it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from holdfast.api.work.workspaces import BATCH, DirectorySizes, measure_directory


def grow(path: Path, files: int) -> Path:
    for number in range(files):
        folder = path / f"d{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_bytes(b"x" * number)
    return path


def test_a_large_tree_is_measured_bit_by_bit(tmp_path: Path) -> None:
    """R-CRASH-10: the screen of workspaces never waits for a tree, however large."""
    large, small = grow(tmp_path / "large", 5 * BATCH), grow(tmp_path / "small", 3)
    os.symlink(large, small / "link")  # not followed
    sizes, wanted = DirectorySizes(fresh=3600), [str(large), str(small)]
    seen, steps = [], 1
    while sizes.go_on(wanted, 0.0):
        seen.append(sizes.known[str(large)])
        steps += 1
    assert steps > 4
    assert not seen[0].is_whole
    counted = [size.bytes for size in seen]
    assert counted == sorted(counted)
    assert sizes.known[str(large)].is_whole
    assert sizes.known[str(large)].bytes == measure_directory(str(large)) == sum(range(5 * BATCH))
    assert sizes.known[str(small)].bytes == 3 + os.lstat(small / "link").st_size

    before = sizes.known
    assert not sizes.go_on(wanted, 1.0)
    assert sizes.known is before  # nothing to tell, nothing to draw
    assert not sizes.go_on([str(small)], 1.0)
    assert set(sizes.known) == {str(small)}


def test_what_is_old_is_measured_again_and_keeps_its_number_meanwhile(tmp_path: Path) -> None:
    tree = grow(tmp_path / "tree", 3 * BATCH)
    sizes = DirectorySizes(fresh=-1.0)  # old at once
    assert sizes.go_on([str(tree)], 0.0)
    while not sizes.known[str(tree)].is_whole:
        sizes.go_on([str(tree)], 0.0)
    whole = sizes.known[str(tree)].bytes
    (tree / "more").write_bytes(b"x" * 100)
    assert sizes.go_on([str(tree)], 0.0)
    assert sizes.known[str(tree)].is_whole
    for _ in range(20):
        sizes.go_on([str(tree)], 0.0)
    assert sizes.known[str(tree)].bytes == whole + 100
    shutil.rmtree(tree)
    for _ in range(20):
        sizes.go_on([str(tree)], 0.0)
    assert sizes.known[str(tree)].bytes == 0
