"""Command lines that cannot be meant."""

from __future__ import annotations

from collections.abc import Iterator

from case import CUT, MINE, NETWORKS, OUT, PORES, RUN, TINY, Case

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
PORE_SETTINGS = [
    "pores",
    "=",
    "pores=",
    "pores=x",
    "pores=1,2,3",
    "pores=5,2",
    "pores=50",
    "pores=20,30.5",
    "pores=true,false",
    "pores=null",
    "pores=NaN,1",
    "pores=1e999,2e999",
    "pores=10000000000,10000000000",
    "pores=99999999999999999999,99999999999999999999",
    "pores={}",
    "pores=[[20],[30]]",
    "pores=-20,-30",
    "pores=20,[30",
    "wide=x",
    "wide=1",
    "wide=null",
    "wide=[true]",
    "generator=x",
    "generator=5",
    "generator=null",
    "generator=",
    "colour=3",
    "[/b]=1",
]
VALUE_SETTINGS = [
    "pool=1.5",
    "pool=0",
    "pool=x",
    "pool=true",
    "pool=10000000000",
    "states=5,3",
    "states=a,b",
    "states=1000000,1000000",
    "states=20",
    "actions=0,3",
    "actions=60,70",
]
FOLD_SETTINGS = (
    ("name=x",),
    ("name=5",),
    *(("name=MUTAG", each) for each in ["fold=10", "fold=-1", "fold=x", "folds_seed=-1", "data_root=5"]),
)
MODEL_SETTINGS = [
    "solver=x",
    "solver=5",
    "solver=[1]",
    "solver=Auto;tol=x",
    "solver=Auto;tol=-1",
    "solver=Auto;tol",
    "solver=Auto;colour=1",
    "solver=Auto;tol=1e-3;tol=1e-4",
    "solver=Auto;throw=maybe",
    "dropout=2",
    "dropout=-1",
    "dropout=x",
    "dropout=NaN",
    "heads=0",
    "heads=x",
    "heads=99999999999",
    "heads=1.5",
    "heads=true",
    "heads=null",
    "layers=0",
    "layers=1000000",
    "width=99999999",
    "hidden=x",
    "hidden=16",
    "hidden=0,1",
    "hidden=[[1]]",
    "activation=x",
    "nonlinearity=x",
    "normalization=x",
    "gamma=0",
    "gamma=1",
    "gamma=x",
    "readout=x",
    "readout=sum",
    "flow=x",
    "flow=source_to_target",
    "node_features=3",
    "edge_features=1",
    "outputs=2",
    "fixed_bias=x",
    "decoder=-1",
    "aggregation=x",
    "last=x",
    "colour=1",
    "heads",
    "hidden=1000000,1000000",
]
IGNN_SETTINGS = ["kappa=2", "kappa=x", "tol=0", "nonlinearity=silu", "units=0", "max_iterations=0"]
SSE_SETTINGS = ["damping=0", "damping=2", "gain=2", "aggregation=sum", "units=x"]


def cases() -> Iterator[Case]:
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
    yield from (Case((*OWN, "--target", "pressure", "--set", each)) for each in ["logs=depth", "logs=pressure", "validation=0"])
    yield from (
        Case((*OWN, "--target", "pressure", "--set", each)) for each in ["validation=x", "path=y", "logs=5", "logs=length,length"]
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
