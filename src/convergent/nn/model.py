"""What every model on graphs shares: one call, settings that rebuild it, answers per node or per graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from convergent.errors import InputError, expect
from convergent.graph import Graph
from convergent.kernels.arguments import described, expect_matrix
from convergent.nn.arguments import checked_settings, outline
from convergent.settings import shown
from convergent.solvers import Solution, Solver

READOUTS = ("sum", "mean", "max")


class Inputs(NamedTuple):
    """A graph and its features, checked."""

    graph: Graph
    nodes: Tensor  # [N, node features]
    edges: Tensor  # [E, edge features]


class GraphModel(nn.Module):
    """Base class of all models: from a graph with features to answers [N, outputs], or [G, outputs] per graph with a readout.

    A subclass keeps the arguments of its constructor in ``settings``, from which ``GraphModel.rebuild`` makes the same model.
    """

    kinds: ClassVar[dict[str, type[GraphModel]]] = {}

    settings: dict[str, Any]
    node_features: int
    edge_features: int
    flow: str
    readout: str | None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        GraphModel.kinds[cls.__name__] = cls

    def remember(self, arguments: dict[str, Any]) -> None:
        """Keep the constructor's arguments, as numbers, strings and lists."""
        hidden = ("self", "__class__")
        self.settings = {name: _plain(value) for name, value in arguments.items() if name not in hidden}
        self.node_features, self.edge_features = arguments["node_features"], arguments["edge_features"]
        self.flow, self.readout = arguments["flow"], arguments["readout"]
        expect(self.readout is None or self.readout in READOUTS, "readout", f"None or one of {READOUTS}", repr(self.readout))

    @staticmethod
    def rebuild(kind: str, settings: dict[str, Any], label: str = "settings") -> GraphModel:
        """An untrained model from the name of its class and its ``settings``.

        Raises:
            InputError: a setting is wrong, or the model would be absurdly large; ``label`` names the settings in the message.
        """
        make = GraphModel.maker(kind, settings, label)
        outline(make)
        return make()

    @staticmethod
    def maker(kind: str | None, settings: Any, label: str = "settings") -> Callable[[], GraphModel]:
        """What makes the model, once the settings are checked."""
        made = GraphModel.kinds.get(kind) if isinstance(kind, str) else None
        if made is None:
            raise InputError(f"kind: expected one of {', '.join(sorted(GraphModel.kinds))}, but got {shown(kind)}")
        return partial(made, **checked_settings(made, settings, label))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        return_solution: bool = False,
    ) -> Any:
        """The answer, and with ``return_solution`` the ``Solution`` that it was decoded from.

        Args:
            x: node features [N, F], or [N] for a single one.
            edge_index: [2, E], or a ``Graph``, which saves indexing the same edges again.
            edge_attr: edge features [E, D]; None: ones.
            batch: the graph of every node, [N]; None: one graph.
            return_solution: return (answer, solution); the solution of a model without a fixed point is None.
        """
        inputs = self.prepare(x, edge_index, edge_attr, batch)
        hidden, solution = self.embed(inputs)
        answer = self.decode(inputs.graph, hidden)
        return (answer, solution) if return_solution else answer

    decoder: nn.Module

    def decode(self, graph: Graph, hidden: Tensor) -> Tensor:
        return self.decoder(hidden if self.readout is None else pool(graph, hidden, self.readout))

    @abstractmethod
    def embed(self, inputs: Inputs) -> tuple[Tensor, Solution | None]:
        """What is decoded, [N, width], and the solution it comes from."""

    def prepare(self, x: Tensor, edge_index: Tensor | Graph, edge_attr: Tensor | None, batch: Tensor | None) -> Inputs:
        nodes = column(x)
        fits = isinstance(nodes, Tensor) and nodes.dim() == 2
        expect(fits, "x", f"a tensor of shape [nodes, {self.node_features}]", described(x))
        graph = graph_of(edge_index, len(nodes), batch, self.flow)
        expect_matrix("x", nodes, graph.num_nodes, self.node_features, graph.device)
        edges = nodes.new_ones(graph.num_edges, self.edge_features) if edge_attr is None else column(edge_attr)
        expect_matrix("edge_attr", edges, graph.num_edges, self.edge_features, graph.device)
        return Inputs(graph, nodes, edges.to(nodes.dtype))

    def forgiving(self) -> GraphModel:
        """Return the model itself, whose solves from now on report a missed tolerance in their status instead of raising."""
        for part in self.modules():
            if isinstance(solver := getattr(part, "solver", None), Solver):
                part.__dict__["solver"] = replace(solver, throw=False)
        return self

    def reset_parameters(self) -> None:
        for part in self.children():
            part.reset_parameters()  # type: ignore[operator]


def graph_of(edge_index: Tensor | Graph, nodes: int, batch: Tensor | None, flow: str) -> Graph:
    """The graph of a call, which may bring one that is indexed already."""
    if not isinstance(edge_index, Graph):
        return Graph(edge_index, nodes, batch=batch, flow=flow)
    expect(batch is None, "batch", "None where edge_index is a Graph, which knows its own", described(batch))
    return edge_index


def column(features: Any) -> Any:
    """Features [rows, columns]; [rows] is a single column."""
    return features.unsqueeze(1) if isinstance(features, Tensor) and features.dim() == 1 else features


def pool(graph: Graph, values: Tensor, readout: str) -> Tensor:
    """Per node [N, H] -> per graph [G, H]; a graph without nodes gives zeros."""
    expect(readout in READOUTS, "readout", f"one of {READOUTS}", repr(readout))
    expect_matrix("values", values, graph.num_nodes, "columns", graph.device)
    batch = graph.batch
    out = values.new_zeros(graph.num_graphs, values.shape[1])
    if readout == "max":
        index = batch.unsqueeze(1).expand_as(values)
        return out.scatter_reduce(0, index, values, "amax", include_self=False)
    total = out.index_add(0, batch, values)
    if readout == "sum":
        return total
    return total / graph.segments.diff().clamp(min=1).unsqueeze(1).to(total.dtype)


def _plain(value: Any) -> Any:
    if isinstance(value, Solver):
        return value.encoded()
    return list(value) if isinstance(value, tuple) else value


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
