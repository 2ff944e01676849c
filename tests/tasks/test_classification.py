from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from convergent import InputError
from convergent.storage.fingerprint import fingerprint
from convergent.tasks.classification import SETS, folds, load, protocol_a, protocol_b, raw_files

SIZES = {"IMDB-BINARY": 1000, "IMDB-MULTI": 1500, "MUTAG": 188, "PROTEINS": 1113, "PTC": 344, "NCI1": 4110}
ROOT = os.environ.get("CONVERGENT_TUDATASETS") or Path(__file__).resolve().parents[3] / "shared" / "tudatasets"
there = pytest.mark.skipif(not Path(ROOT).is_dir(), reason="no raw TU files; CONVERGENT_TUDATASETS=folder names them")


@there
@pytest.mark.parametrize("name", SETS)
def test_the_six_sets(name, tmp_path) -> None:
    found = load(name, ROOT, tmp_path)
    assert len(found.graphs) == SIZES[name]
    assert found.classes == (3 if name == "IMDB-MULTI" else 2)
    assert set(found.labels) == set(range(found.classes))
    widths = {graph.x.shape[1] for graph in found.graphs}
    assert len(widths) == 1
    assert all((graph.x.sum(1) == 1).all() for graph in found.graphs[:50])  # one-hot
    assert all((graph.edge_attr == 1).all() for graph in found.graphs[:50])


@there
def test_raw_files_are_copied_not_touched(tmp_path) -> None:
    before = sorted(path.name for path in (Path(ROOT) / "MUTAG").iterdir())
    load("MUTAG", ROOT, tmp_path)
    again = load("MUTAG", ROOT, tmp_path)
    assert len(again.graphs) == 188
    assert sorted(path.name for path in (Path(ROOT) / "MUTAG").iterdir()) == before


def write_raw(folder: Path, labels: Sequence[int]) -> None:
    """A set of triangles and paths of three nodes, in the form of the collection."""
    raw = folder / "MUTAG" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    edges = [(3 * graph + a, 3 * graph + b) for graph in range(len(labels)) for a, b in ((1, 2), (2, 1), (2, 3), (3, 2))]
    tables = {
        "A": [f"{a}, {b}" for a, b in edges],
        "graph_indicator": [str(graph + 1) for graph in range(len(labels)) for _ in range(3)],
        "graph_labels": list(map(str, labels)),
        "node_labels": [str(node % 2) for node in range(3 * len(labels))],
    }
    for name, lines in tables.items():
        (raw / f"MUTAG_{name}.txt").write_text("\n".join(lines) + "\n")


quiet = pytest.mark.filterwarnings("ignore")  # PyG's, of the sizes of such a set


@quiet
def test_changed_files_are_processed_again(tmp_path) -> None:
    cache = tmp_path / "cache"
    for labels in ([0, 1] * 10, [1, 0] * 10):  # of the same size
        write_raw(tmp_path, labels)
        assert load("MUTAG", tmp_path, cache).labels.tolist() == labels
        assert load("MUTAG", None, cache).labels.tolist() == labels
        assert [fingerprint(file) for file in raw_files("MUTAG", cache)] == [
            fingerprint(file) for file in sorted((tmp_path / "MUTAG" / "raw").iterdir())
        ]
    assert [path.name for path in cache.iterdir()] == ["MUTAG"]


@quiet
def test_a_set_that_was_cut_off_is_processed_again(tmp_path, monkeypatch) -> None:
    cache = tmp_path / "cache"
    write_raw(tmp_path, [0, 1] * 10)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)  # as after a kill
        patch.setattr("torch_geometric.datasets.TUDataset.process", killed)
        with pytest.raises(KeyboardInterrupt):
            load("MUTAG", tmp_path, cache)
    assert not (cache / "MUTAG").exists()
    assert load("MUTAG", tmp_path, cache).classes == 2
    assert [path.name for path in cache.iterdir()] == ["MUTAG"]


def killed(dataset: object) -> None:
    """In the middle of its only file."""
    Path(dataset.processed_paths[0]).write_bytes(b"half")
    raise KeyboardInterrupt


def test_folds_are_stratified_and_seeded() -> None:
    labels = np.repeat([0, 1], [60, 40])
    found = folds(labels, seed=0)
    assert len(found) == 10
    assert sorted(np.concatenate([test for _, test in found])) == list(range(100))
    assert all(labels[test].sum() == 4 for _, test in found)
    assert all(set(train).isdisjoint(test) for train, test in found)
    assert np.array_equal(found[0][1], folds(labels, seed=0)[0][1])
    assert not np.array_equal(found[0][1], folds(labels, seed=1)[0][1])


def test_the_two_protocols_differ() -> None:
    accuracy = np.array([[0.5, 0.9, 0.6], [0.8, 0.6, 0.7]])
    common, own = protocol_a(accuracy), protocol_b(accuracy)
    assert (common.mean, common.epochs) == (pytest.approx(0.75), [1, 1])
    assert (own.mean, own.epochs) == (pytest.approx(0.85), [1, 0])


def test_bad_arguments(tmp_path) -> None:
    with pytest.raises(InputError, match="name: expected one of IMDB-BINARY"):
        load("ENZYMES")
    with pytest.raises(InputError, match="which cannot be downloaded"):
        load("PTC")
    with pytest.raises(InputError, match="data_root: expected the raw files in"):
        load("MUTAG", tmp_path / "nowhere", tmp_path)


@pytest.mark.parametrize("content", ["", "garbage, x\n", "1, 1\n"])
def test_raw_files_that_cannot_be_read_leave_nothing(tmp_path, content) -> None:
    raw = tmp_path / "sets" / "MUTAG" / "raw"
    raw.mkdir(parents=True)
    for name in ("A", "graph_indicator", "graph_labels", "node_labels"):
        (raw / f"MUTAG_{name}.txt").write_text(content)
    with pytest.raises(InputError, match=r"data_root: .*: expected the files of data set MUTAG, but") as caught:
        load("MUTAG", tmp_path / "sets", tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def test_too_few_graphs_for_ten_folds() -> None:
    with pytest.raises(InputError, match="labels: expected 10 graphs or more of a class, but got 9"):
        folds(np.repeat([0, 1], [9, 8]))


def test_a_model_reads_them() -> None:
    from convergent.nn import ConvergentGraphSolver
    from convergent.tasks.batch import GraphBatch

    one = GraphBatch(
        torch.ones(3, 4), torch.tensor([[0, 1], [1, 2]]), torch.ones(2, 1), torch.tensor([1]), torch.zeros(3).long(), 1
    )
    batch = GraphBatch.join([one] * 5)
    model = ConvergentGraphSolver(4, 1, heads=3, outputs=2, readout="sum")
    scores = model(batch.x, batch.graph, batch.edge_attr)
    assert scores.shape == (5, 2)
    torch.nn.functional.cross_entropy(scores, batch.y).backward()
