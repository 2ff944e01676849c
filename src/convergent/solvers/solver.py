"""The settings every solver shares, and the one way in which solvers are run."""

from __future__ import annotations

import ast
import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from convergent.certify import CERTIFICATES
from convergent.errors import InputError, expect
from convergent.maps import FixedPointMap, LinearMap

TOLERANCE = 1e-6


class Burst(NamedTuple):
    """The result of some steps of a method, after which the loop evaluates the defect.

    Attributes:
        x: node values, [N, H].
        steps: steps that each graph took, [G].
    """

    x: Tensor  # [N, H]
    steps: Tensor  # [G]


@dataclass(frozen=True, kw_only=True)
class Solver:
    """The settings of a solve, which all methods share. A subclass is a method.

    Args:
        tol: certified upper bound on the error of every entry of the answer.
        rtol: the same, relative to the largest entry of the answer; the two are added. Where neither is given, tol is 1e-6, and for
            maps in float32 rtol is 1e-6 as well, because float32 cannot represent large numbers with an error of 1e-6. Where one is
            given, the other is 0.
        max_iterations: a budget of steps; None: as many as needed.
        throw: raise ``ConvergenceError`` if the tolerance was not reached; otherwise only ``Solution.status`` says so.
        certify: "plain"; "tight", a sharper bound at the cost of one more solve; or "auto": tight only where rounding
            keeps the plain bound above the tolerance (see ``convergent.certify``).
        refine: return the answer in float64 whatever the dtype of the map. (Steps are taken in the dtype of the map, residuals are
            always in float64.) Otherwise the answer has the dtype of the map, and a tolerance below its rounding is reported.
    """

    tol: float | None = None
    rtol: float | None = None
    max_iterations: int | None = None
    throw: bool = True
    certify: str = "auto"
    refine: bool = False

    methods: ClassVar[dict[str, type[Solver]]] = {}
    only_linear: ClassVar[bool] = False
    settles: ClassVar[int] = 0  # steps a certified solve of small graphs in one call may take before the loop; 0: there is none

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Solver.methods[cls.__name__] = cls

    def __post_init__(self) -> None:
        for name in ("tol", "rtol"):
            value = getattr(self, name)
            number = value is None or (isinstance(value, int | float) and 0 <= value < float("inf"))
            expect(number, name, "a number, 0 or more", repr(value))
        nothing = not self.tol and not self.rtol and (self.tol, self.rtol) != (None, None)
        expect(not nothing, "tol", "a positive number, or a positive rtol", repr(self.tol))
        budget = self.max_iterations
        whole = budget is None or (isinstance(budget, int) and not isinstance(budget, bool) and budget >= 1)
        expect(whole, "max_iterations", "None or a whole number, 1 or more", repr(budget))
        expect(self.certify in CERTIFICATES, "certify", f"one of {CERTIFICATES}", repr(self.certify))

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        """Absolute and relative tolerance for a map of this dtype."""
        if self.tol is None and self.rtol is None:
            return TOLERANCE, TOLERANCE if dtype == torch.float32 else 0.0
        return self.tol or 0.0, self.rtol or 0.0

    def settling(self, fixed: FixedPointMap) -> int:
        """Steps that a certified solve of this map's small graphs in one call may take."""
        if self.settles and not fixed.contraction.is_cuda and bool((fixed.contraction >= 1).any()):
            return 0  # its certificate is 1 / (1 - c)
        return self.settles

    def near(self) -> float:
        """On a GPU: contraction above which steps of small graphs in one call are few, because elimination is next."""
        return math.inf

    def eliminates(self, fixed: LinearMap) -> bool:
        """Whether this map is to be solved by elimination in one go."""
        return False

    def plan(self, fixed: FixedPointMap, picard_steps: float) -> list[Solver]:
        """The methods to try, in order: the next one takes over when one makes no more progress."""
        return [self]

    def patience(self) -> int | None:
        """Steps after which the method is judged by the rate it shows, and may have to hand over; None: it is trusted."""
        return None

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        """Take steps from ``start`` (None: zero) until the residual of each graph and head is at most ``goal`` [G, H].

        Where the goal is infinite, the graph and head is finished already. The method may stop early when it makes no more
        progress: the caller evaluates the defect and decides how to continue.
        """
        raise InputError(f"solver: expected a method, but got {type(self).__name__}, which has no steps of its own")

    def check(self, fixed: FixedPointMap) -> None:
        """Raise an ``InputError`` if this method does not support this map."""
        if self.only_linear and not fixed.linear:
            raise InputError(
                f"solver: expected a method for non-linear maps (Picard, Anderson or Auto) with {type(fixed).__name__}, "
                f"but got {type(self).__name__}"
            )

    def encoded(self) -> str:
        """The method and its settings as one string, for operators that take no objects; ``decoded`` is the way back."""
        settings = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self)]
        return ";".join([type(self).__name__, *settings])


@lru_cache(maxsize=256)
def decoded(text: str) -> Solver:
    """The solver that ``Solver.encoded`` wrote as a string.

    Args:
        text: the method and its settings.
    """
    method, *settings = text.split(";")
    pairs = (setting.split("=", 1) for setting in settings)
    return Solver.methods[method](**{name: ast.literal_eval(value) for name, value in pairs})
