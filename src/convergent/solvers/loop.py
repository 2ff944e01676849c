"""The one loop that every method runs in.

    look     the true defect T(x) - x in float64, its norm per graph and head, the certificate
    decide   which lanes (a graph and a head) are done, which cannot get closer, which method goes on
    burst    a stretch of steps of that method, only for the graphs that still need it

What is decided is decided on the host, where a number per graph and head costs nothing; on a GPU each would be a launch. Only very
many of them stay on the device, where nodes and edges are.

A linear map goes on from x by solving for the correction, d = W d + (T(x) - x): every further burst is a step of iterative
refinement, so that float32 steps reach float64 residuals. A non-linear map goes on in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from convergent import certify
from convergent.errors import ConvergenceError, InputError, expect
from convergent.graph import SMALL, Graph
from convergent.kernels import ROOM, SAFETY, Accuracy, clear_of
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.elimination import affordable, certified, eliminates, heads_at_once, near_one, sharpest
from convergent.solvers.picard import Picard
from convergent.solvers.solution import Solution, Status, beside, used_methods
from convergent.solvers.solver import Burst, Solver

SLOW = 4  # a method on trial hands over where it needs more than so many times its trial
POLISH, CLOSE = 2, 8.0  # at most so many single steps, and only within this factor of the tolerance
HOST = 1 << 16  # graphs times heads up to which it is cheaper to bring their numbers to the host than to launch kernels for them
WORK = 4e9  # weights read in one burst at most, so that an interrupt is heard within seconds


def run(solver: Solver, fixed: FixedPointMap, x0: Tensor | None = None, tol: Tensor | None = None, still: bool = False) -> Solution:
    """Solve without a gradient, as ``solve`` does under ``torch.no_grad``.

    Args:
        solver: the method and its settings.
        fixed: the map.
        x0: where to start, [N, H]; None: zero.
        tol: a tolerance for every graph and head, [G, H], in place of the solver's own.
        still: take no step, and certify ``x0``.

    Raises:
        ConvergenceError: the tolerance was not reached and ``solver.throw`` is set.
    """
    solver.check(fixed)
    if x0 is not None:
        fixed.expect_nodes("x0", x0)
        expect(x0.dtype == fixed.dtype, "x0", f"{fixed.dtype}, as the map has", x0.dtype)
    if tol is not None:
        fixed.expect_graphs("tol", tol)
    together = heads_at_once(fixed)
    if together < fixed.heads:
        solution, whole = _in_parts(solver, fixed, x0, tol, still, together)
    else:
        solution, whole = _solved(solver, fixed, x0, tol, still)
    if still:
        return solution
    if solver.throw and not whole:
        failed = solution.status != Status.CONVERGED
        if fixed.norm == "one":  # an adjoint of a gradient that is not finite is no error: loss scalers probe for it
            failed = failed & torch.isfinite(fixed.magnitude())
        if bool(failed.any()):
            if fixed.norm == "max":
                fixed.verify_numbers()
            raise ConvergenceError(_explain(solution, failed, solver, fixed), solution)
    return solution


def _solved(solver: Solver, fixed: FixedPointMap, x0: Tensor | None, tol: Tensor | None, still: bool) -> tuple[Solution, bool]:
    """The solution, and whether all of it has converged."""
    if still:
        return _State.begin(solver, fixed, x0, tol).finish()
    solution, whole = _eliminated(solver, fixed, tol)
    if solution is None:
        near = math.inf if capturing(fixed.device) else solver.near()
        solution, whole = _settled(solver, fixed, x0, tol, near)
    return _iterated(solver, fixed, x0, tol) if solution is None else (solution, whole)


def _in_parts(
    solver: Solver, fixed: FixedPointMap, x0: Tensor | None, tol: Tensor | None, still: bool, together: int
) -> tuple[Solution, bool]:
    """The same for so many heads at a time."""
    parts = []
    for first in range(0, fixed.heads, together):
        some = slice(first, first + together)
        start, allowed = (None if value is None else value[:, some].contiguous() for value in (x0, tol))
        parts.append(_solved(solver, fixed.some_heads(some), start, allowed, still))
    return beside([solution for solution, _ in parts]), all(whole for _, whole in parts)


def _iterated(solver: Solver, fixed: FixedPointMap, x0: Tensor | None, tol: Tensor | None) -> tuple[Solution, bool]:
    """The solution, and whether all of it has converged."""
    if capturing(fixed.device):
        raise InputError(
            "solve: expected, inside a CUDA graph, a linear map on small graphs (at most "
            f"{SMALL} edges each), Auto or Deflated, and no max_iterations, but got {type(fixed).__name__} on {fixed.graph} with "
            f"{type(solver).__name__}"
        )
    fixed.verify()
    state = _State.begin(solver, fixed, x0, tol)
    while state.left:
        state.advance()
    return state.finish()


def _eliminated(solver: Solver, fixed: FixedPointMap, tol: Tensor | None) -> tuple[Solution | None, bool]:
    """The solution where it is by elimination and all has converged; otherwise None."""
    if solver.max_iterations is not None or not isinstance(fixed, LinearMap) or capturing(fixed.device):
        return None, False
    if not solver.eliminates(fixed):
        return None, False
    solution = certified(solver, fixed, tol)
    return solution, solution is not None


def _settled(
    solver: Solver, fixed: FixedPointMap, x0: Tensor | None, tol: Tensor | None, near: float
) -> tuple[Solution | None, bool]:
    """Small graphs whole in one call of the kernels, and the loop for what that leaves over; None: there is none to settle.

    Also whether all has converged: to look at the status once more would make a GPU wait once more. While a CUDA graph is
    captured nobody can look: the status says what was left over, and a gradient that was is not a number.
    """
    limit = solver.settling(fixed)
    if not isinstance(fixed, LinearMap) or limit == 0 or solver.max_iterations is not None or not fixed.graph.any_small:
        return None, False
    small = fixed.graph.small
    absolute, rtol = solver.tolerances(fixed.dtype) if tol is None else (tol, 0.0)
    gap = certify.gap(fixed)
    factor = None if solver.certify != "tight" else (1 + gap) * amplification(fixed)
    tolerances = absolute * (1 - gap), rtol * (1 - gap)
    accuracy = Accuracy(fixed.contraction, factor, *tolerances, certify.unit(fixed.graph), solver.refine, limit, gap, near)
    result = fixed.settle(x0, small, accuracy)
    used = used_methods(("Deflated",), fixed.device)
    solution = Solution(*result, used)
    if capturing(fixed.device):
        hidden = fixed.norm == "one"  # nobody sees the status of an adjoint
        value = torch.where(fixed.graph.spread(result.met), result.value, torch.nan) if hidden else result.value
        return replace(solution, value=value), True
    if not bool(result.status.any()):
        return solution, True
    if near < math.inf and near_one(fixed):
        if not affordable(fixed):
            return _settled(solver, fixed, x0, tol, math.inf)
        if (others := certified(solver, fixed, tol)) is not None:
            return others, True
    fixed.verify()  # here graphs still have the numbers the caller knows them by
    left = ~solution.converged
    subset = fixed.graph.subset(left)
    start = None if x0 is None else x0[subset.nodes]
    rest, whole = _iterated(solver, fixed.restrict(subset, left), start, None if tol is None else tol[left])
    return solution.replaced(left, subset.nodes, rest), whole


def capturing(device: torch.device) -> bool:
    """Whether work on this device is being written down as a CUDA graph, not done."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def amplification(fixed: FixedPointMap) -> Tensor:
    """The sharper factor from residual to error, [G, H], for a solve of its own."""
    plain = certify.plain_amplification(fixed.contraction)
    dominating = fixed.dominating()
    if dominating is None:
        return plain
    if eliminates(dominating):
        return sharpest(fixed if isinstance(fixed, LinearMap) else dominating)
    auto = Solver.methods["Auto"](throw=False, certify="plain")  # the bound is proved from v itself
    v = run(auto, dominating.widened(), tol=0.1 * plain).value  # v - M v >= 0.9 everywhere: within a tenth of the best factor
    return certify.tight_amplification(dominating, v)


def _brought(place: torch.device, *numbers: Tensor) -> Sequence[Tensor]:
    """Numbers per graph and head to where decisions are made, in one transfer."""
    return numbers if numbers[0].device == place else torch.stack(numbers).to(place).unbind()


@dataclass
class _State:
    """Where a solve stands. What there is per node is on the map's device, what there is per graph where decisions are made."""

    solver: Solver
    fixed: FixedPointMap
    x: Tensor | None  # None: zero
    inputs: tuple[Tensor | None, ...]
    gap: float  # the relative rounding of a bound
    tol: Tensor | float  # by that much less than what was asked for
    rtol: float
    contraction: Tensor  # [G, H]
    amplification: Tensor  # [G, H]
    bias_size: Tensor  # [G, H]
    plan: list[Solver]
    defect: Tensor  # [N, H] float64
    residual: Tensor  # [G, H]
    status: Tensor = field(init=False)  # [G, H]
    active: Tensor = field(init=False)  # [G, H] the lanes that still need steps
    left: int = field(init=False)  # how many they are
    bound: Tensor = field(init=False)
    allowed: Tensor | float = field(init=False)
    steps: Tensor = field(init=False)  # [G]
    sharpens: bool = False  # the tight certificate takes over where rounding is too much for the plain one
    used: set[str] = field(default_factory=set)
    stage: int = 0
    expected: float = 0.0  # steps the present method still needs at the rate it has shown
    certain: float = math.inf  # plain steps that are enough, but for rounding

    @classmethod
    def begin(cls, solver: Solver, fixed: FixedPointMap, x0: Tensor | None, tol: Tensor | None) -> _State:
        at_zero, bias = fixed.at_zero(), fixed.magnitude()
        defect = at_zero if x0 is None else fixed.defect(x0)
        place = fixed.device if fixed.contraction.numel() > HOST else torch.device("cpu")
        measured = [fixed.contraction, bias, bias if fixed.linear else fixed.size(at_zero)]
        measured += [] if x0 is None else [fixed.size(defect), fixed.size(x0)]
        contraction, bias_size, size, *of_start = _brought(place, *measured)
        residual = of_start[0] if of_start else size
        if x0 is None and not fixed.linear:  # T(0) is a bias only where there is no activation, which rounds
            residual = residual + 4 * torch.finfo(fixed.dtype).eps * bias_size
        gap = certify.gap(fixed)
        plain = certify.plain_amplification(contraction, gap)
        one = bool((contraction >= 1).any())
        expect(
            not one or solver.certify != "plain", "certify", '"auto" or "tight", as rows sum to one or more', repr(solver.certify)
        )
        tight = one or solver.certify == "tight"
        factor = (1 + gap) * amplification(fixed).to(place) if tight else plain
        inputs = (x0, *fixed.parameters())
        absolute, relative = solver.tolerances(fixed.dtype) if tol is None else (tol.to(place), 0.0)
        strict = (gap, absolute * (1 - gap), relative * (1 - gap))
        state = cls(solver, fixed, x0, inputs, *strict, contraction, factor, bias_size, [], defect, residual)
        state.sharpens = solver.certify == "auto" and not tight
        state.status = torch.full_like(residual, Status.BUDGET, dtype=torch.int8)
        state.bound = torch.full_like(residual, torch.inf)
        state.steps = torch.zeros(len(residual), dtype=torch.long, device=place)
        # |x*| >= |T(0)| / (1 + c): a relative tolerance has a scale before there is an answer
        scale = size / (1 + contraction)
        if of_start:
            state.certify(of_start[1], torch.maximum(scale, of_start[1]))
        else:
            state.certify(None, scale)
        state.certain = state.picard_steps()
        state.plan = solver.plan(fixed, state.certain)
        if not isinstance(state.plan[-1], Picard):
            state.plan = [*state.plan, Picard()]  # certain to converge, wherever the others give up
        return state

    def certify(self, size: Tensor | None, scale: Tensor, rounded: Tensor | None = None) -> None:
        """Bound the error of the answer, whose norm is ``size`` (None: it is zero), and see which lanes still need steps.

        ``scale`` is the norm of the fixed point as far as it is known; ``rounded`` is the most that x can be away from the answer.
        Where that is too much, the distance itself is measured.
        """
        # lanes that are done keep their x, and the bound that was proved of it
        proven = torch.where(self.status == Status.CONVERGED, self.bound, torch.inf)
        slack = certify.rounding(self.fixed, self.contraction, scale, self.bias_size)
        floor = slack * self.amplification  # what rounding alone leaves of the bound
        own = torch.addcmul(floor, self.residual, self.amplification)
        self.bound = torch.fmin(own if rounded is None else own + rounded, proven)
        self.allowed = self.tol if size is None else torch.add(size * self.rtol, self.tol)
        self.status.masked_fill_(self.bound - self.allowed <= 0, Status.CONVERGED)  # infinity less infinity is no number
        if self.count() and rounded is not None and bool((self.active & (own <= self.allowed)).any()):
            assert self.x is not None
            (rounded,) = _brought(rounded.device, self.fixed.size(self.x - self.answer_of(self.x)))
            self.bound = torch.fmin(own + rounded, proven)
            self.status.masked_fill_(self.active & (self.bound - self.allowed <= 0), Status.CONVERGED)
            self.count()
        if not self.left:
            return
        if not bool(self.bound.sum().isfinite()):
            self.status.masked_fill_(~torch.isfinite(self.bound), Status.OVERFLOW)
        wanted = self.allowed if isinstance(self.allowed, Tensor) and scale is size else torch.add(scale * self.rtol, self.tol)
        room = wanted - floor
        hopeless = (floor > wanted) & (own <= 4 * floor)
        if rounded is not None:  # x may be better than what is left of it
            hopeless = hopeless | ((rounded > 0) & (own <= torch.maximum(wanted / ROOM, torch.minimum(4 * floor, wanted))))
            room = torch.maximum(room - rounded, room / ROOM)
        if self.sharpens and bool((hopeless & self.active).any()):
            self.sharpens = False
            self.amplification = amplification(self.fixed).to(self.amplification.device) * (1 + self.gap)
            self.certify(size, scale, rounded)
            return
        self.status.masked_fill_(hopeless & self.active, Status.PRECISION)
        self.count()
        # a goal below the rounding of the defect itself is out of reach
        self.goal = torch.maximum(SAFETY * room / self.amplification, slack)

    def count(self) -> int:
        """Find the lanes that still need steps."""
        self.active = self.status == Status.BUDGET
        self.left = int(self.active.sum())
        return self.left

    def answer_of(self, x: Tensor) -> Tensor:
        """x in the dtype of the answer."""
        return x.double() if self.solver.refine else x.to(self.fixed.dtype)

    def picard_steps(self) -> float:
        """How many plain steps a lane may need, from the largest contraction and the largest reduction.

        Where rows sum to one or more, a map whose amplification is a contracts by 1 - 1 / a in a norm that is at most a times off.
        """
        if not self.left:
            return 0.0
        reduction, contraction = self.residual / self.goal, self.contraction
        if bool((contraction >= 1).any()):
            reduction = torch.where(contraction < 1, reduction, reduction * self.amplification)
            contraction = torch.where(contraction < 1, contraction, 1 - 1 / self.amplification)
        most = float(reduction.max())
        if most != most:  # a lane without nodes has neither
            most = float(reduction.nan_to_num(1.0).max())
        slowest = min(max(float(contraction.max()), 1e-300), 1 - 1e-16)
        return math.log(max(most, 1.0)) / -math.log(slowest) + 1

    def advance(self) -> None:
        """One burst, and a look at what it brought."""
        method = self.plan[self.stage]
        limit = self.limit(method)
        if limit <= 0:
            self.active, self.left = torch.zeros_like(self.active), 0
            return
        certain = int(min(2 * self.certain + 8, limit)) if isinstance(method, Picard) else limit
        before = self.residual
        burst = self.burst(method, certain)
        self.used.add(type(method).__name__)
        self.look(burst.x, burst.steps)
        self.polish()
        # plain steps beyond those that are certain to be enough only go round in rounding errors
        self.judge(method, before, hit_limit=certain == limit and int(burst.steps.max()) >= limit, limit=limit)

    def look(self, x: Tensor, steps: Tensor) -> None:
        """Certify what came of these steps; lanes that are done keep the x they were certified with."""
        before = self.x
        size = self.move(x, before, self.active)
        self.steps = self.steps + steps
        if not bool(size.sum().isfinite()) and self.stage + 1 < len(self.plan):
            # what left the range of its dtype on the way has come no closer: the next method takes it from where it was
            size = self.move(x, before, self.active & torch.isfinite(size))
        if not self.rounds(x):
            self.certify(size, size)
            return
        number = torch.finfo(self.fixed.dtype)
        rounded = torch.where(size < number.max, size * (number.eps / 2) + number.tiny, torch.inf)
        self.certify(size * (1 - number.eps), size, rounded)  # the answer may be a little smaller than x

    def move(self, x: Tensor, before: Tensor | None, lanes: Tensor) -> Tensor:
        """Take x in these lanes, and measure; the size of x."""
        if not bool(lanes.all()):
            kept = torch.zeros_like(x) if before is None else before.to(x.dtype)
            x = torch.where(self.fixed.graph.spread(lanes.to(x.device)), x, kept)
        self.x, self.defect = x, self.fixed.defect(x)
        self.residual, size = _brought(lanes.device, self.fixed.size(self.defect), self.fixed.size(x))
        return size

    def rounds(self, x: Tensor) -> bool:
        """Whether x is rounded when it becomes the answer."""
        return not self.solver.refine and x.dtype.itemsize > self.fixed.dtype.itemsize

    def polish(self) -> None:
        """Steps in float64 where all that is left is rounding: T(x) is x plus its defect, which is known."""
        budget = self.solver.max_iterations
        left = POLISH if budget is None else min(POLISH, budget - int(self.steps.max()))
        for _ in range(left):
            if not self.left or bool((self.active & (self.bound > CLOSE * self.allowed)).any()):
                return
            assert self.x is not None
            self.look(self.x + self.defect, self.active.any(1).long())  # in float64, as the defect is

    def limit(self, method: Solver) -> int:
        """Steps the next burst may take: not so many that an interrupt goes unheard, nor more than the budget."""
        chunk = int(WORK / max(self.fixed.graph.num_edges * self.fixed.heads, 1)) + 64
        if (patience := method.patience()) is not None:
            chunk = min(chunk, max(patience, int(2 * self.expected)))
        budget = self.solver.max_iterations
        return chunk if budget is None else min(chunk, budget - int(self.steps.max()))

    def burst(self, method: Solver, limit: int) -> Burst:
        """Steps from x for the graphs that need them; the others keep their values."""
        graph, keep = self.fixed.graph, self.active.any(1)
        fixed, start, base = self.continuation()
        goal = torch.where(self.active, torch.maximum(self.goal, gain(fixed.dtype) * self.residual), torch.inf).to(fixed.device)
        if graph.num_graphs > 1 and _nodes(graph, keep) < graph.num_nodes // 2:
            keep = keep.to(fixed.device)
            subset = graph.subset(keep)
            part = method.burst(fixed.restrict(subset, keep), None if start is None else start[subset.nodes], goal[keep], limit)
            whole = torch.zeros_like(self.defect, dtype=part.x.dtype) if start is None else start.to(part.x.dtype).clone()
            whole[subset.nodes] = part.x
            steps = torch.zeros(graph.num_graphs, dtype=torch.long, device=fixed.device)
            steps[keep] = part.steps
            burst = Burst(whole, steps)
        else:
            burst = method.burst(fixed, start, goal, limit)
        return Burst(burst.x if base is None else base + burst.x, burst.steps.to(self.steps.device))

    def continuation(self) -> tuple[FixedPointMap, Tensor | None, Tensor | None]:
        """The map the next burst runs on, where it starts, and what its result is added to."""
        fixed = self.fixed
        if self.x is None:
            return fixed, None, None
        if isinstance(fixed, LinearMap):
            return fixed.with_bias(self.defect.to(fixed.dtype)), None, self.x.double()
        return (fixed, self.x, None) if not self.used else (fixed.widened(), self.x.double(), None)

    def judge(self, method: Solver, before: Tensor, hit_limit: bool, limit: int) -> None:
        """Go on with the same method, hand over to the next one, or accept that rounding is in the way."""
        if not self.left:
            return
        stuck = self.active & (self.residual > (before if hit_limit else 0.5 * before))
        last = self.stage == len(self.plan) - 1
        patience = method.patience()
        self.expected = self.remaining(before, limit) if patience is not None and hit_limit else 0.0
        if last:
            self.status.masked_fill_(stuck, Status.PRECISION)
            self.count()
        elif stuck.any() or (patience is not None and self.expected > SLOW * patience):
            self.stage, self.expected = self.stage + 1, 0.0

    def remaining(self, before: Tensor, limit: int) -> float:
        """Steps to the goal at the rate seen in the last burst, for the slowest lane."""
        rate = (self.residual / before).clamp(min=1e-300, max=1 - 1e-12)[self.active].log()
        wanted = (self.goal / self.residual).clamp(min=1e-300, max=1)[self.active].log()
        return limit * float((wanted / rate).max()) if rate.numel() else 0.0

    def finish(self) -> tuple[Solution, bool]:
        """The answer in its dtype and its certificate; and whether all of it has converged."""
        fixed = self.fixed
        x = torch.zeros_like(fixed.at_zero()) if self.x is None else self.x
        value = self.answer_of(x)
        if any(value.data_ptr() == given.data_ptr() for given in self.inputs if given is not None):
            value = value.clone()  # the answer is never the caller's own tensor
        if value.dtype.itemsize < x.dtype.itemsize:
            self.weigh(value)
        whole = not bool(self.status.any())
        if not whole:
            self.bound = clear_of(self.bound, self.allowed, self.status == Status.CONVERGED, self.gap)
        if fixed.norm == "one" and not bool(torch.isfinite(self.bias_size).all()):
            # an adjoint of a gradient that is not finite is not finite either
            value = torch.where(fixed.graph.spread(torch.isfinite(fixed.magnitude())), value, torch.nan)
        residual, bound, status, steps = (part.to(fixed.device) for part in (self.residual, self.bound, self.status, self.steps))
        return Solution(value, residual, bound, status, steps, used_methods(tuple(sorted(self.used)), fixed.device)), whole

    def weigh(self, value: Tensor) -> None:
        """The defect of an answer that x was rounded to, whose own bound may be the smaller one."""
        fixed = self.fixed
        self.residual, size = _brought(self.bound.device, fixed.size(fixed.defect(value)), fixed.size(value))
        slack = certify.rounding(fixed, self.contraction, size, self.bias_size)
        self.bound = torch.fmin(self.bound, (self.residual + slack) * self.amplification)
        self.status.masked_fill_(self.bound - self.allowed <= 0, Status.CONVERGED)


def _nodes(graph: Graph, keep: Tensor) -> int:
    """Of some graphs; sizes are brought to the host once."""
    sizes = graph.cached("sizes on the host", lambda: graph.segments.diff().cpu())
    return int(sizes[keep.cpu()].sum())


def gain(dtype: torch.dtype) -> float:
    """What one burst in this dtype can take off the residual."""
    return 2 * torch.finfo(dtype).eps


def _explain(solution: Solution, failed: Tensor, solver: Solver, fixed: FixedPointMap) -> str:
    graph, head = (int(index) for index in failed.nonzero()[0])
    status = Status(int(solution.status[graph, head]))
    tol, rtol = solver.tolerances(fixed.dtype)
    bound, wanted = float(solution.error_bound[graph, head]), tol + rtol * float(fixed.size(solution.value)[graph, head])
    count = f"{int((~solution.converged).sum())} of {len(solution.steps)} graphs"
    where = f"graph {graph}, head {head} (contraction {float(fixed.contraction[graph, head]):.8g})"
    remedies = {
        Status.BUDGET: f"ran out of max_iterations={solver.max_iterations}; leave it at None, or use Auto, Multigrid or Direct",
        Status.PRECISION: (
            f"is as close as {solution.value.dtype} allows; ask for tol >= {_round_up(bound)}"
            + ("" if solver.refine or fixed.dtype == torch.float64 else ", or pass refine=True for an answer in float64")
            + (', or certify="tight" for a sharper bound' if solver.certify == "plain" else "")
        ),
        Status.OVERFLOW: "left the range of numbers; scale the bias down",
    }
    return f"{count} did not reach the tolerance: {where} {remedies[status]} (error bound {bound:.3g}, wanted {wanted:.3g})"


def _round_up(value: float) -> str:
    if not math.isfinite(value) or value <= 0:
        return str(value)
    digit = 10.0 ** math.floor(math.log10(value))
    return f"{math.ceil(value / digit) * digit:.0e}"
