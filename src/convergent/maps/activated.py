"""x = phi(W x + b): a linear map followed by an activation that does not expand."""

from __future__ import annotations

import torch
from torch import Tensor

from convergent.graph import Graph
from convergent.kernels.activations import ACTIVATIONS
from convergent.maps.linear import LinearMap
from convergent.maps.weighted import WeightedMap
from convergent.operations import propagate


class ActivatedMap(WeightedMap):
    r"""The map :math:`T(x) = \phi(W x + b)`.

    It contracts by the Lipschitz constant of :math:`\phi` times the largest absolute row sum of W.

    Args:
        graph: the structure.
        weight: one number per edge and head, [E, H], in the order of the graph's ``edge_index``.
        bias: one number per node and head, [N, H].
        activation: :math:`\phi`; "relu", "leaky_relu", "tanh", "elu", "softsign" or "identity"; or "silu", "mish" or "gelu", whose
            Lipschitz constants exceed one (1.0998, 1.0885, 1.1289), so that the row sums must be smaller.

    Raises:
        ContractionError: the contraction factor is one or more.
        InputError: a shape, dtype or device does not fit, or a number is not finite.
    """

    def __init__(self, graph: Graph, weight: Tensor, bias: Tensor, activation: str = "leaky_relu"):
        super().__init__(graph, weight, bias, activation)

    def settings(self) -> str:
        return self.activation

    def _preactivation(self, x: Tensor) -> Tensor:
        return propagate(self.graph, self.weight, x) + self.bias

    def _slope(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation].derivative(self._preactivation(x))

    def __call__(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation].function(self._preactivation(x))

    def linearize(self, x: Tensor) -> LinearMap:
        # row i of the Jacobian is phi'(z_i) times row i of W
        scaled = self.weight * self._slope(x).index_select(0, self.graph.row)
        return self._as_linear(scaled, torch.zeros_like(self.bias))

    def dominating(self) -> LinearMap:
        return self._as_linear(ACTIVATIONS[self.activation].lipschitz * self.weight.abs(), torch.ones_like(self.bias))

    def _as_linear(self, weight: Tensor, bias: Tensor) -> LinearMap:
        return LinearMap._assemble(self.graph, [weight, bias], self.contraction, self.norm)

    def pullback(self, x: Tensor, cotangent: Tensor) -> tuple[Tensor, ...]:
        self.expect_nodes("cotangent", cotangent)
        linear = self._as_linear(self.weight, self.bias)
        return linear.pullback(x, self._slope(x) * cotangent)

    def pushforward(self, x: Tensor, tangents: tuple[Tensor | None, ...]) -> Tensor:
        linear = self._as_linear(self.weight, self.bias)
        return self._slope(x) * linear.pushforward(x, tangents)
