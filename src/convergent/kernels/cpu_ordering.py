"""Approximate minimum degree: the order in which nodes are eliminated, so that factors fill in little.

Amestoy, Davis and Duff (1996). The graph of what is left is kept as a quotient graph: an eliminated node is an *element*, the set
of nodes that its elimination made neighbours of each other, so that it never needs more room than the graph it began with. Nodes
that have become indistinguishable are merged and eliminated together. The degree of a node is bounded from above by the sizes
of its elements outside the newest one.
"""

from __future__ import annotations

import numpy as np

from convergent.kernels.cpu_rows import kernel

ELEMENT, DEAD = -1, -2  # in place of a number of elements: the node was eliminated; it was absorbed or merged
HUB = 10.0  # a node with more neighbours than this times sqrt(n) is eliminated last: it would be visited at every step


# The quotient graph is an array of twelve rows, with one number per node in each.
START = 0  # where the list of a node begins: its elements, then its neighbours that are not eliminated
LENGTH = 1  # of the list
ELEMENTS = 2  # how many of the list are elements; or ELEMENT, DEAD
WEIGHT = 3  # how many nodes this one stands for; negative while it is in the newest element; 0: eliminated
DEGREE = 4  # upper bound on the number of neighbours; of an element the number of its nodes
STAMP = 5
HEAD = 6  # the first node of every degree; -1: none
FOLLOWING, PRECEDING = 7, 8  # the next and the last node of the same degree, or of the same hash
BUCKET = 9  # the first node of every hash
MEMBER, TAIL = 10, 11  # the nodes that one stands for, as a chain, and its end
FIELDS = 12


@kernel
def symmetrised(first, last, pointer, column, start, lists, seen):
    """Neighbours in either direction of the nodes first .. last, each once and without self loops: start [n + 1] into lists."""
    nodes = last - first
    start[: nodes + 1] = 0
    for i in range(nodes):
        for position in range(pointer[first + i], pointer[first + i + 1]):
            j = column[position] - first
            if i != j:
                start[i + 1] += 1
                start[j + 1] += 1
    for i in range(nodes):
        start[i + 1] += start[i]
        seen[i] = start[i]
    for i in range(nodes):
        for position in range(pointer[first + i], pointer[first + i + 1]):
            j = column[position] - first
            if i != j:
                lists[seen[i]] = j
                lists[seen[j]] = i
                seen[i] += 1
                seen[j] += 1
    seen[:nodes] = -1
    top = 0
    for i in range(nodes):
        begin, end = start[i], start[i + 1]
        start[i] = top
        for place in range(begin, end):
            j = lists[place]
            if seen[j] != i:
                seen[j] = i
                lists[top] = j
                top += 1
    start[nodes] = top


@kernel
def link(q, i):
    """Into the list of its degree."""
    degree = q[DEGREE, i]
    other = q[HEAD, degree]
    q[FOLLOWING, i] = other
    q[PRECEDING, i] = -1
    if other >= 0:
        q[PRECEDING, other] = i
    q[HEAD, degree] = i


@kernel
def unlink(q, i):
    before, after = q[PRECEDING, i], q[FOLLOWING, i]
    if before >= 0:
        q[FOLLOWING, before] = after
    else:
        q[HEAD, q[DEGREE, i]] = after
    if after >= 0:
        q[PRECEDING, after] = before


@kernel
def begin(nodes, start, adjacency, q, lists):
    """The quotient graph of a graph; returns the number of hubs, which are left out of it, and the end of the lists."""
    dense = max(16.0, HUB * np.sqrt(nodes))
    hubs = 0
    for i in range(nodes):
        q[HEAD, i] = q[BUCKET, i] = q[MEMBER, i] = -1
        q[TAIL, i] = i
        q[STAMP, i] = 0
        q[ELEMENTS, i] = 0
        q[WEIGHT, i] = 1
        if start[i + 1] - start[i] > dense:
            q[WEIGHT, i], q[ELEMENTS, i] = 0, DEAD
            hubs += 1
    top = 0
    for i in range(nodes):
        q[START, i] = top
        if q[WEIGHT, i] > 0:
            for place in range(start[i], start[i + 1]):
                if q[WEIGHT, adjacency[place]] > 0:
                    lists[top] = adjacency[place]
                    top += 1
            q[LENGTH, i] = q[DEGREE, i] = top - q[START, i]
            link(q, i)
    return hubs, top


@kernel
def compact(nodes, q, lists, spare):
    """Copy the lists that are still in use; returns their end."""
    top = 0
    for i in range(nodes):
        if q[ELEMENTS, i] != DEAD:
            source = q[START, i]
            q[START, i] = top
            for place in range(source, source + q[LENGTH, i]):
                spare[top] = lists[place]
                top += 1
    return top


@kernel
def take_in(q, lists, place, count, top):
    """Add nodes of a list to the newest element, which ends at ``top``; returns its end and how many nodes came in."""
    size = 0
    for index in range(place, place + count):
        i = lists[index]
        weight = q[WEIGHT, i]
        if weight > 0:
            q[WEIGHT, i] = -weight
            size += weight
            lists[top] = i
            top += 1
            unlink(q, i)
    return top, size


@kernel
def gather(q, lists, pivot, top):
    """The element of the pivot: its neighbours and those of its elements, which it absorbs."""
    count, size = q[ELEMENTS, pivot], 0
    for place in range(q[START, pivot], q[START, pivot] + count):
        element = lists[place]
        if q[ELEMENTS, element] == ELEMENT:
            top, came = take_in(q, lists, q[START, element], q[LENGTH, element], top)
            size += came
            q[ELEMENTS, element] = DEAD
    top, came = take_in(q, lists, q[START, pivot] + count, q[LENGTH, pivot] - count, top)
    return top, size + came


@kernel
def measure_outside(q, lists, first, last, base):
    """For every element that meets the newest one: base + the number of its nodes outside."""
    for index in range(first, last):
        i = lists[index]
        for place in range(q[START, i], q[START, i] + q[ELEMENTS, i]):
            element = lists[place]
            if q[STAMP, element] < base:
                q[STAMP, element] = base + q[DEGREE, element]
            q[STAMP, element] += q[WEIGHT, i]  # negative now


@kernel
def refresh(q, lists, i, pivot, base, nodes):
    """The list of a node without what the newest element covers; returns a bound on its neighbours outside the element."""
    origin = put = q[START, i]
    outside = key = 0
    middle, end = origin + q[ELEMENTS, i], origin + q[LENGTH, i]
    for place in range(origin, middle):
        element = lists[place]
        if q[ELEMENTS, element] == ELEMENT:
            more = q[STAMP, element] - base
            if more > 0:
                outside += more
                key += element
                lists[put] = element
                put += 1
            else:
                q[ELEMENTS, element] = DEAD
    elements = put
    for place in range(middle, end):
        j = lists[place]
        if q[WEIGHT, j] > 0:
            outside += q[WEIGHT, j]
            key += j
            lists[put] = j
            put += 1
    if outside > 0:  # the new element takes the place of the first neighbour, which moves to the end
        lists[put] = lists[elements]
        lists[elements] = pivot
        q[ELEMENTS, i] = elements - origin + 1
        q[LENGTH, i] = put - origin + 1
        key %= nodes
        q[FOLLOWING, i] = q[BUCKET, key]
        q[PRECEDING, i] = key
        q[BUCKET, key] = i
    return outside


@kernel
def absorb(q, i, j):
    """Node i stands for those of j too."""
    q[MEMBER, q[TAIL, i]] = j
    q[TAIL, i] = q[TAIL, j]
    q[WEIGHT, j] = 0
    q[ELEMENTS, j] = DEAD


@kernel
def same_list(q, lists, i, j, mark):
    if q[LENGTH, i] != q[LENGTH, j] or q[ELEMENTS, i] != q[ELEMENTS, j]:
        return False
    for place in range(q[START, j], q[START, j] + q[LENGTH, j]):
        if q[STAMP, lists[place]] != mark:
            return False
    return True


@kernel
def merge_twins(q, lists, first, last, mark):
    """Merge nodes of the newest element whose lists are the same; returns the last mark in use."""
    for index in range(first, last):
        if q[WEIGHT, lists[index]] >= 0:
            continue
        key = q[PRECEDING, lists[index]]
        i = q[BUCKET, key]
        q[BUCKET, key] = -1
        while i >= 0 and q[FOLLOWING, i] >= 0:
            mark += 1
            for place in range(q[START, i], q[START, i] + q[LENGTH, i]):
                q[STAMP, lists[place]] = mark
            before, j = i, q[FOLLOWING, i]
            while j >= 0:
                after = q[FOLLOWING, j]
                if same_list(q, lists, i, j, mark):
                    weight = q[WEIGHT, j]
                    absorb(q, i, j)
                    q[WEIGHT, i] += weight
                    q[FOLLOWING, before] = after
                else:
                    before = j
                j = after
            i = q[FOLLOWING, i]
    return mark


@kernel
def finish(q, lists, first, last, size, left):
    """Back to the degree lists; returns the end of the element and its lowest degree."""
    put, lowest = first, left
    for index in range(first, last):
        i = lists[index]
        weight = -q[WEIGHT, i]
        if weight > 0:
            q[WEIGHT, i] = weight
            q[DEGREE, i] = min(q[DEGREE, i] + size - weight, left - weight)
            lowest = min(lowest, q[DEGREE, i])
            link(q, i)
            lists[put] = i
            put += 1
    return put, lowest


@kernel
def minimum_degree(nodes, start, adjacency, q, lists, spare, limit, order):
    """Fill ``order`` with the nodes; returns multiply-adds, or a part of them above ``limit`` where it gave up."""
    hubs, top = begin(nodes, start, adjacency, q, lists)
    left, done, lowest, base = nodes - hubs, 0, 0, 1
    work = least = 0.0
    put = left
    for i in range(nodes):
        if q[WEIGHT, i] == 0:
            order[put] = i
            put += 1
    while done < left and least <= limit:
        while q[HEAD, lowest] < 0:
            lowest += 1
        pivot = q[HEAD, lowest]
        unlink(q, pivot)
        if top + lowest > len(lists):
            top = compact(nodes, q, lists, spare)
            lists, spare = spare, lists
        weight = q[WEIGHT, pivot]
        q[WEIGHT, pivot] = 0
        first = top
        last, size = gather(q, lists, pivot, first)
        measure_outside(q, lists, first, last, base)
        for index in range(first, last):
            i = lists[index]
            outside = refresh(q, lists, i, pivot, base, nodes)
            if outside == 0:  # nothing but this element: it is eliminated with the pivot
                size += q[WEIGHT, i]
                weight -= q[WEIGHT, i]
                absorb(q, pivot, i)
            else:
                q[DEGREE, i] = min(q[DEGREE, i], outside)
        base = merge_twins(q, lists, first, last, base + nodes) + 1
        i = pivot
        while i >= 0:
            order[done] = i
            done += 1
            i = q[MEMBER, i]
        top, lower = finish(q, lists, first, last, size, left - done)
        lowest = min(lowest, lower)
        q[START, pivot], q[LENGTH, pivot], q[DEGREE, pivot] = first, top - first, size
        q[ELEMENTS, pivot] = ELEMENT if top > first else DEAD
        work += weight * float(size + weight) ** 2
        least = work + float(size) ** 3 / 3  # the nodes of the element are all neighbours now, so they cost this much
    return least
