"""The errors of convergent, and the one wording of every argument error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from convergent.solvers.solution import Solution


class InputError(ValueError):
    """An argument is not what it should be: the message names it, what was expected and what came."""


class ContractionError(InputError):
    """A map does not contract: the message names graph, head and factor."""


class ConvergenceError(RuntimeError):
    """The certified error of a solve is above its tolerance: the message says why and what to do; ``solution`` is the result."""

    def __init__(self, message: str, solution: Solution | None = None):
        super().__init__(message)
        self.solution = solution


def expect(condition: bool, argument: str, expected: str, came: object) -> None:
    """Raise an ``InputError`` unless ``condition`` holds."""
    if not condition:
        raise InputError(f"{argument}: expected {expected}, but got {came}")


def first_line(error: BaseException) -> str:
    """What went wrong, without the rest of a long message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
