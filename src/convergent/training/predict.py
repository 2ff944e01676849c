"""Answers for a folder of networks, however many, as tables:

    predictions   graph, node, and a column per answer
    graphs        graph, nodes, edges, error_bound, iterations, status

``error_bound`` says how far the fixed points behind a prediction may be from exact ones; it says nothing about what the model has
learned. ``predictions.json`` beside them sums them up and says what they were made from.

Blocks of networks are kept in a hidden folder as they are done, so that work that was cut off can be resumed. In the end they are
joined there to whole tables, which are then moved out one after the other, and predictions.json last: with it the work is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convergent.errors import InputError, expect
from convergent.storage.files import discard_folder, read_json, remove_parts, sync_folder, whole_file, write_json
from convergent.storage.fingerprint import Inputs, require_same
from convergent.storage.lock import owned
from convergent.tasks.folder import ENDINGS, Block, Schema, find_table
from convergent.tasks.stream import ROWS, stream_folder
from convergent.training.evaluate import Certificate, Tally, Trained, schema_of
from convergent.training.run import MODEL

if TYPE_CHECKING:
    import pandas
    from torch import Tensor

TABLES = ("predictions", "graphs")
WORK, JOB, SUMMARY = ".unfinished", "job.json", "predictions.json"


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
        InputError: a table is not what the model was trained on or has changed since the work was started, another process works
            in ``out``, or it holds something already.
    """
    expect(ending in ENDINGS, "ending", f"one of {ENDINGS}", repr(ending))
    file, out, tables = _model_file(Path(model)), Path(out), [find_table(Path(folder), name) for name in ("nodes", "edges")]
    trained = Trained.load(file, device)
    schema = schema_of(trained)
    inputs = Inputs([file, *tables])
    with owned(out):
        work = out / WORK
        _begin(out, {"inputs": inputs.fingerprints, "format": ending, "rows": rows}, resume)
        if not (out / SUMMARY).exists():
            if not (work / SUMMARY).exists():
                try:
                    blocks = _blocks(trained, stream_folder(folder, schema, rows), work, ending, report)
                    inputs.require_unchanged(str(out), "predict them again")
                except InputError as error:
                    if not isinstance(error.__cause__, OSError):  # only other inputs can help, and all that was done is of these
                        discard_folder(work)
                    raise
                _join(work, blocks, schema, ending)
            _publish(work, out, ending)
        if work.exists():
            discard_folder(work)
        return read_json(out / SUMMARY)["result"]


def _model_file(model: Path) -> Path:
    file = model / MODEL if model.is_dir() else model
    if not file.is_file():
        raise InputError(f"{file}: expected a model file, but there is none")
    return file


def _begin(out: Path, job: dict[str, Any], resume: bool) -> None:
    """Make the folder for unfinished work, or see that what was left is of the same work."""
    work, summary = out / WORK, out / SUMMARY
    remove_parts(out)
    unfinished = (work / JOB).exists() and not summary.exists()
    if unfinished and not resume:
        raise InputError(f"{out}: expected a new folder, but it holds unfinished predictions; resume them, or name another")
    if unfinished or (resume and summary.exists()):
        _require_same_job(out, read_json(work / JOB if unfinished else summary), job)
        return
    for name in (*(f"{table}.{ending}" for table in TABLES for ending in ENDINGS), SUMMARY):
        if (out / name).exists():
            raise InputError(f"{out}: expected a new folder, but it holds {name}")
    if work.exists():  # killed before its job was written
        discard_folder(work)
    work.mkdir()
    sync_folder(out)
    write_json(work / JOB, {"job": job})


def _require_same_job(out: Path, found: Any, job: dict[str, Any]) -> None:
    before = found.get("job") if isinstance(found, dict) else None
    if not isinstance(before, dict):
        raise InputError(f"{out}: expected predictions of this version of convergent, but it holds others; name another folder")
    require_same(str(out), before.get("inputs"), job["inputs"], "restore the files, or predict into another folder")
    for name in ("format", "rows"):
        expect(before.get(name) == job[name], str(out), f"the {name} it was started with, {before.get(name)}", job[name])


def _blocks(trained: Trained, blocks: Any, work: Path, ending: str, report: Callable[[int], None]) -> int:
    """Answer every block that is not done yet; how many there are."""
    count, schema = 0, schema_of(trained)
    remove_parts(work)
    for block in blocks:
        kept = work / f"{count}.json"
        if not kept.exists():
            answer, certificate = trained(block.batch)
            for name, table in zip(TABLES, _tables(block, answer, certificate, schema), strict=True):
                _write(table, work / f"{count}.{name}", ending)
            tally = Tally()
            tally.add({}, block.batch, certificate)
            write_json(kept, asdict(tally))  # the last of the block to be written: with it the block is done
        report(len(block.batch.x))
        count += 1
    return count


def _publish(work: Path, out: Path, ending: str) -> None:
    """Move the tables, which are whole, and what says so; after a kill some of them have been moved."""
    for name in (*(f"{table}.{ending}" for table in TABLES), SUMMARY):
        if (work / name).exists():
            (work / name).replace(out / name)
        sync_folder(out)


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
    with whole_file(path) as stream:
        if ending == "csv":
            table.to_csv(stream, index=False, header=False, mode="wb")
        else:
            table.to_parquet(stream, index=False)


def _join(work: Path, blocks: int, schema: Schema, ending: str) -> None:
    """All blocks in one table of each kind, and then the result: with it they are whole."""
    for name in TABLES:
        parts = [work / f"{index}.{name}" for index in range(blocks)]
        (_join_csv if ending == "csv" else _join_parquet)(parts, work / f"{name}.{ending}", _columns(name, schema))
    total = Tally.total(Tally(**read_json(work / f"{index}.json")) for index in range(blocks))
    result = total.to_json() | {"files": [f"{name}.{ending}" for name in TABLES]}
    write_json(work / SUMMARY, {**read_json(work / JOB), "result": result})


def _join_csv(parts: list[Path], path: Path, columns: list[str]) -> None:
    import pandas

    with whole_file(path) as stream:
        stream.write(pandas.DataFrame(columns=columns).to_csv(index=False).encode())
        for part in parts:
            stream.write(part.read_bytes())


def _join_parquet(parts: list[Path], path: Path, columns: list[str]) -> None:
    import pandas
    import pyarrow.parquet as parquet

    with whole_file(path) as stream:
        if not parts:
            pandas.DataFrame(columns=columns).to_parquet(stream, index=False)
            return
        with parquet.ParquetWriter(stream, parquet.read_schema(parts[0])) as writer:
            for part in parts:
                writer.write_table(parquet.read_table(part))
