"""How far apart the nodes of a graph are: breadth-first search, in time linear in nodes and edges."""

from __future__ import annotations

import numpy as np

from convergent.kernels.cpu_rows import kernel


@kernel
def search(seed, pointer, column, free, mark, stamp, queue):
    """Visit what ``seed`` reaches through nodes that are marked ``free``, and mark it ``stamp``.

    Returns the number of nodes, of the edges that they read along, of steps to the last of them, and that node.
    """
    queue[0], mark[seed] = seed, stamp
    done, found, depth, level_end, edges = 0, 1, 0, 1, 0
    while done < found:
        if done == level_end:
            depth += 1
            level_end = found
        node = queue[done]
        done += 1
        edges += pointer[node + 1] - pointer[node]
        for place in range(pointer[node], pointer[node + 1]):
            other = column[place]
            if mark[other] == free:
                mark[other] = stamp
                queue[found] = other
                found += 1
    return found, edges, depth, queue[found - 1]


@kernel
def depths(segments, pointer, column, depth, width, cycles):
    """Of every graph of a batch: the largest number of steps that one node is known to be from another; the nodes at one distance,
    cubed, summed over connected parts; and whether such a part has more edges than a tree.

    The second search starts where the first one ended, which finds nearly the longest way.
    """
    nodes = len(pointer) - 1
    mark, queue, stamp = np.full(nodes, -1, np.int64), np.empty(nodes, np.int64), 0
    for graph in range(len(segments) - 1):
        depth[graph], width[graph], cycles[graph] = 0, 0.0, False
        for seed in range(segments[graph], segments[graph + 1]):
            if mark[seed] >= 0:
                continue
            found, edges, steps, last = search(seed, pointer, column, -1, mark, stamp, queue)
            if found > 1:
                _, _, again, _ = search(last, pointer, column, stamp, mark, stamp + 1, queue)
                steps = max(steps, again)
            stamp += 2
            depth[graph] = max(depth[graph], steps)
            if edges > 2 * found:
                width[graph] += (found / max(steps, 1)) ** 3
                cycles[graph] = True
