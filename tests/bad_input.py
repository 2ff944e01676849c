"""Bad input for the command: lines that cannot be meant, and damaged files. ``CASES`` has them by hand, ``drawn`` by seed.

The command has to refuse each of them with one line and exit code 2, and to leave every file as it was. A file that was drawn may
happen to be fine: then the command has to do its work.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import damage
import torch
from command import convergent
from damage import Damage, cell, column, entry, flipped, garbage, heading, kept, lines, parquet, table

TINY = ("--steps", "2", "--graphs", "2", "--validation-graphs", "2", "--validate-every", "2")
PORES = ("--set", "pores=20,30")
RUN, CUT, MINE, NETWORKS, OUT = "run", "cut", "mine", "networks", "out"  # what a playground holds, and what it does not


@dataclass(frozen=True)
class Case:
    """A command, where it stands in a playground, and what was done to a file there before.

    Attributes:
        arguments: of the command; those that name something in the playground begin with a slash.
        file: what is damaged.
        hopeless: whether it has to be refused; a damage that was drawn may be harmless.
    """

    arguments: tuple[str, ...]
    file: str | None = None
    damage: Damage | None = None
    name: str = ""
    hopeless: bool = True

    def __str__(self) -> str:
        shown = " ".join(each if len(each) < 60 else f"{each[:50]}..." for each in self.arguments)
        return f"{shown} [{self.file}: {self.name}]" if self.file else shown


def playground(folder: Path) -> Path:
    """A finished run, one that was cut off, one on tables of its own, and such tables."""
    for arguments in (
        ("data", "pore-networks", "--graphs", 4, "--out", folder / NETWORKS, *PORES),
        ("train", "pore-networks", *TINY, "--out", folder / RUN, *PORES),
        (
            "train",
            "folder",
            "--data",
            folder / NETWORKS,
            "--target",
            "pressure",
            *TINY,
            "--set",
            "logs=length",
            "--out",
            folder / MINE,
        ),
    ):
        code, _, complained = convergent(*arguments)
        assert code == 0, complained
    shutil.copytree(folder / RUN, folder / CUT)
    (folder / CUT / "result.json").unlink()
    entry("steps", 4)(folder / CUT / "config.json")
    return folder


def violation(case: Case, ground: Path, scratch: Path) -> str | None:
    """What is wrong with how the command meets the case, in a copy of the playground; None: nothing."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(ground, scratch)
    if case.file is not None and case.damage is not None:
        case.damage(scratch / case.file)
    before = contents(scratch)
    try:
        code, said, complained = convergent(*(_placed(each, scratch) for each in case.arguments))
    except Exception as error:  # what would be a traceback
        return f"{type(error).__name__}: {error}"
    if code == 0 and not case.hopeless:
        return None
    if code != 2:
        return f"exit code {code}: {said}{complained}"
    if not complained.startswith("convergent: ") or complained.count("\n") != 1 or said:
        return f"expected one line, but got {said!r} and {complained!r}"
    after = contents(scratch)
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return f"left behind or changed: {', '.join(changed)}" if changed else None


def _placed(argument: str, scratch: Path) -> str:
    return str(scratch / argument[1:]) if argument.startswith("/") else argument


def contents(folder: Path) -> dict[str, str]:
    """Every file and folder by name, with its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
    return found


# --- lines that cannot be meant ---

TRAIN = ("train", "pore-networks", *TINY, "--out", f"/{OUT}")
OWN = ("train", "folder", "--data", f"/{NETWORKS}", *TINY, "--out", f"/{OUT}")
LONG, DEEP = "9" * 5000, "[" * 5000 + "]" * 5000
NUMBERS = {
    "--seed": "-1 99999999999 4294967296 1e3 x 0.5",
    "--steps": "0 -1 x 1.5 99999999999999999999",
    "--graphs": "0 -5 10000000000",
    "--validation-graphs": "0 1000000000000",
    "--renew": "0 x",
    "--rate": "0 -1 nan inf x",
    "--clip": "0 -1 nan inf",
    "--validate-every": "0",
    "--patience": "0",
    "--checkpoint-every": "0",
    "--devices": "0 100000",
    "--nodes": "0",
    "--schedule": "x linear",
    "--model": "x CGS(5) [red]",
    "--device": "abacus",
    "--data": "x",
    "--data-root": "x",
    "--target": "x",
}
PORE_SETTINGS = (
    "pores = pores= pores=x pores=1,2,3 pores=5,2 pores=50 pores=20,30.5 pores=true,false pores=null pores=NaN,1 pores=1e999,2e999 "
    "pores=10000000000,10000000000 pores=99999999999999999999,99999999999999999999 pores={} pores=[[20],[30]] pores=-20,-30 "
    "pores=20,[30 wide=x wide=1 wide=null wide=[true] generator=x generator=5 generator=null generator= colour=3 [/b]=1"
).split()
VALUE_SETTINGS = (
    "pool=1.5 pool=0 pool=x pool=true pool=10000000000 states=5,3 states=a,b states=1000000,1000000 states=20 actions=0,3 actions=60,70"
).split()
FOLD_SETTINGS = (
    ("name=x",),
    ("name=5",),
    *(("name=MUTAG", each) for each in "fold=10 fold=-1 fold=x folds_seed=-1 data_root=5".split()),
)
MODEL_SETTINGS = (
    "solver=x solver=5 solver=[1] solver=Auto;tol=x solver=Auto;tol=-1 solver=Auto;tol solver=Auto;colour=1 solver=Auto;tol=1e-3;tol=1e-4 "
    "solver=Auto;throw=maybe dropout=2 dropout=-1 dropout=x dropout=NaN heads=0 heads=x heads=99999999999 heads=1.5 heads=true "
    "heads=null layers=0 layers=1000000 width=99999999 hidden=x hidden=16 hidden=0,1 hidden=[[1]] activation=x nonlinearity=x "
    "normalization=x gamma=0 gamma=1 gamma=x readout=x readout=sum flow=x flow=source_to_target node_features=3 edge_features=1 "
    "outputs=2 fixed_bias=x decoder=-1 aggregation=x last=x colour=1 heads hidden=1000000,1000000"
).split()
IGNN_SETTINGS = "kappa=2 kappa=x tol=0 nonlinearity=silu units=0 max_iterations=0".split()
SSE_SETTINGS = "damping=0 damping=2 gain=2 aggregation=sum units=x".split()


def spoken() -> Iterator[Case]:
    """Command lines, with nothing damaged."""
    for option, values in NUMBERS.items():
        yield from (Case((*TRAIN, option, value)) for value in values.split())
    yield from (Case((*TRAIN, option, "")) for option in ("--out", "--model", "--schedule", "--device", "--set"))
    yield from (Case((*TRAIN, "--set", each)) for each in (*PORE_SETTINGS, f"pores={LONG},{LONG}", f"pores={DEEP}", "po\nres=3"))
    yield Case((*TRAIN, *PORES, *PORES))
    yield from (Case(("train", "value-iteration", *TINY, "--out", f"/{OUT}", "--set", each)) for each in VALUE_SETTINGS)
    for settings in FOLD_SETTINGS:
        yield Case(("train", "classification", *TINY, "--out", f"/{OUT}", *(part for each in settings for part in ("--set", each))))
    yield Case(("train", "classification", *TINY, "--out", f"/{OUT}", "--set", "name=MUTAG", "--data-root", "/nothing"))
    yield from (Case((*TRAIN, *PORES, "--model-set", each)) for each in MODEL_SETTINGS)
    for model, settings in (("IGNN", IGNN_SETTINGS), ("SSE", SSE_SETTINGS)):
        yield from (Case((*TRAIN, *PORES, "--model", model, "--model-set", each)) for each in settings)
    for targets in (("pressure", "pressure"), ("graph",), ("node",), ("depth",), ("",), ("pressure", "graph")):
        yield Case((*OWN, *(part for each in targets for part in ("--target", each))))
    yield from (
        Case((*OWN, "--target", "pressure", "--set", each)) for each in "logs=x logs=pressure validation=0 validation=1".split()
    )
    yield from (
        Case((*OWN, "--target", "pressure", "--set", each)) for each in "validation=x path=y logs=5 logs=length,length".split()
    )
    yield from map(Case, _elsewhere())


def _elsewhere() -> Iterator[tuple[str, ...]]:
    """Commands other than a new training."""
    yield from (
        ("train",),
        ("train", "chess"),
        ("train", "folder"),
        ("fly",),
        ("train", "--speed", "3"),
        ("predict",),
        ("train", "[/b]"),
    )
    yield from (
        ("train", "--resume", "/nothing"),
        ("train", "--resume", "/[/b]"),
        ("train", "pore-networks", "--resume", f"/{CUT}"),
    )
    for more in (("--steps", "9"), ("--set", "pores=20,30"), ("--out", f"/{OUT}"), ("--model", "CGS(8)"), ("--seed", "0")):
        yield ("train", "--resume", f"/{CUT}", *more)
    yield ("train", "pore-networks", *TINY, *PORES, "--out", f"/{RUN}")
    test = ("evaluate", f"/{RUN}")
    for more in ("--graphs 0", "--graphs x", "--seed -1", "--seed 4294967296", "--set colour=1", "--set pores=x", "--device x"):
        yield (*test, *more.split())
    yield from ((*test, "--data", "/nothing"), (*test, "--data", f"/{NETWORKS}", "--graphs", "3"), ("evaluate", "/nothing"))
    yield from ((*test, "--data", f"/{NETWORKS}", *PORES), (*test, "--data", f"/{NETWORKS}", "--seed", "3"), (*test, "--data="))
    yield from (("evaluate", f"/{MINE}", "--seed", "1"), ("evaluate", f"/{MINE}", "--set", "validation=0.5"))
    yield from (("evaluate", f"/{MINE}", "--set", "targets=volume"), ("evaluate", f"/{MINE}", "--set", "path=/nothing"))
    answer = ("predict", f"/{MINE}", f"/{NETWORKS}")
    yield from (
        (*answer, "--out", ""),
        (*answer, "--out", f"/{OUT}", "--format", "xls"),
        (*answer, "--out", f"/{OUT}", "--device", "x"),
    )
    yield from (
        ("predict", f"/{MINE}", "/nothing", "--out", f"/{OUT}"),
        ("predict", "/nothing", f"/{NETWORKS}", "--out", f"/{OUT}"),
    )
    yield ("predict", f"/{NETWORKS}/nodes.csv", f"/{NETWORKS}", "--out", f"/{OUT}")
    make = ("data", "pore-networks", "--out", f"/{OUT}", *PORES)
    yield from (
        (*make, *more.split()) for more in ("--graphs 0", "--graphs 1000000000000", "--seed -1", "--format xls", "--set pores=1")
    )
    yield from (("data", "pore-networks"), ("data", "pore-networks", "--out", f"/{NETWORKS}"), ("data", "chess"), ("data", ""))
    own = ("data", "folder", "--data", f"/{NETWORKS}", "--target", "pressure")
    yield from ((*own, "--target", "pressure"), (*own, "--out", f"/{OUT}"), ("data", "folder", "--data", f"/{NETWORKS}/nodes.csv"))
    yield from (("models", "--task", "chess"), ("reproduce", "chess"), ("reproduce", "--data-root", "/nothing", "table-1"))
    yield from (("demo", "--out", f"/{OUT}", *more.split()) for more in ("--seed -1", "--steps 0", "--device x"))


# --- damaged files ---

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
    "state_dict": ([], {}, "x"), "optimizer_states": ([], 5, [{}]), "lr_schedulers": ([], 5, [{}]), "loops": ({}, 5, {"fit_loop": 5}),
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


def files() -> Iterator[Case]:
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


CASES: tuple[Case, ...] = (*spoken(), *files())

# --- by seed ---

JUNK: tuple[object, ...] = (
    None,
    True,
    "x",
    "",
    "\x1b[31m",
    -1,
    0.5,
    float("nan"),
    float("inf"),
    10**30,
    [],
    [[]],
    {},
    {"a": 1},
    "\ud800",
    [None],
)


def drawn(seed: int, count: int) -> Iterator[Case]:
    """Damaged files at random, and junk for a random setting."""
    rng = random.Random(seed)
    doors = [
        (f"{CUT}/config.json", ("train", "--resume", f"/{CUT}")),
        (f"{RUN}/result.json", ("train", "--resume", f"/{RUN}")),
        (f"{CUT}/checkpoint.pt", ("train", "--resume", f"/{CUT}")),
        (f"{MINE}/model.safetensors", ("evaluate", f"/{MINE}", "--data", f"/{NETWORKS}")),
        (f"{NETWORKS}/nodes.csv", ("evaluate", f"/{MINE}", "--data", f"/{NETWORKS}")),
        (f"{NETWORKS}/edges.csv", ("data", "folder", "--data", f"/{NETWORKS}", "--target", "pressure")),
    ]
    for number in range(count):
        file, reads = rng.choice(doors)
        name, each = _drawn(rng, file)
        yield Case(reads, file, each, f"{name}, {number} of seed {seed}", hopeless=False)


def _drawn(rng: random.Random, file: str) -> tuple[str, Damage]:
    wrong = {
        "config.json": WRONG_CONFIG,
        "result.json": WRONG_RESULT,
        "model.safetensors": WRONG_HEADER,
        "checkpoint.pt": WRONG_CHECKPOINT,
    }
    names = wrong.get(file.rpartition("/")[2])
    if names is not None and rng.random() < 0.5:
        name, value = rng.choice(list(names)), rng.choice(JUNK)
        change = {"model.safetensors": heading, "checkpoint.pt": kept}.get(file.rpartition("/")[2], entry)
        return f"{name} {value!r}", change(name, value)
    if rng.random() < 0.2:
        return "cut", damage.cut(rng.random())
    bits = rng.choice((1, 3, 30))
    return f"{bits} bits", flipped(rng.randrange(2**32), bits)
