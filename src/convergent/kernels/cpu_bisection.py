"""A small set of nodes that cuts a graph into two halves, by coarsening, cutting and refining (Hendrickson and Leland 1995).

Neighbours are matched and merged until few nodes are left. There a half is grown from several seeds; what lies next to it is the
separator. On the way back to the graph itself separators are refined by moves of single nodes (Fiduccia and Mattheyses 1982): a
node leaves the separator for one side and pulls its neighbours on the other side into it.
"""

from __future__ import annotations

import numpy as np

from convergent.kernels.cpu_rows import kernel

COARSEST = 200  # nodes that are cut directly
LEVELS = 40
TRIES, FEW = 12, 3  # seeds, and for a graph of at most SMALL nodes, whose separator costs little
SMALL = 4000
PASSES = 6  # of refinement, while it helps
PATIENCE = 150  # moves that do not help before a pass ends
UNEVEN = 0.55  # of the whole, the most that one side may have
SEPARATOR = 2  # the part of its nodes; the sides are 0 and 1
# rows of the scratch, a number per node
GAIN = 0  # two rows: what the separator loses when a node of it moves to side 0, to side 1
LOCKED, FRESH, LOG, BEFORE, QUEUE, KEPT = 2, 3, 4, 5, 6, 7
FIELDS = 8


# --- coarsening ---


@kernel
def shuffle(nodes, order):
    """The same order of the nodes every time, which hops about."""
    state = 12345
    for i in range(nodes):
        order[i] = i
    for i in range(nodes - 1, 0, -1):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        j = (state >> 8) % (i + 1)
        order[i], order[j] = order[j], order[i]


@kernel
def match_neighbours(nodes, start, neighbours, strength, weight, heaviest, order, coarse):
    """Merge every node with the free neighbour it is tied to most; returns how many nodes are left."""
    shuffle(nodes, order)
    coarse[:nodes] = -1
    count = 0
    for turn in range(nodes):
        i = order[turn]
        if coarse[i] >= 0:
            continue
        mate, best = i, 0
        for place in range(start[i], start[i + 1]):
            j = neighbours[place]
            if coarse[j] < 0 and strength[place] > best and weight[i] + weight[j] <= heaviest:
                mate, best = j, strength[place]
        coarse[i] = coarse[mate] = count
        count += 1
    return count


@kernel
def merge(
    nodes,
    start,
    neighbours,
    strength,
    weight,
    coarse,
    count,
    seen,
    members,
    next_start,
    next_neighbours,
    next_strength,
    next_weight,
):
    """The graph of merged nodes; edges between the same two add up."""
    members[:, :count] = -1
    for i in range(nodes):
        c = coarse[i]
        members[0 if members[0, c] < 0 else 1, c] = i
    seen[:count] = -1
    top = 0
    for c in range(count):
        next_start[c], next_weight[c] = top, 0
        for half in range(2):
            i = members[half, c]
            if i < 0:
                continue
            next_weight[c] += weight[i]
            for place in range(start[i], start[i + 1]):
                other = coarse[neighbours[place]]
                if other == c:
                    continue
                if seen[other] < next_start[c]:
                    seen[other] = top
                    next_neighbours[top], next_strength[top] = other, 0
                    top += 1
                next_strength[seen[other]] += strength[place]
    next_start[count] = top


# --- a queue of moves: the largest gain first ---


@kernel
def push(queue, size, gain, move):
    """Onto the heap of pairs [gain, move]; returns its size. A full heap forgets the move."""
    if size == queue.shape[1]:
        return size
    place = size
    while place:
        above = (place - 1) // 2
        if queue[0, above] >= gain:
            break
        queue[0, place], queue[1, place] = queue[0, above], queue[1, above]
        place = above
    queue[0, place], queue[1, place] = gain, move
    return size + 1


@kernel
def pop(queue, size):
    """Take the first pair off, to the place behind the last one."""
    size -= 1
    gain, move = queue[0, size], queue[1, size]
    queue[0, size], queue[1, size] = queue[0, 0], queue[1, 0]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and queue[0, below + 1] > queue[0, below]:
            below += 1
        if queue[0, below] <= gain:
            break
        queue[0, place], queue[1, place] = queue[0, below], queue[1, below]
        place = below
    if size:
        queue[0, place], queue[1, place] = gain, move
    return size


# --- refinement ---


@kernel
def worth(sizes, limit):
    """What a partition costs: its separator, and dearly what a side has too much."""
    return sizes[SEPARATOR] + 4.0 * max(0.0, max(sizes[0], sizes[1]) - limit) + 1e-3 * abs(sizes[0] - sizes[1])


@kernel
def gains_of(i, start, neighbours, weight, part, scratch):
    pulled_from_0 = pulled_from_1 = 0
    for place in range(start[i], start[i + 1]):
        j = neighbours[place]
        if part[j] == 0:
            pulled_from_0 += weight[j]
        elif part[j] == 1:
            pulled_from_1 += weight[j]
    scratch[GAIN, i] = weight[i] - pulled_from_1
    scratch[GAIN + 1, i] = weight[i] - pulled_from_0


@kernel
def move(v, side, mark, start, neighbours, weight, part, sizes, scratch, logged, queue, queued):
    """Take v out of the separator; returns the ends of the log and of the queue."""
    other = 1 - side
    part[v] = side
    sizes[side] += weight[v]
    sizes[SEPARATOR] -= weight[v]
    scratch[LOG, logged], scratch[BEFORE, logged] = v, SEPARATOR
    first = logged = logged + 1
    for place in range(start[v], start[v + 1]):
        u = neighbours[place]
        if part[u] == other:
            part[u] = SEPARATOR
            sizes[other] -= weight[u]
            sizes[SEPARATOR] += weight[u]
            scratch[FRESH, u] = mark
            scratch[LOG, logged], scratch[BEFORE, logged] = u, other
            logged += 1
        elif part[u] == SEPARATOR:  # it would pull v back
            scratch[GAIN + other, u] -= weight[v]
            queued = push(queue, queued, scratch[GAIN + other, u], 2 * u + other)
    for index in range(first, logged):
        x = scratch[LOG, index]
        for place in range(start[x], start[x + 1]):
            u = neighbours[place]
            if part[u] == SEPARATOR and scratch[FRESH, u] != mark:  # it does not pull x any more
                scratch[GAIN + side, u] += weight[x]
                queued = push(queue, queued, scratch[GAIN + side, u], 2 * u + side)
        gains_of(x, start, neighbours, weight, part, scratch)
        for way in range(2):
            queued = push(queue, queued, scratch[GAIN + way, x], 2 * x + way)
    return logged, queued


@kernel
def pass_over(nodes, start, neighbours, weight, part, sizes, limit, scratch, queue, mark):
    """Move nodes while it may help, then undo what came after the best moment; returns whether it helped, and the last mark."""
    queued = logged = 0
    for i in range(nodes):
        scratch[LOCKED, i] = 0
        scratch[FRESH, i] = -1
        if part[i] == SEPARATOR:
            gains_of(i, start, neighbours, weight, part, scratch)
            for side in range(2):
                queued = push(queue, queued, scratch[GAIN + side, i], 2 * i + side)
    begin = best = worth(sizes, limit)
    kept = patience = 0
    while queued and patience < PATIENCE and logged + 64 < scratch.shape[1]:
        queued = pop(queue, queued)
        gain, v, side = queue[0, queued], queue[1, queued] // 2, queue[1, queued] % 2
        if part[v] != SEPARATOR or scratch[LOCKED, v] or scratch[GAIN + side, v] != gain:
            continue
        if sizes[side] + weight[v] > limit and sizes[side] >= sizes[1 - side]:
            continue
        if logged + start[v + 1] - start[v] + 1 >= scratch.shape[1]:
            break
        mark += 1
        scratch[LOCKED, v] = 1
        logged, queued = move(v, side, mark, start, neighbours, weight, part, sizes, scratch, logged, queue, queued)
        now = worth(sizes, limit)
        patience += 1
        if now < best:
            best, kept, patience = now, logged, 0
    for index in range(logged - 1, kept - 1, -1):
        v = scratch[LOG, index]
        sizes[part[v]] -= weight[v]
        part[v] = scratch[BEFORE, index]
        sizes[part[v]] += weight[v]
    return best < begin, mark


@kernel
def refine(nodes, start, neighbours, weight, part, limit, scratch, queue):
    """Returns what the partition costs."""
    sizes = np.zeros(3, np.int64)
    for i in range(nodes):
        sizes[part[i]] += weight[i]
    mark, helped, turn = 0, True, 0
    while helped and turn < PASSES:
        helped, mark = pass_over(nodes, start, neighbours, weight, part, sizes, limit, scratch, queue, mark)
        turn += 1
    return worth(sizes, limit)


# --- the cut ---


@kernel
def grow(nodes, start, neighbours, weight, total, seed, part, queue):
    """Side 0: half of the weight around a seed, breadth first, component after component. What it touches is the separator."""
    part[:nodes] = 1
    inside = first = last = 0
    candidate = seed
    for _ in range(nodes):
        if first == last:
            while part[candidate] != 1:
                candidate = (candidate + 1) % nodes
            queue[last], part[candidate] = candidate, SEPARATOR
            last += 1
        i = queue[first]
        first += 1
        part[i] = 0
        inside += weight[i]
        for place in range(start[i], start[i + 1]):
            j = neighbours[place]
            if part[j] == 1:
                part[j] = SEPARATOR
                queue[last] = j
                last += 1
        if 2 * inside >= total:
            break


@kernel
def cut_coarsest(nodes, start, neighbours, weight, total, limit, part, scratch, queue, tries):
    """The best of several seeds."""
    best = np.inf
    for seed in range(tries):
        grow(nodes, start, neighbours, weight, total, seed * nodes // tries, part, scratch[QUEUE])
        found = refine(nodes, start, neighbours, weight, part, limit, scratch, queue)
        if found < best:
            best = found
            scratch[KEPT, :nodes] = part[:nodes]
    part[:nodes] = scratch[KEPT, :nodes]


@kernel
def bisect(nodes, levels, start, neighbours, strength, weight, coarse, part, scratch, queue):
    """Parts of the nodes of a graph, which is level 0 of arrays that have room for all levels.

    ``levels`` [LEVELS, 3] holds the nodes of each and where its nodes and edges begin in the arrays; starts count from there.
    """
    total, depth = 0, 0
    levels[0, 0], levels[0, 1], levels[0, 2] = nodes, 0, 0
    for i in range(nodes):
        total += weight[i]
    heaviest, limit = max(2.0, 3.0 * total / COARSEST), UNEVEN * total
    while levels[depth, 0] > COARSEST and depth < LEVELS - 1:
        count, offset, edges = levels[depth, 0], levels[depth, 1], levels[depth, 2]
        arrays = (start[offset + depth :], neighbours[edges:], strength[edges:], weight[offset:])
        left = match_neighbours(count, *arrays, heaviest, scratch[QUEUE], coarse[offset:])
        if left > 0.92 * count:
            break
        tied = start[offset + depth + count]
        after, beyond = offset + count, edges + tied
        if after + left > len(weight) or beyond + tied > len(neighbours):
            break
        levels[depth + 1, 0], levels[depth + 1, 1], levels[depth + 1, 2] = left, after, beyond
        following = (start[after + depth + 1 :], neighbours[beyond:], strength[beyond:], weight[after:])
        merge(count, *arrays, coarse[offset:], left, scratch[KEPT], scratch[:2], *following)
        depth += 1
    for level in range(depth, -1, -1):
        count, offset, edges = levels[level, 0], levels[level, 1], levels[level, 2]
        around, others, mine = start[offset + level :], neighbours[edges:], weight[offset:]
        if level == depth:
            cut_coarsest(count, around, others, mine, total, limit, part[offset:], scratch, queue, TRIES if nodes > SMALL else FEW)
        else:
            for i in range(count):
                part[offset + i] = part[levels[level + 1, 1] + coarse[offset + i]]
            refine(count, around, others, mine, part[offset:], limit, scratch, queue)
