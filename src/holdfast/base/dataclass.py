"""Dataclasses that cost little at import.

Python 3.11 and 3.12 compile six methods of each frozen dataclass from text, 0.5 ms a class: the command `add` spent 60
of 160 ms on 130 classes. This decorator compiles `__init__` when the class is first used, and the other five methods
are closures. Fields, `replace`, equality, hashes, text and errors are those of the standard library. A class that asks
for anything else than `frozen`, `slots` and `kw_only` gets the standard decorator.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, **more):
        def decorate(cls):
            if frozen and not more and _is_plain(cls):
                return _make(cls, slots, kw_only)
            return dataclasses.dataclass(cls, frozen=frozen, slots=slots, kw_only=kw_only, **more)

        return decorate if cls is None else decorate(cls)

    _WRITTEN = ("__init__", "__setattr__", "__delattr__", "__getstate__", "__setstate__", "__eq__", "__hash__")

    def _is_plain(cls):
        """True if the class has no base with fields, only ordinary fields, and defines none of the methods that are
        generated here."""
        if any("__dataclass_fields__" in vars(base) for base in cls.__mro__[1:]):
            return False
        if any(name in vars(cls) for name in _WRITTEN):
            return False
        kinds = " ".join(map(str, vars(cls).get("__annotations__", {}).values()))
        if "InitVar" in kinds or "KW_ONLY" in kinds:
            return False
        return all(value.init for value in vars(cls).values() if isinstance(value, dataclasses.Field))

    def _make(cls, slots, kw_only):
        if not cls.__doc__:
            cls.__doc__ = cls.__name__  # the standard library would read the signature for it
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
        asked = made.__dataclass_params__
        asked.init = asked.repr = asked.eq = asked.frozen = True
        fields = dataclasses.fields(made)
        methods = [*_made_and_frozen(made, fields), *_compared(fields)]
        if "__repr__" not in vars(made):
            methods.append(_shown([field.name for field in fields if field.repr]))
        if slots:
            methods += _pickled([field.name for field in fields])
        for method in methods:
            method.__qualname__ = f"{made.__qualname__}.{method.__name__}"
            setattr(made, method.__name__, method)
        return made

    def _made_and_frozen(made, fields):
        names = frozenset(field.name for field in fields)

        def __init__(self, *args, **values):
            made.__init__ = _compile_init(made, fields)
            made.__init__(self, *args, **values)

        def __setattr__(self, name, value):
            if type(self) is made or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            super(made, self).__setattr__(name, value)

        def __delattr__(self, name):
            if type(self) is made or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
            super(made, self).__delattr__(name)

        return __init__, __setattr__, __delattr__

    def _compared(fields):
        compared = _values_of([field.name for field in fields if field.compare])
        hashed = _values_of([field.name for field in fields if (field.compare if field.hash is None else field.hash)])

        def __eq__(self, other):
            return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            return hash(hashed(self))

        return __eq__, __hash__

    def _shown(names):
        @recursive_repr()
        def __repr__(self):
            return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

        return __repr__

    def _values_of(names):
        """Return a function from an object to the tuple of these fields."""
        if len(names) > 1:
            return attrgetter(*names)
        if not names:
            return lambda _self: ()
        (name,) = names
        return lambda self: (getattr(self, name),)

    def _pickled(names):
        """Return the methods with which frozen objects with slots are copied and pickled."""

        def __getstate__(self):
            return [getattr(self, name) for name in names]

        def __setstate__(self, state):
            for name, value in zip(names, state, strict=True):
                object.__setattr__(self, name, value)

        return [__getstate__, __setstate__]

    def _compile_init(cls, fields):
        """Return `__init__`, compiled from text as the standard library does it."""
        known = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
        positional, keywords, body = ["self"], [], []
        for number, field in enumerate(fields):
            name, given = field.name, field.name
            if field.default is not dataclasses.MISSING:
                known[f"_default_{number}"] = field.default
                given = f"{name}=_default_{number}"
            elif field.default_factory is not dataclasses.MISSING:
                known[f"_factory_{number}"] = field.default_factory
                given = f"{name}=_missing"
                body.append(f"if {name} is _missing: {name} = _factory_{number}()")
            (keywords if field.kw_only else positional).append(given)
            body.append(f"_set(self, {name!r}, {name})")
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        parameters = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
        lines = [f"def make({', '.join(known)}):", f" def __init__({parameters}):"]
        lines += [f"  {line}" for line in body or ["pass"]]
        lines.append(" return __init__")
        space = {}
        exec("\n".join(lines), {}, space)
        method = space["make"](**known)
        method.__qualname__ = f"{cls.__qualname__}.__init__"
        return method
