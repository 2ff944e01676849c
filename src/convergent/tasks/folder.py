"""The user's own networks, from a folder with two tables, CSV or Parquet:

    nodes   graph, node, and a column per feature and per answer
    edges   graph, source, target, and a column per feature; the source depends on the target

Ids of graphs and nodes may be any strings. A cell that cannot be read raises one line that names file, row and column; rows are
numbered as a spreadsheet shows them, with the header as row 1. Columns of text are one-hot; their categories are those of the
training set, and belong to the ``Schema``, which the model keeps.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from convergent.errors import InputError, expect
from convergent.storage.files import whole_file
from convergent.tasks.batch import GraphBatch

if TYPE_CHECKING:
    import pandas

ENDINGS = ("csv", "parquet")
NODE_IDS, EDGE_IDS = ("graph", "node"), ("graph", "source", "target")
MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Column:
    """One column of a table; with categories it is text and becomes as many columns of zeros and ones."""

    name: str
    categories: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        return 1 if self.categories is None else len(self.categories)


@dataclass(frozen=True)
class Schema:
    """What a model was trained on: the columns in their order, and the answers."""

    nodes: tuple[Column, ...]
    edges: tuple[Column, ...]
    targets: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        def listed(columns: tuple[Column, ...]) -> list[dict[str, Any]]:
            return [{"name": column.name, "categories": column.categories and list(column.categories)} for column in columns]

        return {"nodes": listed(self.nodes), "edges": listed(self.edges), "targets": list(self.targets)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Schema:
        def columns(items: list[dict[str, Any]]) -> tuple[Column, ...]:
            return tuple(Column(item["name"], None if item["categories"] is None else tuple(item["categories"])) for item in items)

        return Schema(columns(data["nodes"]), columns(data["edges"]), tuple(data["targets"]))


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


def read_folder(path: Path | str, targets: Sequence[str] | None = None, schema: Schema | None = None) -> Folder:
    """Read a folder: to train with the names of the ``targets``, to predict with the ``schema`` of the model.

    With a schema the answers may be missing.

    Raises:
        InputError: names the file, row and column of the first thing that is wrong.
    """
    if (targets is None) == (schema is None):
        raise InputError("targets: expected the names of the answers, or the schema of a model, and not both")
    folder = Path(path)
    nodes, edges = Table.read(folder, "nodes", NODE_IDS), Table.read(folder, "edges", EDGE_IDS)
    if schema is None:
        assert targets is not None
        schema = infer(nodes, edges, targets)
    block = assemble(nodes, edges, schema)
    return Folder(block.batch.split(), block.names, block.nodes, schema)


def infer(nodes: Table, edges: Table, targets: Sequence[str]) -> Schema:
    """The schema of a training set: every column that is no id and no answer is a feature."""
    if not targets:
        raise InputError("targets: expected the name of one answer or more, but got none")
    for name in targets:
        nodes.require(name)
    features = [name for name in nodes.features if name not in targets]
    return Schema(
        tuple(nodes.describe(name) for name in features), tuple(edges.describe(name) for name in edges.features), tuple(targets)
    )


class Table:
    """A table of text cells, read but not yet believed."""

    def __init__(self, file: Path, cells: pandas.DataFrame, ids: tuple[str, ...], first: int = 0):
        self.file, self.cells, self.ids, self.first = file, cells, ids, first  # first: rows of the file before these
        for name in ids:
            self.require(name)
            empty = cells[name].to_numpy() == ""
            if empty.any():
                self.refuse(int(empty.argmax()), name, "an id", "nothing")

    @staticmethod
    def read(folder: Path, name: str, ids: tuple[str, ...]) -> Table:
        import pandas

        file = find_table(folder, name)
        chunks = list(read_cells(file, None))
        return Table(file, pandas.concat(chunks) if len(chunks) != 1 else chunks[0], ids)

    @property
    def features(self) -> list[str]:
        return [name for name in self.cells.columns if name not in self.ids]

    def require(self, name: str) -> None:
        if name not in self.cells.columns:
            raise InputError(f"{self.file}: expected a column {name!r}, but got {', '.join(self.cells.columns)}")

    def refuse(self, row: int, column: str, expected: str, came: object) -> NoReturn:
        raise InputError(f"{self.file}, row {self.first + row + 2}, column {column!r}: expected {expected}, but got {came}")

    def describe(self, name: str) -> Column:
        """Numbers, unless no cell is one: then text, one category per value."""
        values = self.cells[name].to_numpy()
        numbers = _numbers(values)
        if len(values) == 0 or np.isfinite(numbers).any():
            return Column(name)
        categories = sorted(set(values))
        if "" in categories:
            self.refuse(int((values == "").argmax()), name, "a value", "nothing")
        if len(categories) > MOST_CATEGORIES:
            raise InputError(
                f"{self.file}, column {name!r}: expected numbers or at most {MOST_CATEGORIES} categories, but got {len(categories)}"
            )
        return Column(name, tuple(categories))

    def values(self, column: Column) -> NDArray[np.float32]:
        """[rows, width]"""
        self.require(column.name)
        cells = self.cells[column.name].to_numpy()
        if column.categories is None:
            return self.numbers(column.name)[:, None]
        place = {value: index for index, value in enumerate(column.categories)}
        codes = np.array([place.get(cell, -1) for cell in cells], dtype=np.int64)
        if (codes < 0).any():
            row = int((codes < 0).argmax())
            self.refuse(row, column.name, f"one of {', '.join(column.categories[:10])}", repr(cells[row]))
        return np.eye(column.width, dtype=np.float32)[codes]

    def numbers(self, name: str) -> NDArray[np.float32]:
        self.require(name)
        cells = self.cells[name].to_numpy()
        found = _numbers(cells)
        if not np.isfinite(found).all():
            row = int((~np.isfinite(found)).argmax())
            self.refuse(row, name, "a finite number", repr(cells[row]) if cells[row] else "nothing")
        return found.astype(np.float32)


def find_table(folder: Path, name: str) -> Path:
    """The one file of that name, in either format."""
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder with nodes and edges tables, but there is none")
    found = [folder / f"{name}.{ending}" for ending in ENDINGS if (folder / f"{name}.{ending}").exists()]
    if len(found) != 1:
        raise InputError(f"{folder}: expected {name}.csv or {name}.parquet, but there is {'both' if found else 'neither'}")
    return found[0]


def read_cells(file: Path, rows: int | None) -> Iterator[pandas.DataFrame]:
    """The cells of a table as text, that many rows at a time (None: all at once); one frame at least."""
    import pandas

    try:
        if file.suffix == ".csv":
            _refuse_twins(file)
            given = pandas.read_csv(file, dtype=str, keep_default_na=False, skipinitialspace=True, chunksize=rows)
            yield from [given] if rows is None else given
        else:
            yield from _parquet_cells(file, rows)
    except (ValueError, OSError, UnicodeDecodeError, pandas.errors.ParserError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{file}: expected a table, but could not read it: {reason}") from error


def _parquet_cells(file: Path, rows: int | None) -> Iterator[pandas.DataFrame]:
    import pyarrow.parquet

    stream = pyarrow.parquet.ParquetFile(file)
    empty = True
    for chunk in stream.iter_batches(rows or max(stream.metadata.num_rows, 1)):
        raw, empty = chunk.to_pandas(), False
        yield raw.astype(object).where(raw.notna(), "").map(_text)
    if empty:
        yield stream.read().to_pandas().astype(object)


def _refuse_twins(file: Path) -> None:
    """Of two columns with one name pandas would rename the second in silence."""
    with file.open(newline="", encoding="utf-8") as stream:
        header = next(csv.reader(stream, skipinitialspace=True), [])
    twice = [name for index, name in enumerate(header) if name in header[:index]]
    if twice:
        raise InputError(f"{file}: expected every column once, but {twice[0]!r} is there twice")


def _text(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


def _numbers(cells: NDArray[Any]) -> NDArray[np.float64]:
    """NaN where a cell is no number."""
    import pandas

    return pandas.to_numeric(pandas.Series(cells, dtype=object), errors="coerce").to_numpy(dtype=np.float64)


def _matrix(table: Table, columns: tuple[Column, ...]) -> NDArray[np.float32]:
    """All features; a table without any has a column of ones."""
    if not columns:
        return np.ones((len(table.cells), 1), np.float32)
    return np.concatenate([table.values(column) for column in columns], axis=1)


def assemble(nodes: Table, edges: Table, schema: Schema) -> Block:
    """Graphs from the rows of two tables, in the order in which nodes names them."""
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
    ends = np.stack([_ends(edges, name, place, number) for name in ("source", "target")])
    node_values = (torch.from_numpy(array[order]) for array in (x, y, codes))
    features, answers, batch = node_values
    whole = GraphBatch(features, torch.from_numpy(ends), torch.from_numpy(attributes), answers, batch, len(names))
    ids: list[list[str]] = [[] for _ in names]
    for row in order:
        ids[codes[row]].append(node_of_row[row])
    return Block(whole, names, ids)


def _ends(edges: Table, column: str, place: dict[tuple[str, str], int], graphs: dict[str, int]) -> NDArray[np.int64]:
    graph, node = edges.cells["graph"].to_numpy(), edges.cells[column].to_numpy()
    found = np.array([place.get(key, -1) for key in zip(graph, node, strict=True)], dtype=np.int64)
    if (found < 0).any():
        row = int((found < 0).argmax())
        if graph[row] not in graphs:
            edges.refuse(row, "graph", "a graph that is in nodes", repr(graph[row]))
        edges.refuse(row, column, f"a node of graph {graph[row]!r}", repr(node[row]))
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
