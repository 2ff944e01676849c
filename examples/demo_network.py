"""A pore network: the vertices and edges of the Voronoi cells of random points in a cube, made with scipy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy.spatial import Voronoi

PORES_PER_POINT = 6.5  # of a Voronoi tessellation in three dimensions, cut off at the faces of the cube
MARGIN = 3.0  # points within this many mean spacings of a face are reflected in it: cells reach no further
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
    position, throats = _tessellate(points, MARGIN * count ** (-1 / 3))
    length = numpy.linalg.norm(position[throats[:, 0]] - position[throats[:, 1]], axis=1)
    mean = length.mean()
    radius = RADIUS * mean * generator.lognormal(sigma=SPREAD, size=len(throats))
    conductance = numpy.pi * radius**4 / (8 * VISCOSITY * numpy.maximum(length, SHORTEST * mean))
    face = 1e-9
    return PoreNetwork(position, throats, radius, conductance, position[:, 0] < face, position[:, 0] > 1 - face)


def _tessellate(points: NDArray[numpy.float64], margin: float) -> tuple[NDArray[numpy.float64], NDArray[numpy.int64]]:
    """Vertices and edges of the cells of ``points``, which their mirror images cut off at the faces of the cube."""
    images = [points]
    for axis in range(3):
        for face in (0.0, 1.0):
            image = points[abs(points[:, axis] - face) < margin]
            image[:, axis] = 2 * face - image[:, axis]
            images.append(image)
    tessellation = Voronoi(numpy.concatenate(images))
    vertices = tessellation.vertices
    inside = ((vertices > -1e-9) & (vertices < 1 + 1e-9)).all(axis=1)
    edges = _ridge_edges(tessellation.ridge_vertices)
    edges = edges[(edges >= 0).all(axis=1)]  # -1 stands for a vertex at infinity
    edges = numpy.unique(edges[inside[edges].all(axis=1)], axis=0)
    place = numpy.cumsum(inside) - 1
    return vertices[inside].clip(0, 1), place[edges]


def _ridge_edges(ridges: list[list[int]]) -> NDArray[numpy.int64]:
    """The sides of all polygons, [S, 2], each with its smaller vertex first."""
    corners = numpy.concatenate([numpy.asarray(ridge) for ridge in ridges])
    sizes = numpy.array([len(ridge) for ridge in ridges])
    first = numpy.cumsum(sizes) - sizes
    following = numpy.arange(1, len(corners) + 1)
    following[first + sizes - 1] = first  # a polygon's last corner is followed by its first
    return numpy.sort(numpy.stack([corners, corners[following]], axis=1), axis=1)
