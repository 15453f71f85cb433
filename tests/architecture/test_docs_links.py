"""The pages lead to each other: every page is found from docs/index.md, and every link and named file exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
PRODUCT = ROOT / "src" / "holdfast"
PAGES = sorted(DOCS.rglob("*.md"))
LINKED = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
DECISIONS = sorted((DOCS / "adr").glob("[0-9]*.md"))
NEVER_USED = ("0022", "0025")  # numbers of decision records that no record ever had

FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1`*\s*?$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
MADE = re.compile(r"^(?:```\w+ (\S+/\S+)|<!-- file: (\S+) -->)$", re.MULTILINE)  # files that a page tells one to write
FILE = re.compile(r"([a-z0-9_.-]+/)*[a-z0-9_-]+\.(py|sql|sh)")
MODULE = re.compile(r"([a-z_]+/)+[a-z_]*(\.\w+)?")  # also a folder, and a name in a module: `core/model.outranks`
ROOTS = ("src", "tests", "scripts", "bench", "demo", "docs", "packaging")


def prose(page: Path) -> str:
    """Return the text of a page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def links(page: Path) -> tuple[tuple[Path, str], ...]:
    """Return the target file and the fragment of every relative link of a page."""
    found = LINK.findall(CODE.sub("", prose(page)))
    relative = (link.partition("#") for link in found if not re.match(r"[a-z][a-z0-9+.-]*:", link))
    return tuple(((page.parent / path).resolve() if path else page, part) for path, _, part in relative)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the fragments that GitHub gives to the headings of a page."""
    seen: dict[str, int] = {}
    found = set()
    for heading in HEADING.findall(prose(page)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return frozenset(found)


def named_files(page: Path) -> Iterator[str]:
    """Yield the project paths that a page names in backticks. NAME.py is a placeholder. `::test` is left out."""
    made = {Path(path).name for pair in MADE.findall(page.read_text(encoding="utf-8")) for path in pair if path}
    for code in CODE.findall(prose(page)):
        path = code.partition(":")[0]
        is_file = FILE.fullmatch(path) and Path(path).name not in made
        if is_file or (MODULE.fullmatch(path) and path.partition("/")[0] in (*ROOTS, *packages())):
            yield path


@cache
def packages() -> frozenset[str]:
    return frozenset(path.name for path in PRODUCT.iterdir() if path.is_dir())


@cache
def file_names() -> frozenset[str]:
    """Return the name of every file of the project that a page may mention without its folder."""
    return frozenset(path.name for root in ROOTS if (ROOT / root).is_dir() for path in (ROOT / root).rglob("*.*"))


def is_there(path: str) -> bool:
    if "/" not in path:
        return path in file_names()
    forms = (path, f"{path}.py", re.sub(r"\.\w+$", ".py", path), re.sub(r"\.\w+$", "", path))
    return any((base / form).exists() for base in (ROOT, PRODUCT) for form in forms)


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_every_page_is_found_from_the_index() -> None:
    """A page is linked from docs/index.md, or from a page that docs/index.md links."""
    near = {target for target, _ in links(INDEX) if target.suffix == ".md"}
    far = {target for page in near if page.is_file() for target, _ in links(page)}
    lost = [shown(page) for page in PAGES if page not in {INDEX} | near | far]
    assert lost == [], "link these pages from docs/index.md, or from a page that it links"


@pytest.mark.parametrize("page", LINKED, ids=shown)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target, fragment in links(page):
        name = str(target).removeprefix(f"{ROOT}/") + (f"#{fragment}" if fragment else "")
        if not target.exists() or (fragment and target.suffix == ".md" and fragment not in anchors(target)):
            broken.append(name)
    assert broken == [], f"{shown(page)} links what does not exist"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_named_file_exists(page: Path) -> None:
    """A path is relative to the project or to src/holdfast. A bare file name exists somewhere in the project."""
    stale = [path for path in named_files(page) if not is_there(path)]
    assert stale == [], f"{shown(page)} names files that do not exist"


def test_the_index_of_decisions_is_complete() -> None:
    """Every record has a row with its title, and every number that is missing is named as never used."""
    text = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[([0-9]{4})\]\(\1-[\w-]+\.md\) \| ([^|]+?) \|", text, re.MULTILINE))
    titles = {}
    for record in DECISIONS:
        heading = HEADING.search(record.read_text(encoding="utf-8"))
        assert heading, f"{shown(record)} has no heading"
        titles[record.name[:4]] = heading[1].removeprefix(record.name[:4]).lstrip(": ")
    assert rows == titles
    missing = {f"{number:04}" for number in range(1, int(max(titles)) + 1)} - set(titles)
    assert missing == set(NEVER_USED)
    assert [number for number in NEVER_USED if number not in text] == []


def test_every_row_of_a_decision_leads_to_its_file() -> None:
    linked = {target for target, _ in links(DOCS / "adr" / "README.md")}
    assert [shown(record) for record in DECISIONS if record not in linked] == []
