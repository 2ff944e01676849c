"""Graph classification (section 5.3 of the paper): the six TU data sets, ten folds, two protocols that are never mixed.

    protocol A   the epoch that is best on average over the ten folds (GIN's)
    protocol B   each fold's own best epoch (IGNN's)

Both look at the test folds to choose an epoch; that is how the printed numbers were made, and why they compare with nothing else.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from convergent.errors import InputError, expect, first_line
from convergent.storage.files import discard_folder, private_name, remove_parts, sync_file, sync_folder
from convergent.storage.fingerprint import fingerprint
from convergent.storage.lock import lock_file
from convergent.tasks.batch import GraphBatch

if TYPE_CHECKING:
    from torch_geometric.data import Data

SETS = ("IMDB-BINARY", "IMDB-MULTI", "MUTAG", "PROTEINS", "PTC", "NCI1")
FOLDS = 10


@dataclass(frozen=True)
class Classified:
    """A data set: its graphs, and the number of classes."""

    graphs: list[GraphBatch]
    classes: int

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.array([int(graph.y) for graph in self.graphs])


def load(name: str, data_root: Path | str | None = None, cache: Path | str | None = None) -> Classified:
    """One of the six sets through PyG's ``TUDataset``.

    Args:
        name: one of ``SETS``.
        data_root: a folder with NAME/raw/*.txt; its files are copied before PyG processes them. None: PyG downloads.
        cache: where processed files are kept; by default convergent/tudatasets in the user's cache folder.
    """
    expect(name in SETS, "name", f"one of {', '.join(SETS)}", repr(name))
    cache = default_cache() if cache is None else Path(cache)
    if data_root is None and name == "PTC":
        # the collection's PTC_MR has its hydrogens removed: other graphs than those of the papers
        raise InputError("data_root: expected a folder with PTC/raw, which cannot be downloaded, but got None")
    if not _is_prepared(cache / name, data_root):
        with lock_file(cache / f".{name}.lock", str(cache / name), wait=True):
            if not _is_prepared(cache / name, data_root):  # another process may have done it meanwhile
                _prepare(name, data_root, cache)
    dataset = _read(cache, name, str(cache / name))
    labelled = dataset[0].x is not None
    widest = 0 if labelled else max(int(_degrees(data).max()) for data in dataset if data.num_edges)
    return Classified([_as_batch(data, widest) for data in dataset], int(dataset.num_classes))


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "convergent" / "tudatasets"


def raw_files(name: str, cache: Path | str | None = None) -> list[Path]:
    """The files that a set in the cache was made from."""
    folder = (default_cache() if cache is None else Path(cache)) / name / "raw"
    return sorted(file for file in folder.iterdir() if file.is_file())


def _is_prepared(folder: Path, data_root: Path | str | None) -> bool:
    """Whether a set is in the cache, made from the files that it would be made from now."""
    if not ((folder / "processed" / "data.pt").exists() and (folder / "raw").is_dir()):
        return False
    if data_root is None:
        return True
    given, used = (
        {file.name: fingerprint(file) for file in sorted(raw.iterdir()) if file.is_file()}
        for raw in (_given_raw(folder.name, data_root), folder / "raw")
    )
    return given == used


def _given_raw(name: str, data_root: Path | str) -> Path:
    source = Path(data_root) / name / "raw"
    if not source.is_dir():
        raise InputError(f"data_root: expected the raw files in {source}, but there is no such folder")
    return source


def _prepare(name: str, data_root: Path | str | None, cache: Path) -> None:
    """Let PyG process a set in a folder of its own, which becomes that of the set when it is complete."""
    remove_parts(cache, name)
    partial = private_name(cache / name)
    try:
        if data_root is not None:
            shutil.copytree(_given_raw(name, data_root), partial / name / "raw")
        _read(partial, name, name if data_root is None else f"data_root: {_given_raw(name, data_root)}")
        for file in (partial / name).rglob("*.*"):
            sync_file(file)
        if (cache / name).exists():
            discard_folder(cache / name)
        (partial / name).rename(cache / name)
        sync_folder(cache)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _read(root: Path, name: str, where: str) -> Any:
    """A set as PyG reads it, or one line that says where something is wrong."""
    from torch_geometric.datasets import TUDataset

    try:
        dataset = TUDataset(str(root), name)
        expect(len(dataset) >= FOLDS and dataset[0].y is not None, name, f"{FOLDS} graphs or more, with classes", len(dataset))
    except OSError:
        raise
    except Exception as error:  # PyG and torch raise all kinds
        raise InputError(f"{where}: expected the files of data set {name}, but could not read them: {first_line(error)}") from error
    return dataset


def _degrees(data: Data) -> Tensor:
    return torch.bincount(data.edge_index[0], minlength=data.num_nodes)


def _as_batch(data: Data, widest: int) -> GraphBatch:
    """Node labels as they are, or the degree one-hot; edges carry ones, as in the paper's text."""
    x = data.x.float() if data.x is not None else torch.nn.functional.one_hot(_degrees(data), widest + 1).float()
    ones = torch.ones(data.num_edges, 1)
    return GraphBatch(x, data.edge_index, ones, data.y.view(1), torch.zeros(len(x), dtype=torch.long), 1)


# --- folds and protocols ---


def folds(labels: NDArray[np.int64], seed: int = 0) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Ten stratified folds, each as the numbers of its training and of its test graphs."""
    from sklearn.model_selection import StratifiedKFold

    most = int(np.unique(labels, return_counts=True)[1].max(initial=0))
    expect(most >= FOLDS, "labels", f"{FOLDS} graphs or more of a class", most)
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    return list(splits.split(np.zeros(len(labels)), labels))


@dataclass(frozen=True)
class Verdict:
    """Mean and standard deviation of the accuracy over the folds, and the epochs they come from."""

    mean: float
    std: float
    epochs: list[int]


def protocol_a(accuracy: NDArray[np.float64]) -> Verdict:
    """The one epoch with the best mean; accuracy is [folds, epochs]."""
    best = int(accuracy.mean(0).argmax())
    column = accuracy[:, best]
    return Verdict(float(column.mean()), float(column.std()), [best] * len(accuracy))


def protocol_b(accuracy: NDArray[np.float64]) -> Verdict:
    """Every fold at its own best epoch."""
    best = accuracy.max(1)
    return Verdict(float(best.mean()), float(best.std()), accuracy.argmax(1).tolist())
