"""What every contracting map offers: the solvers, certificates and gradients know maps only through this class.

A new kind of map is one new file: a subclass with its contraction, its defect, its linearisation and the two derivatives in its
parameters. Solvers that are particular to it register themselves with ``solvers.auto.suggest``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from convergent.errors import ContractionError, InputError
from convergent.factors import expect_losses
from convergent.graph import Graph, Subset, traced
from convergent.kernels import backend
from convergent.kernels.arguments import expect_matrix
from convergent.kernels.batching import fold, unfold

if TYPE_CHECKING:
    from convergent.maps.linear import LinearMap

PRECISE = (torch.float32, torch.float64)


class FixedPointMap(ABC):
    r"""A contracting map T on node values [N, H]: :math:`\lVert T(x) - T(y) \rVert \le c\, \lVert x - y \rVert` with c below one.

    The factor c is ``contraction`` [G, H], measured from the weights for every graph and head. ``norm`` says in which norm it
    holds: "max", the maximum over the nodes of a graph, or "one", the sum over them (for the adjoint).
    """

    kinds: ClassVar[dict[str, type[FixedPointMap]]] = {}
    linear: ClassVar[bool] = False

    graph: Graph
    norm: str
    contraction: Tensor  # [G, H] float64

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        FixedPointMap.kinds[cls.__name__] = cls

    @abstractmethod
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors T depends on and gradients flow to, all of one dtype, heads last."""

    @abstractmethod
    def restrict(self, subset: Subset, keep: Tensor) -> Self:
        """The map on some graphs of the batch."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """T(x), differentiable in x and in the parameters."""

    @abstractmethod
    def defect(self, x: Tensor) -> Tensor:
        """T(x) - x [N, H] in float64."""

    @abstractmethod
    def at_zero(self) -> Tensor:
        """T(0) [N, H]."""

    @abstractmethod
    def sweep(self, x: Tensor, goal: Tensor, limit: int) -> tuple[Tensor, Tensor]:
        """Picard steps until the residual of every graph and head is at most ``goal``; returns x and the steps of each graph."""

    @abstractmethod
    def linearize(self, x: Tensor) -> LinearMap:
        """The derivative of T at x as a linear map with zero bias, differentiable in x and in the parameters."""

    def transpose(self, bias: Tensor | None = None, at: Tensor | None = None) -> LinearMap:
        """The map of the adjoint, y -> T'(at)^T y + bias, which contracts in the other norm. A linear map needs no ``at``."""
        if at is None:
            raise InputError(f"at: expected the point at which {type(self).__name__} is linearised, but got None")
        return self.linearize(at).transpose(bias)

    def dominating(self) -> LinearMap | None:
        """The map x -> M x + 1, where |T(x) - T(y)| <= M |x - y| in every entry; the tight certificate solves it.

        None: there is none, or none that is sharper than the contraction factor.
        """
        return None

    @abstractmethod
    def pullback(self, x: Tensor, cotangent: Tensor) -> tuple[Tensor, ...]:
        """The gradient of <cotangent, T(x)> in each parameter, differentiable."""

    @abstractmethod
    def pushforward(self, x: Tensor, tangents: tuple[Tensor | None, ...]) -> Tensor:
        """The derivative of T(x) when the parameters change along ``tangents``, differentiable."""

    def verify(self) -> None:
        """Raise if the map does not contract, or is not finite.

        On a CPU this is checked when the map is made. On a GPU the host would have to wait for it, so that a solve checks instead.
        """
        return

    def verify_numbers(self) -> None:
        """Raise where a parameter is not finite."""
        for value in self.parameters():
            finite("parameters", value)

    def magnitude(self) -> Tensor:
        """The size of the bias, [G, H], which the rounding error of T is proportional to."""
        return self.size(self.at_zero())

    def settings(self) -> str:
        """The settings of the map besides its parameters, as one string."""
        return ""

    @classmethod
    def restore(cls, graph: Graph, parameters: list[Tensor], contraction: Tensor, norm: str, settings: str = "") -> Self:
        """A map from its parts. Shapes are checked; that the contraction belongs to these parameters is not."""
        if not all(isinstance(part, Tensor) for part in (*parameters, contraction)):
            raise InputError(
                f"parameters: expected tensors, but got {[type(part).__name__ for part in (*parameters, contraction)]}"
            )
        fixed = cls._assemble(graph, parameters, contraction, norm, settings)
        fixed.expect_shapes()
        return fixed

    @classmethod
    def _assemble(cls, graph: Graph, parameters: list[Tensor], contraction: Tensor, norm: str, settings: str = "") -> Self:
        """``restore`` without the tests, for parts that were tested before."""
        fixed = cls.__new__(cls)
        fixed.graph, fixed.contraction, fixed.norm = graph, contraction, norm
        fixed._restore(parameters, settings)
        return fixed

    def expect_shapes(self) -> None:
        """Raise unless parameters and contraction fit the graph."""
        return

    @abstractmethod
    def _restore(self, parameters: list[Tensor], settings: str) -> None: ...

    @property
    def dtype(self) -> torch.dtype:
        return self.parameters()[0].dtype

    @property
    def device(self) -> torch.device:
        return self.graph.device

    @property
    def heads(self) -> int:
        return self.parameters()[0].shape[-1]

    def with_parameters(self, *parameters: Tensor) -> Self:
        """The same kind of map with other tensors of these shapes. The contraction factor is kept: it has to hold for them too."""
        return type(self).restore(self.graph, list(parameters), self.contraction, self.norm, self.settings())

    def widened(self) -> Self:
        """The map in float64."""
        return self._with([parameter.double() for parameter in self.parameters()])

    def detached(self) -> Self:
        return self._with([parameter.detach() for parameter in self.parameters()])

    def _with(self, parameters: list[Tensor]) -> Self:
        return type(self)._assemble(self.graph, parameters, self.contraction, self.norm, self.settings())

    def some_heads(self, heads: slice) -> Self:
        """The map of some of the heads."""
        parts = [part[:, heads].contiguous() for part in (*self.parameters(), self.contraction)]
        return type(self)._assemble(self.graph, parts[:-1], parts[-1], self.norm, self.settings())

    def expect_nodes(self, name: str, value: Tensor) -> None:
        """Raise unless ``value`` has a number for every node and head, [N, H]."""
        expect_matrix(name, value, self.graph.num_nodes, self.heads, self.graph.row.device)

    def expect_graphs(self, name: str, value: Tensor) -> None:
        """Raise unless ``value`` has a number for every graph and head, [G, H]."""
        expect_matrix(name, value, self.graph.num_graphs, self.heads, self.graph.row.device)

    def size(self, values: Tensor) -> Tensor:
        """The norm of node values [N, H] for every graph and head: [G, H] in float64."""
        expect_matrix("values", values, self.graph.num_nodes, "heads", self.graph.row.device)
        return backend(values).segment_reduce(values, self.graph.segments, self.norm)

    def __repr__(self) -> str:
        factor = f"{float(self.contraction.max()):.6g}" if self.contraction.numel() else "0"
        extra = f", {self.settings()}" if self.settings() else ""
        return f"{type(self).__name__}(nodes={self.graph.num_nodes}, heads={self.heads}, contraction={factor}{extra})"


def checked(
    name: str, value: Tensor, rows: int, heads: int | None, like: Tensor | None, device: torch.device, stored: bool = False
) -> Tensor:
    """A parameter [rows, heads] of a map in float32 or float64 (None: any number of heads); half precision is solved in float32.

    Where it is only ``stored``, and kernels read it as it is, bfloat16 is kept: a GPU then moves half as much.
    """
    expect_matrix(name, value, rows, "heads" if heads is None else heads, device)
    if value.dtype not in PRECISE:
        kept = stored and value.dtype == torch.bfloat16 and backend(value.new_empty(0, dtype=torch.float32)).STORES_BFLOAT16
        value = value if kept else value.float()
    if like is not None and value.dtype != like.dtype:
        raise InputError(f"{name}: expected {like.dtype}, as the weight has, but got {value.dtype}")
    return value


def measure_contraction(graph: Graph, weight: Tensor, bias: Tensor, lipschitz: float, linear: bool = False) -> Tensor:
    """The largest absolute row sum of every graph and head times the Lipschitz constant, [G, H].

    Raises unless it is below one or, for a linear map, rows lose something from every node; and where the bias is not finite
    (on a GPU, and inside torch.compile, the solve looks for that).
    """
    if traced(weight):
        return torch.ops.convergent.contraction(graph.tensors(), graph.flow, weight.detach(), lipschitz, linear)
    if torch._C._are_functorch_transforms_active():
        return _Contraction.apply(graph, lipschitz, linear, weight, bias)
    return _measured(graph, weight.detach(), lipschitz, bias.detach(), weight if linear else None)


class _Contraction(torch.autograd.Function):
    """A constant to every derivative; a function of torch so that the transforms of torch.func hand over plain tensors."""

    @staticmethod
    def forward(graph: Graph, lipschitz: float, linear: bool, weight: Tensor, bias: Tensor) -> Tensor:
        return _measured(graph, weight, lipschitz, bias, weight if linear else None)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], graph: Graph, lipschitz: float, linear: bool, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, int | None]:
        """The bias is only checked: weights that are the same for all of the batch are measured once."""
        *_, of_weight, of_bias = in_dims
        size = info.batch_size
        right = bias if of_bias is None else fold(bias, of_bias, size)
        if of_weight is None:
            return measure_contraction(graph, weight, right, lipschitz, linear), None
        return unfold(measure_contraction(graph, fold(weight, of_weight, size), right, lipschitz, linear), size), 1

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, ...]:
        return None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> None:
        return None


def _measured(graph: Graph, weight: Tensor, lipschitz: float, bias: Tensor | None = None, linear: Tensor | None = None) -> Tensor:
    """The factors; ``linear``: the weights of a linear map, which may have rows that sum to one."""
    # a sum of d terms in float64 can be d units in the last place too small
    wider = lipschitz * (1 + (max_degree(graph) + 2) * torch.finfo(torch.float64).eps)
    factor = backend(graph.row).row_peaks(graph.rows, graph.segments, weight, wider)
    if not weight.is_cuda:
        check_contraction(factor, weight[:0] if bias is None else bias, graph, linear)
    return factor


def check_contraction(factor: Tensor, bias: Tensor, graph: Graph | None = None, linear: Tensor | None = None) -> None:
    """Raise unless all factors [G, H] are below one, and all of the bias is finite.

    Rows of a linear map, whose weights are given with its graph, may sum to one where every node reaches one that sums to less.
    """
    worst, whole = backend(bias).worst(factor, bias)
    if not whole:
        finite("bias", bias)
    if not worst < 1:
        bad = ~(factor < 1)
        where, head = (int(index) for index in bad.nonzero()[0])
        came = float(factor[where, head])
        if came != came:
            raise InputError(f"weight: expected finite numbers, but got NaN in graph {where}, head {head}")
        if graph is not None and linear is not None and math.isfinite(worst) and expect_losses(graph, linear):
            return
        raise ContractionError(
            f"weight: expected rows whose absolute sum times the activation's slope stays below 1, but got {came:.8g} in graph "
            f"{where}, head {head} ({int(bad.sum())} of {bad.numel()} graphs and heads do not contract)"
        )


def max_degree(graph: Graph) -> int:
    """The largest number of edges a node sums over."""
    return graph.cached("max_degree", lambda: int(graph.out_degree.max()) if graph.num_nodes else 0)


def finite(name: str, value: Tensor) -> None:
    """Raise where a parameter holds NaN or infinity. Inside torch.compile the solve itself looks."""
    if traced(value):
        return
    value = value.detach()
    wrong = (~torch.isfinite(value)).nonzero()
    if len(wrong):
        where = wrong[0].tolist()
        raise InputError(f"{name}: expected finite numbers, but got {float(value[tuple(where)])} at {where}")


@torch.library.custom_op("convergent::contraction", mutates_args=())
def _contraction_op(graph: list[Tensor], flow: str, weight: Tensor, lipschitz: float, linear: bool) -> Tensor:
    return _measured(Graph.from_tensors(graph, flow), weight, lipschitz, linear=weight if linear else None)


@_contraction_op.register_fake
def _(graph: list[Tensor], flow: str, weight: Tensor, lipschitz: float, linear: bool) -> Tensor:
    return weight.new_empty(graph[0].shape[0] - 1, weight.shape[1], dtype=torch.float64)


@_contraction_op.register_vmap
def _(
    info: Any, in_dims: tuple[Any, ...], graph: list[Tensor], flow: str, weight: Tensor, lipschitz: float, linear: bool
) -> tuple[Tensor, int]:
    folded = fold(weight, in_dims[2], info.batch_size)
    return unfold(torch.ops.convergent.contraction(graph, flow, folded, lipschitz, linear), info.batch_size), 1
