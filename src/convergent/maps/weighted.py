"""What maps with one weight per edge and one bias per node share: phi(W x + b), where phi may be the identity."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from convergent.errors import expect
from convergent.graph import Graph, Subset
from convergent.kernels import backend
from convergent.kernels.activations import ACTIVATIONS
from convergent.kernels.arguments import expect_flags, expect_matrix
from convergent.maps.base import PRECISE, FixedPointMap, check_contraction, checked, finite, measure_contraction


class WeightedMap(FixedPointMap):
    """The base of ``LinearMap`` and ``ActivatedMap``.

    Weights and biases that are changed in place, as an optimizer does, are measured again before they are used: torch counts
    the versions of a tensor. Tensors made in ``torch.inference_mode`` have no such counter, nor does it see changes through
    ``.data`` or numpy: after these, make a new map.
    """

    weight: Tensor  # [E, H]
    bias: Tensor  # [N, H]
    activation: str
    _contraction: Tensor
    _magnitude: Tensor | None = None
    _measured: tuple[int | None, int | None] | None  # the versions that the contraction is of; None: a compiler made the map

    def __init__(self, graph: Graph, weight: Tensor, bias: Tensor, activation: str):
        expect(activation in ACTIVATIONS, "activation", f"one of {', '.join(ACTIVATIONS)}", repr(activation))
        expect(isinstance(graph, Graph), "graph", "a Graph", type(graph).__name__)
        self.graph, self.norm, self.activation = graph, "max", activation
        self.weight = checked("weight", weight, graph.num_edges, None, None, graph.device, stored=True)
        like = None if self.weight.dtype == torch.bfloat16 else self.weight
        self.bias = checked("bias", bias, graph.num_nodes, self.weight.shape[1], like, graph.device)
        self._measure()

    @property
    def contraction(self) -> Tensor:
        if self._measured == self._versions():
            return self._contraction
        if torch.compiler.is_compiling():  # a map from outside: measured in every call, and left as it is
            return self._measurement()
        self._measure()
        return self._contraction

    @contraction.setter
    def contraction(self, value: Tensor) -> None:
        self._contraction = value

    def _versions(self) -> tuple[int | None, int | None] | None:
        if torch.compiler.is_compiling():
            return None
        weight, bias = self.weight, self.bias  # twice ``version``, without its calls: this is asked for in every solve
        return None if weight.is_inference() else weight._version, None if bias.is_inference() else bias._version

    def _measure(self) -> None:
        self._contraction = self._measurement()
        self._measured, self._magnitude = self._versions(), None

    def _measurement(self) -> Tensor:
        """The contraction of the weights as they are now."""
        graph, bias = self.graph, self.bias
        if self.norm == "one":  # W^T in the 1-norm contracts as W does in the max norm; a gradient may be anything
            graph, bias = graph.transpose(), bias[:0]
        return measure_contraction(graph, self.weight, bias, ACTIVATIONS[self.activation].lipschitz, self.linear)

    def parameters(self) -> tuple[Tensor, ...]:
        return self.weight, self.bias

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in; weights may be stored in bfloat16."""
        return self.bias.dtype

    def verify(self) -> None:
        if self.bias.is_cuda and self.norm == "max":  # the gradient an adjoint starts from may be anything
            check_contraction(self.contraction, self.bias.detach(), self.graph, self.weight.detach() if self.linear else None)

    def verify_numbers(self) -> None:
        finite("weight", self.weight)
        finite("bias", self.bias)

    def _restore(self, parameters: list[Tensor], settings: str) -> None:
        self.weight, self.bias = parameters
        self.activation = settings or "identity"
        self._measured = self._versions()

    def expect_shapes(self) -> None:
        graph, device, weight, bias = self.graph, self.graph.row.device, self.weight, self.bias
        expect_matrix("bias", bias, graph.num_nodes, "heads", device)
        expect_matrix("weight", weight, graph.num_edges, bias.shape[1], device)
        if weight.dtype != bias.dtype or bias.dtype not in PRECISE:
            expect(bias.dtype in PRECISE, "bias", "torch.float32 or torch.float64", bias.dtype)
            expect(weight.dtype == torch.bfloat16, "bias", f"{weight.dtype}, as the weight has", bias.dtype)
        self.expect_graphs("contraction", self._contraction)

    @property
    def heads(self) -> int:
        return self.bias.shape[1]

    def restrict(self, subset: Subset, keep: Tensor) -> Self:
        expect_flags("keep", keep, self.graph.num_graphs, self.device)
        parts = [self.weight[subset.edges], self.bias[subset.nodes]]
        return type(self)._assemble(subset.graph, parts, self.contraction[keep], self.norm, self.settings())

    def at_zero(self) -> Tensor:
        return ACTIVATIONS[self.activation].function(self.bias)

    def magnitude(self) -> Tensor:
        if self._magnitude is None or self._measured != self._versions():
            self._magnitude = self.size(self.bias)
        return self._magnitude

    def defect(self, x: Tensor) -> Tensor:
        self.expect_nodes("x", x)
        return backend(x).defect(self.graph.rows, self.weight, self.bias, x, self.activation)

    def sweep(self, x: Tensor, goal: Tensor, limit: int) -> tuple[Tensor, Tensor]:
        self.expect_nodes("x", x)
        self.expect_graphs("goal", goal)
        expect(x.dtype == self.dtype, "x", f"{self.dtype}, as the map has", x.dtype)
        structure = (self.graph.rows, self.graph.segments)
        operator = (self.weight, self.bias, x, self.activation, self.norm)
        return backend(x).picard(*structure, *operator, self.contraction, goal, limit)

    def as_dense(self) -> Tensor:
        """W of every head, [H, N, N]."""
        size = self.graph.num_nodes
        matrix = self.bias.new_zeros(size, size, self.heads)
        index = (self.graph.row.long(), self.graph.column.long())
        return matrix.index_put(index, self.weight.to(self.dtype), accumulate=True).permute(2, 0, 1)
