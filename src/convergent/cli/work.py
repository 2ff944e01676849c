"""What the commands do, and what they print."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console
from rich.table import Table

from convergent.cli.device import usable
from convergent.cli.words import plain
from convergent.errors import InputError, expect
from convergent.settings import parse_json, settings_of
from convergent.tasks.folder import ENDINGS, write_folder
from convergent.tasks.stream import count_nodes
from convergent.training import evaluate as evaluating
from convergent.training import predict as predicting
from convergent.training.config import TrainConfig
from convergent.training.models import CLASSIFICATION, FEATURES, FOLDER, MODELS, PORES, VALUE_ITERATION, find
from convergent.training.problem import TEST, Problem, Stored
from convergent.training.provenance import provenance
from convergent.training.run import CONFIG

# Settings with an option of their own, and the task they belong to.
OPTIONS = {"path": ("--data", FOLDER), "targets": ("--target", FOLDER), "data_root": ("--data-root", CLASSIFICATION)}
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
    made = Table(title=plain(title, "bold"), title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        text = all(isinstance(row[index], str) for row in rows)
        made.add_column(plain(column), justify="left" if text else "right", overflow="fold")
    for row in rows:
        made.add_row(*(plain("" if cell is None else cell if isinstance(cell, str) else number(cell)) for cell in row))
    return made


def tell(text: str) -> None:
    """A line for the user, which names files and commands as they are."""
    err.print(plain(text), soft_wrap=True)


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
        return parse_json(text)
    except InputError:
        return [_value(part) for part in text.split(",")] if "," in text else text


def task_settings(
    task: str | None, pairs: list[str] | None, data: Path | None, target: list[str] | None, data_root: Path | None
) -> dict[str, Any]:
    """The settings of the task, from --set and from the options that belong to one task only."""
    paths = {"path": data, "data_root": data_root}
    options = {"targets": target, **{name: None if path is None else str(path) for name, path in paths.items()}}
    given = {name: value for name, value in options.items() if value is not None}
    settings = parse(pairs, "--set")
    for name in given:
        option, owner = OPTIONS[name]
        expect(task is None or task == owner, option, f"none with task {task}, as it belongs to task {owner}", given[name])
        expect(name not in settings, option, f"no --set {name}= beside it", "both")
    return {name: _from_anywhere(name, value) for name, value in {**settings, **given}.items()}


def _from_anywhere(name: str, value: Any) -> Any:
    """A run goes on with its data wherever it is resumed from."""
    return str(Path(value).absolute()) if name in ("path", "data_root") and isinstance(value, str) and value else value


def required(task: str, settings: dict[str, Any]) -> None:
    """The settings that a task cannot do without, by the option or setting that gives them."""
    kind = Problem.kinds[task].settings_kind
    for name, setting in settings_of(kind).items():
        if setting.required and not settings.get(name):
            option = OPTIONS.get(name, (f"--set {name}=...",))[0]
            raise InputError(f"{option}: expected {described(kind)[name]} (required by task {task}), but got none")


# --- commands ---


def train(
    given: dict[str, Any] | None, folder: Path | None, resume: bool, device: str, devices: int, nodes: int, as_json: bool
) -> None:
    from convergent.training.train import train as run

    config = None if given is None else _config(given)
    if folder is None:
        assert config is not None
        folder = Path("runs") / f"{config.task}-{re.sub(r'[^a-z0-9-]', '', config.model.lower())}-{config.seed}"
    accelerator = {"cpu": "cpu", "cuda": "gpu"}[usable(device, devices)]
    try:
        result = run(config, folder, resume, accelerator, devices, not as_json, nodes)
    except KeyboardInterrupt:
        saved = f"the run is saved. Continue it with: convergent train --resume {quote(str(folder))}"
        begun = (folder / CONFIG).exists()
        tell(f"stopped; {saved if begun else 'nothing was done yet'}")
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
    required(task, given["task_settings"])
    model = find(DEFAULT_MODELS[task] if given["model"] is None else given["model"], task).name
    return TrainConfig(**{**given, "model": model})


def evaluate(
    model: Path, data: Path | None, graphs: int, seed: int | None, changes: dict[str, Any], device: str, as_json: bool
) -> None:
    trained = evaluating.Trained.load(model, usable(device))
    with err.status("testing"):
        if data is not None:
            result = evaluating.evaluate_folder(trained, data)
        else:
            _keep_held_out(trained.config.task, changes, seed)
            problem = trained.problem(changes, seed)
            result = evaluating.evaluate(trained, problem, evaluating.unseen(problem, graphs))
            result |= {"task_settings": problem.config.task_settings, "seed": problem.config.seed}
    rows = [(name, value, result["std"][name]) for name, value in result["measures"].items()]
    rows += [(name.replace("_", " "), value, None) for name, value in result["solves"].items()]
    title = f"{trained.config.model} on {result['graphs']} graphs, {result['nodes']:,} nodes"
    found = {"model": str(model), **result, "training": trained.config.to_json(), **provenance()}
    show(found, as_json, table(title, ("measure", "mean", "std over graphs"), rows))


def _keep_held_out(task: str, changes: dict[str, Any], seed: int | None) -> None:
    """A model is never tested on graphs it was trained on: what divides a fixed set stays as it was."""
    if not issubclass(Problem.kinds.get(task, Problem), Stored):
        return
    expect(seed is None, "--seed", f"none for a model of task {task}, as the graphs held out follow from its own", seed)
    for name in changes:
        expect(name in ("path", "data_root"), "--set", f"path or data_root for a model of task {task}", repr(name))


def predict(model: Path, folder: Path, target: Path, ending: str, resume: bool, device: str, as_json: bool) -> None:
    from convergent.training.progress import bar

    progress = bar(err)
    progress.start()
    try:
        task = progress.add_task("nodes", total=count_nodes(folder))
        result = predicting.predict(
            model, folder, target, ending, resume, usable(device), report=lambda nodes: progress.advance(task, nodes)
        )
    except KeyboardInterrupt:
        progress.stop()
        paths = f"{quote(str(model))} {quote(str(folder))} --out {quote(str(target))}"
        command = f"convergent predict {paths} --format {ending} --resume"
        tell(f"stopped; finished predictions are saved. Continue with: {command}")
        raise
    except BaseException:
        progress.live.transient = True  # what was refused leaves one line, and no bar
        progress.live.stop()
        raise
    progress.stop()
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
    show(rows, as_json, *(models_table(name, rows) for name in known if task in (None, name)))


def models_table(task: str, rows: Sequence[dict[str, Any]]) -> Table:
    """The models of one task. The paper prints no parameters for pores; those of classification depend on the data set."""
    shown = [name for name in ("parameters", "paper") if any(row["task"] == task and row[name] for row in rows)]
    headings = {"parameters": "parameters", "paper": "in the paper"}
    columns = ["model", "class", *(headings[name] for name in shown)]
    cells = [(row["name"], row["kind"], *(row[name] for name in shown)) for row in rows if row["task"] == task]
    return table(f"{task} (default {DEFAULT_MODELS[task]})", columns, cells)


TASKS = {
    VALUE_ITERATION: "the value of each state of a random decision process",
    PORES: "the pressure in each pore of a random pore network",
    CLASSIFICATION: "the class of each graph of a public data set",
    FOLDER: "your own networks, from two tables, nodes and edges",
}


def tasks(as_json: bool) -> None:
    rows = [{"name": name, "about": about, "settings": defaults(name)} for name, about in TASKS.items()]
    show(rows, as_json, *(task_table(name, about) for name, about in TASKS.items()))


def defaults(task: str) -> dict[str, Any]:
    """Names and defaults of the task's settings; None where there is no default."""
    found = settings_of(Problem.kinds[task].settings_kind)
    return {name: None if setting.required else setting.default for name, setting in found.items()}


def task_table(task: str, about: str) -> Table:
    """The settings of a task as they are typed, with their defaults and what they mean."""
    kind = Problem.kinds[task].settings_kind
    words, cells = described(kind), []
    for name, setting in settings_of(kind).items():
        option = OPTIONS[name][0] if name in OPTIONS else f"--set {name}="
        cells.append((option, "(required)" if setting.required else typed(setting.default), words[name]))
    return table(f"{task}: {about}", ("setting", "default", "meaning"), cells)


def typed(value: Any) -> str:
    """A default in the form in which --set takes it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def described(kind: type) -> dict[str, str]:
    """What the docstring of a settings class says of each of its arguments."""
    found = re.findall(r"^ +(\w+): (.*(?:\n {12,}.*)*)$", kind.__doc__ or "", re.MULTILINE)
    return dict.fromkeys(settings_of(kind), "") | {name: " ".join(text.split()).rstrip(".") for name, text in found}


def data(task: str, settings: dict[str, Any], target: Path | None, graphs: int, seed: int, ending: str, as_json: bool) -> None:
    config = _config({"task": task, "model": None, "seed": seed, "task_settings": settings})
    expect(ending in ENDINGS, "--format", f"one of {', '.join(ENDINGS)}", repr(ending))
    problem = Problem.of(config)
    found: dict[str, Any]
    if isinstance(problem, Stored):
        expect(target is None, "--out", f"nothing, as {task} is read and not generated", str(target))
        sizes = {"training graphs": len(problem.training), "held out": len(problem.validation)}
        every = [*problem.training, *problem.validation]
        batchwise = {"nodes": sum(len(graph.x) for graph in every), "edges": sum(graph.edge_index.shape[1] for graph in every)}
        found = {**sizes, **batchwise, "node features": every[0].x.shape[1], "edge features": every[0].edge_attr.shape[1]}
    else:
        if target is None:
            raise InputError("--out: expected a folder for the tables, but got none")
        for name in (f"{table}.{each}" for table in ("nodes", "edges") for each in ENDINGS):
            expect(not (target / name).exists(), "--out", "a new folder", f"{target}, which holds {name}")
        batch = problem.batch(TEST, 0, graphs)
        assert problem.schema is not None
        write_folder(target, batch, problem.schema, ending)
        found = {"graphs": graphs, "nodes": len(batch.x), "edges": batch.edge_index.shape[1], "folder": str(target)}
    show(found, as_json, table(task, ("", ""), list(found.items())))
