"""Networks from a folder, some at a time: any number of them in the memory of a few.

Both tables have the rows of a graph together, and name the graphs in the same order; anything else is refused with its row, in
small tables as in large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convergent.tasks.folder import EDGE_IDS, NODE_IDS, TOGETHER, Block, Schema, assemble, find_table
from convergent.tasks.table import Table, count_rows, read_cells

if TYPE_CHECKING:
    import pandas

ROWS = 50_000  # of a table that are read at a time


def stream_folder(path: Path | str, schema: Schema, rows: int = ROWS) -> Iterator[Block]:
    """Blocks of whole graphs, of at least ``rows`` nodes but for the last one."""
    nodes, edges = (_Reader(find_table(Path(path), name), ids, rows) for name, ids in (("nodes", NODE_IDS), ("edges", EDGE_IDS)))
    seen: set[int] = set()  # hashes: names may be long
    while (table := nodes.whole_graphs()) is not None:
        names = dict.fromkeys(table.cells["graph"])
        for name in names:
            if hash(name) in seen:
                table.refuse(int((table.cells["graph"] == name).to_numpy().argmax()), "graph", TOGETHER, f"{name!r} again")
            seen.add(hash(name))
        yield assemble(table, edges.rows_of(names), schema, in_order=True)
    left = edges.rest()
    if len(left.cells):
        name = left.cells["graph"].iloc[0]
        left.refuse(0, "graph", TOGETHER if hash(name) in seen else "a graph that is in nodes", repr(name))


def count_nodes(path: Path | str) -> int:
    """How many rows there are to read, for a progress bar: lines of a CSV, so a line break within quotes counts too."""
    file = find_table(Path(path), "nodes")
    if file.suffix == ".parquet":
        return count_rows(file)
    with file.open("rb") as stream:
        return max(sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b"")) - 1, 0)


class _Reader:
    """A table and how far it has been read."""

    def __init__(self, file: Path, ids: tuple[str, ...], rows: int):
        self.file, self.ids, self.rows = file, ids, rows
        self.chunks = read_cells(file, rows)
        self.ended = False
        self.held = next(self.chunks)
        self.table()  # checks the columns, also of an empty table

    def table(self, count: int | None = None) -> Table:
        return Table(self.file, self.held if count is None else self.held.iloc[:count], self.ids)

    def more(self) -> bool:
        import pandas

        chunk = next(self.chunks, None)
        self.ended = chunk is None
        if chunk is not None:
            self.held = pandas.concat([self.held, chunk])
        return not self.ended

    def take(self, count: int) -> Table:
        taken = self.table(count)
        self.held = self.held.iloc[count:]
        return taken

    def whole_graphs(self) -> Table | None:
        """The next rows up to the end of a graph; None at the end of the table."""
        while not self.ended:
            graph = _graphs(self.held)
            changes = np.flatnonzero(graph[1:] != graph[:-1])
            if len(graph) > self.rows and len(changes):
                return self.take(int(changes[-1]) + 1)
            self.more()
        return self.take(len(self.held)) if len(self.held) else None

    def rows_of(self, names: dict[str, None]) -> Table:
        """The next rows, as long as they belong to these graphs."""
        counted = 0
        while True:
            graph = _graphs(self.held)[counted:]
            other = np.array([name not in names for name in graph], dtype=bool)
            if other.any():
                return self.take(counted + int(other.argmax()))
            counted += len(graph)
            if not self.more():
                return self.take(counted)

    def rest(self) -> Table:
        """What no graph has asked for: its first rows, if any."""
        while not len(self.held) and self.more():
            pass
        return self.table()


def _graphs(cells: pandas.DataFrame) -> np.ndarray:
    return cells["graph"].to_numpy()
