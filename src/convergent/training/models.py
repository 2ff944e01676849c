"""Every named model of the paper: how it is built, and how many parameters the paper gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from convergent.baselines import GNN, IGNN, SSE  # noqa: F401  (they register themselves as kinds of model)
from convergent.errors import expect
from convergent.nn.model import GraphModel
from convergent.nn.solver import ConvergentGraphSolver  # noqa: F401

VALUE_ITERATION, PORES, CLASSIFICATION, FOLDER = "value-iteration", "pore-networks", "classification", "folder"
FEATURES = {VALUE_ITERATION: (1, 1), PORES: (7, 3)}  # nodes and edges; a data set of graphs brings its own


@dataclass(frozen=True)
class Named:
    """A model of the paper on one of its tasks.

    Attributes:
        name: as the paper writes it.
        task: which of the three.
        kind: the class.
        settings: its arguments but for the numbers of features.
        parameters: as printed in the paper; None where it prints none.
    """

    name: str
    task: str
    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    parameters: int | None = None

    def build(self, node_features: int | None = None, edge_features: int | None = None, **changes: Any) -> GraphModel:
        """The model, untrained; the numbers of features are those of the task unless given."""
        known = FEATURES.get(self.task, (node_features, edge_features))
        nodes, edges = (
            (known[0] if node_features is None else node_features),
            (known[1] if edge_features is None else edge_features),
        )
        expect(nodes is not None and edges is not None, "node_features", f"the number of features of {self.task}", None)
        return GraphModel.rebuild(self.kind, {"node_features": nodes, "edge_features": edges, **self.settings, **changes})


CGS = "ConvergentGraphSolver"
_DEEP = {"layers": 4, "hidden": [128]}  # of value iteration; the text calls it three layers, its parameters say four
_SETTLES = {"gain": 0.9, "damping": 1.0}  # of SSE: the original does not converge
_GRAPH = {"layers": 2, "hidden": [128], "readout": "sum"}  # of classification


def _value_iteration() -> list[Named]:
    def model(name: str, count: int, kind: str = CGS, **settings: Any) -> Named:
        return Named(name, VALUE_ITERATION, kind, {**_DEEP, **settings}, count)

    counts = {8: 254_869, 16: 258_469, 32: 265_669, 64: 280_069}
    by_layers = {1: 10_786, 2: 93_347, 3: 175_908, 4: 258_469}
    return [
        *(model(f"CGS({heads})", count, heads=heads) for heads, count in counts.items()),
        *(model(f"nl-CGS({heads})", count, heads=heads, nonlinearity="leaky_relu") for heads, count in counts.items()),
        *(model(f"Fixed B CGS({heads})", counts[heads] + heads, heads=heads, fixed_bias=True) for heads in (16, 32, 64)),
        *(model(f"{layers}-CGS(16)", count, heads=16, layers=layers) for layers, count in by_layers.items()),
        model("IGNN", 268_006, "IGNN"),
        Named("SSE", VALUE_ITERATION, "SSE", dict(_SETTLES), 43_521),
    ]


def _pore_networks() -> list[Named]:
    return [
        *(Named(f"CGS({heads})", PORES, CGS, {"heads": heads}) for heads in (4, 8, 16)),
        *(Named(f"GNN({layers})", PORES, "GNN", {"layers": layers}) for layers in range(1, 9)),
        Named("IGNN", PORES, "IGNN"),
        Named("SSE", PORES, "SSE", dict(_SETTLES)),
    ]


def _classification() -> list[Named]:
    return [
        *(Named(f"CGS({heads})", CLASSIFICATION, CGS, {"heads": heads, **_GRAPH}) for heads in (1, 4, 8, 16, 32)),
        Named("IGNN", CLASSIFICATION, "IGNN", dict(_GRAPH)),
    ]


MODELS = (*_value_iteration(), *_pore_networks(), *_classification())


def find(name: str, task: str) -> Named:
    """A model by the paper's name and the task, in any case and spacing; for the user's own networks those for pores."""
    tasks = sorted({FOLDER, *(model.task for model in MODELS)})
    expect(task in tasks, "task", f"one of {', '.join(tasks)}", repr(task))
    task = PORES if task == FOLDER else task
    wanted = _folded(name)
    names = {_folded(model.name): model for model in MODELS if model.task == task}
    expect(wanted in names, "model", f"one of {', '.join(model.name for model in names.values())}", repr(name))
    return names[wanted]


def _folded(name: str) -> str:
    return name.replace(" ", "").lower()
