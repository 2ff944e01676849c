"""The whole certified solve of graphs that fit in cache: one graph and one block of heads after the other, each taken to its end.

A task packs its weights once and then alternates between two things until every lane (a head of this graph) is certified:

    burst   deflated Gauss-Seidel steps, in the precision of the map, on the correction  d = W d + r
    look    x += d,  r = W x + b - x  and its norm in double precision, the certificate

Split W = L + U at the order in which the rows are visited: L reads what this step has computed already, U what the last one did.
A step moves y by m = y' - y and leaves the residual U m, whose mean over the nodes is u.m, where u_j is the sum of column j of U
over their number n: the shift a = u.m / (1 - sum(W) / n) takes the mean out. It is not added to y but carried beside it, as
U (y + a) = U y + a times the row sums of U, so that a step goes through memory once.

``arrange`` lays a graph out once: rows in the order of their lengths, so that the processor guesses the ends of their loops; the
edges of a row with U first and then L in the order of its columns, so that what was computed last is needed last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from convergent.kernels.cpu_rows import kernel, team
from convergent.kernels.lanes import (
    any_lane,
    at,
    doubled,
    fma,
    in_double,
    larger,
    load,
    load_some,
    magnitude,
    misalignment,
    put,
    raise_to,
    root,
    splat,
    store,
    store_some,
    take,
    where_at_most,
    width,
)
from convergent.kernels.reference import ROOM, ROUNDS, SAFETY

DIVERGES = 4.0  # a lane whose steps grow by so much loses its shift: plain steps are certain to converge
LENGTHS = 64  # rows of this length or more are sorted together


class Layout(NamedTuple):
    """The order in which every graph is visited; offsets count from the beginning of the graph."""

    segments: np.ndarray  # [G + 1], nodes
    borders: np.ndarray  # [G + 1], edges
    node: np.ndarray  # [N], the node of each row
    middle: np.ndarray  # [N], where the edges of U end
    end: np.ndarray  # [N], where the edges of L end
    source: np.ndarray  # [E], the row that each place reads from
    edge: np.ndarray  # [E], the edge at each place


class Terms(NamedTuple):
    """What a solve has to reach; tables are [G, H]."""

    contraction: np.ndarray
    amplification: np.ndarray
    tol: np.ndarray
    rtol: float
    unit: float  # what rounding adds to a defect, for a bias and a product of size one
    half: float  # half a unit in the last place of the answer, 0 where the answer is in double precision
    epsilon: float  # of the steps
    gap: float  # the relative rounding of a bound
    one: bool  # the 1-norm
    limit: int


class Result(NamedTuple):
    value: np.ndarray  # [N, H]
    residual: np.ndarray  # [G, H]
    bound: np.ndarray  # [G, H]
    met: np.ndarray  # [G, H]
    steps: np.ndarray  # [G]


# One number for every lane of a task: the fields of a table in double precision.
RATE, FACTOR, TOL, COARSE = 0, 1, 2, 3  # contraction, amplification, tolerance, 1 - sum(W) / n
ACTIVE, MET = 4, 5  # 1 or 0
BIAS, RESIDUAL, SIZE, ANSWER, BOUND, AIM = 6, 7, 8, 9, 10, 11  # norms of b, of the defect, of x, and of the answer's defect
LENGTH, ALONG, REACHED, LAST, BEST, SHIFTING, SHIFT = 12, 13, 14, 15, 16, 17, 18  # of a burst
WORTH = 19  # the norm of the answer
FIELDS = 20


@kernel
def get(lanes, table, field):
    return load(in_double(lanes), table, field * width(lanes))


@kernel
def put_in(lanes, table, field, value):
    store(in_double(lanes), table, field * width(lanes), value)


class Block(NamedTuple):
    """A packed graph: its weights, then per row ``offset`` (the bias), ``right``, ``sums``, ``left`` and ``y``."""

    packed: np.ndarray  # in the precision of the map
    x: np.ndarray  # in double precision
    rounded: np.ndarray  # x as it will be handed over, in double precision too
    offset: int
    right: int
    sums: int
    left: int
    y: int
    nodes: int
    first: int  # node
    base: int  # edge


# --- packing ---


@kernel
def sort_rows(first, nodes, pointer, node, seat):
    """Nodes in the order of their number of edges, by counting."""
    begin = np.zeros(LENGTHS + 1, np.int64)
    for index in range(first, first + nodes):
        begin[min(at(pointer, index + 1) - at(pointer, index), LENGTHS - 1) + 1] += 1
    for length in range(LENGTHS):
        begin[length + 1] += begin[length]
    for index in range(first, first + nodes):
        length = min(at(pointer, index + 1) - at(pointer, index), LENGTHS - 1)
        node[first + begin[length]] = index
        seat[index] = begin[length]
        begin[length] += 1


@kernel
def sort_edges(begin, end, row, nodes, source, edge):
    """The edges of one row: sources from ``row`` on first, then those before it, both ascending; equal ones stay as they were."""
    count = end - begin
    keys = np.empty(count, np.int64)
    for place in range(count):
        this = source[begin + place]
        keys[place] = (this + nodes if this < row else this) * count + place
    keys.sort()
    old_source, old_edge = source[begin:end].copy(), edge[begin:end].copy()
    for place in range(count):
        other = keys[place] % count
        source[begin + place], edge[begin + place] = old_source[other], old_edge[other]


@kernel
def arrange(segments, pointer, column, order, permuted):
    """The layout of every graph of a batch."""
    nodes, edges = len(pointer) - 1, len(column)
    node, middle, end, seat = (
        np.empty(nodes, np.int32),
        np.empty(nodes, np.int32),
        np.empty(nodes, np.int32),
        np.empty(nodes, np.int32),
    )
    source, edge = np.empty(edges, np.int32), np.empty(edges, order.dtype)
    borders = np.empty(len(segments), np.int64)
    for graph in range(len(segments)):
        borders[graph] = pointer[segments[graph]]
    for graph in range(len(segments) - 1):
        first, last, base = segments[graph], segments[graph + 1], borders[graph]
        sort_rows(first, last - first, pointer, node, seat)
        place = base
        for row in range(last - first):
            begin, split = place, 0
            for position in range(pointer[node[first + row]], pointer[node[first + row] + 1]):
                source[place] = seat[column[position]]
                edge[place] = order[position] if permuted else position
                split += 1 if source[place] >= row else 0
                place += 1
            sort_edges(begin, place, row, last - first, source, edge)
            middle[first + row], end[first + row] = begin - base + split, place - base
    return borders, node, middle, end, source, edge


@kernel
def pack(lanes, head, layout, weight, bias, block):
    """Weights in the order of the layout, the bias, and of U the row sums and column means u; returns 1 - sum(W) / n."""
    w, heads, packed = width(lanes), weight.shape[1], block.packed
    for place in range(block.left, block.left + block.nodes * w, w):
        store(lanes, packed, place, splat(lanes, 0.0))
    every, share = splat(lanes, 0.0), splat(lanes, 1.0 / max(block.nodes, 1))
    end = 0
    for row in range(block.nodes):
        upper = lower = splat(lanes, 0.0)
        begin, middle, end = end, at(layout.middle, block.first + row), at(layout.end, block.first + row)
        for slot in range(begin, middle):
            value = load_some(lanes, weight, at(layout.edge, block.base + slot) * heads + head, heads - head)
            store(lanes, packed, slot * w, value)
            upper = upper + value
            place = block.left + at(layout.source, block.base + slot) * w
            store(lanes, packed, place, fma(value, share, load(lanes, packed, place)))
        for slot in range(middle, end):
            value = load_some(lanes, weight, at(layout.edge, block.base + slot) * heads + head, heads - head)
            store(lanes, packed, slot * w, value)
            lower = lower + value
        every = every + (upper + lower)
        store(lanes, packed, block.sums + row * w, upper)
        place = at(layout.node, block.first + row) * heads + head
        store(lanes, packed, block.offset + row * w, load_some(lanes, bias, place, heads - head))
    return doubled(splat(lanes, 1.0) - every * share)


# --- burst ---


@kernel
def plan_shift(lanes, epsilon, table):
    """The shift of every lane; True when every lane is done."""
    wide = in_double(lanes)
    zero, one = splat(wide, 0.0), splat(wide, 1.0)
    length, best, sure = get(lanes, table, LENGTH), get(lanes, table, BEST), get(lanes, table, RATE)
    # the residual is certain to be at most contraction * length, and likely to fall as the steps do
    likely = length / get(lanes, table, LAST)
    # so written that a lane which is no number is done
    slow = where_at_most(get(lanes, table, AIM), length * where_at_most(sure, likely, sure, likely), one, zero)
    left_over = where_at_most(length, splat(wide, 2 * epsilon) * get(lanes, table, REACHED), zero, slow)
    shifting = where_at_most(length, splat(wide, DIVERGES) * best, get(lanes, table, SHIFTING), zero)
    shift = get(lanes, table, ALONG) / get(lanes, table, COARSE)
    put_in(lanes, table, SHIFT, where_at_most(left_over * shifting, zero, zero, shift))
    put_in(lanes, table, SHIFTING, shifting)
    put_in(lanes, table, LAST, length)
    put_in(lanes, table, BEST, where_at_most(best, length, best, length))
    return not any_lane(left_over)


@kernel
def step(lanes, layout, block, fresh, one, table):
    """y' = L y' + U (y + a) + r, the norms of the move and of y', and the move times u. A fresh start knows that y is zero."""
    w, packed, y = width(lanes), block.packed, block.y
    constant = load(lanes, table, SHIFT * w)
    length = size = along = splat(lanes, 0.0)
    end = 0
    for row in range(block.nodes):
        place = row * w
        before = load(lanes, packed, y + place) + constant
        total = fma(constant, load(lanes, packed, block.sums + place), load(lanes, packed, block.right + place))
        begin, end = end, at(layout.end, block.first + row)
        if fresh:
            begin = at(layout.middle, block.first + row)
        for slot in range(begin, end):
            read = y + at(layout.source, block.base + slot) * w
            total = fma(load(lanes, packed, slot * w), load(lanes, packed, read), total)
        store(lanes, packed, y + place, total)
        move = total - before
        along = fma(load(lanes, packed, block.left + place), move, along)
        if one:
            length, size = length + magnitude(move), size + magnitude(total)
        else:
            length, size = larger(length, magnitude(move)), larger(size, magnitude(total))
    store(lanes, table, LENGTH * w, length)
    store(lanes, table, REACHED * w, size)
    store(lanes, table, ALONG * w, along)


@kernel
def burst(lanes, layout, block, terms, table, limit):
    """Steps from zero; returns how many. What is left of the shift is in the table."""
    for place in range(block.y, block.y + block.nodes * width(lanes)):
        put(block.packed, place, 0.0)
    put_in(lanes, table, LAST, splat(in_double(lanes), 0.0))
    put_in(lanes, table, BEST, splat(in_double(lanes), np.inf))
    put_in(lanes, table, SHIFTING, splat(in_double(lanes), 1.0))
    put_in(lanes, table, SHIFT, splat(in_double(lanes), 0.0))
    taken, done = 0, False
    while taken < limit and not done:
        step(lanes, layout, block, taken == 0, terms.one, table)
        done = plan_shift(lanes, terms.epsilon, table)
        taken += 1
    return taken


# --- look ---


@kernel
def correct(lanes, block, table):
    """x += d in the lanes that are still active."""
    w, wide = width(lanes), in_double(lanes)
    constant, active = get(lanes, table, SHIFT), get(lanes, table, ACTIVE)
    for place in range(0, block.nodes * w, w):
        moved = fma(active, load(wide, block.packed, block.y + place) + constant, load(wide, block.x, place))
        store(wide, block.x, place, moved)


@kernel
def round_off(lanes, block):
    """x to the precision of the map, by way of y, which is free between two bursts."""
    wide, w = in_double(lanes), width(lanes)
    for place in range(0, block.nodes * w, w):
        store(wide, block.packed, block.y + place, load(wide, block.x, place))
        store(wide, block.rounded, place, load(wide, block.packed, block.y + place))


@kernel
def adopt(lanes, block):
    """x becomes the answer: a first correction is in the precision of the map already, up to its last shift."""
    wide, w = in_double(lanes), width(lanes)
    for place in range(0, block.nodes * w, w):
        store(wide, block.x, place, load(wide, block.rounded, place))


@kernel
def moved_by_rounding(lanes, block, one):
    """How far the answer is from x."""
    wide, w = in_double(lanes), width(lanes)
    moved = splat(wide, 0.0)
    for place in range(0, block.nodes * w, w):
        distance = magnitude(load(wide, block.x, place) - load(wide, block.rounded, place))
        moved = moved + distance if one else larger(moved, distance)
    return moved


@kernel
def look(lanes, layout, block, x, one, table):
    """r = W x + b - x in double precision, its norm and that of x."""
    w, wide, packed = width(lanes), in_double(lanes), block.packed
    residual = size = splat(wide, 0.0)
    end = 0
    for row in range(block.nodes):
        total = load(wide, packed, block.offset + row * w)
        begin, end = end, at(layout.end, block.first + row)
        for slot in range(begin, end):
            read = at(layout.source, block.base + slot) * w
            total = fma(load(wide, packed, slot * w), load(wide, x, read), total)
        value = load(wide, x, row * w)
        defect = total - value
        store(wide, packed, block.right + row * w, defect)
        if one:
            residual, size = residual + magnitude(defect), size + magnitude(value)
        else:
            residual, size = larger(residual, magnitude(defect)), larger(size, magnitude(value))
    put_in(lanes, table, RESIDUAL, residual)
    put_in(lanes, table, SIZE, size)


@kernel
def look_at_zero(lanes, block, one, table):
    """The defect of zero is the bias; |x*| >= |b| / (1 + c) gives a relative tolerance a scale."""
    w, wide = width(lanes), in_double(lanes)
    size = splat(wide, 0.0)
    for place in range(0, block.nodes * w, w):
        bias = load(wide, block.packed, block.offset + place)
        store(wide, block.packed, block.right + place, bias)
        store(wide, block.x, place, splat(wide, 0.0))
        size = size + magnitude(bias) if one else larger(size, magnitude(bias))
    put_in(lanes, table, BIAS, size)
    put_in(lanes, table, RESIDUAL, size)
    put_in(lanes, table, ANSWER, size)
    put_in(lanes, table, SIZE, size / (splat(wide, 1.0) + get(lanes, table, RATE)))
    put_in(lanes, table, WORTH, splat(wide, 0.0))


@kernel
def at_most(a, b):
    return where_at_most(a, b, a, b)


@kernel
def at_least(a, b):
    return where_at_most(a, b, b, a)


@kernel
def certify(lanes, terms, rounded, again, table):
    """The bound of every active lane and the aim of its next burst; returns whether any lane needs one.

    What was looked at is ``rounded`` away from the answer; ``again``: the answer itself was looked at before, and the smaller
    bound counts.
    """
    wide = in_double(lanes)
    zero, infinite = splat(wide, 0.0), splat(wide, np.inf)
    active, factor, residual = get(lanes, table, ACTIVE), get(lanes, table, FACTOR), get(lanes, table, RESIDUAL)
    size, bias, tol = get(lanes, table, SIZE), get(lanes, table, BIAS), get(lanes, table, TOL)
    slack = splat(wide, terms.unit) * fma(get(lanes, table, RATE), size, bias)
    floor = slack * factor
    own = fma(residual, factor, floor)
    bound = own + rounded
    if again:
        bound = at_most(bound, get(lanes, table, BOUND))
    allowed = fma(splat(wide, terms.rtol), size, tol)
    finite = where_at_most(bound, splat(wide, 1e300), active, zero)
    met = where_at_most(bound, fma(splat(wide, terms.rtol), get(lanes, table, WORTH), tol), finite, zero)
    # rounding alone is more than is allowed, and the bound is not much more than rounding; or x is as close as can be of use
    most = splat(wide, 4.0) * floor
    share = at_least(allowed * splat(wide, 1 / ROOM), at_most(most, allowed))
    enough = where_at_most(floor, allowed, where_at_most(rounded, zero, splat(wide, -1.0), share), most)
    left = where_at_most(own, enough, zero, finite - met)
    room = allowed - floor
    room = at_least(room - splat(wide, terms.half) * size, room * splat(wide, 1 / ROOM))
    target = splat(wide, SAFETY) * room / factor
    goal = at_least(target, slack)
    reach = splat(wide, 2 * terms.epsilon) * residual
    # a correction that one burst cannot hold is shared by two, which takes no more steps than one
    aim = where_at_most(goal, reach, at_least(root(goal * residual), reach), goal)
    put_in(lanes, table, BOUND, where_at_most(active, zero, get(lanes, table, BOUND), bound))
    put_in(lanes, table, MET, get(lanes, table, MET) + met)
    put_in(lanes, table, ACTIVE, left)
    put_in(lanes, table, AIM, where_at_most(left, zero, infinite, aim))
    return any_lane(left)


@kernel
def reported(lanes, terms, table):
    """The bounds as ``reference.clear_of`` has them: above what is allowed where that was not met, infinite instead of NaN."""
    wide = in_double(lanes)
    bound, infinite = get(lanes, table, BOUND), splat(wide, np.inf)
    allowed = fma(splat(wide, terms.rtol), get(lanes, table, WORTH), get(lanes, table, TOL))
    above = allowed * splat(wide, 1 + 4 * terms.gap)
    raised = where_at_most(bound, above, above, bound)
    bound = where_at_most(get(lanes, table, MET), splat(wide, 0.0), raised, bound)
    return where_at_most(bound, infinite, bound, infinite)


# --- the worker ---


@kernel
def settle_block(lanes, layout, block, terms, table, warm):
    """Burst and look until every lane is certified or none gets closer; returns the steps.

    An answer that is rounded is looked at as such first: often that is all it takes. Where the rounding is too much for the
    amplification, x itself is looked at, and its distance from the answer is added: |answer - x*| <= |x - x*| + |answer - x|.
    """
    rounds, nothing = terms.half > 0, splat(in_double(lanes), 0.0)
    if warm:
        look(lanes, layout, block, block.x, terms.one, table)
        put_in(lanes, table, ANSWER, get(lanes, table, RESIDUAL))
        put_in(lanes, table, WORTH, get(lanes, table, SIZE))
    left = certify(lanes, terms, nothing, False, table)
    taken, bursts = 0, 0
    while left and taken < terms.limit and bursts < ROUNDS:
        taken += burst(lanes, layout, block, terms, table, terms.limit - taken)
        correct(lanes, block, table)
        if rounds:
            round_off(lanes, block)
            look(lanes, layout, block, block.rounded, terms.one, table)
        else:
            look(lanes, layout, block, block.x, terms.one, table)
        put_in(lanes, table, ANSWER, get(lanes, table, RESIDUAL))
        put_in(lanes, table, WORTH, get(lanes, table, SIZE))
        left = certify(lanes, terms, nothing, False, table)
        if rounds and left:
            if warm or bursts > 0:
                look(lanes, layout, block, block.x, terms.one, table)
                left = certify(lanes, terms, moved_by_rounding(lanes, block, terms.one), True, table)
            else:
                adopt(lanes, block)
        bursts += 1
    return taken


@kernel
def settle_graph(lanes, graph, head, layout, weight, bias, start, warm, terms, packed, x, rounded, table, result):
    w, wide, heads = width(lanes), in_double(lanes), bias.shape[1]
    first, base = at(layout.segments, graph), at(layout.borders, graph)
    nodes, edges = at(layout.segments, graph + 1) - first, at(layout.borders, graph + 1) - base
    end, span = edges * w, nodes * w
    places = (end, end + span, end + 2 * span, end + 3 * span, end + 4 * span)
    block = Block(packed, x, rounded, places[0], places[1], places[2], places[3], places[4], nodes, first, base)
    here, count = graph * heads + head, heads - head
    put_in(lanes, table, RATE, load_some(wide, terms.contraction, here, count))
    put_in(lanes, table, FACTOR, load_some(wide, terms.amplification, here, count))
    put_in(lanes, table, TOL, load_some(wide, terms.tol, here, count))
    put_in(lanes, table, ACTIVE, splat(wide, 1.0))
    put_in(lanes, table, MET, splat(wide, 0.0))
    put_in(lanes, table, COARSE, pack(lanes, head, layout, weight, bias, block))
    look_at_zero(lanes, block, terms.one, table)
    if warm:
        for row in range(nodes):
            value = load_some(wide, start, at(layout.node, first + row) * heads + head, count)
            store(wide, x, row * w, value)
    raise_to(result.steps, graph, settle_block(lanes, layout, block, terms, table, warm))
    for row in range(nodes):
        place = at(layout.node, first + row) * heads + head
        store_some(wide, result.value, place, load(wide, x, row * w), count)
    store_some(wide, result.residual, here, get(lanes, table, ANSWER), count)
    store_some(wide, result.bound, here, reported(lanes, terms, table), count)
    store_some(wide, result.met, here, get(lanes, table, MET), count)


@kernel
def settle_worker(
    lanes, counter, graphs, most_nodes, most_edges, segments, borders, node, middle, end, source, edge, weight, bias, start, warm,
    contraction, amplification, tol, rtol, unit, half, epsilon, gap, one, limit, value, residual,
    bound, met, steps,
):  # fmt: skip
    """Numba hands a team nothing but numbers and arrays: they are grouped here."""
    w = width(lanes)
    layout = Layout(segments, borders, node, middle, end, source, edge)
    terms = Terms(contraction, amplification, tol, rtol, unit, half, epsilon, gap, one, limit)
    result = Result(value, residual, bound, met, steps)
    packed = np.empty((most_edges + 5 * most_nodes) * w + 64, bias.dtype)
    packed = packed[misalignment(packed) :]
    x, rounded = np.empty(most_nodes * w + 8), np.empty(most_nodes * w + 8)
    x, rounded = x[misalignment(x) :], rounded[misalignment(rounded) :]
    table = np.empty(FIELDS * w + 8)
    table = table[misalignment(table) :]
    blocks = (bias.shape[1] + w - 1) // w
    task = take(counter)
    while task < len(graphs) * blocks:
        graph, head = graphs[task // blocks], task % blocks * w
        settle_graph(lanes, graph, head, layout, weight, bias, start, warm, terms, packed, x, rounded, table, result)
        task = take(counter)


@team
def settle_team(threads, lanes, counter, args):
    for _ in prange(threads):
        settle_worker(lanes, counter, *args)
