"""The settings every solver shares, and the one way in which solvers are run."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from torch import Tensor

from convergent.certify import CERTIFICATES
from convergent.errors import InputError, expect
from convergent.maps import FixedPointMap


class Burst(NamedTuple):
    """A stretch of steps between two looks at the true defect."""

    x: Tensor  # [N, H]
    steps: Tensor  # [G]


@dataclass(frozen=True, kw_only=True)
class Solver:
    """Settings of a solve; a subclass is a method.

    Args:
        tol: the largest error the answer may have in any entry, certified.
        rtol: the same, relative to the size of the answer; the two are added.
        max_iterations: a budget of steps; None: as many as the contraction calls for.
        throw: raise ``ConvergenceError`` where the tolerance was not met, or only say so in ``Solution.status``.
        certify: "plain", or "tight" for a sharper bound at the cost of one more solve (see ``convergent.certify``).
        refine: return the answer in float64 whatever the dtype of the map (steps stay in the map's dtype, residuals are
            always float64). Without it the answer has the dtype of the map, and a tolerance below its rounding is reported.
    """

    tol: float = 1e-6
    rtol: float = 0.0
    max_iterations: int | None = None
    throw: bool = True
    certify: str = "plain"
    refine: bool = False

    methods: ClassVar[dict[str, type[Solver]]] = {}
    only_linear: ClassVar[bool] = False
    patience: ClassVar[int | None] = None  # steps after which the method is judged by its rate and may have to hand over

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Solver.methods[cls.__name__] = cls

    def __post_init__(self) -> None:
        for name in ("tol", "rtol"):
            value = getattr(self, name)
            expect(isinstance(value, int | float) and 0 <= value < float("inf"), name, "a number, 0 or more", repr(value))
        expect(self.tol > 0 or self.rtol > 0, "tol", "a positive number, or a positive rtol", repr(self.tol))
        budget = self.max_iterations
        whole = budget is None or (isinstance(budget, int) and not isinstance(budget, bool) and budget >= 1)
        expect(whole, "max_iterations", "None or a whole number, 1 or more", repr(budget))
        expect(self.certify in CERTIFICATES, "certify", f"one of {CERTIFICATES}", repr(self.certify))

    def plan(self, fixed: FixedPointMap, picard_steps: float) -> list[Solver]:
        """The methods to try, in order: the next one takes over where one no longer gets closer."""
        return [self]

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        """Steps from ``start`` (None: zero) until the residual of each graph and head is at most ``goal`` [G, H].

        A lane whose goal is infinite is done already. May stop early where it cannot get closer; the caller looks at the
        true defect and decides what comes next.
        """
        raise InputError(f"solver: expected a method, but got {type(self).__name__}, which has no steps of its own")

    def check(self, fixed: FixedPointMap) -> None:
        """Raise where this method cannot serve this map."""
        if self.only_linear and not fixed.linear:
            raise InputError(
                f"solver: expected a method for non-linear maps (Picard, Anderson or Auto) with {type(fixed).__name__}, "
                f"but got {type(self).__name__}"
            )

    def to_json(self) -> str:
        return json.dumps({"method": type(self).__name__, **dataclasses.asdict(self)})


@lru_cache(maxsize=256)
def solver_from_json(text: str) -> Solver:
    settings = json.loads(text)
    return Solver.methods[settings.pop("method")](**settings)
