"""What the commands do, and what they print."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from convergent.cli.device import usable
from convergent.errors import InputError, expect
from convergent.tasks.folder import ENDINGS, write_folder
from convergent.tasks.stream import count_nodes
from convergent.training import evaluate as evaluating
from convergent.training import predict as predicting
from convergent.training.config import TrainConfig
from convergent.training.models import CLASSIFICATION, FEATURES, FOLDER, MODELS, PORES, VALUE_ITERATION, find
from convergent.training.problem import TEST, Problem, Stored
from convergent.training.provenance import provenance

DEFAULT_MODELS = {VALUE_ITERATION: "CGS(64)", PORES: "CGS(8)", CLASSIFICATION: "CGS(16)", FOLDER: "CGS(8)"}

out, err = Console(), Console(stderr=True)


def show(result: Any, as_json: bool, *tables: Table) -> None:
    """JSON for machines, tables for people."""
    if as_json:
        out.out(json.dumps(result, indent=1), highlight=False)
        return
    for table in tables:
        out.print(table)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        text = all(isinstance(row[index], str) for row in rows)
        made.add_column(column, justify="left" if text else "right", overflow="fold")
    for row in rows:
        made.add_row(*("" if cell is None else cell if isinstance(cell, str) else number(cell) for cell in row))
    return made


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


# --- settings ---


def parse(pairs: list[str] | None, option: str) -> dict[str, Any]:
    """NAME=VALUE, where a value is JSON or text, or several with commas between them."""
    found: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        expect(bool(equals) and bool(name), option, "NAME=VALUE", repr(pair))
        expect(name not in found, option, f"{name} once", "it twice")
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [_value(part) for part in text.split(",")] if "," in text else text


def task_settings(pairs: list[str] | None, data: Path | None, target: list[str] | None, data_root: Path | None) -> dict[str, Any]:
    named = {"path": data and str(data), "targets": target, "data_root": data_root and str(data_root)}
    return {**parse(pairs, "--set"), **{name: value for name, value in named.items() if value}}


# --- commands ---


def train(
    given: dict[str, Any] | None, folder: Path | None, resume: bool, device: str, devices: int, nodes: int, as_json: bool
) -> None:
    from convergent.training.train import train as run

    config = None if given is None else _config(given)
    if folder is None:
        assert config is not None
        folder = Path("runs") / f"{config.task}-{re.sub(r'[^a-z0-9-]', '', config.model.lower())}-{config.seed}"
    accelerator = {"cpu": "cpu", "cuda": "gpu"}[usable(device)]
    try:
        result = run(config, folder, resume, accelerator, devices, not as_json, nodes)
    except KeyboardInterrupt:
        err.print(f"stopped; all steps are kept. Go on with: convergent train --resume {folder}", soft_wrap=True, highlight=False)
        raise
    rows = [(name, value) for name, value in result["validation"].items()]
    rows += [(name.replace("_", " "), value) for name, value in result["solves"].items()]
    took = f"{result['steps']} steps in {result['seconds']:.0f} s, best at {result['best_step']}"
    title = f"{result['config']['model']}, {took}: {folder}"
    show({"folder": str(folder), **result}, as_json, table(title, ("validation", ""), rows))


def _config(given: dict[str, Any]) -> TrainConfig:
    task = given["task"]
    expect(task is not None, "task", f"one of {', '.join(sorted(Problem.kinds))}, or --resume RUN", "neither")
    expect(task in Problem.kinds, "task", f"one of {', '.join(sorted(Problem.kinds))}", repr(task))
    model = find(given["model"] or DEFAULT_MODELS[task], task).name
    return TrainConfig(**{**given, "model": model})


def evaluate(
    model: Path, data: Path | None, graphs: int, seed: int | None, changes: dict[str, Any], device: str, as_json: bool
) -> None:
    trained = evaluating.Trained.load(model, usable(device))
    with err.status("testing"):
        if data is not None:
            result = evaluating.evaluate_folder(trained, data)
        else:
            problem = trained.problem(changes, seed)
            result = evaluating.evaluate(trained, problem, evaluating.unseen(problem, graphs))
            result |= {"task_settings": problem.config.task_settings, "seed": problem.config.seed}
    rows = [(name, value, result["std"][name]) for name, value in result["measures"].items()]
    rows += [(name.replace("_", " "), value, None) for name, value in result["solves"].items()]
    title = f"{trained.config.model} on {result['graphs']} graphs, {result['nodes']:,} nodes"
    found = {"model": str(model), **result, "training": trained.config.to_json(), **provenance()}
    show(found, as_json, table(title, ("measure", "mean", "std over graphs"), rows))


def predict(model: Path, folder: Path, target: Path, ending: str, resume: bool, device: str, as_json: bool) -> None:
    from convergent.training.progress import bar

    with bar(err) as progress:
        task = progress.add_task("nodes", total=count_nodes(folder))
        try:
            result = predicting.predict(
                model, folder, target, ending, resume, usable(device), report=lambda nodes: progress.advance(task, nodes)
            )
        except KeyboardInterrupt:
            progress.stop()
            command = f"convergent predict {model} {folder} --out {target} --format {ending} --resume"
            err.print(f"stopped; what was predicted is kept. Go on with: {command}", soft_wrap=True, highlight=False)
            raise
    rows = [("graphs", result["graphs"]), ("nodes", result["nodes"])]
    rows += [(name.replace("_", " "), value) for name, value in result["solves"].items()]
    title = f"{target / result['files'][0]} and {result['files'][1]}"
    show({"out": str(target), **result}, as_json, table(title, ("predicted", ""), rows))


def models(task: str | None, as_json: bool) -> None:
    from convergent.nn.model import count_parameters

    known = sorted({model.task for model in MODELS})
    expect(task is None or task in known, "--task", f"one of {', '.join(known)}", repr(task))
    rows = []
    for model in MODELS:
        if task in (None, model.task):
            here = count_parameters(model.build()) if model.task in FEATURES else None
            rows.append({"name": model.name, "task": model.task, "kind": model.kind, "parameters": here, "paper": model.parameters})
    note = "parameters; those of classification depend on the data set's features, and the paper prints none for pores"
    show(rows, as_json, table(f"Models ({note})", ("name", "task", "kind", "here", "paper"), [tuple(row.values()) for row in rows]))


TASKS = {
    VALUE_ITERATION: "the values of the states of random decision processes (section 5.2 of the paper); exact by policy iteration",
    PORES: "the pressure in random pore networks (section 5.1); exact by a sparse solve",
    CLASSIFICATION: "the class of a graph, of six public sets (section 5.3); one of ten folds",
    FOLDER: "your own networks, from tables of nodes and edges, CSV or Parquet",
}


def tasks(as_json: bool) -> None:
    rows: list[dict[str, Any]] = [{"name": name, "about": about, "settings": _settings(name)} for name, about in TASKS.items()]
    lines = [(row["name"], row["about"], ", ".join(f"{name}={value}" for name, value in row["settings"].items())) for row in rows]
    show(rows, as_json, table("Tasks", ("name", "what is learned", "settings"), lines))


def _settings(task: str) -> dict[str, Any]:
    """Names and defaults; None where there is no default."""
    from dataclasses import MISSING

    kind = Problem.kinds[task].settings_kind
    return {entry.name: None if entry.default is MISSING else entry.default for entry in fields(kind)}


def data(task: str, settings: dict[str, Any], target: Path | None, graphs: int, seed: int, ending: str, as_json: bool) -> None:
    problem = Problem.of(_config({"task": task, "model": None, "seed": seed, "task_settings": settings}))
    expect(ending in ENDINGS, "--format", f"one of {', '.join(ENDINGS)}", repr(ending))
    described: dict[str, Any]
    if isinstance(problem, Stored):
        expect(target is None, "--out", f"nothing, as {task} is read and not generated", str(target))
        sizes = {"training graphs": len(problem.training), "held out": len(problem.validation)}
        every = [*problem.training, *problem.validation]
        batchwise = {"nodes": sum(len(graph.x) for graph in every), "edges": sum(graph.edge_index.shape[1] for graph in every)}
        described = {**sizes, **batchwise, "node features": every[0].x.shape[1], "edge features": every[0].edge_attr.shape[1]}
    else:
        if target is None:
            raise InputError("--out: expected a folder for the tables, but got none")
        expect(not (target / f"nodes.{ending}").exists(), "--out", "a new folder", f"{target}, which holds nodes.{ending}")
        batch = problem.batch(TEST, 0, graphs)
        assert problem.schema is not None
        write_folder(target, batch, problem.schema, ending)
        described = {"graphs": graphs, "nodes": len(batch.x), "edges": batch.edge_index.shape[1], "folder": str(target)}
    show(described, as_json, table(task, ("", ""), list(described.items())))
