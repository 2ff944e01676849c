"""The user's own networks, from a folder with two tables, CSV or Parquet:

    nodes   graph, node, and a column per feature and per answer
    edges   graph, source, target, and a column per feature; the source depends on the target

Ids of graphs and nodes may be any strings. A cell that cannot be read raises one line that names file, row and column; rows are
numbered as a spreadsheet shows them, with the header as row 1, and empty rows are left out. Columns of text are one-hot; their
categories are those of the training set, and belong to the ``Schema``, which the model keeps.

A folder that is read as a whole, to train, may have its rows in any order; what ``stream_folder`` reads has them graph by graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from convergent.errors import InputError, expect
from convergent.settings import Name, build, check_fields
from convergent.storage.files import whole_file
from convergent.tasks.batch import GraphBatch
from convergent.tasks.table import Column, Table, read_cells

ENDINGS = ("csv", "parquet")
NODE_IDS, EDGE_IDS = ("graph", "node"), ("graph", "source", "target")


@dataclass(frozen=True)
class Schema:
    """What a model was trained on: the columns in their order, and the answers."""

    nodes: tuple[Column, ...]
    edges: tuple[Column, ...]
    targets: tuple[Name, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        _check_names("nodes", [column.name for column in self.nodes], NODE_IDS)
        _check_names("edges", [column.name for column in self.edges], EDGE_IDS)
        _check_names("targets", self.targets, NODE_IDS)
        both = sorted({column.name for column in self.nodes} & set(self.targets))
        expect(not both, "targets", "columns that are no features", ", ".join(both))

    @property
    def widths(self) -> tuple[int, int]:
        """How many numbers describe a node and an edge; a table without any features has a column of ones."""
        nodes, edges = (sum(column.width for column in columns) for columns in (self.nodes, self.edges))
        return nodes or 1, edges or 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> Schema:
        return build(Schema, data, "schema", "schema.")


def _check_names(label: str, names: Sequence[str], ids: tuple[str, ...]) -> None:
    for index, name in enumerate(names):
        expect(name not in ids, label, f"columns other than {', '.join(ids)}, which hold ids", repr(name))
        expect(name not in names[:index], label, "every column once", f"{name!r} twice")


@dataclass(frozen=True)
class Block:
    """Some networks side by side, with their ids."""

    batch: GraphBatch
    names: list[str]  # of the graphs
    nodes: list[list[str]]  # the ids of the nodes of every graph


@dataclass(frozen=True)
class Folder:
    """Networks as they were read: the graphs with their ids, and what their columns mean."""

    graphs: list[GraphBatch]
    names: list[str]  # of the graphs
    nodes: list[list[str]]  # the ids of the nodes of every graph
    schema: Schema


def read_folder(
    path: Path | str, targets: Sequence[str] | None = None, schema: Schema | None = None, logs: Sequence[str] = ()
) -> Folder:
    """Read a folder: to train with the names of the ``targets``, to predict with the ``schema`` of the model.

    With a schema the answers may be missing. ``logs`` are columns of numbers whose logarithm the model will take.

    Raises:
        InputError: names the file, row and column of the first thing that is wrong.
    """
    if (targets is None) == (schema is None):
        raise InputError("targets: expected the names of the answers, or the schema of a model, and not both")
    folder = Path(path)
    nodes, edges = (_read(folder, name, ids) for name, ids in (("nodes", NODE_IDS), ("edges", EDGE_IDS)))
    if schema is None:
        assert targets is not None
        schema = infer(nodes, edges, targets, logs)
    block = assemble(nodes, edges, schema)
    return Folder(block.batch.split(), block.names, block.nodes, schema)


def _read(folder: Path, name: str, ids: tuple[str, ...]) -> Table:
    import pandas

    file = find_table(folder, name)
    chunks = list(read_cells(file, None))
    return Table(file, pandas.concat(chunks) if len(chunks) != 1 else chunks[0], ids)


def infer(nodes: Table, edges: Table, targets: Sequence[str], logs: Sequence[str] = ()) -> Schema:
    """The schema of a training set: every column that is no id and no answer is a feature."""
    if not targets:
        raise InputError("targets: expected the name of one answer or more, but got none")
    _check_names("targets", targets, NODE_IDS)
    for name in targets:
        nodes.require(name)
    found = [nodes.describe(name, name in logs) for name in nodes.features if name not in targets]
    schema = Schema(tuple(found), tuple(edges.describe(name, name in logs) for name in edges.features), tuple(targets))
    known = sorted({column.name for column in (*schema.nodes, *schema.edges) if column.categories is None})
    for name in logs:
        expect(name in known, "logs", f"columns of numbers, of {', '.join(known)}", repr(name))
    return schema


def find_table(folder: Path, name: str) -> Path:
    """The one file of that name, in either format."""
    if not folder.is_dir():
        raise InputError(f"no such folder: {folder} (expected a folder with nodes and edges tables)")
    found = [folder / f"{name}.{ending}" for ending in ENDINGS if (folder / f"{name}.{ending}").exists()]
    if len(found) != 1:
        raise InputError(f"{folder}: expected {name}.csv or {name}.parquet, but there is {'both' if found else 'neither'}")
    return found[0]


def _matrix(table: Table, columns: tuple[Column, ...]) -> NDArray[np.float32]:
    """All features; a table without any has a column of ones."""
    if not columns:
        return np.ones((len(table.cells), 1), np.float32)
    return np.concatenate([table.values(column) for column in columns], axis=1)


def assemble(nodes: Table, edges: Table, schema: Schema, in_order: bool = False) -> Block:
    """Graphs from the rows of two tables, in the order in which nodes names them; ``in_order`` refuses rows in any other."""
    x, attributes = _matrix(nodes, schema.nodes), _matrix(edges, schema.edges)
    answered = all(name in nodes.cells.columns for name in schema.targets)
    y = np.stack([nodes.numbers(name) for name in schema.targets], 1) if answered else np.zeros((len(x), 0), np.float32)
    graph_of_node, node_of_row = nodes.cells["graph"].to_numpy(), nodes.cells["node"].to_numpy()
    names = list(dict.fromkeys(graph_of_node))
    number = {name: index for index, name in enumerate(names)}
    codes = np.array([number[name] for name in graph_of_node], dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    place: dict[tuple[str, str], int] = {}
    for position, row in enumerate(order):
        key = (graph_of_node[row], node_of_row[row])
        if key in place:
            nodes.refuse(int(row), "node", f"every node of graph {key[0]!r} once", f"{key[1]!r} again")
        place[key] = position
    ends = np.stack([_ends(edges, name, place, number, in_order) for name in ("source", "target")])
    if in_order:
        _check_order(nodes, codes)
        _check_order(edges, codes[order][ends[0]])
    node_values = (torch.from_numpy(array[order]) for array in (x, y, codes))
    features, answers, batch = node_values
    whole = GraphBatch(features, torch.from_numpy(ends), torch.from_numpy(attributes), answers, batch, len(names))
    ids: list[list[str]] = [[] for _ in names]
    for row in order:
        ids[codes[row]].append(node_of_row[row])
    return Block(whole, names, ids)


TOGETHER = "the rows of a graph together, and graphs in the same order in both tables (sort both by graph)"


def _check_order(table: Table, graph: NDArray[np.int64]) -> None:
    """Graphs are numbered by their first node: in order, the numbers never decrease."""
    back = np.flatnonzero(graph[1:] < graph[:-1])
    if len(back):
        row = int(back[0]) + 1
        table.refuse(row, "graph", TOGETHER, f"{table.cells['graph'].iloc[row]!r} again")


def _ends(
    edges: Table, column: str, place: dict[tuple[str, str], int], graphs: dict[str, int], in_order: bool
) -> NDArray[np.int64]:
    graph, node = edges.cells["graph"].to_numpy(), edges.cells[column].to_numpy()
    found = np.array([place.get(key, -1) for key in zip(graph, node, strict=True)], dtype=np.int64)
    if (found < 0).any():
        row = int((found < 0).argmax())
        if graph[row] not in graphs:
            edges.refuse(row, "graph", "a graph that is in nodes", repr(graph[row]))
        where = ", whose rows stand together in nodes" if in_order else ""  # others may come later
        edges.refuse(row, column, f"a node of graph {graph[row]!r}{where}", repr(node[row]))
    return found


def write_folder(path: Path | str, batch: GraphBatch, schema: Schema, ending: str = "csv") -> None:
    """Networks as tables, such as ``read_folder`` reads: graphs are named 0, 1, ..., and so are the nodes of each."""
    import pandas

    expect(ending in ENDINGS, "ending", f"one of {ENDINGS}", repr(ending))
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    graph, start = batch.batch.numpy(), (batch.sizes.cumsum(0) - batch.sizes).numpy()
    source, target = batch.edge_index.numpy()
    order = np.argsort(graph[source], kind="stable")  # the rows of a graph together, in the order of nodes
    source, target = source[order], target[order]
    nodes = {"graph": graph, "node": np.arange(len(graph)) - start[graph]}
    values = np.concatenate([batch.x.numpy(), batch.y.numpy()], 1)
    nodes |= dict(zip([*(column.name for column in schema.nodes), *schema.targets], values.T, strict=True))
    edges = {"graph": graph[source], "source": source - start[graph[source]], "target": target - start[graph[target]]}
    edges |= dict(zip([column.name for column in schema.edges], batch.edge_attr.numpy()[order].T, strict=True))
    for name, columns in (("nodes", nodes), ("edges", edges)):
        table = pandas.DataFrame(columns)
        with whole_file(folder / f"{name}.{ending}") as stream:
            table.to_csv(stream, index=False, mode="wb") if ending == "csv" else table.to_parquet(stream, index=False)


def from_networkx(
    graphs: Sequence[Any], features: Sequence[str], targets: Sequence[str], edge_features: Sequence[str] = ()
) -> GraphBatch:
    """Graphs of networkx, with the names of their node and edge attributes; an undirected edge is read both ways."""
    parts = []
    for index, graph in enumerate(graphs):
        directed = graph.to_directed()
        place = {node: position for position, node in enumerate(directed.nodes)}
        x = _attributes(directed.nodes(data=True), features, f"graphs[{index}]")
        y = _attributes(directed.nodes(data=True), targets, f"graphs[{index}]")
        pairs = [(place[a], place[b]) for a, b in directed.edges()]
        rows = [((a, b), data) for a, b, data in directed.edges(data=True)]
        attributes = _attributes(rows, edge_features, f"graphs[{index}]") if edge_features else torch.ones(len(pairs), 1)
        edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T.contiguous()
        parts.append(GraphBatch(x, edge_index, attributes, y, torch.zeros(len(x), dtype=torch.long), 1))
    return GraphBatch.join(parts)


def _attributes(items: Any, names: Sequence[str], where: str) -> torch.Tensor:
    rows = []
    for item, data in items:
        for name in names:
            if name not in data:
                raise InputError(f"{where}: expected an attribute {name!r}, but {item!r} has {sorted(map(str, data)) or 'none'}")
        rows.append([float(data[name]) for name in names])
    return torch.tensor(rows, dtype=torch.float32).reshape(len(rows), len(names))
