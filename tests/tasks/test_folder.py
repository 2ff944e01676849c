from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convergent import InputError
from convergent.tasks.folder import Schema, from_networkx, read_folder

NODES = """graph,node,size,kind,value
a,x,1.5,valve,0.1
b,1,2.5,pump,0.2
a,y,3.5,pump,0.3
b,2,4.5,pump,0.4
"""
EDGES = """graph,source,target,length
a,x,y,10
b,2,1,20
a,y,x,30
"""


def write(folder: Path, nodes: str = NODES, edges: str = EDGES) -> Path:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


def test_two_graphs_whose_rows_are_mixed(tmp_path) -> None:
    found = read_folder(write(tmp_path), targets=["value"])
    assert found.names == ["a", "b"]
    assert found.nodes == [["x", "y"], ["1", "2"]]
    first, second = found.graphs
    torch.testing.assert_close(first.x, torch.tensor([[1.5, 0.0, 1.0], [3.5, 1.0, 0.0]]))  # pump, valve
    assert first.edge_index.tolist() == [[0, 1], [1, 0]]
    assert first.edge_attr.tolist() == [[10.0], [30.0]]
    assert second.edge_index.tolist() == [[1], [0]]
    torch.testing.assert_close(second.y, torch.tensor([[0.2], [0.4]]))


def test_the_schema_goes_with_the_model(tmp_path) -> None:
    schema = read_folder(write(tmp_path), targets=["value"]).schema
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    without = NODES.replace(",value", "").replace(",0.1", "").replace(",0.2", "").replace(",0.3", "").replace(",0.4", "")
    found = read_folder(write(tmp_path, without), schema=again)
    assert found.graphs[0].y.shape == (2, 0)
    assert found.graphs[0].x.shape == (2, 3)


def test_parquet_reads_like_csv(tmp_path) -> None:
    import pandas

    csv = read_folder(write(tmp_path), targets=["value"])
    for name in ("nodes", "edges"):
        pandas.read_csv(tmp_path / f"{name}.csv").to_parquet(tmp_path / f"{name}.parquet")
        (tmp_path / f"{name}.csv").unlink()
    parquet = read_folder(tmp_path, targets=["value"])
    assert parquet.nodes == csv.nodes
    assert all(torch.equal(mine.x, theirs.x) for mine, theirs in zip(parquet.graphs, csv.graphs, strict=True))


def test_no_edge_features_is_a_column_of_ones(tmp_path) -> None:
    found = read_folder(write(tmp_path, edges="graph,source,target\na,x,y\n"), targets=["value"])
    assert found.graphs[0].edge_attr.tolist() == [[1.0]]
    assert found.graphs[1].edge_index.shape == (2, 0)


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (NODES.replace("2.5", "two"), EDGES, r"nodes\.csv, row 3, column 'size': expected a finite number, but got 'two'"),
        (NODES.replace("2.5", ""), EDGES, r"nodes\.csv, row 3, column 'size': expected a finite number, but got nothing"),
        (NODES.replace("2.5", "inf"), EDGES, r"nodes\.csv, row 3, column 'size': expected a finite number, but got 'inf'"),
        (NODES.replace("pump", "", 1), EDGES, r"nodes\.csv, row 3, column 'kind': expected a value, but got nothing"),
        (NODES.replace("0.3", "high"), EDGES, r"nodes\.csv, row 4, column 'value': expected a finite number, but got 'high'"),
        (
            NODES.replace("a,y", "a,x"),
            EDGES,
            "row 4, column 'node': expected every node of graph 'a' once, but got 'x' again",
        ),
        (NODES.replace("graph,node", "graph,name"), EDGES, r"nodes\.csv: expected a column 'node'"),
        (NODES.replace("b,1", ",1"), EDGES, r"nodes\.csv, row 3, column 'graph': expected an id, but got nothing"),
        (NODES, EDGES.replace("b,2,1", "b,2,x"), r"edges\.csv, row 3, column 'target': expected a node of graph 'b', but got 'x'"),
        (
            NODES,
            EDGES.replace("b,2,1", "c,2,1"),
            r"edges\.csv, row 3, column 'graph': expected a graph that is in nodes, but got 'c'",
        ),
        (NODES, EDGES.replace("target", "sink"), r"edges\.csv: expected a column 'target'"),
        (NODES, EDGES.replace("30", "long"), r"edges\.csv, row 4, column 'length': expected a finite number, but got 'long'"),
        (NODES.replace("size", "value"), EDGES, "expected every column once, but 'value' is there twice"),
        ("", EDGES, r"nodes\.csv: expected a table, but could not read it"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, nodes, edges, message) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_folder(write(tmp_path, nodes, edges), targets=["value"])
    assert "\n" not in str(caught.value)


def test_a_category_the_model_has_not_seen(tmp_path) -> None:
    schema = read_folder(write(tmp_path), targets=["value"]).schema
    with pytest.raises(InputError, match=r"row 2, column 'kind': expected one of pump, valve, but got 'tap'"):
        read_folder(write(tmp_path, NODES.replace("valve", "tap")), schema=schema)


def test_files_that_are_not_there(tmp_path) -> None:
    with pytest.raises(InputError, match="no such folder: "):
        read_folder(tmp_path / "nowhere", targets=["value"])
    with pytest.raises(InputError, match=r"expected nodes\.csv or nodes\.parquet, but there is neither"):
        read_folder(tmp_path, targets=["value"])
    with pytest.raises(InputError, match="targets: expected the name of one answer"):
        read_folder(write(tmp_path), targets=[])
    with pytest.raises(InputError, match="expected a column 'pressure'"):
        read_folder(write(tmp_path), targets=["pressure"])
    with pytest.raises(InputError, match="and not both"):
        read_folder(write(tmp_path))


names = st.text(
    st.characters(codec="utf-8", exclude_characters='",\r\n', exclude_categories=("Cs", "Cc", "Zs")), min_size=1, max_size=6
)


@given(graph=names, nodes=st.lists(names, min_size=2, max_size=5, unique=True))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ids_may_be_any_strings(tmp_path, graph, nodes) -> None:
    rows = "".join(f'"{graph}","{node}",1.0\n' for node in nodes)
    edges = f'graph,source,target\n"{graph}","{nodes[0]}","{nodes[1]}"\n'
    found = read_folder(write(tmp_path, f"graph,node,value\n{rows}", edges), targets=["value"])
    assert found.names == [graph]
    assert found.nodes == [nodes]
    assert found.graphs[0].edge_index.tolist() == [[0], [1]]


@given(garbage=st.binary(max_size=300))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_is_refused_in_one_line(tmp_path, garbage) -> None:
    write(tmp_path)
    (tmp_path / "nodes.csv").write_bytes(garbage)
    with pytest.raises(InputError) as caught:
        read_folder(tmp_path, targets=["value"])
    assert "nodes.csv" in str(caught.value)


def test_networkx() -> None:
    import networkx

    graph = networkx.Graph()
    graph.add_node("a", size=1.0, value=3)
    graph.add_node("b", size=2.0, value=4)
    graph.add_edge("a", "b", length=7)
    batch = from_networkx([graph, graph], ["size"], ["value"], ["length"])
    assert batch.edge_index.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]
    assert batch.edge_attr.tolist() == [[7.0]] * 4
    assert batch.y.tolist() == [[3.0], [4.0], [3.0], [4.0]]
    with pytest.raises(InputError, match=r"graphs\[0\]: expected an attribute 'colour', but 'a' has"):
        from_networkx([graph], ["colour"], ["value"])


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["value", "value"], "targets: expected every column once, but got 'value' twice"),
        (["graph"], "targets: expected columns other than graph, node, which hold ids, but got 'graph'"),
        (["node"], "targets: expected columns other than graph, node, which hold ids, but got 'node'"),
    ],
)
def test_answers_that_cannot_be_columns(tmp_path, targets, message) -> None:
    with pytest.raises(InputError, match=message):
        read_folder(write(tmp_path), targets=targets)


def test_logarithms_belong_to_the_schema(tmp_path) -> None:
    schema = read_folder(write(tmp_path), targets=["value"], logs=["size", "length"]).schema
    assert [column.log for column in (*schema.nodes, *schema.edges)] == [True, False, True]
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    with pytest.raises(InputError, match="row 3, column 'length': expected a number, 0 or more, as the model takes its logarithm"):
        read_folder(write(tmp_path, edges=EDGES.replace("20", "-20")), schema=schema)
    for name in ("kind", "value", "colour"):
        with pytest.raises(InputError, match=f"logs: expected columns of numbers, of length, size, but got '{name}'"):
            read_folder(write(tmp_path), targets=["value"], logs=[name])
