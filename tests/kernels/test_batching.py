"""A batch of torch.vmap as another axis of heads: operations and solves under the transforms of torch.func, against dense ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual
from torch.autograd.functional import hessian as hessian_of_autograd
from torch.autograd.functional import jacobian
from torch.func import functional_call, hessian, jacfwd, jacrev, jvp, vjp, vmap

from convergent import (
    GMRES,
    ActivatedMap,
    Anderson,
    Auto,
    BiCGStab,
    ContractionError,
    ConvergenceError,
    Deflated,
    Direct,
    Graph,
    InputError,
    LinearMap,
    Multigrid,
    OneStep,
    Picard,
    Unrolled,
    factors,
    solve,
    weights,
)
from convergent.kernels.activations import ACTIVATIONS
from convergent.kernels.batching import fold, unfold
from convergent.nn import ConvergentConv
from convergent.operations import at_rows, edge_product, edge_sum, propagate, sum_edges
from problems import DOUBLE

INDEX = torch.tensor([[0, 0, 1, 1, 2, 3, 3, 4], [1, 1, 2, 1, 0, 4, 3, 3]])  # parallel edges, self loops, an isolated node
GRAPH = Graph(INDEX, 6, batch=torch.tensor([0, 0, 0, 1, 1, 1]))
EDGES, NODES, HEADS = 8, 6, 2
LINEAR = [Picard, Anderson, BiCGStab, GMRES, Direct, Deflated, Multigrid, Auto]
CASES = [(None, method) for method in LINEAR] + [("tanh", method) for method in (Picard, Anderson, Auto)]
Function = Callable[[Tensor, Tensor], Tensor]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


WEIGHT, BIAS = 0.15 * draw(EDGES, HEADS), draw(NODES, HEADS, seed=1)
WEIGHTS, BIASES = 0.1 * draw(3, EDGES, HEADS, seed=2), draw(3, NODES, HEADS, seed=3)


def dense(activation: str | None) -> Function:
    """The fixed point by plain torch on dense matrices: enough steps for every digit."""

    def function(weight: Tensor, bias: Tensor) -> Tensor:
        place = torch.zeros(EDGES, NODES, NODES, dtype=DOUBLE)
        place[torch.arange(EDGES), INDEX[0], INDEX[1]] = 1
        matrix = torch.einsum("eh,eij->hij", weight, place)
        if activation is None:
            return torch.linalg.solve(torch.eye(NODES, dtype=DOUBLE) - matrix, bias.t().unsqueeze(-1)).squeeze(-1).t()
        x = torch.zeros_like(bias)
        for _ in range(120):
            x = ACTIVATIONS[activation].function(torch.einsum("hij,jh->ih", matrix, x) + bias)
        return x

    return function


# A path whose ends are given: the rows between sum to exactly one, in the second head with both signs.
PATH = Graph(torch.tensor([[1, 1, 2, 2, 3, 3, 4, 4], [0, 2, 1, 3, 2, 4, 3, 5]]), NODES)
HALVES = torch.tensor([[0.5, 0.5], [0.5, -0.5]], dtype=DOUBLE).repeat(4, 1)
QUARTERS = torch.stack([HALVES, torch.tensor([[0.25], [0.75]], dtype=DOUBLE).repeat(4, HEADS), -HALVES])


def on_path(weight: Tensor, bias: Tensor) -> Tensor:
    return solve(LinearMap(PATH, weight, bias), Auto(tol=1e-13)).value


def dense_path(weight: Tensor, bias: Tensor) -> Tensor:
    place = torch.zeros(EDGES, NODES, NODES, dtype=DOUBLE)
    place[torch.arange(EDGES), PATH.row.long(), PATH.column.long()] = 1
    matrix = torch.eye(NODES, dtype=DOUBLE) - torch.einsum("eh,eij->hij", weight, place)
    return torch.linalg.solve(matrix, bias.t().unsqueeze(-1)).squeeze(-1).t()


def sparse(activation: str | None, method: type = Auto, gradient=None) -> Function:
    def function(weight: Tensor, bias: Tensor) -> Tensor:
        fixed = ActivatedMap(GRAPH, weight, bias, activation) if activation else LinearMap(GRAPH, weight, bias)
        return solve(fixed, method(tol=1e-13), gradient=gradient).value

    return function


def agree(found, expected) -> None:
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_folding_and_back() -> None:
    value = draw(4, 3, 2)
    for dim in (0, 1, 2):
        batched = value.movedim(1, 0).movedim(0, dim)
        agree(unfold(fold(batched, dim, 3), 3), value) if dim < 2 else None
    agree(unfold(fold(value[:, 0], None, 3), 3), value[:, :1].expand(4, 3, 2))


@pytest.mark.parametrize(
    ("operation", "sizes"),
    [
        (propagate, (EDGES, NODES)),
        (edge_product, (NODES, NODES)),
        (edge_sum, (EDGES, NODES, NODES)),
        (sum_edges, (EDGES,)),
        (at_rows, (NODES,)),
    ],
)
def test_operations(operation, sizes) -> None:
    tensors = [draw(3, size, HEADS, seed=size) for size in sizes]

    def function(*parts: Tensor) -> Tensor:
        return operation(GRAPH, *parts)

    expected = torch.stack([function(*(part[index] for part in tensors)) for index in range(3)])
    agree(vmap(function)(*tensors), expected)
    agree(vmap(function, in_dims=1, out_dims=2)(*(part.movedim(0, 1) for part in tensors)), expected.movedim(0, 2))
    one, last = [part[0] for part in tensors], len(tensors) - 1
    agree(jacrev(function, last)(*one), jacfwd(function, last)(*one))
    _, tangent = jvp(lambda part: function(*one[:last], part), (one[last],), (tensors[last][1],))
    agree((jacrev(function, last)(*one) * tensors[last][1]).sum((2, 3)), tangent)


@pytest.mark.parametrize(("activation", "method"), CASES)
def test_vmap_over_bias_weight_and_both(activation, method) -> None:
    function, truth = sparse(activation, method), dense(activation)
    agree(vmap(function, (None, 0))(WEIGHT, BIASES), vmap(truth, (None, 0))(WEIGHT, BIASES))
    agree(vmap(function, (0, None))(WEIGHTS, BIAS), vmap(truth, (0, None))(WEIGHTS, BIAS))
    agree(vmap(function)(WEIGHTS, BIASES), vmap(truth)(WEIGHTS, BIASES))
    turned = vmap(function, (2, 1), 1)(WEIGHTS.movedim(0, 2), BIASES.movedim(0, 1))
    agree(turned, vmap(truth)(WEIGHTS, BIASES).movedim(0, 1))


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_nested(activation) -> None:
    def both(function: Function) -> Tensor:
        return vmap(vmap(function, (None, 0)), (0, None))(WEIGHTS, BIASES)

    agree(both(sparse(activation)), both(dense(activation)))


@pytest.mark.parametrize("argument", [0, 1, (0, 1)])
@pytest.mark.parametrize(("activation", "method"), CASES)
def test_jacobians(activation, method, argument) -> None:
    expected = jacrev(dense(activation), argument)(WEIGHT, BIAS)
    agree(jacrev(sparse(activation, method), argument)(WEIGHT, BIAS), expected)
    agree(jacfwd(sparse(activation, method), argument)(WEIGHT, BIAS), expected)


@pytest.mark.parametrize(("activation", "method"), CASES)
def test_hessians(activation, method) -> None:
    def energy(function: Function) -> Function:
        return lambda weight, bias: function(weight, bias).square().sum()

    for argument in (0, 1, (0, 1)):
        expected = hessian(energy(dense(activation)), argument)(WEIGHT, BIAS)
        agree(hessian(energy(sparse(activation, method)), argument)(WEIGHT, BIAS), expected)


def test_a_batch_of_jacobians() -> None:
    for transform in (jacrev, jacfwd):
        found, expected = (vmap(transform(each("tanh"), 1))(WEIGHTS, BIASES) for each in (sparse, dense))
        agree(found, expected)


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_through_the_rows(activation) -> None:
    logits = draw(3, EDGES, HEADS, seed=5)

    def through(function: Function, rows) -> Function:
        return lambda logits, bias: function(rows(GRAPH, logits, 0.8), bias)

    for rows in (weights.softmax, weights.signed, weights.degree):
        found, expected = (vmap(through(each(activation), rows))(logits, BIASES) for each in (sparse, dense))
        agree(found, expected)
        found, expected = (jacrev(through(each(activation), rows))(logits[0], BIAS) for each in (sparse, dense))
        agree(found, expected)


def test_ordinary_gradients_through_a_batch() -> None:
    weight, bias = WEIGHTS.clone().requires_grad_(), BIASES.clone().requires_grad_()
    found = torch.autograd.grad(vmap(sparse("tanh"))(weight, bias).square().sum(), (weight, bias))
    agree(found, torch.autograd.grad(vmap(dense("tanh"))(weight, bias).square().sum(), (weight, bias)))


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_the_other_gradients(activation) -> None:
    """One step and unrolled steps: their own derivatives, in every transform."""
    fixed = dense(activation)(WEIGHT, BIAS)

    def once(weight: Tensor, bias: Tensor) -> Tensor:
        linear = propagate(GRAPH, weight, fixed) + bias
        return ACTIVATIONS[activation].function(linear) if activation else linear

    for transform in (jacrev, jacfwd):
        agree(transform(sparse(activation, Auto, OneStep()), (0, 1))(WEIGHT, BIAS), transform(once, (0, 1))(WEIGHT, BIAS))
        found = transform(sparse(activation, Picard, Unrolled()), (0, 1))(WEIGHT, BIAS)
        agree(found, transform(dense(activation), (0, 1))(WEIGHT, BIAS))
    for gradient in (OneStep(), Unrolled(), Unrolled(steps=60)):
        agree(vmap(sparse(activation, Picard, gradient))(WEIGHTS, BIASES), vmap(dense(activation))(WEIGHTS, BIASES))


def test_starts_and_certificates_are_batched_too() -> None:
    def function(bias: Tensor, x0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        solution = solve(LinearMap(GRAPH, WEIGHT, bias), Picard(tol=1e-9), x0=x0)
        return solution.value, solution.error_bound, solution.converged

    value, bound, converged = vmap(function)(BIASES, BIASES + 1)
    truth = vmap(dense(None), (None, 0))(WEIGHT, BIASES)
    assert bound.shape == (3, 2, HEADS)
    assert ((value - truth).view(3, 2, 3, HEADS).abs().amax(2) <= bound + 1e-15).all()
    assert (bound <= 1e-9).all()
    assert converged.shape == (3, 2)
    assert converged.all()


def test_a_member_of_the_batch_that_is_wrong_is_told() -> None:
    with pytest.raises(ContractionError, match="lose something from every node"):
        vmap(sparse(None))(WEIGHTS * 100, BIASES)
    with pytest.raises(InputError, match="bias: expected finite numbers"):
        vmap(sparse(None))(WEIGHTS, BIASES / 0)
    with pytest.raises(InputError, match=r"bias: expected shape \[6, 2\], but got \[5, 2\]"):
        vmap(sparse(None))(WEIGHTS, BIASES[:, 1:])
    with pytest.raises(ConvergenceError, match="max_iterations=1"):
        vmap(lambda bias: solve(LinearMap(GRAPH, WEIGHT, bias), Picard(tol=1e-12, max_iterations=1)).value)(BIASES)


def test_a_layer_with_a_batch_of_parameters() -> None:
    conv = ConvergentConv(4, heads=2, edge_dim=2, solver=Auto(tol=1e-11)).double()
    many = {name: draw(3, *value.shape, seed=len(name)) for name, value in conv.named_parameters()}
    x, edge_attr = draw(NODES, 4), draw(EDGES, 2)

    def function(parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(conv, parameters, (x, GRAPH, edge_attr))

    single = [{name: value[index] for name, value in many.items()} for index in range(3)]
    agree(vmap(function)(many), torch.stack([function(each) for each in single]))
    slopes = vmap(jacrev(function))(many)
    for index, each in enumerate(single):
        for name, expected in jacfwd(function)(each).items():
            agree(slopes[name][index], expected)


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_compiled(activation) -> None:
    function = vmap(sparse(activation), (None, 0))
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    agree(compiled(WEIGHT, BIASES), function(WEIGHT, BIASES))


def test_directional_derivatives() -> None:
    tangent = draw(3, NODES, HEADS, seed=9)

    def along(function: Function) -> Tensor:
        return vmap(lambda bias, t: jvp(lambda b: function(WEIGHT, b), (bias,), (t,))[1])(BIASES, tangent)

    agree(along(sparse("tanh")), along(dense("tanh")))


def energy_of(function: Function) -> Function:
    return lambda weight, bias: function(weight, bias).square().sum()


TRANSFORMS = {
    "biases": lambda function: vmap(function, (None, 0))(HALVES, BIASES),
    "weights": lambda function: vmap(function, (0, None))(QUARTERS, BIAS),
    "both": lambda function: vmap(function)(QUARTERS, BIASES),
    "nested": lambda function: vmap(vmap(function, (None, 0)), (0, None))(QUARTERS, BIASES),
    "jacrev": lambda function: jacrev(function, (0, 1))(HALVES, BIAS),
    "jacfwd": lambda function: jacfwd(function, (0, 1))(HALVES, BIAS),
    "hessian": lambda function: hessian(energy_of(function), (0, 1))(HALVES, BIAS),
    "batch of jacobians": lambda function: vmap(jacrev(function, (0, 1)))(QUARTERS, BIASES),
    "jvp": lambda function: jvp(function, (HALVES, BIAS), (WEIGHT, BIASES[0])),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("multiply_adds", [None, 300.0], ids=["together", "in parts"])
def test_rows_that_sum_to_one(name: str, multiply_adds: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the factors of a whole batch would be too much at once."""
    if multiply_adds:
        monkeypatch.setattr(factors, "MOST", multiply_adds)
        assert 1 <= factors.heads_at_once(PATH) < 3 * HEADS
    agree(TRANSFORMS[name](on_path), TRANSFORMS[name](dense_path))


def test_forward_mode_through_rows_that_sum_to_one() -> None:
    with dual_level():
        found = unpack_dual(on_path(make_dual(HALVES, WEIGHT), make_dual(BIAS, BIASES[0]))).tangent
    agree(found, jvp(dense_path, (HALVES, BIAS), (WEIGHT, BIASES[0]))[1])


@pytest.mark.parametrize("batched", [False, True])
def test_compiled_rows_that_sum_to_one(batched: bool) -> None:
    function, truth = ((vmap(each, (None, 0)) if batched else each) for each in (on_path, dense_path))
    weight, bias = HALVES.clone().requires_grad_(), (BIASES if batched else BIAS).clone().requires_grad_()
    found = torch.compile(function, fullgraph=True, backend="aot_eager")(weight, bias)
    expected = truth(weight, bias)
    agree(found, expected)
    gradients = (torch.autograd.grad(value.square().sum(), (weight, bias)) for value in (found, expected))
    agree(*gradients)


def test_nodes_that_lose_nothing_are_named_in_every_transform() -> None:
    closed = Graph(torch.tensor([[0, 1, 2, 2], [1, 0, 1, 3]]), NODES)
    ones, fewer = torch.ones(4, HEADS, dtype=DOUBLE), torch.full((4, HEADS), 0.5, dtype=DOUBLE)
    named = r"no row that sums to less than one is reached from 3 of its nodes \(0, 1, 2\)"

    def value(weight: Tensor, bias: Tensor) -> Tensor:
        return solve(LinearMap(closed, weight, bias)).value

    edge = torch.tensor([[1.0], [1.0], [1.0], [0.0]], dtype=DOUBLE) * ones
    compiled = torch.compile(value, fullgraph=True, backend="aot_eager")
    for attempt in (
        lambda: vmap(value, (None, 0))(edge, BIASES),
        lambda: vmap(value, (0, None))(torch.stack([fewer, edge]), BIAS),
        lambda: jacrev(value)(edge, BIAS),
        lambda: jacfwd(value, 1)(edge, BIAS),
        lambda: compiled(edge, BIAS),
    ):
        with pytest.raises(ContractionError, match=named):
            attempt()
    with pytest.raises(ContractionError, match="in graph 0, head 2, no row"):  # the first head of the second weights
        vmap(value, (0, None))(torch.stack([fewer, edge]), BIAS)


def through(activation: str | None, graph: Graph, rows: Callable[..., Tensor] | None) -> Function:
    def function(logits: Tensor, bias: Tensor) -> Tensor:
        weight = logits if rows is None else rows(graph, logits, 0.8)
        fixed = ActivatedMap(graph, weight, bias, activation) if activation else LinearMap(graph, weight, bias)
        return solve(fixed, Auto(tol=1e-13)).value

    return function


BATCHED = {
    "rows of one": (through(None, PATH, None), HALVES),
    "softmax": (through(None, GRAPH, weights.softmax), WEIGHT),
    "signed": (through("tanh", GRAPH, weights.signed), WEIGHT),
    "degree": (through(None, GRAPH, weights.degree), WEIGHT),
    "one step": (lambda weight, bias: sparse("tanh", Auto, OneStep())(weight, bias), WEIGHT),
    "unrolled": (lambda weight, bias: sparse("tanh", Picard, Unrolled())(weight, bias), WEIGHT),
}


@pytest.mark.parametrize("name", BATCHED)
def test_batched_gradients_of_autograd(name: str) -> None:
    """``is_grads_batched`` and ``vectorize`` use an older vmap than torch.func."""
    function, weight = BATCHED[name]
    expected = jacobian(function, (weight, BIAS))
    agree(jacobian(function, (weight, BIAS), vectorize=True), expected)
    agree(jacobian(function, (weight, BIAS), vectorize=True, strategy="forward-mode"), expected)
    inputs = weight.clone().requires_grad_(), BIAS.clone().requires_grad_()
    value = function(*inputs)
    found = torch.autograd.grad(value, inputs, BIASES, is_grads_batched=True, create_graph=True)
    single = [torch.autograd.grad(value, inputs, grad, create_graph=True) for grad in BIASES]
    each = tuple(torch.stack(parts) for parts in zip(*single, strict=True))
    agree(found, each)
    if name == "one step":  # its gradient does not depend on the weight any more
        return
    second = [torch.autograd.grad(sum(part.square().sum() for part in parts), inputs, retain_graph=True) for parts in (found, each)]
    agree(*second)


def test_vectorized_hessians() -> None:
    for name in ("rows of one", "signed"):
        function, weight = BATCHED[name]
        expected = hessian_of_autograd(energy_of(function), (weight, BIAS))
        agree(hessian_of_autograd(energy_of(function), (weight, BIAS), vectorize=True), expected)
        found = hessian_of_autograd(energy_of(function), (weight, BIAS), vectorize=True, outer_jacobian_strategy="forward-mode")
        agree(found, expected)


def test_batched_gradients_of_a_layer() -> None:
    conv = ConvergentConv(4, heads=2, edge_dim=2, solver=Auto(tol=1e-11)).double()
    x, edge_attr = draw(NODES, 4).requires_grad_(), draw(EDGES, 2)
    inputs = (x, *conv.parameters())
    value = conv(x, GRAPH, edge_attr)
    grads = draw(3, *value.shape)
    found = torch.autograd.grad(value, inputs, grads, is_grads_batched=True, retain_graph=True)
    single = [torch.autograd.grad(value, inputs, grad, retain_graph=True) for grad in grads]
    agree(found, tuple(torch.stack(parts) for parts in zip(*single, strict=True)))


@pytest.mark.parametrize("method", LINEAR)
@pytest.mark.parametrize("enabled", [True, False])
def test_a_pullback_after_its_transform_has_ended(method: type, enabled: bool) -> None:
    for weight in (WEIGHT, 0 * WEIGHT):  # of the second the start is the answer
        _, pullback, *_ = vjp(sparse(None, method), weight, BIAS)
        with torch.set_grad_enabled(enabled):
            found = pullback(BIASES[0])
        agree(found, vjp(dense(None), weight, BIAS)[1](BIASES[0]))
        agree(vmap(pullback)(BIASES), vmap(vjp(dense(None), weight, BIAS)[1])(BIASES))


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_a_graph_that_is_made_inside_a_transform(transform) -> None:
    order = torch.tensor([5, 0, 7, 2, 1, 6, 3, 4])  # edges that have to be sorted

    def function(weight: Tensor, bias: Tensor) -> Tensor:
        graph = Graph(torch.stack([INDEX[0], INDEX[1]])[:, order], 6, batch=torch.tensor([0, 0, 0, 1, 1, 1]) + 0)
        return solve(LinearMap(graph, weight[order], bias), Auto(tol=1e-13)).value

    agree(transform(function, (0, 1))(WEIGHT, BIAS), transform(dense(None), (0, 1))(WEIGHT, BIAS))
    agree(vmap(function)(WEIGHTS, BIASES), vmap(dense(None))(WEIGHTS, BIASES))
    with pytest.raises(InputError, match=r"edge_index: expected one structure for a whole batch of torch\.func\.vmap, but got"):
        vmap(lambda index: Graph(index, 6).out_degree)(torch.stack([INDEX, INDEX.flip(0)]))
