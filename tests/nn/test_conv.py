from __future__ import annotations

import pytest
import torch

from convergent import GMRES, Graph, InputError, LinearMap, Picard, solve
from convergent.nn import ConvergentConv
from convergent.nn.solver import row_weights

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("normalization", ["softmax", "sigmoid", "clip", "signed"])
def test_the_layer_is_the_fixed_point(normalization) -> None:
    conv = ConvergentConv(3, heads=4, edge_dim=2, normalization=normalization)
    x, edge_attr = torch.randn(4, 3), torch.randn(5, 2)
    out, solution = conv(x, EDGES, edge_attr, return_solution=True)
    assert out.shape == (4, 4)
    assert solution.converged.all()
    graph = Graph(EDGES, 4, flow="source_to_target")
    logits = x[EDGES[1]] @ conv.lin_row.weight.T + x[EDGES[0]] @ conv.lin_column.weight.T + edge_attr @ conv.lin_edge.weight.T
    weight = row_weights(graph, logits, normalization, 0.9)
    expected = solve(LinearMap(graph, weight, conv.lin_bias(x)), Picard(tol=1e-6, rtol=1e-6)).value
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def test_sizes_from_the_first_input() -> None:
    conv = ConvergentConv(-1, heads=2, edge_dim=-1)
    assert conv(torch.randn(4, 7), EDGES, torch.randn(5, 3)).shape == (4, 2)
    assert conv.lin_bias.in_features == 7
    assert conv.lin_edge.in_features == 3
    conv.reset_parameters()


def test_repr() -> None:
    assert str(ConvergentConv(16, heads=8, edge_dim=3)) == "ConvergentConv(16, heads=8)"


def test_flow_turns_the_edges() -> None:
    conv = ConvergentConv(3, heads=2)
    other = ConvergentConv(3, heads=2, flow="target_to_source")
    other.load_state_dict(conv.state_dict())
    x = torch.randn(4, 3)
    torch.testing.assert_close(conv(x, EDGES), other(x, EDGES.flip(0)))


def test_batches_are_graphs_side_by_side() -> None:
    conv = ConvergentConv(3, heads=2)
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    batch = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    both, solution = conv(torch.cat([x, y]), torch.cat([EDGES, EDGES + 4], 1), batch=batch, return_solution=True)
    assert solution.residual.shape == (2, 2)
    torch.testing.assert_close(both, torch.cat([conv(x, EDGES), conv(y, EDGES)]), atol=1e-5, rtol=1e-5)


def test_learned_gamma_and_other_settings() -> None:
    conv = ConvergentConv(3, heads=2, gamma="learned", activation="tanh", solver=Picard(tol=1e-5))
    conv(torch.randn(4, 3), EDGES).sum().backward()
    assert conv.gamma_logit.grad is not None
    assert conv.gamma_logit.grad.abs().sum() > 0
    assert ConvergentConv(3, heads=2, solver=GMRES())(torch.randn(4, 3), EDGES).shape == (4, 2)


def test_in_a_model_of_pyg() -> None:
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GCNConv, Sequential, global_mean_pool

    model = Sequential(
        "x, edge_index, batch",
        [
            (GCNConv(3, 8), "x, edge_index -> x"),
            torch.nn.ReLU(),
            (ConvergentConv(8, heads=4), "x, edge_index -> x"),
            (global_mean_pool, "x, batch -> x"),
            torch.nn.Linear(4, 2),
        ],
    )
    data = Batch.from_data_list([Data(x=torch.randn(4, 3), edge_index=EDGES) for _ in range(3)])
    out = model(data.x, data.edge_index, data.batch)
    assert out.shape == (3, 2)
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="normalization: expected one of"):
        ConvergentConv(3, heads=2, normalization="batch")
    with pytest.raises(InputError, match="gamma: expected a number above 0 and below 1"):
        ConvergentConv(3, heads=2, gamma=1.0)
    conv = ConvergentConv(3, heads=2, edge_dim=2)
    with pytest.raises(InputError, match=r"edge_attr: expected a tensor of shape \[5, 2\], but got NoneType"):
        conv(torch.randn(4, 3), EDGES)
    with pytest.raises(InputError, match="edge_attr: expected None"):
        ConvergentConv(3, heads=2)(torch.randn(4, 3), EDGES, torch.randn(5, 2))


@pytest.mark.cuda
@pytest.mark.parametrize("edge_dim", [None, 2])
def test_gradients_on_a_gpu_are_those_here_and_the_same_every_time(edge_dim: int | None) -> None:
    conv = ConvergentConv(3, heads=4, edge_dim=edge_dim, solver=Picard(tol=1e-12, rtol=0.0)).double()
    x, edges = torch.randn(500, 3).double(), torch.randint(500, (2, 4_000))
    edge_attr = None if edge_dim is None else torch.randn(4_000, edge_dim).double()

    def gradients(device: str) -> list[torch.Tensor]:
        conv.to(device).zero_grad()
        out = conv(x.to(device), edges.to(device), None if edge_attr is None else edge_attr.to(device))
        return [grad.cpu() for grad in torch.autograd.grad(out.square().sum(), list(conv.parameters()))]

    here, there, again = (gradients(device) for device in ("cpu", "cuda", "cuda"))
    torch.testing.assert_close(there, here, rtol=1e-8, atol=1e-8)
    assert all(torch.equal(*pair) for pair in zip(there, again, strict=True))
