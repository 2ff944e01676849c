"""Learn the weights of a small network so that its fixed point is a given one, and look at the derivatives on the way.

python examples/gradients.py
"""

from __future__ import annotations

import torch
from torch import Tensor

from convergent import ActivatedMap, Auto, Graph, Implicit, Solution, solve, weights

NODES, EDGES, STEPS = 40, 240, 150


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NODES, (2, EDGES), generator=generator)
    graph = Graph(edge_index, num_nodes=NODES)
    bias = torch.randn(NODES, 1, generator=generator, dtype=torch.float64)

    def network(logits: Tensor) -> ActivatedMap:
        """x = tanh(W x + b), with weights of either sign whose rows stay below 0.9 in absolute sum."""
        return ActivatedMap(graph, weights.signed(graph, logits, gamma=0.9), bias, "tanh")

    hidden = torch.randn(EDGES, 1, generator=generator, dtype=torch.float64)
    target = solve(network(hidden), Auto(tol=1e-10)).value

    # Reverse mode: one solve with the transposed map for each step, whatever the number of weights.
    adjoints: list[Solution] = []
    gradient = Implicit(on_adjoint=adjoints.append)
    logits = torch.zeros(EDGES, 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.05)
    for step in range(STEPS + 1):
        solution = solve(network(logits), Auto(tol=1e-8), gradient=gradient)
        loss = (solution.value - target).square().mean()
        if step % 50 == 0:
            print(f"step {step:3d}   loss {loss.item():.3e}   {solution}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    size = adjoints[-1].value.abs().sum()
    bound = float(adjoints[-1].error_bound / size)
    print(f"last adjoint: {adjoints[-1].method}, error in the 1-norm at most {bound:.1e} of its size")

    # Forward mode: how the fixed point moves when all logits move along one direction.
    direction = torch.randn(EDGES, 1, generator=generator, dtype=torch.float64)

    def fixed_point(values: Tensor) -> Tensor:
        return solve(network(values), Auto(tol=1e-11)).value

    at = logits.detach()
    _, tangent = torch.func.jvp(fixed_point, (at,), (direction,))
    step_size = 1e-4
    finite = (fixed_point(at + step_size * direction) - fixed_point(at - step_size * direction)) / (2 * step_size)
    print(f"forward mode against finite differences: {float((tangent - finite).abs().max()):.1e}")

    # Second order: the loss along the same direction, curvature from reverse over reverse.
    def misfit(values: Tensor) -> Tensor:
        return (fixed_point(values) - target).square().mean()

    point = at.clone().requires_grad_()
    (slope,) = torch.autograd.grad(misfit(point), point, create_graph=True)
    (curved,) = torch.autograd.grad((slope * direction).sum(), point)
    curvature = float((curved * direction).sum())
    ends = [float(misfit(at + side * 1e-3 * direction)) for side in (1, 0, -1)]
    second = (ends[0] - 2 * ends[1] + ends[2]) / 1e-6
    print(f"curvature along a direction: {curvature:.6e}, by finite differences {second:.6e}")


if __name__ == "__main__":
    main()
