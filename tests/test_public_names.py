"""What `import convergent` and its public packages offer: complete, documented in the source and on the API pages."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import convergent
from convergent.solvers import Solver

ROOT = Path(__file__).parents[1]
PACKAGES = ("convergent", *(f"convergent.{name}" for name in ("baselines", "maps", "nn", "solvers", "tasks")))
MODULES = (*PACKAGES, "convergent.weights")  # a module whose functions are public
API_PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
DOCUMENTED = [name for page in API_PAGES for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)]


def find(path: str) -> Any:
    """The object that a dotted path names, which may be a module or a name in one."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:count]))
        except ModuleNotFoundError as error:
            if error.name is None or not path.startswith(error.name):
                raise
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    raise AssertionError(path)


def is_own(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("convergent")


def public_of(module: ModuleType) -> list[str]:
    """The names in ``__all__``; without it, those of the functions and classes that the module itself defines."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


PUBLIC = sorted(f"{module}.{name}" for module in MODULES for name in public_of(import_module(module)))
CALLABLE = [name for name in PUBLIC if not isinstance(find(name), ModuleType)]


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_in_order_and_without_repetition(package: str) -> None:
    names = import_module(package).__all__
    order = sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))  # constants, classes, functions
    assert list(names) == order
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_else_is_public(package: str) -> None:
    module = import_module(package)
    others = {name for name in dir(module) if not name.startswith("_")} - set(module.__all__)
    accidental = [name for name in others if is_own(getattr(module, name)) and not isinstance(getattr(module, name), ModuleType)]
    assert accidental == []


def test_the_package_shows_its_names_and_packages_only() -> None:
    shown = {name for name in dir(convergent) if not name.startswith("_")}
    others = shown - set(convergent.__all__)
    assert all(isinstance(getattr(convergent, name), ModuleType) for name in others)
    assert others <= {module.rpartition(".")[2] for module in MODULES}


@pytest.mark.parametrize("name", ["solve_", "numpy", "Tensor"])
def test_an_unknown_name_is_an_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(convergent, name)


@pytest.mark.parametrize("path", PUBLIC)
def test_a_public_name_can_be_imported_and_says_what_it_is(path: str) -> None:
    value = find(path)
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert text, f"{path} has no docstring"
    assert not text.startswith(f"{path.rpartition('.')[2]}("), f"the docstring of {path} is the one dataclasses make up"


@pytest.mark.parametrize("path", CALLABLE)
def test_every_argument_is_described(path: str) -> None:
    value = find(path)
    text = inspect.getdoc(value) or ""
    if "Example:" in text or "(the others as in" in text or inspect.isabstract(value):
        return
    described = {name for names in re.findall(r"^ +(\w+(?:, \w+)*): ", text, re.MULTILINE) for name in names.split(", ")}
    assert own_arguments(value) <= described


def own_arguments(value: Any) -> set[str]:
    """Arguments by name, without those that every solver has and that ``Solver`` describes."""
    if inspect.isclass(value) and issubclass(value, BaseException | int):
        return set()
    arguments = set(inspect.signature(value).parameters) - {"self"}
    of_all = set(inspect.signature(Solver).parameters)
    return arguments - of_all if inspect.isclass(value) and issubclass(value, Solver) and value is not Solver else arguments


@pytest.mark.parametrize("path", PUBLIC)
def test_a_public_name_is_on_an_api_page(path: str) -> None:
    value = find(path)
    modules = [found for name in DOCUMENTED if isinstance(found := find(name), ModuleType)]
    listed = any(find(name) is value for name in DOCUMENTED)
    assert listed or (getattr(value, "__module__", "") in {module.__name__ for module in modules} and in_members(path))


def in_members(path: str) -> bool:
    """Of a module that is documented as a whole, the members that its page lists."""
    pattern = rf"^::: {re.escape(path.rpartition('.')[0])}\n(?:    .*\n)*?      members: \[(.*)\]"
    found = [match[1] for page in API_PAGES if (match := re.search(pattern, page.read_text(encoding="utf-8"), re.MULTILINE))]
    return any(path.rpartition(".")[2] in names.split(", ") for names in found)


@pytest.mark.parametrize("path", DOCUMENTED)
def test_a_documented_name_exists(path: str) -> None:
    assert find(path).__doc__


def test_no_name_is_documented_twice() -> None:
    values = [id(find(name)) for name in DOCUMENTED]
    assert len(set(values)) == len(values)
    assert len(DOCUMENTED) > len(convergent.__all__)
