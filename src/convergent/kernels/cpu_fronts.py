"""The symbolic step for the graphs of a batch, one after the other, and where the numbers of their factors lie.

The first pass orders the nodes of every graph and counts; large graphs are dissected, too. The second, once it is known how much
room all graphs need, writes the fronts. Both take graph after graph from a counter, as many threads as there are.

A front keeps two panels of width x stride numbers, one row per pivot k: row k of U, whose last column is the slack (what the row
loses), then column k of L. What it leaves for its parent, the rows beyond its pivots, is a square with the slack as one more
column. It lives in a scratch of two stacks: fronts of odd depth use one and fronts of even depth the other, so that a front can
write its own square while it reads those of its children.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from convergent.kernels import cpu_ordering, cpu_symbolic
from convergent.kernels.cpu_dissection import dissect
from convergent.kernels.cpu_ordering import STAMP, minimum_degree, symmetrised
from convergent.kernels.cpu_rows import kernel, team
from convergent.kernels.cpu_symbolic import (
    ANCESTOR,
    LEAF,
    PARENT,
    collect_rows,
    column_counts,
    elimination_tree,
    group_columns,
    measure,
    number_fronts,
    pieces_of_width,
    postorder,
    renumber,
)
from convergent.kernels.lanes import take

# What is counted of every graph: its fronts before and after wide ones are cut, entries of their index, numbers in the factors.
FRONTS, PIECES, ENTRIES, NUMBERS = range(4)
# A front is a row of a table, children before parents:
FIRST, WIDTH, ROWS = 0, 1, 2  # position of the first pivot, number of pivots, rows
ABOVE, CHILD, SIBLING = 3, 4, 5  # its parent, its first child and the next one of the same parent; -1: none
POINTER = 6  # where its rows beyond the pivots begin in index (their positions) and into (as rows of the parent)
# and, for each way to lay out the numbers, of another table, in units of a block of heads:
STRIDE, PANEL, SQUARE = 0, 1, 2


@kernel
def largest(segments):
    most = 0
    for graph in range(len(segments) - 1):
        most = max(most, segments[graph + 1] - segments[graph])
    return most


@kernel
def shape_fronts(nodes, start, adjacency, order, position, tree, width, rows, above):
    """From an order to fronts; the order changes within what is equivalent. Returns their number."""
    elimination_tree(nodes, start, adjacency, order, position, tree[PARENT], tree[ANCESTOR])
    postorder(nodes, tree, tree[PARENT], tree[LEAF])
    renumber(nodes, tree[LEAF], order, position, tree)
    column_counts(nodes, start, adjacency, order, position, tree)
    found = group_columns(nodes, tree, tree[LEAF], width, rows, above)
    return number_fronts(nodes, found, tree, tree[LEAF], width, rows, above, order, position)


@kernel
def note(graph, fronts, width, rows, limit, counts, updates):
    """Write down what fronts come to, where they come to less than what is known and no more than the limit; whether they do."""
    pieces, entries, numbers, work = measure(fronts, width, rows)
    better = work < updates[graph] and work <= limit
    if better:
        updates[graph] = work
        counts[graph, FRONTS], counts[graph, PIECES] = fronts, pieces
        counts[graph, ENTRIES], counts[graph, NUMBERS] = entries, numbers
    return better


@kernel
def order_worker(
    lanes, counter, segments, pointer, column, limit, start, adjacency, order, position, width, rows, above, counts, updates
):  # fmt: skip
    graphs, most, edges = len(segments) - 1, largest(segments), 0
    for graph in range(graphs):
        edges = max(edges, pointer[segments[graph + 1]] - pointer[segments[graph]])
    quotient = np.empty((cpu_ordering.FIELDS, most + 1), np.int64)
    tree = np.empty((cpu_symbolic.FIELDS, most + 1), np.int64)
    lists, spare = np.empty(4 * edges + 2 * most + 2, np.int64), np.empty(4 * edges + 2 * most + 2, np.int64)
    graph = take(counter)
    while graph < graphs:
        first, last = segments[graph], segments[graph + 1]
        nodes = last - first
        around, neighbours = start[first + graph :], adjacency[2 * pointer[first] :]
        mine, place, own = order[first:], position[first:], (width[first:], rows[first:], above[first:])
        symmetrised(first, last, pointer, column, around, neighbours, quotient[STAMP])
        updates[graph] = np.inf
        if minimum_degree(nodes, around, neighbours, quotient, lists, spare, limit, mine) <= limit:
            fronts = shape_fronts(nodes, around, neighbours, mine, place, tree, *own)
            note(graph, fronts, own[0], own[1], limit, counts, updates)
        graph = take(counter)


@team
def order_team(threads, lanes, counter, args):
    for _ in prange(threads):
        order_worker(lanes, counter, *args)


@kernel
def reorder(lanes, graph, segments, pointer, limit, start, adjacency, order, position, width, rows, above, counts, updates):
    """Dissect one graph, and keep what comes of it where it costs less than its minimum degree."""
    first, nodes = segments[graph], segments[graph + 1] - segments[graph]
    around, neighbours = start[first + graph :], adjacency[2 * pointer[first] :]
    quotient, tree = np.empty((cpu_ordering.FIELDS, nodes + 1), np.int64), np.empty((cpu_symbolic.FIELDS, nodes + 1), np.int64)
    lists = np.empty((2, 2 * around[nodes] + 2 * nodes + 2), np.int64)
    found = np.empty((5, nodes), np.int64)
    if dissect(nodes, around, neighbours, quotient, lists[0], lists[1], limit, found[0]):
        fronts = shape_fronts(nodes, around, neighbours, found[0], found[1], tree, found[2], found[3], found[4])
        if note(graph, fronts, found[2], found[3], limit, counts, updates):
            last = first + nodes
            order[first:last], position[first:last] = found[0], found[1]
            width[first:last], rows[first:last], above[first:last] = found[2], found[3], found[4]


@kernel
def cut_into_pieces(offset, base, fronts, width, rows, above, ends, rows_beyond, put, piece_of, table, index):
    """Write the pieces of a graph's fronts, the first of which is number ``base``.

    ``offset`` is the position of the graph's first node, ``put`` the place of its first entry of the index.
    """
    piece, pivot = base, 0
    for f in range(fronts):
        piece_of[f] = piece
        piece += pieces_of_width(width[f])
    piece = base
    for f in range(fronts):
        pivots, parts, done = width[f], pieces_of_width(width[f]), 0
        for part in range(parts):
            here = pivots * (part + 1) // parts - done
            table[piece, FIRST], table[piece, WIDTH] = offset + pivot + done, here
            table[piece, ROWS], table[piece, POINTER] = rows[f] - done, put
            table[piece, ABOVE], table[piece, CHILD], table[piece, SIBLING] = piece + 1, -1, -1
            done += here
            for k in range(pivot + done, pivot + pivots):
                index[put] = offset + k
                put += 1
            for place in range(ends[f], ends[f + 1]):
                index[put] = offset + rows_beyond[place]
                put += 1
            piece += 1
        table[piece - 1, ABOVE] = piece_of[above[f]] if above[f] >= 0 else -1
        pivot += pivots
    table[piece, POINTER] = put  # the next graph writes the same


@kernel
def relate(low, high, table, index, into):
    """Children of every front low .. high, and where their rows lie in it."""
    for f in range(high - 1, low - 1, -1):
        p = table[f, ABOVE]
        if p < 0:
            continue
        table[f, SIBLING] = table[p, CHILD]
        table[p, CHILD] = f
        width, begin = table[p, WIDTH], table[p, POINTER]
        end, place = table[p, FIRST] + width, begin
        for entry in range(table[f, POINTER], table[f + 1, POINTER]):
            i = index[entry]
            if i < end:
                into[entry] = i - end + width
            else:
                while index[place] < i:
                    place += 1
                into[entry] = width + place - begin


@kernel
def fronts_worker(
    lanes, counter, segments, pointer, start, adjacency, order, position, width, rows, above, counts, pieces, entries, table,
    index, into,
):  # fmt: skip
    graphs, most = len(segments) - 1, largest(segments)
    spare = np.empty((4, most + 1), np.int64)
    graph = take(counter)
    while graph < graphs:
        first, last = segments[graph], segments[graph + 1]
        fronts, base = counts[graph, FRONTS], pieces[graph]
        if fronts:
            around, neighbours = start[first + graph :], adjacency[2 * pointer[first] :]
            own = (width[first:], rows[first:], above[first:])
            args = (order[first:], position[first:], *own, spare)
            beyond = collect_rows(last - first, fronts, around, neighbours, *args)
            cut_into_pieces(first, base, fronts, *own, spare[0], beyond, entries[graph], spare[1], table, index)
            relate(base, base + counts[graph, PIECES], table, index, into)
        graph = take(counter)


@team
def fronts_team(threads, lanes, counter, args):
    for _ in prange(threads):
        fronts_worker(lanes, counter, *args)


# --- where numbers lie ---


@kernel
def find_row(table, index, front, position):
    """A position as a row of a front."""
    width = table[front, WIDTH]
    if position < table[front, FIRST] + width:
        return position - table[front, FIRST]
    begin = low = table[front, POINTER]
    high = table[front + 1, POINTER]
    while low < high:
        middle = (low + high) // 2
        if index[middle] < position:
            low = middle + 1
        else:
            high = middle
    return width + low - begin


@kernel
def rounded(size, group):
    return (size + group - 1) // group * group


@kernel
def place_panels(graphs, table, group, layout, room):
    """Rows of panels and squares are multiples of ``group`` long."""
    total = 0
    for graph in range(len(graphs) - 1):
        low, high = graphs[graph], graphs[graph + 1]
        depth = np.zeros(high - low, np.int64)
        for f in range(high - 1, low - 1, -1):
            if table[f, ABOVE] >= 0:
                depth[f - low] = depth[table[f, ABOVE] - low] + 1
        most, used = np.zeros(2, np.int64), np.zeros(2, np.int64)
        for f in range(low, high):
            width, rows, child = table[f, WIDTH], table[f, ROWS], table[f, CHILD]
            layout[f, STRIDE], layout[f, PANEL] = rounded(rows + 1, group), total
            total += 2 * width * layout[f, STRIDE]
            mine = depth[f - low] & 1
            if child >= 0:  # what its children left is free again once this front is done: the first one lies lowest
                used[1 - mine] = layout[child, SQUARE]
            layout[f, SQUARE] = used[mine]
            used[mine] += (rows - width) * rounded(rows - width + 1, group)
            most[mine] = max(most[mine], used[mine])
        for f in range(low, high):
            if depth[f - low] & 1:
                layout[f, SQUARE] += most[0]
        room[graph] = most[0] + most[1]
    layout[graphs[len(graphs) - 1], PANEL] = total


@kernel
def place_edges(segments, pointer, column, order, position, graphs, table, index, layout, place, corner):
    """Where the weight of each position of the rows is added, and of every node where its slack and its diagonal are."""
    front_of = np.empty(len(order), np.int64)
    for graph in range(len(segments) - 1):
        offset = segments[graph]
        for f in range(graphs[graph], graphs[graph + 1]):
            for k in range(table[f, WIDTH]):
                here = table[f, FIRST] + k
                start = layout[f, PANEL] + k * layout[f, STRIDE]
                front_of[here] = f
                corner[offset + order[here], 0] = start + table[f, ROWS]
                corner[offset + order[here], 1] = start + k
        for i in range(offset, segments[graph + 1]):
            row = position[i] + offset
            for edge in range(pointer[i], pointer[i + 1]):
                read = position[column[edge]] + offset
                f = front_of[min(row, read)]
                first, width = table[f, FIRST], table[f, WIDTH]
                line, other = row - first, read
                if line >= width:  # below the pivots: a column of L
                    line, other = read - first + width, row
                place[edge] = layout[f, PANEL] + line * layout[f, STRIDE] + find_row(table, index, f, other)
