"""What elimination does to the structure of a graph, found before any number is known.

Nodes are numbered in the order in which they are eliminated. The *elimination tree* says which node is the first to feel that a
node is gone: parent[j] is the smallest i > j that j's column of the factors reaches. Nodes that follow each other with the same
column are one *front*, a dense block whose rows are its pivots and what their columns reach:

    width   pivots of a front            rows   pivots and all other rows
    index   the other rows, as numbers in the order of elimination, rising; they are among the rows of the parent front

A front is merged into its parent where a larger dense block costs less than two small ones and the move between them; one that is
wide is cut into a chain. Cholesky factorisation has the same theory (Liu 1990): only the pattern of W + W^T counts.
"""

from __future__ import annotations

import numpy as np

from convergent.kernels.cpu_rows import kernel

WIDEST = 32  # pivots of a front
# what a front costs, in about cycles of four heads: by itself, per pivot, per number handed to the parent, per multiply-add
ALONE, PER_PIVOT, PER_NUMBER, PER_UPDATE = 250.0, 30.0, 2.5, 0.5


# A tree is an array of nine rows, with one number per column or front in each. What each row holds first:
PARENT, COUNT = 0, 1  # of a column: its parent and how many rows it has
ANCESTOR, FIRST, DEEPEST, LEAF = 2, 3, 4, 5  # of the algorithm that counts
CHILD, SIBLING, STACK = 6, 7, 8  # the first child and the next one of the same parent
FIELDS = 9


@kernel
def elimination_tree(nodes, start, adjacency, order, position, parent, ancestor):
    """The parents (Liu 1986): climb from every earlier neighbour, with shortcuts."""
    for k in range(nodes):
        position[order[k]] = k
    for k in range(nodes):
        parent[k] = ancestor[k] = -1
        for place in range(start[order[k]], start[order[k] + 1]):
            j = position[adjacency[place]]
            while j >= 0 and j < k:
                above = ancestor[j]
                ancestor[j] = k
                if above < 0:
                    parent[j] = k
                j = above


@kernel
def postorder(nodes, tree, parent, post):
    """Children before parents, every subtree in one piece."""
    child, sibling, stack = tree[CHILD], tree[SIBLING], tree[STACK]
    child[:nodes] = -1
    for j in range(nodes - 1, -1, -1):
        if parent[j] >= 0:
            sibling[j] = child[parent[j]]
            child[parent[j]] = j
    done = 0
    for root in range(nodes):
        if parent[root] >= 0:
            continue
        stack[0], top = root, 1
        while top:
            j = stack[top - 1]
            if child[j] >= 0:
                stack[top] = child[j]
                child[j] = sibling[child[j]]
                top += 1
            else:
                post[done] = j
                done += 1
                top -= 1


@kernel
def renumber(nodes, post, order, position, tree):
    """The order of elimination in the postorder of its tree, which fills in as much."""
    place, kept, parents = tree[ANCESTOR], tree[FIRST], tree[COUNT]
    for k in range(nodes):
        place[post[k]] = k
        kept[k] = order[post[k]]
        parents[k] = tree[PARENT, post[k]]
    for k in range(nodes):
        order[k] = kept[k]
        position[order[k]] = k
        tree[PARENT, k] = place[parents[k]] if parents[k] >= 0 else -1


@kernel
def common_ancestor(ancestor, j):
    root = j
    while ancestor[root] != root:
        root = ancestor[root]
    while j != root:
        above = ancestor[j]
        ancestor[j] = root
        j = above
    return root


@kernel
def column_counts(nodes, start, adjacency, order, position, tree):
    """Rows of every column without finding them (Gilbert, Ng and Peyton 1994): leaves of row subtrees, less their overlap."""
    parent, count = tree[PARENT], tree[COUNT]
    for j in range(nodes):
        tree[FIRST, j] = tree[DEEPEST, j] = tree[LEAF, j] = -1
        tree[ANCESTOR, j] = j
    for j in range(nodes):
        count[j] = 1 if tree[FIRST, j] < 0 else 0
        i = j
        while i >= 0 and tree[FIRST, i] < 0:
            tree[FIRST, i] = j
            i = parent[i]
    for j in range(nodes):
        if parent[j] >= 0:
            count[parent[j]] -= 1
        for place in range(start[order[j]], start[order[j] + 1]):
            i = position[adjacency[place]]
            if i <= j or tree[FIRST, j] <= tree[DEEPEST, i]:
                continue
            count[j] += 1
            if tree[LEAF, i] >= 0:
                count[common_ancestor(tree[ANCESTOR], tree[LEAF, i])] -= 1
            tree[DEEPEST, i], tree[LEAF, i] = tree[FIRST, j], j
        if parent[j] >= 0:
            tree[ANCESTOR, j] = parent[j]
    for j in range(nodes):
        if parent[j] >= 0:
            count[parent[j]] += count[j]


@kernel
def cost(width, rows):
    others = float(rows - width)
    updates = width * others * others + width * width * float(rows)
    return ALONE + PER_PIVOT * width + PER_NUMBER * others * others + PER_UPDATE * updates


@kernel
def group_columns(nodes, tree, front_of, width, rows, above):
    """Columns with the same rows as one front, and fronts merged into their parents where that is cheaper.

    Writes the front of every column, and the width, rows and parent of every front; a parent has a larger number. A front that was
    merged is left with no width. Returns the number of fronts.
    """
    fronts = 0
    for j in range(nodes):
        if j and tree[PARENT, j - 1] == j and tree[COUNT, j - 1] == tree[COUNT, j] + 1:
            width[fronts - 1] += 1
        else:
            width[fronts], rows[fronts] = 1, tree[COUNT, j]
            fronts += 1
        front_of[j] = fronts - 1
    for j in range(nodes):
        if j == nodes - 1 or front_of[j + 1] != front_of[j]:
            above[front_of[j]] = front_of[tree[PARENT, j]] if tree[PARENT, j] >= 0 else -1
    merged = tree[ANCESTOR]
    for f in range(fronts):
        merged[f] = f
    for f in range(fronts):
        p = above[f]
        if p >= 0:
            apart = cost(width[f], rows[f]) + cost(width[p], rows[p])
            if cost(width[f] + width[p], width[f] + rows[p]) <= apart:
                width[p] += width[f]
                rows[p] += width[f]
                width[f] = 0
                merged[f] = p
    for f in range(fronts - 1, -1, -1):
        merged[f] = merged[merged[f]]
    for f in range(fronts):
        if above[f] >= 0:
            above[f] = merged[above[f]]
    for j in range(nodes):
        front_of[j] = merged[front_of[j]]
    return fronts


@kernel
def pieces_of_width(width):
    """A wide front is cut into pieces of nearly equal width."""
    return (width + WIDEST - 1) // WIDEST


@kernel
def number_fronts(nodes, found, tree, front_of, width, rows, above, order, position):
    """Number fronts in the postorder of their tree, leaving out those that were merged, and columns in the order of their fronts.

    Returns the number of fronts.
    """
    place, kept, post = tree[ANCESTOR], tree[FIRST], tree[DEEPEST]
    fronts = 0
    for f in range(found):
        if width[f]:
            place[f] = fronts
            width[fronts], rows[fronts], above[fronts] = width[f], rows[f], above[f]
            fronts += 1
    for f in range(fronts):
        above[f] = place[above[f]] if above[f] >= 0 else -1
    for j in range(nodes):
        front_of[j] = place[front_of[j]]
    postorder(fronts, tree, above, post)
    for f in range(fronts):
        place[post[f]] = f
    for part in (width, rows, above):
        for f in range(fronts):
            kept[f] = part[post[f]]
        for f in range(fronts):
            part[f] = kept[f]
    for f in range(fronts):
        above[f] = place[above[f]] if above[f] >= 0 else -1
    cursor, total = tree[COUNT], 0
    for f in range(fronts):
        cursor[f] = total
        total += width[f]
    for j in range(nodes):
        f = place[front_of[j]]
        kept[cursor[f]] = order[j]
        cursor[f] += 1
    for k in range(nodes):
        order[k] = kept[k]
        position[order[k]] = k
    return fronts


@kernel
def measure(fronts, width, rows):
    """Pieces, entries of their index, numbers in the factors and multiply-adds of these fronts."""
    pieces = entries = numbers = 0
    updates = 0.0
    for f in range(fronts):
        pivots, size = width[f], rows[f]
        parts, done = pieces_of_width(pivots), 0
        pieces += parts
        for part in range(parts):
            here = pivots * (part + 1) // parts - done
            entries += size - done - here
            done += here
        for k in range(pivots):
            others = size - k - 1
            numbers += 1 + 2 * others
            updates += others * (others + 1.0)
    return pieces, entries, numbers, updates


@kernel
def collect_rows(nodes, fronts, start, adjacency, order, position, width, rows, above, spare):
    """The rows of every front beyond its pivots, rising; spare[0] says where each begins."""
    pointer, child, sibling, seen = spare[0], spare[1], spare[2], spare[3]
    total = pointer[0] = 0
    for f in range(fronts):
        total += rows[f] - width[f]
        pointer[f + 1] = total
        child[f] = -1
    seen[:nodes] = -1
    end = 0
    unsorted = np.empty(total, np.int64)
    for f in range(fronts):
        begin, put = end, pointer[f]
        end += width[f]
        for k in range(begin, end):
            for place in range(start[order[k]], start[order[k] + 1]):
                i = position[adjacency[place]]
                if i >= end and seen[i] != f:
                    seen[i] = f
                    unsorted[put] = i
                    put += 1
        c = child[f]
        while c >= 0:
            for place in range(pointer[c], pointer[c + 1]):
                i = unsorted[place]
                if i >= end and seen[i] != f:
                    seen[i] = f
                    unsorted[put] = i
                    put += 1
            c = sibling[c]
        if above[f] >= 0:
            sibling[f] = child[above[f]]
            child[above[f]] = f
    return sorted_lists(nodes, fronts, pointer, unsorted)


@kernel
def sorted_lists(nodes, lists, pointer, unsorted):
    """All lists at once, in linear time: by value, then back to their lists."""
    cursor = np.zeros(max(nodes, lists) + 1, np.int64)
    for place in range(len(unsorted)):
        cursor[unsorted[place] + 1] += 1
    for i in range(nodes):
        cursor[i + 1] += cursor[i]
    owner = np.empty(len(unsorted), np.int64)
    value = np.empty(len(unsorted), np.int64)
    for f in range(lists):
        for place in range(pointer[f], pointer[f + 1]):
            i = unsorted[place]
            owner[cursor[i]], value[cursor[i]] = f, i
            cursor[i] += 1
    for f in range(lists):
        cursor[f] = pointer[f]
    for place in range(len(unsorted)):
        f = owner[place]
        unsorted[cursor[f]] = value[place]
        cursor[f] += 1
    return unsorted
