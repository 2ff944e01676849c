"""Answers for a folder of networks, however many, as tables:

    predictions   graph, node, and a column per answer
    graphs        graph, nodes, edges, error_bound, iterations, status

``error_bound`` says how far the fixed points behind a prediction may be from exact ones; it says nothing about what the model has
learned. Blocks of networks are kept in a hidden folder as they are done, so that work that was cut off can be resumed, and are
put together in the end: a table is there whole, or not at all.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convergent.errors import InputError, expect
from convergent.tasks.folder import ENDINGS, Block, Schema, find_table
from convergent.tasks.stream import ROWS, stream_folder
from convergent.training.evaluate import Certificate, Tally, Trained, schema_of
from convergent.training.run import MODEL, read_json, write_json

if TYPE_CHECKING:
    import pandas
    from torch import Tensor

TABLES = ("predictions", "graphs")
WORK, JOB = ".unfinished", "job.json"


def predict(
    model: Path | str,
    folder: Path | str,
    out: Path | str,
    ending: str = "csv",
    resume: bool = False,
    device: str = "cpu",
    rows: int = ROWS,
    report: Callable[[int], None] = lambda nodes: None,
) -> dict[str, Any]:
    """Predict every network of ``folder`` into ``out``; ``report`` hears of the nodes that are done.

    Raises:
        InputError: a table is not what the model was trained on, or ``out`` holds something already.
    """
    trained, out = Trained.load(model, device), Path(out)
    schema = schema_of(trained)
    expect(ending in ENDINGS, "ending", f"one of {ENDINGS}", repr(ending))
    work = _begin(out, _job(Path(model), Path(folder), ending, rows), resume)
    number = -1
    for number, block in enumerate(stream_folder(folder, schema, rows)):
        kept = work / f"{number}.json"
        if not kept.exists():
            answer, certificate = trained(block.batch)
            for name, table in zip(TABLES, _tables(block, answer, certificate, schema), strict=True):
                _write(table, work / f"{number}.{name}", ending)
            tally = Tally()
            tally.add({}, block.batch, certificate)
            write_json(kept, asdict(tally))  # the last of the block to be written: with it the block is done
        report(len(block.batch.x))
    for name in TABLES:
        _join([work / f"{index}.{name}" for index in range(number + 1)], out / f"{name}.{ending}", _columns(name, schema))
    total = Tally.total(Tally(**read_json(work / f"{index}.json")) for index in range(number + 1))
    shutil.rmtree(work)
    return total.to_json() | {"files": [f"{name}.{ending}" for name in TABLES]}


def _job(model: Path, folder: Path, ending: str, rows: int) -> dict[str, Any]:
    """What unfinished work belongs to."""
    file = model / MODEL if model.is_dir() else model
    tables = [find_table(folder, name) for name in ("nodes", "edges")]
    sizes = {table.name: table.stat().st_size for table in tables}
    return {"model": hashlib.sha256(file.read_bytes()).hexdigest(), "tables": sizes, "ending": ending, "rows": rows}


def _begin(out: Path, job: dict[str, Any], resume: bool) -> Path:
    """The folder for unfinished work, new or as it was left."""
    done = [name for table in TABLES for ending in ENDINGS if (out / (name := f"{table}.{ending}")).exists()]
    work = out / WORK
    if done:
        raise InputError(f"{out}: expected a new folder, but it holds {done[0]}")
    if (work / JOB).exists():
        if not resume:
            raise InputError(f"{out}: expected a new folder, but it holds unfinished predictions; resume them, or name another")
        if read_json(work / JOB) != job:
            raise InputError(f"{out}: expected the model, the networks and the settings it was begun with, but got others")
    else:
        work.mkdir(parents=True, exist_ok=True)
        write_json(work / JOB, job)
    return work


def _columns(name: str, schema: Schema) -> list[str]:
    if name == "predictions":
        return ["graph", "node", *schema.targets]
    return ["graph", "nodes", "edges", "error_bound", "iterations", "status"]


def _tables(block: Block, answer: Tensor, certificate: Certificate, schema: Schema) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    import pandas
    import torch

    batch = block.batch
    graph = [name for name, ids in zip(block.names, block.nodes, strict=True) for _ in ids]
    nodes = {"graph": graph, "node": [node for ids in block.nodes for node in ids]}
    nodes |= dict(zip(schema.targets, answer.numpy().T, strict=True))
    edges = torch.bincount(batch.batch[batch.edge_index[0]], minlength=batch.num_graphs)
    found = (batch.sizes.numpy(), edges.numpy(), certificate.bound.numpy(), certificate.steps.numpy(), certificate.words())
    graphs = dict(zip(_columns("graphs", schema), (block.names, *found), strict=True))
    return pandas.DataFrame(nodes), pandas.DataFrame(graphs)


def _write(table: pandas.DataFrame, path: Path, ending: str) -> None:
    table.to_csv(path, index=False, header=False) if ending == "csv" else table.to_parquet(path, index=False)


def _join(parts: list[Path], path: Path, columns: list[str]) -> None:
    """All parts in one table, which appears when it is whole."""
    import pandas

    partial = path.with_name(f".{path.name}.part")
    if path.suffix == ".csv":
        with partial.open("wb") as stream:
            stream.write(pandas.DataFrame(columns=columns).to_csv(index=False).encode())
            for part in parts:
                stream.write(part.read_bytes())
    else:
        _join_parquet(parts, partial, columns)
    partial.replace(path)


def _join_parquet(parts: list[Path], path: Path, columns: list[str]) -> None:
    import pandas
    import pyarrow.parquet as parquet

    if not parts:
        pandas.DataFrame(columns=columns).to_parquet(path, index=False)
        return
    with parquet.ParquetWriter(path, parquet.read_schema(parts[0])) as writer:
        for part in parts:
            writer.write_table(parquet.read_table(part))
