"""The certified error bound against the true error and against the length of the last step, step by step.

Steady heat in an open-cell foam: the struts of a Voronoi tessellation conduct, k_ij = 1 / length, one face is hot (1), the
opposite one cold (0). Every other node is the weighted mean of its neighbours, less a leak, so rows sum to 1 - leak:

    x_i = (1 - leak) sum_j k_ij x_j / sum_j k_ij

Many solvers stop once a step is shorter than the tolerance. So close to one the error is then still much larger.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.certificate_figure import draw
from benchmarks.options import Options
from benchmarks.report import Case, Report, Target
from convergent import Graph, LinearMap, Picard, solve
from convergent.tasks.pore_network import voronoi

__all__ = ["draw", "run"]

NODES, LEAK, TOL = 1200, 1e-6, 1e-6
ROUNDED = 4  # decimals of what is only drawn


class Foam(NamedTuple):
    """A map whose fixed point is the temperature, and where its nodes are."""

    position: np.ndarray  # [N, 3]
    struts: np.ndarray  # [S, 2]
    heat: LinearMap


def run(options: Options) -> Report:
    nodes = 150 if options.quick else NODES
    settings = {"nodes": nodes, "leak": LEAK, "tol": TOL, "method": "Picard", "certify": "tight"}
    report = Report("certificate", options.quick, options.seed, settings)
    options.say("steps of Picard")
    foam = make_foam(nodes, options.seed)
    exact = torch.linalg.solve(torch.eye(len(foam.position), dtype=torch.float64) - foam.heat.as_dense()[0], foam.heat.bias)
    case = Case("steady heat in an open-cell foam", {"nodes": len(foam.position), "struts": len(foam.struts)})
    curves = trace(foam.heat, exact)
    case.measured = {"contraction": float(foam.heat.contraction), **curves, "network": as_json(foam, exact)}
    report.cases.append(case)
    smallest = min(bound / error for bound, error in zip(curves["bound"], curves["error"], strict=True))
    report.targets.append(Target("certified bound over true error, the smallest of all steps", smallest, at_least=1.0))
    return report


def make_foam(nodes: int, seed: int) -> Foam:
    skeleton = voronoi(nodes, np.random.default_rng(seed))
    assert skeleton is not None
    position, struts = skeleton
    hot, cold = position[:, 0] < 1e-9, position[:, 0] > 1 - 1e-9
    row, column = np.concatenate([struts, struts[:, ::-1]]).T
    free = ~(hot | cold)[row]  # a node on a face reads nobody: it equals its bias
    row, column = row[free], column[free]
    conductance = 1 / np.linalg.norm(position[row] - position[column], axis=1)
    total = np.bincount(row, conductance, minlength=len(position))
    weight = torch.from_numpy((1 - LEAK) * conductance / total[row])
    graph = Graph(torch.from_numpy(np.stack([row, column])), num_nodes=len(position))
    return Foam(position, struts, LinearMap(graph, weight.unsqueeze(1), torch.from_numpy(hot).double().unsqueeze(1)))


def trace(heat: LinearMap, exact: Tensor) -> dict[str, list[Any]]:
    """After more and more steps: the length of the last one, the true error and the bound, until the bound is tol / 100."""
    found: dict[str, list[Any]] = {"steps": [], "step_length": [], "error": [], "bound": []}
    budget, bound = 1.0, np.inf
    while bound > TOL / 100:
        solution = solve(heat, Picard(tol=TOL / 100, max_iterations=round(budget), throw=False, certify="tight"))
        bound = float(solution.error_bound)
        row = (solution.iterations, float(solution.residual), float((solution.value - exact).abs().max()), bound)
        for values, value in zip(found.values(), row, strict=True):
            values.append(value)
        budget = max(budget + 1, budget * 1.1)
    return found


def as_json(foam: Foam, exact: Tensor) -> dict[str, Any]:
    return {
        "position": foam.position.round(ROUNDED).tolist(),
        "struts": foam.struts.tolist(),
        "temperature": exact.squeeze(1).numpy().round(ROUNDED).tolist(),
    }
