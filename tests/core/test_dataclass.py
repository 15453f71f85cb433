"""The dataclasses of `base/dataclass` are those of the standard library, made at less cost."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from holdfast.base import dataclass as fast

ASKED = [
    {"frozen": True, "kw_only": True, "slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "kw_only": True},
    {"frozen": True},
]


def shape(decorator: Callable[..., Any], asked: dict[str, bool]) -> Any:
    @decorator(**asked)
    class Shape:
        """A class with every kind of field that is in use."""

        name: str
        size: int = 3
        tags: list[str] = field(default_factory=list)
        secret: str = field(default="s", repr=False)
        at: float = field(default=0.0, compare=False)
        like: Shape | None = None

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError(f"{self.size} is below 0")

        @property
        def double(self) -> int:
            return self.size * 2

    return Shape


def message(call: Callable[[], object]) -> tuple[type, str]:
    try:
        call()
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error)
    return type(None), ""


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_objects_are_those_of_the_standard_library(asked: dict[str, bool]) -> None:
    ours, theirs = (shape(one, asked) for one in (fast.dataclass, dataclasses.dataclass))
    for made in (ours, theirs):
        one, same, other = made(name="a", at=1.0), made(name="a", at=2.0), made(name="a", size=4)
        assert (one == same, one == other, one == "a") == (True, False, False)
        assert one.tags is not same.tags
        assert dataclasses.replace(one, size=9).double == 18
        assert (copy.copy(other), copy.deepcopy(other)) == (other, other)
        assert hash(made(name="a", tags=())) == hash(made(name="a", tags=(), at=5.0))
        assert dataclasses.asdict(one)["at"] == 1.0
        assert hasattr(one, "__dict__") is not asked.get("slots", False)
    assert repr(ours(name="a", like=ours(name="b"))) == repr(theirs(name="a", like=theirs(name="b")))
    assert [one.name for one in dataclasses.fields(ours)] == [one.name for one in dataclasses.fields(theirs)]
    assert ours.__dataclass_params__ == theirs.__dataclass_params__ or repr(ours.__dataclass_params__) == repr(
        theirs.__dataclass_params__
    )
    assert getattr(ours, "__match_args__", None) == getattr(theirs, "__match_args__", None)
    assert str(inspect.signature(ours.__init__)).replace(" ", "")[:6] == "(self,"  # made by now


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_refusals_are_those_of_the_standard_library(asked: dict[str, bool]) -> None:
    ours, theirs = (shape(one, asked) for one in (fast.dataclass, dataclasses.dataclass))

    def told(made: Any) -> list[tuple[type, str]]:
        one = made(name="a")
        return [
            message(call)
            for call in (
                made,
                lambda: made("a"),
                lambda: made(name="a", wrong=1),
                lambda: made(name="a", size=-1),
                lambda: setattr(one, "size", 4),
                lambda: delattr(one, "size"),
                lambda: hash(made(name="a")),
            )
        ]

    assert told(ours) == told(theirs)


@fast.dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """A value that goes to another process."""

    name: str
    size: int = 1


def test_values_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent(name="a", size=2))) == Sent(name="a", size=2)


def test_a_first_error_leaves_a_class_that_works() -> None:
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'name'"):
        Sent()  # type: ignore[call-arg]
    assert Sent(name="b").size == 1


def test_what_is_out_of_the_ordinary_is_made_by_the_standard_library() -> None:
    @fast.dataclass(frozen=True, slots=True)
    class Base:
        a: int

    @fast.dataclass(frozen=True, slots=True)
    class Derived(Base):
        b: int = 2

    @fast.dataclass(order=True)
    class Ordered:
        a: int

    assert Derived(1) == Derived(1, 2) != Derived(2)
    assert Ordered(1) < Ordered(2)
