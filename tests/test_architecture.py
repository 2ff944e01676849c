"""The house keeps its shape: imports point one way, tests mirror sources, and importing convergent is cheap."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "convergent"
TESTS = ROOT / "tests"

# From left to right. A module imports from its own room and from the rooms to its left, never from one to its right.
# "__init__" is the front door, convergent/__init__.py: it may import all, and only the last room may come in by it.
ROOMS = (
    ("errors",),
    ("settings",),
    ("storage",),
    ("kernels",),
    ("graph", "operations"),
    ("factors",),
    ("maps", "weights"),
    ("certify",),
    ("solvers",),
    ("implicit", "fixed_point"),
    ("nn",),
    ("baselines", "tasks"),
    ("training",),
    ("experiments",),
    ("report", "cli", "__main__", "__init__"),
)
RANK = {name: rank for rank, names in enumerate(ROOMS) for name in names}

# Tests that mirror no single module, and why.
WITHOUT_SOURCE = {
    "test_architecture.py": "this file",
    "test_examples.py": "runs every script in examples/",
    "test_benchmarks.py": "runs the smallest case of benchmarks/",
    "test_pages.py": "opens the pages of docs/ in a browser",
    "test_campaign.py": "the campaign finds what is wrong",
    "cli/test_bad_input.py": "every command, with bad input",
    "test_public_names.py": "what `import convergent` offers",
}

# What only some users need is imported when they need it.
HEAVY = ("torch", "numpy", "numba", "llvmlite", "matplotlib", "pyamg", "openpnm", "torch_geometric")


class Import(NamedTuple):
    line: int
    target: str  # dotted name of what is imported


# --- reading imports ------------------------------------------------------------------------------------------------


def module_name(path: Path, source: Path) -> str:
    """src/convergent/kernels/cpu.py -> convergent.kernels.cpu"""
    parts = (source.name, *path.relative_to(source).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_type_checking(test: ast.expr) -> bool:
    return (test.id if isinstance(test, ast.Name) else getattr(test, "attr", None)) == "TYPE_CHECKING"


def running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below, inside functions too, but not what stands under ``if TYPE_CHECKING:``."""
    yield node
    skipped = node.body if isinstance(node, ast.If) and is_type_checking(node.test) else []
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from running_nodes(child)


def dynamic_target(call: ast.Call) -> str | None:
    """The module that ``import_module("a.b")`` names; of ``import_module(f"a.b.{name}")`` the part that is known."""
    function = call.func
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", None)
    if name not in ("import_module", "__import__") or not call.args:
        return None
    first = call.args[0]
    if isinstance(first, ast.JoinedStr) and first.values and isinstance(first.values[0], ast.Constant):
        return str(first.values[0].value).rpartition(".")[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def imports(code: str, module: str, is_package: bool) -> Iterator[Import]:
    """Everything the code imports when it runs; ``from a import b`` is a.b, since b may be a module."""
    for node in running_nodes(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parents = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parents, *filter(None, [base])])
            yield from (Import(node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and (target := dynamic_target(node)):
            yield Import(node.lineno, target)


# --- the rules ------------------------------------------------------------------------------------------------------


def public_names(source: Path) -> set[str]:
    """What the front door takes from its modules: ``from convergent import solve`` is the function, not the module."""
    door = source / "__init__.py"
    nodes = ast.walk(ast.parse(door.read_text())) if door.exists() else ()
    taken = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module not in (None, "convergent")]
    return {alias.asname or alias.name for node in taken for alias in node.names}


def room_of(target: str, source: Path, public: set[str]) -> str:
    """The room that an import of convergent.* enters."""
    _, _, rest = target.partition(".")
    first, _, deeper = rest.partition(".")
    is_module = (source / f"{first}.py").exists() or (source / first).is_dir()
    enters_by_door = not first or not (is_module or deeper) or (first in public and not deeper)
    return "__init__" if enters_by_door else first


def broken_arrows(source: Path) -> list[str]:
    """One line for every import that points to the right, and for every module without a room."""
    public, wrong = public_names(source), []
    for path in sorted(source.rglob("*.py")):
        module, is_package = module_name(path, source), path.name == "__init__.py"
        own = module.partition(".")[2].partition(".")[0] or "__init__"
        where = f"src/convergent/{path.relative_to(source)}"
        if own not in RANK:
            wrong.append(f"{where}: no room is called '{own}'; place it in ROOMS, left of everything that imports it")
            continue
        for line, target in imports(path.read_text(), module, is_package):
            if target.partition(".")[0] != "convergent":
                continue
            room = room_of(target, source, public)
            if room not in RANK:
                wrong.append(f"{where}:{line}: imports {target}, and no room is called '{room}'; place it in ROOMS")
            elif RANK[room] > RANK[own]:
                wrong.append(f"{where}:{line}: '{own}' imports {target}, but '{room}' lies to its right")
    return wrong


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def lines_where(found) -> list[str]:
    """file:line of every node of the library that ``found`` accepts."""
    return [
        f"src/convergent/{path.relative_to(SOURCE)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if found(node)
    ]


# --- the house ------------------------------------------------------------------------------------------------------


def test_imports_point_to_the_left():
    assert modules(), f"nothing to check under {SOURCE}"
    assert not (wrong := broken_arrows(SOURCE)), "\n" + "\n".join(wrong)


def test_no_star_imports():
    def star(node: ast.AST) -> bool:
        return isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)

    assert lines_where(star) == []


def test_no_print():
    def prints(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"

    assert lines_where(prints) == []


def test_no_utils():
    assert [path for path in modules() if "utils" in (path.stem, path.parent.name)] == []


def test_every_test_mirrors_a_source():
    orphans = []
    for path in sorted(TESTS.rglob("test_*.py")):
        relative = path.relative_to(TESTS)
        mirrored = SOURCE / relative.with_name(relative.name.removeprefix("test_"))
        if str(relative) not in WITHOUT_SOURCE and not mirrored.exists() and not mirrored.with_suffix("").is_dir():
            orphans.append(f"tests/{relative} mirrors no {mirrored.relative_to(ROOT)}")
    assert not orphans, "\n" + "\n".join(orphans)


def test_import_is_light():
    assert (SOURCE / "__init__.py").exists(), "src/convergent/__init__.py is missing"
    code = f"import json, sys, convergent; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == []


def test_the_engine_is_light():
    code = f"import json, sys, convergent; convergent.solve; print(json.dumps([m for m in {HEAVY[2:]!r} if m in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == []


# --- the rules themselves, on houses made up for the purpose --------------------------------------------------------


def house(root: Path, **files: str) -> Path:
    """A package of the given files; ``kernels__cpu`` stands for kernels/cpu.py, ``door`` for __init__.py."""
    source = root / "convergent"
    for name, code in ({"door": ""} | files).items():
        path = source / ("__init__.py" if name == "door" else name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return source


@pytest.mark.parametrize(
    "code",
    [
        "import convergent.nn",
        "import convergent.nn as layers",
        "from convergent import nn",
        "from convergent.nn import conv",
        "from convergent.nn.conv import Conv",
        "from . import nn",
        "from .nn.conv import Conv",
        "def late():\n    from convergent.nn import conv",
        "import importlib\nimportlib.import_module('convergent.nn.conv')",
        "import importlib\nimportlib.import_module(f'convergent.nn.{name}')",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import convergent.nn",
        "try:\n    import convergent.nn\nexcept ImportError:\n    pass",
    ],
)
def test_an_arrow_to_the_right_is_found(tmp_path, code):
    source = house(tmp_path, graph=code, nn__conv="class Conv: ...")
    (wrong,) = broken_arrows(source)
    assert wrong.startswith("src/convergent/graph.py:")
    assert "'nn' lies to its right" in wrong


@pytest.mark.parametrize(
    "code",
    [
        "import convergent.kernels.cpu",
        "from convergent import kernels",
        "from convergent.operations import add",
        "from .operations import add",
        "import numpy\nfrom torch import nn",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from convergent.nn import conv",
        "import typing\nif typing.TYPE_CHECKING:\n    from convergent.nn import conv",
    ],
)
def test_an_arrow_to_the_left_is_fine(tmp_path, code):
    files = {"graph": code, "operations": "", "kernels__cpu": "", "nn__conv": ""}
    assert broken_arrows(house(tmp_path, **files)) == []


def test_relative_imports_climb_from_modules_and_packages(tmp_path):
    files = {"kernels__cpu": "from ..nn import conv", "nn__conv": ""}
    source = house(tmp_path, **files)
    (source / "kernels" / "__init__.py").write_text("from .cpu import dot\nfrom ..nn import conv")
    assert [line.partition(": ")[0] for line in broken_arrows(source)] == [
        "src/convergent/kernels/__init__.py:2",
        "src/convergent/kernels/cpu.py:1",
    ]


@pytest.mark.parametrize("code", ["import convergent", "from convergent import Graph", "from convergent import solve"])
def test_the_front_door_is_not_a_way_in(tmp_path, code):
    door = "from convergent.graph import Graph\nfrom convergent.fixed_point import solve"
    files = {"door": door, "graph": "", "fixed_point": "", "nn": code, "cli": code}
    (wrong,) = broken_arrows(house(tmp_path, **files))
    assert wrong.startswith("src/convergent/nn.py:1: ")
    assert "'__init__' lies to its right" in wrong


def test_a_module_that_the_front_door_offers_is_still_a_module(tmp_path):
    files = {"door": "from convergent import weights", "weights": "", "nn": "from convergent import weights"}
    assert broken_arrows(house(tmp_path, **files)) == []


def test_a_module_without_a_room_is_told_to_find_one(tmp_path):
    (wrong,) = broken_arrows(house(tmp_path, attic=""))
    assert "src/convergent/attic.py" in wrong
    assert "place it in ROOMS" in wrong
