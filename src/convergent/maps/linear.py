"""x = W x + b, the map of the paper (eq. 6), for all heads at once."""

from __future__ import annotations

import torch
from torch import Tensor

from convergent.errors import expect
from convergent.graph import Graph
from convergent.kernels import Accuracy, Settled, backend
from convergent.kernels.arguments import expect_flags
from convergent.maps.base import checked
from convergent.maps.weighted import WeightedMap
from convergent.operations import edge_product, propagate


class LinearMap(WeightedMap):
    r"""The map :math:`T(x)_{ih} = \sum_{e: i \to j} w_{eh} x_{jh} + b_{ih}`.

    It contracts by the largest absolute row sum of the weights where that is below one. Rows may also sum to one or more where
    elimination proves that something is lost from every node (on a GPU the solve does): then some scaling of the nodes makes all
    row sums smaller than one.

    Args:
        graph: the structure.
        weight: one number per edge and head, [E, H], in the order of the graph's ``edge_index``. On a GPU weights in
            bfloat16 are kept as they are and summed in the dtype of the bias.
        bias: one number per node and head, [N, H].

    Raises:
        ContractionError: an absolute row sum is one or more, and from some nodes nothing is lost, or elimination would be too
            expensive to find out.
        InputError: a shape, dtype or device does not fit, or a number is not finite.
    """

    linear = True

    def __init__(self, graph: Graph, weight: Tensor, bias: Tensor):
        super().__init__(graph, weight, bias, "identity")

    def with_bias(self, bias: Tensor) -> LinearMap:
        """The same operator with another right-hand side."""
        return self._with([self.weight, self._right_hand_side(bias)])

    def _right_hand_side(self, bias: Tensor) -> Tensor:
        like = None if self.weight.dtype == torch.bfloat16 else self.weight
        return checked("bias", bias, self.graph.num_nodes, self.heads, like, self.device)

    def transpose(self, bias: Tensor | None = None, at: Tensor | None = None) -> LinearMap:
        r"""The map :math:`x \mapsto W^\top x + b`, which contracts by the same factor in the other norm.

        Args:
            bias: the bias b of the transposed map, [N, H]; zero by default.
            at: not used by linear maps, whose derivative is the same everywhere.
        """
        right = torch.zeros_like(self.bias) if bias is None else self._right_hand_side(bias)
        norm = "one" if self.norm == "max" else "max"
        return LinearMap._assemble(self.graph.transpose(), [self.weight, right], self.contraction, norm)

    def settle(self, x0: Tensor | None, keep: Tensor | None, accuracy: Accuracy) -> Settled:
        """The certified fixed point of the graphs where ``keep`` [G] is true (None: of all), in one call of the kernels."""
        kernels, graph = backend(self.bias), self.graph
        if x0 is not None:
            self.expect_nodes("x0", x0)
            expect(x0.dtype == self.dtype, "x0", f"{self.dtype}, as the map has", x0.dtype)
        if keep is not None:
            expect_flags("keep", keep, graph.num_graphs, self.device)
        if accuracy.contraction is not self._contraction:
            self.expect_graphs("contraction", accuracy.contraction)
        if accuracy.amplification is not None:
            self.expect_graphs("amplification", accuracy.amplification)
        if isinstance(accuracy.tol, Tensor):
            self.expect_graphs("tol", accuracy.tol)
        layout = graph.cached(f"layout of {kernels.__name__}", lambda: kernels.arrange(graph.rows, graph.segments))
        return kernels.settle(layout, graph.rows, graph.segments, self.weight, self.bias, x0, self.norm, keep, accuracy)

    def __call__(self, x: Tensor) -> Tensor:
        return propagate(self.graph, self.weight, x) + self.bias

    def linearize(self, x: Tensor) -> LinearMap:
        self.expect_nodes("x", x)
        return self._with([self.weight, torch.zeros_like(self.bias)])

    def dominating(self) -> LinearMap:
        base = self if self.norm == "max" else self.transpose()
        weight = self.weight
        if weight.is_cuda or not bool((weight >= 0).all()):  # where none is negative, factors of this very tensor serve both
            weight = weight.abs()
        return base._with([weight, torch.ones_like(self.bias)])

    def pullback(self, x: Tensor, cotangent: Tensor) -> tuple[Tensor, ...]:
        return edge_product(self.graph, cotangent, x), cotangent

    def pushforward(self, x: Tensor, tangents: tuple[Tensor | None, ...]) -> Tensor:
        self.expect_nodes("x", x)
        weight, bias = tangents
        if bias is not None:
            self.expect_nodes("tangents", bias)
        moved = torch.zeros_like(x) if weight is None else propagate(self.graph, weight, x)
        return moved if bias is None else moved + bias
