"""What docs/howto/schedules.md shows can be written like that."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.config.read_file import read_settings_file

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "schedules.md"


def test_every_example_reads_well(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert examples
    for number, example in enumerate(examples):
        path = tmp_path / f"{number}.toml"
        path.write_text(example)
        layer = read_settings_file(str(path), of_repository="repo =" not in example)
        assert not layer.problems, layer.problems
        assert layer.schedules
