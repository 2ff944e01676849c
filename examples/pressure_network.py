"""A pore network: the vertices and edges of the Voronoi cells of random points in a cube, made with scipy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from convergent.tasks.pore_network import tessellate

PORES_PER_POINT = 6.5  # of a Voronoi tessellation in three dimensions, cut off at the faces of the cube
RADIUS = 0.2  # mean throat radius, in mean throat lengths
SPREAD = 0.25  # standard deviation of the logarithm of a throat's radius
SHORTEST = 0.1  # a throat is at least this long, in mean throat lengths: pores are not points
VISCOSITY = 1.0


@dataclass(frozen=True)
class PoreNetwork:
    """Pores in the unit cube, joined by cylindrical throats."""

    position: NDArray[numpy.float64]  # [N, 3]
    throats: NDArray[numpy.int64]  # [T, 2] the two pores of every throat
    radius: NDArray[numpy.float64]  # [T]
    conductance: NDArray[numpy.float64]  # [T] Hagen-Poiseuille: pi r^4 / (8 mu l)
    inlet: NDArray[numpy.bool_]  # [N] pores on the face x = 0
    outlet: NDArray[numpy.bool_]  # [N] pores on the face x = 1


def voronoi_network(pores: int, seed: int) -> PoreNetwork:
    """About ``pores`` pores; the same seed gives the same network."""
    generator = numpy.random.default_rng(seed)
    count = max(4, round(pores / PORES_PER_POINT))
    points = generator.random((count, 3))
    position, throats = tessellate(points)
    length = numpy.linalg.norm(position[throats[:, 0]] - position[throats[:, 1]], axis=1)
    mean = length.mean()
    radius = RADIUS * mean * generator.lognormal(sigma=SPREAD, size=len(throats))
    conductance = numpy.pi * radius**4 / (8 * VISCOSITY * numpy.maximum(length, SHORTEST * mean))
    face = 1e-9
    return PoreNetwork(position, throats, radius, conductance, position[:, 0] < face, position[:, 0] > 1 - face)
