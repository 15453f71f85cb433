"""Prompts with variables for values that are known only later: `Look at {{ task.range }}`. Pure.

A template has variables and nothing else: no logic, no expressions, no way to run anything. `{{{{` and `}}}}` produce
two braces. Values are inserted as they are, once: an agent's answer is never read as a template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from holdfast.base.dataclass import dataclass

LONGEST = 128 * 1024  # characters of a template
MOST_PLACES = 500  # variables and doubled braces in one template
MOST_MISTAKES = 20  # reported at once
LONGEST_NAME = 400  # characters between `{{` and `}}`
LONGEST_RENDERED = 900 * 1024  # bytes: an agent can be given 1 MiB at most, and hand-overs add to the prompt
CUT = "\n[… {count} characters were left out here …]\n"

# Every variable and its meaning. KEY and NAME stand for any label and any stage. The reference page is generated from
# this table.
VARIABLES: Mapping[str, str] = {
    "task.id": "The task's id.",
    "task.prompt": "The prompt of the task, as given to `add`.",
    "task.base": "The commit at which the range begins (`--base`). Without a range: where the work began.",
    "task.ref": "The ref from which the workspace was made (`--ref`, else `--base`), as it was given.",
    "task.range": "The commits that the task is about, `BASE..REF`. Such a workflow needs `--base` or `--ref`.",
    "task.branch": "The branch that the task works on.",
    "task.labels.KEY": "The task's label KEY. Empty: it has no such label.",
    "turn": "The number of the turn, from 1. It rises when this stage sends the work back, or gets it back.",
    "feedback": "Why the stage runs again: the reviewer's answer, the output of its gate, or a person's request. Empty "
    "the first time. A prompt that does not use this variable gets the feedback at its end.",
    "member": "The name of the member that gets this prompt. In parallel stages only.",
    "schedule.name": "The schedule that added the task. Empty: no schedule did.",
    "schedule.fire_time": "The time that the task was scheduled for, in RFC 3339 form. Empty: no schedule added it.",
    "stages.NAME.text": "The final answer of the agent of stage NAME. For a parallel stage: the same as `members`.",
    "stages.NAME.outcome": "How the stage ended: `completed`, `failed`, `timeout`, …",
    "stages.NAME.ruling": "The ruling of a reviewing stage: `approve` or `changes`.",
    "stages.NAME.gate": "The output of the stage's gate, and how the gate ended.",
    "stages.NAME.files": "The files that were changed when the stage ended, one per line.",
    "stages.NAME.members": "The answers of all members of a parallel stage, each under a heading with its name.",
}
_LABELS = "task.labels."
_STAGES = "stages."
OF_STAGES = tuple(name.rpartition(".")[2] for name in VARIABLES if name.startswith(_STAGES))
_PLAIN = tuple(name for name in VARIABLES if not name.startswith((_LABELS, _STAGES)))
_PIECE = re.compile(r"\{\{\{\{|\}\}\}\}|\{\{|\}\}")
_NAME = re.compile(r"[A-Za-z_][^\s{}]*")


@dataclass(frozen=True, slots=True)
class TemplateMistake:
    """A mistake in a template, and its location."""

    line: int  # from 1
    column: int  # from 1
    text: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.text}"


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable in a template."""

    name: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Template:
    """Text and variables, in order."""

    parts: tuple[str | Variable, ...]

    @property
    def places(self) -> tuple[Variable, ...]:
        return tuple(part for part in self.parts if isinstance(part, Variable))

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the template's variables."""
        return frozenset(place.name for place in self.places)


class TemplateError(ValueError):
    """An error for a text that is not a valid template. It has all mistakes, and the part of the template that could be
    read."""

    def __init__(self, mistakes: Sequence[TemplateMistake], template: Template) -> None:
        self.mistakes = tuple(mistakes)
        self.template = template
        super().__init__(str(mistakes[0]))


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateScope:
    """The names that a template may use, given the position of its stage in the workflow."""

    stages: Sequence[str] = ()  # of the workflow, in order
    reachable: frozenset[str] = frozenset()  # stages that may have run before this one
    parallel: frozenset[str] = frozenset()
    reviewing: frozenset[str] = frozenset()
    is_member: bool = False  # the template is a prompt for members of a parallel stage


def parse(text: str) -> Template:
    """Parse a template. Raise TemplateError, with every mistake and its location, if it is not valid. The names of
    variables are not checked here but by `check`."""
    if len(text) > LONGEST:
        raise TemplateError([TemplateMistake(1, 1, f"it is longer than {LONGEST // 1024} KiB")], Template(()))
    parts: list[str | Variable] = []
    mistakes: list[TemplateMistake] = []
    at = 0
    for piece in _pieces(text):
        parts.append(text[at : piece.start])
        at = piece.end
        if piece.wrong:
            mistakes.append(TemplateMistake(*_position(text, piece.start), piece.wrong))
        else:
            parts.append(piece.literal or Variable(piece.name, *_position(text, piece.start)))
        if len(mistakes) == MOST_MISTAKES or len(parts) > 2 * MOST_PLACES:
            break
    if len(parts) > 2 * MOST_PLACES:
        mistakes.append(TemplateMistake(1, 1, f"it has more than {MOST_PLACES} variables"))
    if mistakes:
        raise TemplateError(mistakes, Template(tuple(parts)))
    parts.append(text[at:])
    return Template(tuple(part for part in parts if part != ""))


def find_mistakes(text: str, here: TemplateScope) -> list[TemplateMistake]:
    """Return the mistakes of a template in order, at most MOST_MISTAKES."""
    try:
        return list(islice(check(parse(text), here), MOST_MISTAKES))
    except TemplateError as error:
        found = [*error.mistakes, *islice(check(error.template, here), MOST_MISTAKES)]
        return sorted(found, key=lambda mistake: (mistake.line, mistake.column))[:MOST_MISTAKES]


def check(template: Template, here: TemplateScope) -> Iterator[TemplateMistake]:
    """Yield a mistake for every variable that has no value at this position in the workflow."""
    for place in template.places:
        text = _check_name(place.name, here)
        if text:
            yield TemplateMistake(place.line, place.column, text)


def render(template: Template, values: Mapping[str, str], most: int = LONGEST_RENDERED) -> str:
    """Insert the values as they are. A missing value is empty.

    Too much text is cut in the middle of the longest values, with a note. The result has at most `most` bytes, unless
    the template's own text has more.
    """
    told = [values.get(name, "") for name in (place.name for place in template.places)]
    own = sum(len(part.encode(errors="surrogatepass")) for part in template.parts if isinstance(part, str))
    filled = iter(_fit_values(told, max(0, most - own)))
    return "".join(part if isinstance(part, str) else next(filled) for part in template.parts)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a template that is not plain text: two braces, a variable, or a mistake."""

    start: int
    end: int
    literal: str = ""
    name: str = ""
    wrong: str = ""


def _pieces(text: str) -> Iterator[_Piece]:
    at = 0
    while (found := _PIECE.search(text, at)) is not None:
        start, at = found.span()
        word = found.group()
        if len(word) == 4:
            yield _Piece(start, at, literal=word[:2])
        elif word == "}}":
            yield _Piece(start, at, wrong="'}}' closes nothing; write '}}}}' for two braces")
        else:
            end = text.find("}}", at, at + LONGEST_NAME)
            inner = text[at:end] if end >= 0 else "{{"
            if "{{" in inner:
                yield _Piece(start, at, wrong="'{{' is never closed by '}}'; write '{{{{' for two braces")
            else:
                at = end + 2
                yield _Piece(start, at, name=inner.strip(), wrong=_check_syntax(inner.strip()))


def _check_syntax(name: str) -> str:
    if not name:
        return "there is no variable's name between '{{' and '}}'"
    if _NAME.fullmatch(name) is None:
        return f"'{_short(name)}' is not the name of a variable; a template has no expressions"
    return ""


def _check_name(name: str, here: TemplateScope) -> str:
    if name in _PLAIN:
        return "'member' is only known in a stage with members" if name == "member" and not here.is_member else ""
    if name.startswith(_LABELS) and len(name) > len(_LABELS):
        return ""
    if name.startswith(_STAGES):
        return _check_stage_name(name, here)
    return f"there is no variable '{_short(name)}'{_meant(name, [*_PLAIN, *_of_stages(here)])}"


def _check_stage_name(name: str, here: TemplateScope) -> str:
    stage, _, field = name.removeprefix(_STAGES).rpartition(".")
    if not stage and field in here.stages:
        return f"'{_short(name)}' is a stage; say what of it: {', '.join(f'{name}.{known}' for known in OF_STAGES)}"
    if stage not in here.stages:
        return f"there is no stage '{_short(stage or field)}'{_meant(name, _of_stages(here))}"
    if field not in OF_STAGES:
        return (
            f"there is no variable '{_short(name)}'{_meant(name, [f'stages.{stage}.{known}' for known in OF_STAGES])}"
        )
    if stage not in here.reachable:
        return f"the stage '{stage}' does not run before this one, so nothing is known of it here"
    if field == "members" and stage not in here.parallel:
        return f"the stage '{stage}' has no members; its answer is 'stages.{stage}.text'"
    if field == "ruling" and stage not in here.reviewing:
        return f"the stage '{stage}' rules nothing: it has no `reviews = true`"
    return ""


def _of_stages(here: TemplateScope) -> list[str]:
    known = [stage for stage in here.stages if stage in here.reachable]
    return [f"stages.{stage}.{field}" for stage in known for field in OF_STAGES]


def _fit_values(values: Sequence[str], room: int) -> list[str]:
    """Return the values. If their total size exceeds `room`, the longest are cut to a common size."""
    sizes = [len(value.encode(errors="surrogatepass")) for value in values]
    if sum(sizes) <= room:
        return list(values)
    level, left, shorter = 0, room, sorted(sizes)
    for number, size in enumerate(shorter):
        level = left // (len(shorter) - number)
        if size > level:
            break
        left -= size
    return [value if size <= level else _cut(value, level) for value, size in zip(values, sizes, strict=True)]


def _cut(value: str, most: int) -> str:
    """Return the beginning and the end of the value, in at most `most` bytes."""
    note = CUT.format(count=len(value))
    half = (most - len(note.encode())) // 2
    if half <= 0:
        return ""
    data = value.encode(errors="surrogatepass")
    begin, end = data[:half].decode(errors="ignore"), data[-half:].decode(errors="ignore")
    return begin + CUT.format(count=len(value) - len(begin) - len(end)) + end


def _position(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def _short(word: str) -> str:
    flat = " ".join(word.split())
    return flat if len(flat) <= 60 else flat[:59] + "…"


def _meant(word: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word[:200], known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
