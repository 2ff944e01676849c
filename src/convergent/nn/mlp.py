"""Perceptrons, by the sizes of their layers and the name of their activation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Protocol, cast

from torch import Tensor, nn

from convergent.errors import InputError, expect
from convergent.kernels.activations import ACTIVATIONS


class Activation(nn.Module):
    """An activation by name."""

    def __init__(self, name: str):
        super().__init__()
        expect(name in ACTIVATIONS, "activation", f"one of {', '.join(ACTIVATIONS)}", repr(name))
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.name].function(x)

    def extra_repr(self) -> str:
        return self.name


class Divisible(Protocol):
    """A layer whose answer is a sum over parts of its inputs."""

    def part(self, x: Tensor, begin: int, bias: bool = False) -> Tensor:
        """What it makes of some of its inputs, those from ``begin`` on."""


class Linear(nn.Linear):
    def part(self, x: Tensor, begin: int, bias: bool = False) -> Tensor:
        if begin < 0 or begin + x.shape[-1] > self.in_features:
            came = f"{x.shape[-1]} from {begin} on"
            raise InputError(f"x: expected columns among the {self.in_features} inputs of the layer, but got {came}")
        return nn.functional.linear(x, self.weight[:, begin : begin + x.shape[1]], self.bias if bias else None)


class MLP(nn.Sequential):
    """Linear layers with an activation, and optionally dropout, between them.

    Args:
        sizes: inputs, hidden layers, outputs: ``[3, 128, 64]`` has one hidden layer of 128.
        activation: of the hidden layers.
        last: activation of the outputs.
        dropout: probability of dropout after the hidden layers.
    """

    def __init__(self, sizes: Sequence[int], activation: str = "leaky_relu", last: str = "identity", dropout: float = 0.0):
        expect(len(sizes) >= 2 and all(size >= 1 for size in sizes), "sizes", "two or more positive numbers", list(sizes))
        layers: list[nn.Module] = []
        for index, (inputs, outputs) in enumerate(pairwise(sizes)):
            hidden = index < len(sizes) - 2
            layers.append(Linear(inputs, outputs))
            layers.append(Activation(activation if hidden else last))
            if hidden and dropout:
                layers.append(nn.Dropout(dropout))
        super().__init__(*(layer for layer in layers if not _is_identity(layer)))

    def part(self, x: Tensor, begin: int, bias: bool = False) -> Tensor:
        """What the first layer makes of some of its inputs, those from ``begin`` on: parts that cover all of them add up to it."""
        return cast(Divisible, self[0]).part(x, begin, bias)

    def rest(self, hidden: Tensor) -> Tensor:
        """The answer, from what the first layer has made of the inputs."""
        for layer in islice(self, 1, None):
            hidden = layer(hidden)
        return hidden

    def reset_parameters(self) -> None:
        for layer in self:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()


def _is_identity(layer: nn.Module) -> bool:
    return isinstance(layer, Activation) and layer.name == "identity"
