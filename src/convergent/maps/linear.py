"""x = W x + b, the map of the paper (eq. 6), for all heads at once."""

from __future__ import annotations

import torch
from torch import Tensor

from convergent.graph import Graph
from convergent.kernels import Accuracy, Settled, backend
from convergent.maps.weighted import WeightedMap
from convergent.operations import edge_product, propagate


class LinearMap(WeightedMap):
    r"""The map :math:`T(x)_{ih} = \sum_{e: i \to j} w_{eh} x_{jh} + b_{ih}`.

    It contracts by the largest absolute row sum of the weights.

    Args:
        graph: the structure.
        weight: one number per edge and head, [E, H], in the order of the graph's ``edge_index``; the absolute row sums must be
            below one. On a GPU weights in bfloat16 are kept as they are and summed in the dtype of the bias.
        bias: one number per node and head, [N, H].

    Raises:
        ContractionError: an absolute row sum is one or more.
        InputError: a shape, dtype or device does not fit, or a number is not finite.
    """

    linear = True

    def __init__(self, graph: Graph, weight: Tensor, bias: Tensor):
        super().__init__(graph, weight, bias, "identity")

    def with_bias(self, bias: Tensor) -> LinearMap:
        """The same operator with another right-hand side."""
        return self.with_parameters(self.weight, bias)

    def transpose(self, bias: Tensor | None = None, at: Tensor | None = None) -> LinearMap:
        r"""The map :math:`x \mapsto W^\top x + b`, which contracts by the same factor in the other norm.

        Args:
            bias: the bias b of the transposed map, [N, H]; zero by default.
            at: not used by linear maps.
        """
        right = torch.zeros_like(self.bias) if bias is None else bias
        norm = "one" if self.norm == "max" else "max"
        return LinearMap.restore(self.graph.transpose(), [self.weight, right], self.contraction, norm)

    def settle(self, x0: Tensor | None, keep: Tensor | None, accuracy: Accuracy) -> Settled:
        """The certified fixed point of the graphs where ``keep`` [G] is true (None: of all), in one call of the kernels."""
        kernels, graph = backend(self.bias), self.graph
        layout = graph.cached(f"layout of {kernels.__name__}", lambda: kernels.arrange(graph.rows, graph.segments))
        return kernels.settle(layout, graph.rows, graph.segments, self.weight, self.bias, x0, self.norm, keep, accuracy)

    def __call__(self, x: Tensor) -> Tensor:
        return propagate(self.graph, self.weight, x) + self.bias

    def linearize(self, x: Tensor) -> LinearMap:
        return self.with_bias(torch.zeros_like(self.bias))

    def dominating(self) -> LinearMap:
        base = self if self.norm == "max" else self.transpose()
        return base.with_parameters(self.weight.abs(), torch.ones_like(self.bias))

    def pullback(self, x: Tensor, cotangent: Tensor) -> tuple[Tensor, ...]:
        return edge_product(self.graph, cotangent, x), cotangent

    def pushforward(self, x: Tensor, tangents: tuple[Tensor | None, ...]) -> Tensor:
        weight, bias = tangents
        moved = torch.zeros_like(x) if weight is None else propagate(self.graph, weight, x)
        return moved if bias is None else moved + bias
