"""Activations in numpy's long double, 64 bits of mantissa on x86; where it is no more than float64 fewer systems are verified."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Long = NDArray[np.longdouble]
LONG_EPS = float(np.finfo(np.longdouble).eps)
TERMS = 220  # of the series of erf, up to where it is one


def _sigmoid(z: Long) -> Long:
    small = np.exp(-np.abs(z))
    found: Long = np.where(z >= 0, np.longdouble(1), small) / (1 + small)
    return found


def _softplus(z: Long) -> Long:
    return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))


def _erf(z: Long) -> Long:
    """2 / sqrt(pi) exp(-z^2) sum 2^n z^(2n+1) / (2n+1)!!, whose terms have one sign."""
    t = np.minimum(np.abs(z), np.longdouble(6.8))
    term = t.copy()
    total = t.copy()
    for n in range(1, TERMS):
        term = term * (2 * t * t / (2 * n + 1))
        total = total + term
    found: Long = np.sign(z) * np.minimum(total * np.exp(-t * t) * 2 / np.sqrt(np.longdouble(np.pi)), 1)
    return found


def _gelu(z: Long) -> Long:
    found: Long = z * (1 + _erf(z / np.sqrt(np.longdouble(2)))) / 2
    return found


LONG: dict[str, Callable[[Long], Long]] = {
    "identity": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, np.longdouble(0.01) * z),  # the float64 nearest to 0.01, as torch has it
    "tanh": np.tanh,
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "softsign": lambda z: z / (1 + np.abs(z)),
    "silu": lambda z: z * _sigmoid(z),
    "mish": lambda z: z * np.tanh(_softplus(z)),
    "gelu": _gelu,
}

TORCH: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda z: z,
    "relu": functional.relu,
    "leaky_relu": functional.leaky_relu,
    "tanh": torch.tanh,
    "elu": functional.elu,
    "softsign": functional.softsign,
    "silu": functional.silu,
    "mish": functional.mish,
    "gelu": functional.gelu,
}

# The largest slope, and the largest change of slope per unit; None: the slope jumps at zero.
SLOPES = {"identity": 1.0, "relu": 1.0, "leaky_relu": 1.0, "tanh": 1.0, "elu": 1.0, "softsign": 1.0}
SLOPES |= {"silu": 1.0998394, "mish": 1.0884982, "gelu": 1.1289042}
BENDS: dict[str, float | None] = {"identity": 0.0, "relu": None, "leaky_relu": None, "tanh": 0.8, "elu": 1.0, "softsign": 2.0}
BENDS |= {"silu": 0.6, "mish": 0.7, "gelu": 0.9}


def slope(name: str, z: Tensor) -> Tensor:
    """By torch's own autograd, in float64."""
    with torch.enable_grad():
        inner = z.detach().double().requires_grad_()
        (gradient,) = torch.autograd.grad(TORCH[name](inner).sum(), inner)
    return gradient
