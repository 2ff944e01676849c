from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convergent import InputError
from convergent.settings import (
    Above,
    AtLeast,
    AtMost,
    Below,
    Count,
    Measure,
    Name,
    OneOf,
    Positive,
    Seed,
    Share,
    arguments,
    build,
    check_fields,
    checked,
    described,
    parse_json,
    settings_of,
    shown,
)


@dataclass(frozen=True)
class Inner:
    name: Name
    width: Count = 1


@dataclass(frozen=True)
class Outer:
    steps: Count
    pores: tuple[Count, Count] = (50, 200)
    clip: Positive | None = None
    kind: Annotated[str, OneOf(("a", "b"))] = "a"
    wide: bool = False
    columns: tuple[Inner, ...] = ()
    logs: tuple[Name, ...] | Name = ()
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)


def test_names_and_values_make_an_object() -> None:
    data = {"steps": 3, "pores": [20, 30], "clip": 1, "columns": [{"name": "x"}], "logs": ["x"], "more": {"a": [1]}}
    made = build(Outer, json.loads(json.dumps(data)))
    assert made == Outer(3, (20, 30), 1.0, columns=(Inner("x"),), logs=("x",), more={"a": [1]})
    assert isinstance(made.clip, float)
    assert build(Outer, {"steps": 3, "logs": "x"}).logs == "x"
    assert Outer(3, pores=[20, 30]).pores == (20, 30)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"settings: expected an object with names and values, but got \[\]"),
        ({}, "steps: expected a whole number, 1 or more, but got none"),
        ({"steps": 1, "colour": 2}, "settings: expected some of steps, pores, .*, but got 'colour'"),
        ({"steps": True}, "steps: expected a whole number, 1 or more, but got True"),
        ({"steps": 0}, "steps: expected a whole number, 1 or more, but got 0"),
        ({"steps": 1.0}, "steps: expected a whole number, 1 or more, but got 1.0"),
        ({"steps": 2**63}, "steps: expected a whole number, 1 or more, but got 9223372036854775808"),
        ({"steps": 1, "pores": [1, 2, 3]}, r"pores: expected two whole numbers, 1 or more, but got \[1, 2, 3\]"),
        ({"steps": 1, "pores": [1, "x"]}, "pores: expected two whole numbers, 1 or more, but got"),
        ({"steps": 1, "pores": "50,200"}, "pores: expected two whole numbers, 1 or more, but got '50,200'"),
        ({"steps": 1, "clip": float("nan")}, "clip: expected None or a number above 0, but got nan"),
        ({"steps": 1, "clip": float("inf")}, "clip: expected None or a number above 0, but got inf"),
        ({"steps": 1, "kind": "c"}, "kind: expected one of a, b, but got 'c'"),
        ({"steps": 1, "kind": ["a"]}, r"kind: expected one of a, b, but got \['a'\]"),
        ({"steps": 1, "wide": 1}, "wide: expected true or false, but got 1"),
        ({"steps": 1, "columns": [{"name": "x"}, {"name": ""}]}, r"columns\[1\].name: expected a name, but got ''"),
        ({"steps": 1, "columns": [5]}, r"columns\[0\]: expected an object with names and values, but got 5"),
        ({"steps": 1, "columns": {"name": "x"}}, "columns: expected a list of an object with names and values, but got"),
        ({"steps": 1, "logs": [5]}, r"logs: expected a list of names or a name, but got \[5\]"),
        ({"steps": 1, "more": []}, r"more: expected an object with names and values, but got \[\]"),
    ],
)
def test_what_is_wrong_is_named(data, message) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        build(Outer, data)


def test_what_a_caller_made_is_checked_too() -> None:
    with pytest.raises(InputError, match="steps: expected a whole number, 1 or more, but got 'x'"):
        Outer("x")  # type: ignore[arg-type]


def test_constructors_have_settings_too() -> None:
    class Model:
        def __init__(self, heads: int, hidden: Sequence[int] = (64,), anything=None):
            self.heads, self.hidden, self.anything = heads, hidden, anything

    assert {name: setting.required for name, setting in settings_of(Model).items()} == {
        "heads": True,
        "hidden": False,
        "anything": False,
    }
    assert build(Model, {"heads": 2, "hidden": [1, 2], "anything": object}).hidden == (1, 2)
    assert arguments(Model, {"heads": 2, "spare": 1}, spare=True) == {"heads": 2}
    with pytest.raises(InputError, match="heads: expected a whole number from 1 to 9, but got 10"):
        arguments(Model, {"heads": 10}, hints={"heads": Annotated[int, AtLeast(1), AtMost(9)]})


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int, "a whole number"),
        (Seed, "a whole number from 0 to 4294967295"),
        (Share, "a number above 0 and below 1"),
        (Annotated[float, AtLeast(0), Below(1)], "a number, 0 or more and below 1"),
        (Annotated[float, Above(2)] | None, "None or a number above 2"),
        (tuple[Name, ...], "a list of names"),
        (tuple[int, int, int], "three whole numbers"),
        (Sequence[float], "a list of numbers"),
        (dict[str, Measure], "an object with names and values"),
        (bool, "true or false"),
        (Inner, "an object with names and values"),
    ],
)
def test_types_in_words(hint, words) -> None:
    assert described(hint) == words


def test_measures_may_be_infinite_and_settings_may_not() -> None:
    assert checked(Measure, float("inf"), "best") == float("inf")
    with pytest.raises(InputError, match="best: expected a number, but got 'inf'"):
        checked(Measure, "inf", "best")
    with pytest.raises(InputError, match="rate: expected a number, but got inf"):
        checked(float, float("inf"), "rate")
    with pytest.raises(InputError, match="rate: expected a number, but got 1000"):
        checked(float, 10**400, "rate")


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_no_file_can_be_named_by(text) -> None:
    with pytest.raises(InputError, match="path: expected text, but got "):
        checked(str, text, "path")


def test_values_are_shown_on_one_short_line() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown(list(range(1000)))) == 100
    assert shown(10**5000) == "a int too long to show"


@pytest.mark.parametrize("text", ["{", "[" * 10000, "9" * 5000, '{"a": 1, "a": 2}', ""])
def test_bad_json(text) -> None:
    with pytest.raises(InputError) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*settings_of(Outer), "other"]), JSON))
def test_whatever_comes_is_an_object_or_one_line(data) -> None:
    try:
        made = build(Outer, data)
    except InputError as error:
        made, message = None, str(error)
    assert (made.steps >= 1 and len(made.pores) == 2) if made is not None else ": expected " in message
