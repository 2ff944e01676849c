"""The pressure in a Voronoi pore network, with a certificate, and what every throat does to the permeability.

    python examples/pressure.py [--pores 100000] [--seed 0] [--out pressure]

Each pore's pressure is the conductance-weighted mean of its neighbours', which is a fixed point:

    x_i = g sum_j (k_ij / sum_j k_ij) x_j      x_i = 1 on the face x = 0, x_i = 0 on the face x = 1

with a leak 1 - g so small that it changes no pressure by more than a bound that is stated. scipy solves the network
without the leak, as a check.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from pressure_network import PoreNetwork, voronoi_network
from pressure_page import draw_pressure, draw_sensitivity, write_page
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import cg
from torch import Tensor

from convergent import Auto, Graph, Implicit, LinearMap, Solution, solve

LEAK = 1e-12  # 1 - g
TOLERANCE = 1e-6
PROBE = 0.01  # relative change of a throat in the finite differences


@dataclass
class Flow:
    """A pore network as a contracting map; every throat is two edges, one for each pore that reads across it."""

    network: PoreNetwork
    graph: Graph = field(init=False)
    edge_throat: Tensor = field(init=False)  # [E] the throat of every edge
    pinned: Tensor = field(init=False)  # [N] pores whose pressure is given

    def __post_init__(self) -> None:
        ends = torch.from_numpy(self.network.throats)
        self.pinned = torch.from_numpy(self.network.inlet | self.network.outlet)
        throat = torch.arange(len(ends)).repeat(2)
        edges = torch.cat([ends, ends.flip(1)]).T
        reads = ~self.pinned[edges[0]]  # a pinned pore reads nobody: its row is empty and it equals its bias
        self.edge_throat = throat[reads]
        self.graph = Graph(edges[:, reads], num_nodes=len(self.pinned))

    def map(self, conductance: Tensor) -> LinearMap:
        """Conductances [T] -> the map whose fixed point is the pressure, differentiable in the conductances."""
        per_edge = conductance[self.edge_throat]
        row = self.graph.row.long()
        total = per_edge.new_zeros(self.graph.num_nodes).index_add(0, row, per_edge)
        weight = (1 - LEAK) * per_edge / total[row]
        bias = torch.from_numpy(self.network.inlet).to(weight)
        return LinearMap(self.graph, weight.unsqueeze(1), bias.unsqueeze(1))

    def through_inlet(self, conductance: Tensor, pressure: Tensor) -> Tensor:
        """The total flow. In a unit cube under a unit pressure drop it is the permeability (with viscosity 1)."""
        ends = torch.from_numpy(self.network.throats)
        inlet = torch.from_numpy(self.network.inlet)
        sign = inlet[ends[:, 0]].to(pressure) - inlet[ends[:, 1]].to(pressure)
        return (sign * conductance * (pressure[ends[:, 0]] - pressure[ends[:, 1]])).sum()


class Peer:
    """The same network for scipy: a symmetric matrix over the free pores, conjugate gradients, Jacobi."""

    def __init__(self, network: PoreNetwork):
        self.network = network
        self.free = ~(network.inlet | network.outlet)

    def solve(
        self, conductance: NDArray[numpy.float64], rtol: float, start: NDArray[numpy.float64] | None = None
    ) -> NDArray[numpy.float64]:
        """The pressure of all pores without any leak."""
        first, second = self.network.throats.T
        size, free = len(self.free), self.free
        row, column = numpy.concatenate([first, second]), numpy.concatenate([second, first])
        both = numpy.concatenate([conductance, conductance])
        neighbours = csr_array((both, (row, column)), shape=(size, size))
        matrix = (diags_array(neighbours.sum(axis=1)) - neighbours).tocsr()[free]
        pressure = self.network.inlet.astype(numpy.float64)
        inner, right = matrix[:, free], -(matrix @ pressure)
        jacobi = diags_array(1 / inner.diagonal())
        guess = None if start is None else start[free]
        pressure[free], failed = cg(inner, right, guess, rtol=rtol, maxiter=100_000, M=jacobi)
        if failed:
            raise RuntimeError("scipy's conjugate gradients did not converge")
        return pressure


@dataclass
class Report:
    """What was found, as titles and rows; printed at the end and written into the page."""

    sections: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)

    def section(self, title: str, *rows: tuple[str, str]) -> None:
        self.sections.append((title, list(rows)))

    def print(self, console: Console) -> None:
        for title, rows in self.sections:
            table = Table(title=title, title_justify="left", title_style="bold", show_header=False, min_width=78)
            table.add_column()
            table.add_column(justify="right")
            for row in rows:
                table.add_row(*row)
            console.print(table)


class Stages:
    """One line on the screen for each stage, with its clock."""

    def __init__(self, console: Console):
        columns = (SpinnerColumn(finished_text="[green]✓[/]"), TextColumn("{task.description}"), TimeElapsedColumn())
        self.progress = Progress(*columns, console=console, refresh_per_second=4)

    def run(self, title: str, stage: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
        """The stage's result and its seconds."""
        task = self.progress.add_task(title, total=1)
        began = time.perf_counter()
        result = stage(*arguments)
        seconds = time.perf_counter() - began
        self.progress.update(task, completed=1)
        return result, seconds


@dataclass
class Pressure:
    """A solved network, its flow, and the flow's gradient in every conductance."""

    flow: Flow
    conductance: Tensor
    fixed: LinearMap
    solution: Solution
    adjoints: list[Solution] = field(default_factory=list)

    @classmethod
    def of(cls, network: PoreNetwork) -> Pressure:
        flow = Flow(network)
        conductance = torch.from_numpy(network.conductance).requires_grad_()
        fixed = flow.map(conductance)
        adjoints: list[Solution] = []
        # so close to one the adjoint needs the tight certificate too
        gradient = Implicit(on_adjoint=adjoints.append)
        solution = solve(fixed, Auto(tol=TOLERANCE, certify="tight"), gradient=gradient)
        return cls(flow, conductance, fixed, solution, adjoints)

    @property
    def values(self) -> NDArray[numpy.float64]:
        return self.solution.value.detach().squeeze(1).numpy()

    def sensitivity(self) -> tuple[float, NDArray[numpy.float64]]:
        """The total flow, and its derivative in each throat's conductance, by one adjoint solve."""
        total = self.flow.through_inlet(self.conductance, self.solution.value.squeeze(1))
        (slope,) = torch.autograd.grad(total, self.conductance)
        return float(total.detach()), slope.numpy()


def finite_differences(peer: Peer, throats: list[int], start: NDArray[numpy.float64]) -> list[float]:
    """dQ/dk of some throats by central differences, each from two solves by scipy.

    Under a unit pressure drop the flow equals the power lost in the throats, in which the pressure's error is squared.
    """
    base, slopes = peer.network.conductance, []
    for throat in throats:
        ends = []
        for side in (1 + PROBE, 1 - PROBE):
            moved = base.copy()
            moved[throat] *= side
            drop = numpy.diff(peer.solve(moved, 1e-8, start)[peer.network.throats], axis=1).squeeze(1)
            ends.append(float(moved @ drop**2))
        slopes.append((ends[0] - ends[1]) / (2 * PROBE * base[throat]))
    return slopes


def certificate_rows(pressure: Pressure) -> tuple[list[tuple[str, str]], float, float]:
    """The certificate as rows, the certified error, and the bound on what the leak does."""
    solution = pressure.solution
    factor, residual = float(pressure.fixed.contraction), float(solution.residual)
    bound = float(solution.error_bound)
    leak = LEAK * bound / residual if residual else 0.0  # the leak is a residual of at most 1 - g, amplified like any other
    rows = [
        ("contraction factor c", f"1 - {1 - factor:.2e}"),
        ("method", solution.method),
        ("iterations", f"{solution.iterations:,}"),
        ("residual, largest |T(x) - x|", f"{residual:.2e}"),
        ("bound on the error by 1 / (1 - c)", f"{residual / (1 - factor):.2e}"),
        ("certified bound on the error (tight)", f"{bound:.2e}"),
        (f"bound on the effect of the leak of {LEAK:.0e}", f"{leak:.2e}"),
    ]
    return rows, bound, leak


def demonstrate(pores: int, seed: int, out: Path, console: Console) -> bool:
    """Run every stage; True if each number lies within its certificate."""
    report, stages = Report(), Stages(console)
    with stages.progress:
        first = min(pores, 30_000)  # large enough for the kernels that large networks use
        stages.run("compile the kernels on a smaller network", lambda: Pressure.of(voronoi_network(first, 1)).sensitivity())
        network, _ = stages.run(f"tessellate the cube: about {pores:,} pores", voronoi_network, pores, seed)
        report.section(
            "The network",
            ("pores", f"{len(network.position):,}"),
            ("throats", f"{len(network.throats):,}"),
            ("pores at the inlet, at the outlet", f"{network.inlet.sum():,}, {network.outlet.sum():,}"),
        )
        pressure, ours = stages.run("find the pressure and its certificate", Pressure.of, network)
        rows, bound, leak = certificate_rows(pressure)
        report.section("The certificate", *rows)

        (total, slope), back = stages.run("one adjoint solve: the flow's gradient in every throat", pressure.sensitivity)
        peer = Peer(network)
        quick, theirs = stages.run("scipy: conjugate gradients to 1e-8", peer.solve, network.conductance, 1e-8)
        exact, _ = stages.run("scipy: the same to 1e-13, as the reference", peer.solve, network.conductance, 1e-13, quick)
        difference = float(abs(exact - pressure.values).max())
        report.section(
            "Against scipy (conjugate gradients, Jacobi, no leak)",
            ("largest difference from scipy at 1e-13", f"{difference:.2e}"),
            ("certified: tight bound + leak", f"{bound + leak:.2e}"),
            ("largest error of scipy at 1e-8", f"{abs(exact - quick).max():.2e}"),
            ("seconds, answer and certificate", f"{ours:.2f}"),
            ("seconds, scipy at 1e-8, no certificate", f"{theirs:.2f}"),
            ("ratio of the two, on this machine, now", f"{ours / theirs:.2f}"),
        )

        drop = numpy.diff(exact[network.throats], axis=1).squeeze(1)
        share = network.conductance * slope / total
        ranked = numpy.argsort(share)[::-1]
        probes = [int(ranked[0]), int(ranked[len(ranked) // 100]), int(ranked[len(ranked) // 10])]
        slopes, _ = stages.run("finite differences on three throats", finite_differences, peer, probes, exact)
        adjoint = pressure.adjoints[-1]
        size = float(adjoint.value.abs().sum())
        report.section(
            "The permeability and its gradient",
            ("permeability (mean throat lengths^2)", f"{total / mean_length(network) ** 2:.4e}"),
            ("adjoint: method", adjoint.method),
            ("adjoint: iterations", f"{adjoint.iterations:,}"),
            ("adjoint: certified relative error (1-norm)", f"{float(adjoint.error_bound) / size:.2e}"),
            ("adjoint: seconds, with its certificate", f"{back:.2f}"),
            ("all throats: largest |dQ/dk - drop^2|", f"{abs(slope - drop**2).max():.2e}"),
            ("sum of k dQ/dk over Q, which should be 1", f"{share.sum():.8f}"),
            *(
                (f"throat {throat}: dQ/dk, by finite differences", f"{slope[throat]:.6e}, {finite:.6e}")
                for throat, finite in zip(probes, slopes, strict=True)
            ),
        )
        out.mkdir(parents=True, exist_ok=True)
        stages.run("draw the pressure", draw_pressure, network, pressure.values, out / "pressure.png")
        stages.run("draw the sensitivity", draw_sensitivity, network, share, out / "sensitivity.png")
        write_page(out / "index.html", report.sections, ["pressure.png", "sensitivity.png"])
    report.print(console)
    for name in ("pressure.png", "sensitivity.png", "index.html"):
        console.print(f"  {out / name}", highlight=False, soft_wrap=True)
    return difference <= bound + leak


def mean_length(network: PoreNetwork) -> float:
    ends = network.position[network.throats]
    return float(numpy.linalg.norm(ends[:, 0] - ends[:, 1], axis=1).mean())


def main() -> int:
    parser = argparse.ArgumentParser(description="The pressure in a Voronoi pore network, with a certificate.")
    parser.add_argument("--pores", type=int, default=100_000, help="about how many pores (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random points and radii (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("pressure"), help="folder for the pictures (default: %(default)s)")
    settings = parser.parse_args()
    if settings.pores < 50:
        parser.error(f"--pores: expected 50 or more, but got {settings.pores}")
    console = Console()
    try:
        holds = demonstrate(settings.pores, settings.seed, settings.out, console)
    except KeyboardInterrupt:
        console.print("\nStopped. Nothing is left running; fewer --pores take less time.")
        return 130
    if not holds:
        console.print("[red]The difference from scipy is larger than its certified bound.[/]")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
