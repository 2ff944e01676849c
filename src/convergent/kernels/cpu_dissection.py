"""Nested dissection (George 1973): the nodes that cut a graph into two halves are eliminated last, the halves likewise before them.

Minimum degree looks one step ahead; on large meshes separators fill in several times less. Small parts are left to minimum degree.
"""

from __future__ import annotations

import numpy as np

from convergent.kernels import cpu_bisection
from convergent.kernels.cpu_bisection import LEVELS, bisect
from convergent.kernels.cpu_ordering import minimum_degree
from convergent.kernels.cpu_rows import kernel

UNCUT = 200  # nodes of a part that is not cut


@kernel
def part_of_graph(low, high, order, local, start, adjacency, part_start, part_neighbours):
    """The graph among the nodes order[low : high], which ``local`` numbers; -1 elsewhere."""
    for place in range(low, high):
        local[order[place]] = place - low
    top = 0
    for place in range(low, high):
        part_start[place - low] = top
        for edge in range(start[order[place]], start[order[place] + 1]):
            j = local[adjacency[edge]]
            if j >= 0:
                part_neighbours[top] = j
                top += 1
    part_start[high - low] = top
    for place in range(low, high):
        local[order[place]] = -1
    return top


@kernel
def order_leaf(low, high, order, start, neighbours, quotient, lists, spare, mine, nodes_of):
    size = high - low
    minimum_degree(size, start, neighbours, quotient, lists, spare, np.inf, mine)
    nodes_of[:size] = order[low:high]
    for place in range(size):
        order[low + place] = nodes_of[mine[place]]


@kernel
def split(low, high, order, part, nodes_of):
    """Side 0, side 1, separator: returns where the last two begin."""
    size = high - low
    nodes_of[:size] = order[low:high]
    put = low
    middle = end = low
    for wanted in range(3):
        for place in range(size):
            if part[place] == wanted:
                order[put] = nodes_of[place]
                put += 1
        if wanted == 0:
            middle = put
        elif wanted == 1:
            end = put
    return middle, end


@kernel
def dissect(nodes, start, adjacency, quotient, lists, spare, limit, order):
    """Fill ``order`` with the nodes of a graph; False where a separator alone costs more multiply-adds than ``limit``."""
    edges = start[nodes]
    room, room_of_edges = 4 * nodes, 6 * edges
    levels = np.empty((LEVELS, 3), np.int64)
    part_start, weight = np.empty(room + LEVELS, np.int64), np.empty(room, np.int64)
    coarse, part = np.empty(room, np.int64), np.empty(room, np.int64)
    neighbours, strength = np.empty(room_of_edges, np.int64), np.empty(room_of_edges, np.int64)
    scratch, queue = np.empty((cpu_bisection.FIELDS, nodes + 1), np.int64), np.empty((2, 16 * nodes + 1024), np.int64)
    local, nodes_of, mine = np.full(nodes, -1, np.int64), np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    for i in range(nodes):
        order[i] = i
    stack = np.empty((2 * nodes + 2, 2), np.int64)
    stack[0, 0], stack[0, 1], top = 0, nodes, 1
    while top:
        top -= 1
        low, high = stack[top, 0], stack[top, 1]
        size = high - low
        count = part_of_graph(low, high, order, local, start, adjacency, part_start, neighbours)
        cut = size > UNCUT
        if cut:
            weight[:size] = 1
            strength[:count] = 1
            bisect(size, levels, part_start, neighbours, strength, weight, coarse, part, scratch, queue)
            middle, end = split(low, high, order, part, nodes_of)
            cut = middle > low and end > middle
            if float(high - end) ** 3 / 3 > limit:
                return False
            if cut:
                stack[top, 0], stack[top, 1], stack[top + 1, 0], stack[top + 1, 1] = low, middle, middle, end
                top += 2
            else:  # a clique, say: the parts are in another order now
                count = part_of_graph(low, high, order, local, start, adjacency, part_start, neighbours)
        if not cut and size > 1:
            order_leaf(low, high, order, part_start, neighbours, quotient, lists, spare, mine, nodes_of)
    return True
