"""The truth: every kernel in plain torch, on any device, written to be read.

A sparse operator is given by rows: ``Rows(pointer, column, order)``. Row ``i`` owns the positions
``pointer[i] .. pointer[i + 1]``; position ``k`` reads column ``column[k]`` and carries ``weight[order[k]]``
(``order`` is None where edges are already sorted by row). ``segments`` [G + 1] says which nodes belong to which graph.

    weight [E, H]   bias, x, y [N, H]   per graph and head [G, H]
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from convergent.kernels.activations import ACTIVATIONS

SAFETY = 0.8  # aim below the tolerance, so that rounding does not cost another burst
STORES_BFLOAT16 = False  # whether weights may stay in bfloat16
ROOM = 8.0  # x is taken to a fraction of the tolerance where most of it is lost when x is rounded to the answer
UNMET = 2  # status of a lane that did not get there, as solvers number it: the budget of steps ran out
ROUNDS = 8  # bursts of a certified solve; each but the last takes off what the dtype of the steps can hold


class Rows(NamedTuple):
    """A compressed sparse row structure without its weights."""

    pointer: Tensor  # [N + 1]
    column: Tensor  # [E]
    order: Tensor | None  # [E], edge that sits at each position; None: the identity


def group(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Stable grouping of positions by key: pointer [size + 1] and order [E], both int64."""
    order = torch.argsort(keys, stable=True)
    pointer = keys.new_zeros(size + 1, dtype=torch.long)
    pointer[1:] = torch.bincount(keys, minlength=size).cumsum(0)
    return pointer, order


def row_of_position(rows: Rows) -> Tensor:
    lengths = rows.pointer.diff()
    return torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)


def ordered(rows: Rows, weight: Tensor) -> Tensor:
    """The weights in the order of the rows."""
    return weight if rows.order is None else weight.index_select(0, rows.order)


def propagate(rows: Rows, weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = W x (+ b), accumulated in the dtype of x."""
    y = x.new_zeros(len(rows.pointer) - 1, x.shape[1]) if bias is None else bias.to(x.dtype).clone()
    gathered = ordered(rows, weight).to(x.dtype) * x.index_select(0, rows.column)  # [E, H]
    return y.index_add_(0, row_of_position(rows), gathered)


def sum_edges(rows: Rows, values: Tensor) -> Tensor:
    """[E, H] -> [N, H]: the sum over the edges of every row."""
    return values.new_zeros(len(rows.pointer) - 1, values.shape[1]).index_add_(0, row_of_position(rows), ordered(rows, values))


def edge_product(row: Tensor, column: Tensor, u: Tensor, x: Tensor) -> Tensor:
    """[E, H]: u at an edge's row times x at its column; the gradient of ``propagate`` in its weights."""
    return u.index_select(0, row) * x.index_select(0, column)


def edge_sum(row: Tensor, column: Tensor, values: Tensor, u: Tensor, x: Tensor) -> Tensor:
    """[E, H]: the value of an edge, plus u at its row, plus x at its column."""
    return values + u.index_select(0, row) + x.index_select(0, column)


def all_finite(values: Tensor) -> bool:
    """Whether no number is NaN or infinite."""
    return bool(torch.isfinite(values).all())


def worst(peaks: Tensor, values: Tensor) -> tuple[float, bool]:
    """The largest of the peaks (0 where there is none; NaN stays NaN), and whether all values are finite."""
    return float(peaks.max()) if peaks.numel() else 0.0, all_finite(values)


def segment_reduce(values: Tensor, segments: Tensor, norm: str) -> Tensor:
    """Max norm ("max") or 1-norm ("one") of every graph and head: [N, H] -> [G, H] in float64; NaN stays NaN."""
    graphs = len(segments) - 1
    index = torch.repeat_interleave(torch.arange(graphs, device=values.device), segments.diff())
    out = values.new_zeros(graphs, values.shape[1], dtype=torch.float64)
    magnitude = values.abs().double()
    if norm == "one":
        return out.index_add_(0, index, magnitude)
    return out.scatter_reduce_(0, index.unsqueeze(1).expand_as(magnitude), magnitude, "amax")


def segment_dot(u: Tensor, v: Tensor, segments: Tensor) -> Tensor:
    """Inner product of every graph and head: [G, H], accumulated in float64."""
    graphs = len(segments) - 1
    index = torch.repeat_interleave(torch.arange(graphs, device=u.device), segments.diff())
    out = u.new_zeros(graphs, u.shape[1], dtype=torch.float64)
    return out.index_add_(0, index, u.double() * v.double())


def row_peaks(rows: Rows, segments: Tensor, weight: Tensor, wider: float = 1.0) -> Tensor:
    """The largest absolute row sum of every graph and head, times ``wider``: [G, H] in float64; NaN stays NaN."""
    sums = weight.new_zeros(len(rows.pointer) - 1, weight.shape[1], dtype=torch.float64)
    sums.index_add_(0, row_of_position(rows), ordered(rows, weight).abs().double())
    return segment_reduce(sums, segments, "max").mul_(wider)


def defect(rows: Rows, weight: Tensor, bias: Tensor, x: Tensor, activation: str) -> Tensor:
    """T(x) - x in float64, whatever the dtype of its inputs: what every certificate is made of."""
    wide = x.double()
    return ACTIVATIONS[activation].function(propagate(rows, weight.double(), wide, bias.double())) - wide


def picard(
    rows: Rows,
    segments: Tensor,
    weight: Tensor,
    bias: Tensor,
    x: Tensor,
    activation: str,
    norm: str,
    contraction: Tensor,
    goal: Tensor,
    limit: int,
) -> tuple[Tensor, Tensor]:
    """x <- T(x) until each graph and head has a residual of at most ``goal``, or rounding stops it, or ``limit`` steps.

    Returns x and the steps each graph took. A graph whose goals are all infinite is left as it is. The residual after a step
    is at most the contraction times the length of the step, so the stopping test needs no extra sweep.
    """
    epsilon = torch.finfo(x.dtype).eps
    phi = ACTIVATIONS[activation].function
    batch = torch.repeat_interleave(torch.arange(len(goal), device=x.device), segments.diff())
    steps = torch.zeros(len(goal), dtype=torch.long, device=x.device)
    live = torch.isfinite(goal).any(1)
    for _ in range(limit):
        if not live.any():
            break
        moved = phi(propagate(rows, weight, x, bias))
        step = segment_reduce(moved - x, segments, norm)
        floor = 2 * epsilon * segment_reduce(moved, segments, norm)
        x = torch.where(live[batch, None], moved, x)
        steps += live
        live = live & ~((contraction * step <= goal) | (step <= floor) | ~torch.isfinite(step)).all(1)
    return x, steps


def deflated(
    rows: Rows,
    segments: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: str,
    contraction: Tensor,
    goal: Tensor,
    limit: int,
) -> tuple[Tensor, Tensor]:
    """Picard from zero on x = W x + b, with the slow constant part of the error of each graph and head taken out.

    After a step x + r the residual is W r. Its mean over the graph is s.r, where s_j is the sum of column j over the
    number of nodes n, and a constant shift a changes the mean residual by -a (1 - sum(s)): a = s.r / (1 - sum(s)).
    A lane in which the residual once grew beyond the contraction loses its shift and is plain Picard from there on, which is
    certain to converge.
    """
    epsilon = torch.finfo(bias.dtype).eps
    sizes = segments.diff()
    batch = torch.repeat_interleave(torch.arange(len(goal), device=bias.device), sizes)
    column_sums = torch.zeros_like(bias).index_add_(0, rows.column.long(), ordered(rows, weight))
    left = column_sums / sizes.clamp(min=1)[batch, None].to(bias.dtype)  # s [N, H]
    coarse = 1 - segment_dot(left, torch.ones_like(left), segments)  # [G, H]
    x = torch.zeros_like(bias)
    steps = torch.zeros(len(goal), dtype=torch.long, device=bias.device)
    live = torch.isfinite(goal).any(1)
    shifting = torch.ones_like(goal, dtype=torch.bool)
    last = torch.full_like(goal, torch.inf)
    for _ in range(limit):
        if not live.any():
            break
        r = propagate(rows, weight, x, bias) - x
        length = segment_reduce(r, segments, norm)
        shifting &= length <= contraction * last
        shift = torch.where(shifting, segment_dot(left, r, segments) / coarse, 0.0).to(x.dtype)
        done = (
            (contraction * length <= goal) | (length <= 2 * epsilon * segment_reduce(x, segments, norm)) | ~torch.isfinite(length)
        )
        # the last step of a lane is a plain one: its residual is known to be at most contraction * length
        shift = torch.where(done, 0.0, shift)
        x = torch.where(live[batch, None], x + r + shift[batch], x)
        last = length
        steps += live
        live = live & ~done.all(1)
    return x, steps


TRIAL = 128


class Accuracy(NamedTuple):
    """What a certified solve has to reach: an error of at most tol + rtol * |answer| in every graph and head."""

    contraction: Tensor  # [G, H]
    amplification: Tensor | None  # [G, H], from residual to error; None: (1 + gap) / (1 - contraction)
    tol: Tensor | float  # [G, H]
    rtol: float
    unit: float  # what rounding adds to a defect, for a bias and a product of size one
    wide: bool  # the answer is in float64, whatever the dtype of the map
    limit: int  # steps at most
    gap: float = 16 * torch.finfo(torch.float64).eps  # the relative rounding of a bound
    near: float = torch.inf  # on a GPU: a contraction above which TRIAL steps are enough to see whether others are faster


class Settled(NamedTuple):
    """A certified solve."""

    value: Tensor  # [N, H]
    residual: Tensor  # [G, H], of the value
    bound: Tensor  # [G, H], on the error of the value
    status: Tensor  # int8 [G, H]: 0 where the bound is small enough, otherwise UNMET
    steps: Tensor  # [G]

    @property
    def met(self) -> Tensor:
        return self.status == 0


def clear_of(bound: Tensor, allowed: Tensor | float, met: Tensor, gap: float) -> Tensor:
    """Bounds as they are reported: infinite where they are not a number, and above what is allowed where that was not met.

    ``met`` asks for a little less than ``allowed``, by rounding. What lies in between is raised: whoever compares bound and
    tolerance later, and adds up a norm in another order, finds what the status says.
    """
    above = allowed * (1 + 4 * gap)
    bound = torch.where(met | (bound > above), bound, above)
    return torch.where(bound == bound, bound, torch.inf)


def arrange(rows: Rows, segments: Tensor) -> None:
    """A layout of the structure that ``settle`` wants to find again; plain torch needs none."""


def settle(
    layout: None, rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor, x0: Tensor | None, norm: str,
    keep: Tensor | None, accuracy: Accuracy,
) -> Settled:  # fmt: skip
    """x = W x + b by deflated steps on the correction in the dtype of the map, with defects and certificate in float64.

    Only the graphs where ``keep`` [G] is true are solved (None: all of them); the others are not met. What is certified is the
    answer, which is x in the answer's dtype: by its own defect, or by that of x and the distance between the two.
    """
    contraction, amplification, tol, rtol, unit, wide, limit, gap, _ = accuracy
    factor = (1 + gap) / (1 - contraction) if amplification is None else amplification
    keep = contraction.new_ones(len(contraction), dtype=torch.bool) if keep is None else keep
    dtype = torch.float64 if wide else bias.dtype
    epsilon = torch.finfo(bias.dtype).eps
    half = 0.0 if dtype == torch.float64 else torch.finfo(dtype).eps / 2  # lost at most when x is rounded to the answer
    batch = torch.repeat_interleave(torch.arange(len(keep), device=bias.device), segments.diff())
    bias_size = segment_reduce(bias, segments, norm)
    x = torch.zeros_like(bias, dtype=torch.float64) if x0 is None else x0.double()
    bound, met = torch.full_like(bias_size, torch.inf), torch.zeros_like(bias_size, dtype=torch.bool)
    active = keep[:, None].expand_as(met).clone()
    steps = torch.zeros(len(keep), dtype=torch.long, device=bias.device)
    for turn in range(ROUNDS + 1):
        answer = x.to(dtype).double()
        rounded, worth = segment_reduce(x - answer, segments, norm), segment_reduce(answer, segments, norm)
        right = defect(rows, weight, bias, x, "identity")
        of_answer = segment_reduce(defect(rows, weight, bias, answer, "identity"), segments, norm)
        # before there is an answer, |x*| >= |b| / (1 + c) gives a relative tolerance a scale
        size = bias_size / (1 + contraction) if turn == 0 and x0 is None else worth
        slack = unit * (contraction * size + bias_size)
        floor = slack * factor
        of_x = segment_reduce(right, segments, norm) * factor + floor
        known = torch.minimum(of_answer * factor + floor, of_x + rounded)
        bound = torch.where(active, known, bound)
        met |= active & (known <= tol + rtol * worth) & torch.isfinite(known)
        allowed = tol + rtol * size
        close = torch.maximum(allowed / ROOM, torch.minimum(4 * floor, allowed))
        enough = torch.where(floor > allowed, 4 * floor, torch.where(rounded > 0, close, -1.0))
        active &= ~met & ~(of_x <= enough) & torch.isfinite(known)
        left = limit - int(steps.max()) if len(steps) else 0
        if turn == ROUNDS or left <= 0 or not active.any():
            break
        room = torch.maximum(allowed - floor - half * size, (allowed - floor) / ROOM)
        goal = torch.maximum(SAFETY * room / factor, slack)
        residual = segment_reduce(right, segments, norm)
        within_reach = 2 * epsilon * residual
        # a correction that one burst cannot hold is shared by two, which takes no more steps than one
        aim = torch.where(goal > within_reach, goal, torch.maximum((goal * residual).sqrt(), within_reach))
        aim = torch.where(active, aim, torch.inf)
        correction, taken = deflated(rows, segments, weight, right.to(bias.dtype), norm, contraction, aim, left)
        x = torch.where(active[batch], x + correction, x)
        steps += taken
    bound = clear_of(bound, tol + rtol * worth, met, gap)
    return Settled(answer.to(dtype), of_answer, bound, (~met).to(torch.int8).mul_(UNMET), steps)


def dense(rows: Rows, segments: Tensor, weight: Tensor) -> Tensor:
    """W of every graph, padded to the largest: [G, H, n, n]."""
    graphs, heads = len(segments) - 1, weight.shape[1]
    sizes = segments.diff()
    size = int(sizes.max()) if graphs else 0
    row = row_of_position(rows)
    batch = torch.repeat_interleave(torch.arange(graphs, device=weight.device), sizes)[row]
    start = segments[:-1].long()[batch]
    matrix = weight.new_zeros(graphs, size, size, heads)
    matrix.index_put_((batch, row - start, rows.column.long() - start), ordered(rows, weight), accumulate=True)
    return matrix.permute(0, 3, 1, 2)


def lu_solve(rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The fixed point of x = W x + b by a dense LU of every graph and head."""
    matrix = dense(rows, segments, weight)  # [G, H, n, n]
    graphs, heads, size, _ = matrix.shape
    sizes = segments.diff()
    batch = torch.repeat_interleave(torch.arange(graphs, device=bias.device), sizes)
    slot = torch.arange(len(bias), device=bias.device) - segments[:-1].long()[batch]
    right = bias.new_zeros(graphs, size, heads)
    right[batch, slot] = bias
    identity = torch.eye(size, dtype=bias.dtype, device=bias.device)
    # a matrix that is singular in this dtype has no answer, which is no error of the others
    x, singular = torch.linalg.solve_ex(identity - matrix, right.transpose(1, 2).unsqueeze(-1))  # [G, H, n, 1]
    x = torch.where(singular[..., None] == 0, x.squeeze(-1), torch.inf)
    return x.transpose(1, 2)[batch, slot]


# --- algebraic multigrid ---


def aggregate(rows: Rows) -> Tensor:
    """The aggregate of every node [N], numbered in the order of their first nodes; -1 for a node without neighbours.

    Greedy (Vanek, Mandel, Brezina 1996): a node all of whose neighbours are free forms an aggregate with them; a node next to
    such an aggregate joins it; what is then left joins a neighbour or forms aggregates among itself. Edges count both ways
    when nodes join, so no aggregate crosses from one graph of a batch into another, and no node with a neighbour is left out.
    """
    pointer, column = rows.pointer.tolist(), rows.column.tolist()
    neighbours = [[j for j in column[pointer[i] : pointer[i + 1]] if j != i] for i in range(len(pointer) - 1)]
    out = [-1] * len(neighbours)
    count = 0
    for i, others in enumerate(neighbours):
        if others and out[i] < 0 and all(out[j] < 0 for j in others):
            for j in (i, *others):
                out[j] = count
            count += 1
    first = out.copy()
    for i, others in enumerate(neighbours):
        for j in others:
            if out[i] < 0:
                out[i] = first[j]
            if out[j] < 0:
                out[j] = first[i]
    for i, others in enumerate(neighbours):
        if others and out[i] < 0:
            joined = [out[j] for j in others if out[j] >= 0]
            out[i] = joined[0] if joined else count
            if not joined:
                for j in others:
                    out[j] = count
                count += 1
    for i, others in enumerate(neighbours):
        for j in others:
            out[j] = out[i] if out[j] < 0 else out[j]
    numbers: dict[int, int] = {-1: -1}
    for number in out:
        numbers.setdefault(number, len(numbers) - 1)
    return torch.tensor([numbers[number] for number in out], dtype=torch.long, device=rows.pointer.device)


def _terms(rows: Rows, inner: Rows, groups: Rows | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The terms of sum over i in a group of (keep_i B_i + spread_i sum_j w_ij B_j): group, i, position (-1: keep), cell of B."""
    nodes = len(rows.pointer) - 1
    every = torch.arange(nodes, device=rows.pointer.device)
    home = every
    if groups is not None:
        home = torch.full_like(every, -1).index_put((groups.column.long(),), row_of_position(groups))
    node = torch.cat([every, row_of_position(rows)])
    source = torch.cat([every, rows.column.long()])
    position = torch.cat([torch.full_like(every, -1), torch.arange(len(rows.column), device=every.device)])
    kept = home[node] >= 0
    node, source, position = node[kept], source[kept], position[kept]
    lengths = inner.pointer.diff()[source]
    pick = torch.repeat_interleave(torch.arange(len(node), device=every.device), lengths)
    offset = torch.arange(len(pick), device=every.device) - (lengths.cumsum(0) - lengths)[pick]
    return home[node[pick]], node[pick], position[pick], inner.pointer.long()[source[pick]] + offset


def reach(rows: Rows, inner: Rows, columns: int, groups: Rows | None = None) -> Rows:
    """The pattern of (I + W) B, or of its rows added up over groups of nodes (pointer and members)."""
    home, _, _, cell = _terms(rows, inner, groups)
    flat = torch.unique(home * columns + inner.column.long()[cell])
    count = len(rows.pointer) - 1 if groups is None else len(groups.pointer) - 1
    pointer = torch.nn.functional.pad(torch.bincount(flat // max(columns, 1), minlength=count).cumsum(0), (1, 0))
    kind = rows.column.dtype
    return Rows(pointer.to(kind), (flat % max(columns, 1)).to(kind), None)


def combine(
    rows: Rows, weight: Tensor, keep: Tensor, spread: Tensor, inner: Rows, values: Tensor, out: Rows, columns: int,
    groups: Rows | None = None,
) -> Tensor:  # fmt: skip
    """The values [cells, H] in float64 of keep * B + spread * (W B), added up over groups, in the pattern ``out``.

    ``keep`` and ``spread`` [N, H] scale rows; ``weight`` is in the order of the rows.
    """
    home, node, position, cell = _terms(rows, inner, groups)
    factor = keep.double()[node]
    moved = position >= 0
    factor[moved] = spread.double()[node[moved]] * weight.double()[position[moved]]
    key, slot = torch.sort(row_of_position(out) * columns + out.column.long())
    place = slot[torch.searchsorted(key, home * columns + inner.column.long()[cell])]
    result = torch.zeros(len(out.column), weight.shape[1], dtype=torch.float64, device=weight.device)
    return result.index_add_(0, place, factor * values.double()[cell])


def relax(rows: Rows, weight: Tensor, inverse: Tensor | None, bias: Tensor, x: Tensor, blocks: bool) -> Tensor:
    """Two steps closer to D x = W x + b, where inverse = 1 / D (None: D = I) and W has no diagonal; x may be overwritten.

    Damped Jacobi here. The CPU's kernel makes a forward and a backward Gauss-Seidel sweep, a better smoother that only a
    sequential machine has for nothing; where ``blocks`` allows, it sweeps in blocks of rows, which only smooths while most edges
    stay within a block.
    """
    for _ in range(2):
        moved = propagate(rows, weight, x, bias)
        x = x + 0.7 * ((moved if inverse is None else inverse * moved) - x)
    return x


def restrict(rows: Rows, weight: Tensor, inverse: Tensor | None, r: Tensor, groups: Rows, omega: float) -> Tensor:
    """The mean of (1 - omega) r + omega W D^-1 r over every group: the transpose of a smoothed prolongation."""
    smooth = (1 - omega) * r + omega * propagate(rows, weight, r if inverse is None else inverse * r)
    index = row_of_position(groups)
    total = r.new_zeros(len(groups.pointer) - 1, r.shape[1]).index_add_(0, index, smooth[groups.column.long()])
    return total / groups.pointer.diff().unsqueeze(1).to(r.dtype)


def blend(a: Tensor, first: Tensor, b: Tensor, second: Tensor, c: Tensor, segments: Tensor, out: Tensor) -> Tensor:
    """a + first * b + second * c with coefficients [G, H], written to ``out``, which may be one of the three."""
    index = torch.repeat_interleave(torch.arange(len(first), device=a.device), segments.diff())
    return out.copy_(a + first.to(a.dtype)[index] * b + second.to(a.dtype)[index] * c)
