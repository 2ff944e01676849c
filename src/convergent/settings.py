"""Typed settings: one check for what comes from the command line, a JSON file, a model's header, a checkpoint or a caller.

A settings class is a dataclass, or any callable with annotated arguments, whose hints say all there is to check::

    steps: Annotated[int, AtLeast(1)] = 1000
    pores: tuple[Size, Size] = (50, 200)
    clip: Annotated[float, Above(0)] | None = None

``build`` makes one from names and values, and ``check_fields`` checks one that was made by hand.
"""

from __future__ import annotations

import inspect
import json
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Annotated, Any, NoReturn, Protocol, Union, get_args, get_origin, get_type_hints

from convergent.errors import InputError, expect

LARGEST_INTEGER = 2**63 - 1
LARGEST_SEED = 2**32 - 1
SHOWN = 100  # characters of a value that a message repeats
REQUIRED = inspect.Parameter.empty  # in the place of a default


# --- constraints ---


class Constraint(Protocol):
    def holds(self, value: Any) -> bool: ...

    @property
    def words(self) -> str: ...


@dataclass(frozen=True)
class AtLeast:
    bound: float

    def holds(self, value: Any) -> bool:
        return bool(value >= self.bound)

    @property
    def words(self) -> str:
        return f"{self.bound} or more"


@dataclass(frozen=True)
class AtMost:
    bound: float

    def holds(self, value: Any) -> bool:
        return bool(value <= self.bound)

    @property
    def words(self) -> str:
        return f"at most {self.bound}"


@dataclass(frozen=True)
class Above:
    bound: float

    def holds(self, value: Any) -> bool:
        return bool(value > self.bound)

    @property
    def words(self) -> str:
        return f"above {self.bound}"


@dataclass(frozen=True)
class Below:
    bound: float

    def holds(self, value: Any) -> bool:
        return bool(value < self.bound)

    @property
    def words(self) -> str:
        return f"below {self.bound}"


@dataclass(frozen=True)
class OneOf:
    values: tuple[str, ...]

    def holds(self, value: Any) -> bool:
        return value in self.values

    @property
    def words(self) -> str:
        return f"one of {', '.join(self.values)}"


@dataclass(frozen=True)
class NotEmpty:
    words = "not empty"

    def holds(self, value: Any) -> bool:
        return len(value) > 0


@dataclass(frozen=True)
class AnyFloat:
    """Infinity and NaN are numbers too: results may hold them, settings may not."""

    words = ""

    def holds(self, value: Any) -> bool:
        return True


Count = Annotated[int, AtLeast(1)]
Natural = Annotated[int, AtLeast(0)]
Seed = Annotated[int, AtLeast(0), AtMost(LARGEST_SEED)]
Positive = Annotated[float, Above(0)]
Share = Annotated[float, Above(0), Below(1)]
Name = Annotated[str, NotEmpty()]
Measure = Annotated[float, AnyFloat()]


# --- settings ---


@dataclass(frozen=True)
class Setting:
    """One setting: its type, and its default or ``REQUIRED``."""

    hint: Any
    default: Any

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


def settings_of(kind: Callable[..., Any]) -> dict[str, Setting]:
    """The settings of a class by name, in their order: the arguments of its constructor. Without a hint any value will do."""
    if is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {entry.name: Setting(hints[entry.name], _default(entry)) for entry in fields(kind) if entry.init}
    try:
        hints = get_type_hints(kind.__init__ if isinstance(kind, type) else kind, include_extras=True)  # type: ignore[misc]
    except NameError:  # a hint of somebody's own class that is only imported for type checkers
        hints = {}
    taken = inspect.signature(kind).parameters
    return {name: Setting(hints.get(name, Any), argument.default) for name, argument in taken.items()}


def _default(entry: Field[Any]) -> Any:
    if entry.default_factory is not MISSING:
        return entry.default_factory()
    return REQUIRED if entry.default is MISSING else entry.default


def arguments(
    kind: Callable[..., Any],
    data: Any,
    label: str = "settings",
    prefix: str = "",
    hints: Mapping[str, Any] | None = None,
    spare: bool = False,
) -> dict[str, Any]:
    """Names and values for the constructor of ``kind``, checked and converted.

    Args:
        data: names and values, as JSON or the command line has them.
        label: what the whole is called in a message.
        prefix: of every name in a message.
        hints: types by name that are stricter than those of the constructor.
        spare: there may be other names, which are left out.

    Raises:
        InputError: the first thing that is wrong, as ``NAME: expected X, but got Y``.
    """
    expect(isinstance(data, Mapping), label, "an object with names and values", shown(data))
    known = settings_of(kind)
    for name in () if spare else data:
        expect(name in known, label, f"some of {', '.join(known)}", shown(name))
    values = {}
    for name, setting in known.items():
        hint = (hints or {}).get(name, setting.hint)
        if name in data:
            values[name] = checked(hint, data[name], f"{prefix}{name}")
        else:
            expect(not setting.required, f"{prefix}{name}", described(hint), "none")
    return values


def build(kind: Callable[..., Any], data: Any, label: str = "settings", prefix: str = "") -> Any:
    """An object of this kind from names and values."""
    return kind(**arguments(kind, data, label, prefix))


def check_fields(settings: Any) -> None:
    """Check the fields of a dataclass, for its ``__post_init__``; lists become tuples where the hint has them."""
    for name, setting in settings_of(type(settings)).items():
        object.__setattr__(settings, name, checked(setting.hint, getattr(settings, name), name))


# --- values ---


class _UnfitError(Exception):
    """A value is not of its type."""


def checked(hint: Any, value: Any, name: str) -> Any:
    """The value as this type, or one line that says what was expected."""
    try:
        return _fit(hint, value, name)
    except _UnfitError:
        raise InputError(f"{name}: expected {described(hint)}, but got {shown(value)}") from None


def _fit(hint: Any, value: Any, name: str) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        return _constrained(parts[0], parts[1:], value, name)
    if origin in (Union, types.UnionType):
        return _first_fit(parts, value, name)
    if origin is tuple and parts[-1] is not Ellipsis:
        items = _items(value)
        return tuple(_fit(*pair, name) for pair in zip(parts, items, strict=True)) if len(items) == len(parts) else _unfit()
    if origin is tuple or origin in (Sequence, list):
        return tuple(_fit(parts[0], item, f"{name}[{index}]") for index, item in enumerate(_items(value)))
    if origin in (dict, Mapping):
        return _mapped(parts, value, name)
    if is_dataclass(hint) and not isinstance(value, hint):  # type: ignore[arg-type]
        return build(hint, value, name, f"{name}.")  # type: ignore[arg-type]
    return _plain(hint, value)


def _plain(hint: Any, value: Any) -> Any:
    """A number, text, true or false, none, or an object of a class."""
    if hint is float:
        return _finite(value)
    if hint in (None, type(None)):
        return value if value is None else _unfit()
    fits = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if fits and hint is int:
        fits = abs(value) <= LARGEST_INTEGER
    if fits and hint is str:
        fits = _writable(value)
    return value if fits else _unfit()


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _unfit()
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        _unfit()
    return float(value) if math.isfinite(value) else _unfit()


def _writable(text: str) -> bool:
    """Whether files can be named so, and terminals and JSON can show it."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _constrained(hint: Any, constraints: Sequence[Constraint], value: Any, name: str) -> Any:
    if any(isinstance(constraint, AnyFloat) for constraint in constraints):
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else _unfit()
    found = _fit(hint, value, name)
    return found if all(constraint.holds(found) for constraint in constraints) else _unfit()


def _first_fit(hints: Sequence[Any], value: Any, name: str) -> Any:
    for hint in hints:
        try:
            return _fit(hint, value, name)
        except _UnfitError:
            pass
    return _unfit()


def _mapped(hints: Sequence[Any], value: Any, name: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        _unfit()
    return {_fit(hints[0], key, name): checked(hints[1], item, f"{name}.{key}") for key, item in value.items()}


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else _unfit()


def _unfit() -> NoReturn:
    raise _UnfitError


# --- words ---

_WORDS: dict[Any, str] = {
    Name: "a name",
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "None",
    Any: "anything",
}
_PLURALS: dict[Any, str] = {
    Name: "names",
    int: "whole numbers",
    float: "numbers",
    str: "texts",
    bool: "values, true or false",
    Any: "values",
}
_NUMBERS = {2: "two", 3: "three", 4: "four"}


def described(hint: Any) -> str:
    """A type in words, to follow "expected"."""
    if hint in _WORDS:
        return _WORDS[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _limited(described(parts[0]), parts[1:])
    if origin in (Union, types.UnionType):
        words = sorted((described(part) for part in parts), key=lambda text: text != "None")
        return " or ".join(dict.fromkeys(words))
    if origin is tuple and parts[-1] is not Ellipsis:
        return f"{_NUMBERS.get(len(parts), len(parts))} {_plural(parts[0])}"
    if origin is tuple or origin in (Sequence, list):
        return f"a list of {_plural(parts[0])}"
    if origin in (dict, Mapping) or is_dataclass(hint):
        return "an object with names and values"
    return str(getattr(hint, "__name__", hint))


def _plural(hint: Any) -> str:
    if hint not in _PLURALS and get_origin(hint) is Annotated:
        inner, *constraints = get_args(hint)
        return _limited(_plural(inner), constraints)
    return _PLURALS.get(hint) or described(hint)


def _limited(words: str, constraints: Sequence[Constraint]) -> str:
    """ "a whole number" and its limits: "a whole number from 0 to 9", "a number above 0 and below 1"."""
    first = constraints[0]
    if isinstance(first, OneOf):
        return first.words
    if len(constraints) == 2 and isinstance(first, AtLeast) and isinstance(constraints[1], AtMost):
        return f"{words} from {first.bound} to {constraints[1].bound}"
    limits = " and ".join(constraint.words for constraint in constraints if constraint.words)
    comma = "," if limits and not isinstance(first, Above | Below) else ""
    return f"{words}{comma} {limits}".rstrip()


def shown(value: Any) -> str:
    """A value in a message: on one line, and not all of it where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python prints, or lists without end
        text = f"a {type(value).__name__} too long to show"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]} ..."


# --- JSON ---


def parse_json(text: str) -> Any:
    """What JSON says; every name once.

    Raises:
        InputError: a reason why it cannot be read, in one line and without a name.
    """
    try:
        return json.loads(text, object_pairs_hook=_once)
    except InputError:
        raise
    except RecursionError:
        raise InputError("nested too deeply") from None
    except ValueError as error:  # JSONDecodeError, or a number of thousands of digits
        raise InputError(str(error).partition(";")[0]) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise InputError(f"the name {shown(twice)} is there twice")
    return found
