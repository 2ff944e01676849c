"""Activations, each with its derivative and its Lipschitz constant.

The constants of SiLU, Mish and GELU are the largest slopes, which lie above one: the map multiplies its factor by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Activation(NamedTuple):
    function: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]  # itself differentiable, so that gradients exist to any order
    lipschitz: float


SLOPE = 0.01  # of LeakyReLU below zero, torch's default


def _step(z: Tensor) -> Tensor:
    return (z > 0).to(z.dtype)


def _silu_slope(z: Tensor) -> Tensor:
    gate = torch.sigmoid(z)
    return gate * (1 + z * (1 - gate))


def _mish_slope(z: Tensor) -> Tensor:
    squashed = torch.tanh(functional.softplus(z))
    return squashed + z * torch.sigmoid(z) * (1 - squashed.square())


def _gelu_slope(z: Tensor) -> Tensor:
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return 0.5 * (1 + torch.erf(z / math.sqrt(2))) + z * density


ACTIVATIONS: dict[str, Activation] = {
    "identity": Activation(lambda z: z, torch.ones_like, 1.0),
    "relu": Activation(torch.relu, _step, 1.0),
    "leaky_relu": Activation(functional.leaky_relu, lambda z: SLOPE + (1 - SLOPE) * _step(z), 1.0),
    "tanh": Activation(torch.tanh, lambda z: 1 - torch.tanh(z).square(), 1.0),
    "elu": Activation(functional.elu, lambda z: torch.where(z > 0, 1.0, torch.exp(z.clamp(max=0))), 1.0),
    "softsign": Activation(functional.softsign, lambda z: (1 + z.abs()).pow(-2), 1.0),
    "silu": Activation(functional.silu, _silu_slope, 1.0998394),
    "mish": Activation(functional.mish, _mish_slope, 1.0884982),
    "gelu": Activation(functional.gelu, _gelu_slope, 1.1289042),
}
