"""Damaged files, each with a command that reads it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import torch

import damage
from case import CUT, MINE, NETWORKS, OUT, RUN, Case
from damage import Damage, cell, column, entry, garbage, heading, kept, lines, parquet, table

DEEP = "[" * 5000 + "]" * 5000
TRUNKS = {
    "empty": damage.content(""),
    "cut": damage.cut(0.6),
    "garbage": garbage(1),
    "gone": damage.gone,
    "folder": damage.folder_instead,
}
NO_JSON = {"word": "run", "list": "[]", "number": "7", "nothing": "null", "deep": DEEP, "twice": '{"task": "a", "task": "b"}'}
WRONG_CONFIG = {
    "task": (5, None, "chess", [], ""),
    "model": (5, None, "x", {}),
    **{name: ("x", 1.5, -1, [], True, None) for name in ("seed", "steps", "graphs", "validation_graphs")},
    **{name: ("x", 0, {}) for name in ("renew", "rate", "clip", "validate_every", "patience", "checkpoint_every")},
    "schedule": (1, "x"),
    "capture": ("yes", 1, None),
    "task_settings": ([], "x", {"pores": "x"}, {"colour": 1}, None),
    "model_settings": ([], 5, {"heads": "x"}, {"solver": 5}, {"heads": 99999999999}),
    "colour": (1,),
}
WRONG_RESULT = {
    "steps": ("x", None, -1), "seconds": ("x", []), "best_step": ("x", None), "validation": ([], 5, {"mse": "x"}),
    "solves": ([], None, {"a": []}), "config": ([], {}, {"task": 5, "model": "x"}),
}  # fmt: skip
WRONG_HEADER = {
    "kind": ("Magic", "os.system", "5", ""),
    "convergent": ("2", ""),
    "settings": ([], 5, {}, None),
    "settings.kind": (5, "Magic", "ScaledModel"),
    "settings.node_features": ("x", -1, 2, 10**12, None),
    "settings.node_logs": ("x", [99], [-1], [1.5]),
    "settings.flow": ("x", "source_to_target"),
    "settings.readout": ("x", "sum", 5),
    "settings.scale_answers": ("x", False),
    "settings.colour": (1,),
    "settings.settings": ([], 5, {"colour": 1}),
    "settings.settings.heads": ("x", 0, 3, 99999999999),
    "settings.settings.layers": (2, 10**6, "x"),
    "settings.settings.solver": ("5", 5, [], "Auto;tol=x", "os.system;a=1"),
    "settings.settings.outputs": (2, 0, "x"),
    "settings.settings.dropout": (2, "x"),
    "settings.settings.node_features": (3,),
    "extra": ([], 5, {}, None),
    "extra.config": ([], 5, {}, None, {"task": 5, "model": "x"}),
    "extra.schema": ([], 5, {}, {"nodes": [], "edges": [], "targets": []}),
    "extra.schema.targets": ([], ["a", "b"], 5, ["graph"], [5]),
    "extra.schema.nodes": ([], 5, [5], [{"name": 5}], [{"name": "x", "categories": "y"}], [{"name": "node"}]),
    "extra.schema.edges": ([], [{}], [{"name": "volume"}] * 3),
}
WRONG_CHECKPOINT = {
    "state_dict": ([], {}, "x"),
    "optimizer_states": ([], 5, [{}]), "lr_schedulers": ([], 5, [{}]), "loops": ({}, 5, {"fit_loop": 5}),
    "callbacks": ({}, 5, {"keeper": 5}, {"keeper": {}}), "callbacks.keeper.best": ("x",), "callbacks.keeper.best_step": ("x",),
    "callbacks.keeper.seconds": ([],), "global_step": ("x", -1), "random": ("x", 5), "solves": (5, {}), "worst_bound": ("x", []),
}  # fmt: skip


def _some(text: str) -> Damage:
    """All rows of the first column of features, as a decimal comma or a list would be written."""
    return column("x", text)


TABLES: dict[str, Damage] = {
    "text in a number": cell(3, "x", "wide"),
    "nothing in a number": cell(3, "x", ""),
    "nan in a number": cell(3, "x", "nan"),
    "inf in a number": cell(3, "x", "inf"),
    "beyond float32": cell(3, "x", "1e39"),
    "beyond float64": cell(3, "x", "1e999"),
    "an answer beyond float32": cell(3, "pressure", "-4e38"),
    "nothing but nan": _some("nan"),
    "nothing but inf": _some("-inf"),
    "decimal commas": lines(lambda rows: [rows[0], *(_comma(row) for row in rows[1:])]),
    "lists": _some("[1 2]"),
    "no graph": cell(3, "graph", ""),
    "no node": cell(3, "node", ""),
    "a node twice": lines(lambda rows: [*rows[:3], rows[2], *rows[3:]]),
    "an edge to nowhere": cell(3, "target", "nowhere", "edges"),
    "an edge of no graph": cell(3, "graph", "none", "edges"),
    "a negative logarithm": cell(3, "length", "-1", "edges"),
    "a surplus cell in the first row": lines(lambda rows: [rows[0], f"{rows[1]},7", *rows[2:]]),
    "a surplus cell in all rows": lines(lambda rows: [rows[0], *(f"{row},7" for row in rows[1:])]),
    "a surplus cell below": lines(lambda rows: [*rows[:4], f"{rows[4]},7", *rows[5:]]),
    "a surplus cell in edges": lines(lambda rows: [rows[0], f"{rows[1]},7", *rows[2:]], "edges"),
    "a row cut short": lines(lambda rows: [*rows[:4], rows[4].rsplit(",", 2)[0], *rows[5:]]),
    "a column twice": lines(lambda rows: [rows[0].replace("y", "x"), *rows[1:]]),
    "a column without a name": lines(lambda rows: [rows[0].replace("y", ""), *rows[1:]]),
    "an empty row for a header": lines(lambda rows: ["", *rows]),
    "no header": lines(lambda rows: rows[1:]),
    "an open quote": cell(3, "x", '"1'),
    "no nodes table": table(damage.gone),
    "no edges table": table(damage.gone, "edges.csv"),
    "empty": table(damage.content("")),
    "garbage": table(garbage(2)),
    "another encoding": lambda folder: damage.void((folder / "nodes.csv").write_text((folder / "nodes.csv").read_text(), "utf-16")),
    "a folder instead": table(damage.folder_instead),
    "both formats": lambda folder: damage.void(shutil.copy(folder / "nodes.csv", folder / "nodes.parquet")),
    "Parquet with twin columns": parquet(lambda read: read.append_column("x", read["x"])),
    "Parquet with a list": parquet(lambda read: read.set_column(2, "x", [[[1.0]] * len(read)])),
    "Parquet with bytes": parquet(lambda read: read.set_column(2, "x", [[b"1"] * len(read)])),
    "Parquet with gaps": parquet(lambda read: read.set_column(2, "x", [[None] * len(read)])),
    "Parquet, cut": lambda folder: [parquet(lambda read: read)(folder), damage.cut(0.5)(folder / "nodes.parquet")][0],
    "Parquet, garbage": lambda folder: [parquet(lambda read: read)(folder), garbage(3)(folder / "nodes.parquet")][0],
}
UNORDERED = {
    "rows of graphs mixed": lines(lambda rows: [rows[0], rows[-1], *rows[1:-1]]),
    "edges in another order": lines(lambda rows: [rows[0], *reversed(rows[1:])], "edges"),
}


def _comma(row: str) -> str:
    cells = row.split(",")
    cells[2] = f'"{cells[2].replace(".", ",") if "." in cells[2] else "1,5"}"'
    return ",".join(cells)


def cases() -> Iterator[Case]:
    """Damaged files, each with a command that reads it."""
    for place, reads in (
        (f"{CUT}/config.json", ("train", "--resume", f"/{CUT}")),
        (f"{RUN}/result.json", ("train", "--resume", f"/{RUN}")),
    ):
        for name, each in {**TRUNKS, **{key: damage.content(text) for key, text in NO_JSON.items()}}.items():
            if not (place.endswith("result.json") and name == "gone"):  # then the run goes on
                yield Case(reads, place, each, name)
        for name, values in (WRONG_CONFIG if place.endswith("config.json") else WRONG_RESULT).items():
            yield from (
                Case(reads, place, entry(name, value), f"{name} {json.dumps(value)}") for value in values if not _fine(name, value)
            )
    for name in ("task", "model"):
        yield Case(("train", "--resume", f"/{CUT}"), f"{CUT}/config.json", damage.without(name), f"no {name}")
    yield from _models()
    yield from _checkpoints()
    described = ("data", "folder", "--data", f"/{NETWORKS}", "--target", "pressure", "--set", "logs=length")
    yield from (Case(described, NETWORKS, each, name) for name, each in TABLES.items())
    answer = ("predict", f"/{MINE}", f"/{NETWORKS}", "--out", f"/{OUT}")
    yield from (Case(answer, NETWORKS, each, name) for name, each in {**TABLES, **UNORDERED}.items() if "answer" not in name)
    tested = ("evaluate", f"/{MINE}", "--data", f"/{NETWORKS}")
    yield from (Case(tested, NETWORKS, each, name) for name, each in UNORDERED.items())


def _fine(name: str, value: object) -> bool:
    """None is a default for some."""
    return name in ("renew", "clip", "patience") and value is None


def _models() -> Iterator[Case]:
    file, reads = f"{MINE}/model.safetensors", ("predict", f"/{MINE}", f"/{NETWORKS}", "--out", f"/{OUT}")
    yield from (Case(reads, file, each, name) for name, each in TRUNKS.items())
    for name, values in WRONG_HEADER.items():
        yield from (Case(reads, file, heading(name, value), f"{name} {json.dumps(value)}") for value in values)
    first = "answers.mean"
    yield Case(reads, file, damage.weights(lambda found: found.update({first: found[first] * float("nan")})), "nan")
    yield Case(reads, file, damage.weights(lambda found: found.update({first: found[first].long()})), "whole numbers")
    yield Case(reads, file, damage.weights(lambda found: found.update({first: torch.ones(7)})), "another shape")
    yield Case(reads, file, damage.weights(lambda found: damage.void(found.pop(first))), "a weight missing")
    yield Case(reads, file, damage.weights(lambda found: found.update(more=torch.ones(1))), "a weight more")
    yield Case(reads, file, damage.pickled, "code")
    yield Case(("train", "--resume", f"/{RUN}"), f"{RUN}/model.safetensors", damage.gone, "gone, of a finished run")
    yield Case(("train", "--resume", f"/{CUT}"), f"{CUT}/model.safetensors", damage.gone, "gone, of one that was cut off")


def _checkpoints() -> Iterator[Case]:
    file, reads = f"{CUT}/checkpoint.pt", ("train", "--resume", f"/{CUT}")
    yield from (Case(reads, file, each, name) for name, each in TRUNKS.items() if name != "gone")  # then it starts again
    yield from (Case(reads, file, damage.flipped(seed, 200), f"bits flipped {seed}") for seed in range(3))
    for name, each in {
        "code": damage.pickled,
        "a zip": damage.zipped,
        "a list": damage.saved([1]),
        "shapes": damage.other_shapes,
    }.items():
        yield Case(reads, file, each, name)
    yield Case(reads, file, damage.saved({"state_dict": {}}), "next to nothing")
    for name, values in WRONG_CHECKPOINT.items():
        if "." not in name:
            yield Case(reads, file, kept(name, None), f"no {name}")
        yield from (Case(reads, file, kept(name, value), f"{name} {value!r}") for value in values)
