"""The certificate of an answer to x = W x + b: a bound on its error in every graph and head.

On a GPU, where every graph is small enough for one program, each of the two functions is one launch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from convergent.kernels import Accuracy, Rows, Settled, backend
from convergent.kernels.reference import UNMET


def certify(rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor, x: Tensor, norm: str, accuracy: Accuracy) -> Settled:
    """x [N, H] in float64 as the answer, in the dtype of the bias unless ``accuracy`` asks for float64.

    What is certified is the answer: by its own defect, or by that of x and the distance between the two.
    """
    if _fused(segments, x):
        from convergent.kernels import cuda_certificate

        return cuda_certificate.certify(rows, segments, weight, bias, x, norm, accuracy)
    kernels, contraction, factor = backend(bias), accuracy.contraction, accuracy.amplification
    assert factor is not None

    def size(values: Tensor) -> Tensor:
        found: Tensor = kernels.segment_reduce(values, segments, norm)
        return found

    def bounded(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        residual, length = size(kernels.defect(rows, weight, bias, values, "identity")), size(values)
        return residual, length, (residual + accuracy.unit * (contraction * length + bias_size)) * factor

    bias_size = size(bias)
    residual, length, bound = bounded(x)
    value = x if accuracy.wide else x.to(bias.dtype)
    if value.dtype != x.dtype:
        distance = size(value.double() - x)
        residual, length, own = bounded(value)
        bound = torch.fmin(own, bound + distance)
    bound = torch.where(torch.isnan(bound), torch.inf, bound)
    met = (bound <= accuracy.tol + accuracy.rtol * length) & torch.isfinite(bound)
    steps = torch.ones(len(contraction), dtype=torch.long, device=x.device)
    return Settled(value, residual, bound, (~met).to(torch.int8).mul_(UNMET), steps)


def tight(rows: Rows, segments: Tensor, weight: Tensor, v: Tensor, contraction: Tensor, unit: float) -> Tensor:
    """max(v) / min(v - |W| v) of every graph and head, [G, H]; infinite where v [N, H], in float64, proves nothing."""
    if _fused(segments, v):
        from convergent.kernels import cuda_certificate

        return cuda_certificate.tight(rows, segments, weight, v, contraction, unit)
    kernels = backend(weight.new_empty(0, dtype=v.dtype))
    slack = kernels.defect(rows, weight.abs(), torch.ones_like(v), v, "identity")  # |W| v + 1 - v
    worst = kernels.segment_reduce(slack.clamp(min=0), segments, "max")
    largest = kernels.segment_reduce(v, segments, "max")
    gap = 1 - worst - unit * (contraction * largest + 1)  # a lower bound on min(v - |W| v)
    positive = kernels.segment_reduce((~(v > 0)).double(), segments, "max") == 0
    return torch.where((gap > 0) & positive, largest / gap, torch.inf)


def _fused(segments: Tensor, x: Tensor) -> bool:
    if not x.is_cuda or backend(x).__name__ != "convergent.kernels.cuda" or not x.numel():
        return False
    from convergent.kernels import cuda

    return cuda.pieces_of(segments, cuda.PIECE).most <= 1
