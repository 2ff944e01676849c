"""The settings of a model, as a header or the command line gives them: their types, and how large a model they may make."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from convergent.errors import InputError, expect
from convergent.graph import FLOWS
from convergent.kernels.activations import ACTIVATIONS
from convergent.settings import AtLeast, AtMost, Below, Count, Natural, OneOf, Positive, Share, arguments, shown
from convergent.solvers import Solver

MOST_LAYERS = 1000
WIDEST = 2**20
MOST_NUMBERS = 2**30  # in a model: 4 GiB, and three times as much while it is trained
MOST_TENSORS = 20_000

Size = Annotated[int, AtLeast(1), AtMost(WIDEST)]
Known = Annotated[str, OneOf(tuple(ACTIVATIONS))]

# What the arguments of models have in common, more exactly than the hints of their constructors.
HINTS: dict[str, Any] = {
    **dict.fromkeys(("heads", "outputs", "units", "channels", "width"), Size),
    **dict.fromkeys(("node_features", "edge_features"), Annotated[int, AtLeast(0), AtMost(WIDEST)]),
    **dict.fromkeys(("node_logs", "edge_logs"), tuple[Natural, ...]),
    **dict.fromkeys(("hidden", "decoder"), tuple[Size, ...]),
    **dict.fromkeys(("activation", "nonlinearity"), Known),
    "last": Known | None,
    "layers": Annotated[int, AtLeast(1), AtMost(MOST_LAYERS)],
    "dropout": Annotated[float, AtLeast(0), Below(1)],
    "gamma": Share,
    "kappa": Share,
    "gain": Share | None,
    "tol": Positive,
    "max_iterations": Count,
    "flow": Annotated[str, OneOf(FLOWS)],
}


def checked_settings(kind: Callable[..., Any], settings: Any, label: str = "settings") -> dict[str, Any]:
    """The arguments of a model's constructor, from names and values; a solver may be a string, as ``Solver.encoded`` writes it."""
    if isinstance(settings, Mapping) and settings.get("solver") is not None:
        settings = {**settings, "solver": solver_of(settings["solver"])}
    return arguments(kind, settings, label, hints=HINTS)


def solver_of(given: Any) -> Solver:
    """A method and its settings from a string such as "Auto;tol=1e-8"."""
    if isinstance(given, Solver):
        return given
    method, *pairs = given.split(";") if isinstance(given, str) else [""]
    known = f"one of {', '.join(Solver.methods)}, with settings as in 'Auto;tol=1e-6'"
    expect(method in Solver.methods, "solver", known, shown(given))
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        expect(bool(equals) and name not in values, "solver", "settings as in 'Auto;tol=1e-6', each once", shown(given))
        values[name] = _literal(value)
    kind = Solver.methods[method]
    return kind(**arguments(kind, values, "solver", "solver."))


def _literal(text: str) -> Any:
    """A value of Python; what is none is text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def outline(make: Callable[[], nn.Module], numbers: int = MOST_NUMBERS, tensors: int = MOST_TENSORS) -> dict[str, Tensor]:
    """The state of a model by name, as tensors without memory: how large it would be, before it is made.

    A constructor must not read the values of its parameters, since here they have none.

    Raises:
        InputError: the model would have more numbers or tensors than this.
    """
    with torch.device("meta"), _at_most(numbers, tensors):
        return make().state_dict()


@contextmanager
def _at_most(numbers: int, tensors: int) -> Iterator[None]:
    """Stop this thread from making a larger module: as soon as it is too large, and not when it is done."""
    here = threading.get_ident()
    counted = [0, 0]

    def count(module: nn.Module, name: str, value: Tensor | None) -> None:
        if value is None or threading.get_ident() != here:
            return
        counted[0], counted[1] = counted[0] + value.numel(), counted[1] + 1
        if counted[0] > numbers or counted[1] > tensors:
            limits = f"{numbers:,} numbers in {tensors:,} tensors"
            raise InputError(f"settings: expected a model of at most {limits}, but got a larger one")

    handles = [
        hooks.register_module_parameter_registration_hook(count),
        hooks.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
