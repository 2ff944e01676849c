from __future__ import annotations

import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convergent import InputError
from convergent.tasks.folder import Column, Schema, read_folder
from convergent.tasks.stream import stream_folder

SCHEMA = Schema((Column("a"), Column("kind", ("x", "y"))), (Column("w"),), ("answer",))


def write(folder, nodes, edges, ending="csv") -> None:
    folder.mkdir(exist_ok=True)
    tables = {
        "nodes": pandas.DataFrame(nodes, columns=["graph", "node", "a", "kind", "answer"]),
        "edges": pandas.DataFrame(edges, columns=["graph", "source", "target", "w"]),
    }
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False) if ending == "csv" else table.to_parquet(folder / f"{name}.parquet")


def networks(sizes):
    nodes, edges = [], []
    for graph, size in enumerate(sizes):
        nodes += [(f"g{graph}", f"n{node}", node * 0.5, "xy"[node % 2], graph + node) for node in range(size)]
        edges += [(f"g{graph}", f"n{node}", f"n{(node * 3 + 1) % size}", graph - node) for node in range(size) if size > 2]
    return nodes, edges


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), rows=st.integers(1, 15), ending=st.sampled_from(["csv", "parquet"])
)
def test_blocks_are_the_folder(tmp_path_factory, sizes, rows, ending) -> None:
    path = tmp_path_factory.mktemp("folder")
    write(path, *networks(sizes), ending)
    whole = read_folder(path, schema=SCHEMA)
    blocks = list(stream_folder(path, SCHEMA, rows))
    assert [name for block in blocks for name in block.names] == whole.names
    assert [ids for block in blocks for ids in block.nodes] == whole.nodes
    parts = [part for block in blocks for part in block.batch.split()]
    for one, other in zip(parts, whole.graphs, strict=True):
        for name in ("x", "edge_index", "edge_attr", "y"):
            assert torch.equal(getattr(one, name), getattr(other, name))
    assert max(len(block.batch.x) for block in blocks) <= 2 * rows + max(sizes)


def test_refusals(tmp_path) -> None:
    nodes, edges = networks([3, 3, 3, 3])

    def refused(nodes, edges, match) -> None:
        write(tmp_path, nodes, edges)
        with pytest.raises(InputError, match=match):
            list(stream_folder(tmp_path, SCHEMA, rows=2))

    refused(
        [*nodes, ("g0", "late", 1.0, "x", 0)], edges, r"row 14, column 'graph': expected the rows of a graph together.*'g0' again"
    )
    refused(nodes, [*edges[3:], *edges[:3]], r"row 11, column 'graph': expected the rows of a graph together.*'g0'")
    refused(nodes, [*edges, ("g9", "n0", "n1", 1.0)], r"row 14, column 'graph': expected a graph that is in nodes, but got 'g9'")
    refused(
        nodes,
        [*edges[:5], ("g1", "n0", "n7", 1.0), *edges[6:]],
        r"row 7, column 'target': expected a node of graph 'g1', whose rows stand together in nodes, but got 'n7'",
    )
    refused(
        [*nodes[:8], ("g2", "n2", "?", "x", 0), *nodes[9:]],
        edges,
        r"nodes.csv, row 10, column 'a': expected a finite number, but got '\?'",
    )


def test_an_empty_folder(tmp_path) -> None:
    for ending in ("csv", "parquet"):
        folder = tmp_path / ending
        write(folder, [], [], ending)
        assert list(stream_folder(folder, SCHEMA)) == []
    with pytest.raises(InputError, match="no such folder: "):
        list(stream_folder(tmp_path / "nothing", SCHEMA))


@pytest.mark.parametrize("rows", [2, 1000])
def test_order_is_asked_of_small_tables_as_of_large_ones(tmp_path, rows) -> None:
    nodes, edges = networks([3, 3, 3, 3])
    together = "expected the rows of a graph together, and graphs in the same order in both tables"
    for mixed, row in (([*nodes[1:], nodes[0]], 13), ([*nodes[:2], nodes[5], *nodes[2:5], *nodes[6:]], 5)):
        write(tmp_path, mixed, [])
        with pytest.raises(InputError, match=rf"nodes\.csv, row {row}, column 'graph': {together}"):
            list(stream_folder(tmp_path, SCHEMA, rows))
        assert len(read_folder(tmp_path, schema=SCHEMA).graphs) == 4  # to train, any order will do
    write(tmp_path, nodes, edges[::-1])
    with pytest.raises(InputError, match=rf"edges\.csv, row \d+, column 'graph': {together}"):
        list(stream_folder(tmp_path, SCHEMA, rows))


@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_rows_are_those_of_the_file(tmp_path, rows) -> None:
    nodes, edges = networks([3, 3])
    write(tmp_path, nodes, edges)
    lines = (tmp_path / "nodes.csv").read_text().splitlines()
    (tmp_path / "nodes.csv").write_text("\n".join([lines[0], "", *lines[1:3], "", "", *lines[3:6], "g1,n2,wide,x,1", ""]))
    with pytest.raises(InputError, match=r"nodes\.csv, row 10, column 'a': expected a finite number, but got 'wide'"):
        list(stream_folder(tmp_path, SCHEMA, rows))
