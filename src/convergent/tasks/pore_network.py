"""Pore networks (section 5.1 of the paper): the pressure of a fluid that seeps through a porous cube.

Pores are nodes, throats between them are edges. Between the inlet (x = 0, pressure 1) and the outlet (x = width, pressure 0)

    sum_j k_ij (p_i - p_j) = 0,     k_ij = pi r_ij^4 / (8 mu l_ij)

The paper's own numbers overlap (pores of a tenth of the cube's width). As in its code, pores are at most 0.9 times as wide as the
smallest distance between two neighbours, a throat is as wide as the smaller of its pores, and as long as what is left between them.
Lengths are in metres; pressures are fractions of the inlet's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import cg, splu
from scipy.spatial import Delaunay, QhullError, Voronoi

from convergent.errors import InputError, expect
from convergent.settings import Count, OneOf, check_fields
from convergent.tasks.batch import MOST_NUMBERS, GraphBatch

Floats = NDArray[np.float64]

VISCOSITY = 1e-3  # of water, Pa s
WIDTH = 1e-3  # of the cube
DIAMETER = (0.099e-3, 0.101e-3)  # of pores, before they are cut to fit
CLOSE = 0.9  # of the distance between two pores, which their radii fill at most
PORES_PER_POINT = 5.6  # of a small Voronoi tessellation that is cut off at the faces of the cube
MARGIN = 3.0  # mean spacings from a face within which points have a mirror image
SPREAD = 1.15  # of the logarithm of sizes in the wide mode: two orders of magnitude between the 2.5th and the 97.5th percentile
SPARSE = 300  # pores from which the exact solution is sparse
ITERATE = 50_000  # and from which it is iterated
NUMBERS_PER_PORE = 100  # in a batch, roughly: a network has four to seven throats per pore, with features both ways

NODE_FEATURES = ("x", "y", "z", "volume", "diameter", "boundary", "boundary_pressure")
EDGE_FEATURES = ("volume", "diameter", "length")


@dataclass(frozen=True)
class PoreNetwork:
    """Pores in a cube, joined by cylindrical throats; metres, pascals and seconds."""

    position: Floats  # [N, 3]
    diameter: Floats  # [N] of pores
    throats: NDArray[np.int64]  # [T, 2] the two pores of every throat, the smaller first
    throat_diameter: Floats  # [T]
    throat_length: Floats  # [T]
    inlet: NDArray[np.bool_]  # [N]
    outlet: NDArray[np.bool_]  # [N]

    @property
    def conductance(self) -> Floats:
        """Hagen-Poiseuille, [T]."""
        return np.pi * (self.throat_diameter / 2) ** 4 / (8 * VISCOSITY * self.throat_length)

    def node_features(self) -> Floats:
        volume = np.pi / 6 * self.diameter**3
        boundary = self.inlet | self.outlet
        return np.column_stack([self.position, volume, self.diameter, boundary, self.inlet])

    def edge_features(self) -> Floats:
        volume = np.pi / 4 * self.throat_diameter**2 * self.throat_length
        return np.column_stack([volume, self.throat_diameter, self.throat_length])


@dataclass(frozen=True)
class PoreNetworks:
    """Random pore networks.

    Args:
        pores: the smallest and the largest number of pores (approximate).
        generator: voronoi (pores are the corners of the cells of random points) or delaunay (pores are the points).
        wide: log-normal sizes of pores and throats over two orders of magnitude, as in real rock, instead of the paper's.
    """

    pores: tuple[Count, Count] = (50, 200)
    generator: Annotated[str, OneOf(("voronoi", "delaunay"))] = "voronoi"
    wide: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        low, high = self.pores
        expect(20 <= low <= high, "pores", "a range from 20 on, such as (50, 200)", self.pores)
        expect(high * NUMBERS_PER_PORE <= MOST_NUMBERS, "pores", "sizes whose networks fit in memory", self.pores)

    def check_memory(self, graphs: int, name: str) -> None:
        """Raise unless so many networks at once fit in memory; ``name`` is the setting that asks for them."""
        most = MOST_NUMBERS // (NUMBERS_PER_PORE * self.pores[1])
        expect(
            graphs <= most,
            name,
            f"at most {most:,} networks of up to {self.pores[1]:,} pores, as more may not fit in memory",
            graphs,
        )

    def network(self, rng: np.random.Generator) -> PoreNetwork:
        """One network. Points that Qhull cannot tessellate are drawn again."""
        for _ in range(20):
            try:
                skeleton = GENERATORS[self.generator](int(rng.integers(self.pores[0], self.pores[1] + 1)), rng)
            except QhullError:
                continue
            if skeleton is not None:
                return furnish(*skeleton, self.wide, rng)
        raise InputError(f"pores: expected numbers that give a network from inlet to outlet, but got {self.pores}")

    def sample(self, graphs: int, rng: np.random.Generator) -> GraphBatch:
        """That many networks with their exact pressures."""
        self.check_memory(graphs, "graphs")
        return GraphBatch.join([as_batch(network) for network in (self.network(rng) for _ in range(graphs))])


def as_batch(network: PoreNetwork) -> GraphBatch:
    """A network with its pressures; every throat is two edges, one for each pore that reads across it."""
    x = torch.from_numpy(network.node_features()).float()
    ends = torch.from_numpy(network.throats)
    features = torch.from_numpy(network.edge_features()).float()
    edge_index = torch.cat([ends, ends.flip(1)]).T.contiguous()
    y = torch.from_numpy(pressure(network)).float().unsqueeze(1)
    return GraphBatch(x, edge_index, features.repeat(2, 1), y, torch.zeros(len(x), dtype=torch.long), 1)


# --- geometry, in a cube of width 1 ---


def voronoi(pores: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64]] | None:
    """Corners and sides of the cells of random points, which their mirror images cut off at the faces."""
    return tessellate(rng.random((max(4, round(pores / PORES_PER_POINT)), 3)))


def tessellate(points: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Corners and sides of the cells of these points. Cells reach some spacings far, so only images that near a face are needed."""
    margin = MARGIN * len(points) ** (-1 / 3)
    images = [points]
    for axis in range(3):
        for face in (0.0, 1.0):
            image = points[abs(points[:, axis] - face) < margin]
            image[:, axis] = 2 * face - image[:, axis]
            images.append(image)
    tessellation = Voronoi(np.concatenate(images))
    corners = tessellation.vertices
    inside = ((corners > -1e-9) & (corners < 1 + 1e-9)).all(axis=1)
    sides = ridge_sides(tessellation.ridge_vertices)
    sides = sides[(sides >= 0).all(axis=1)]  # -1 stands for a corner at infinity
    sides = np.unique(sides[inside[sides].all(axis=1)], axis=0)
    return merged(corners[inside].clip(0, 1), (np.cumsum(inside) - 1)[sides])


def delaunay(pores: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64]] | None:
    """Random points and their neighbours; those nearest to the two ends lie on the faces."""
    points = rng.random((pores, 3))
    layer = 0.5 * pores ** (-1 / 3)
    points[points[:, 0] < layer, 0] = 0.0
    points[points[:, 0] > 1 - layer, 0] = 1.0
    corners = Delaunay(points).simplices  # [S, 4]
    sides = np.concatenate([corners[:, pair] for pair in ([0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3])])
    return points, np.unique(np.sort(sides, axis=1), axis=0).astype(np.int64)


GENERATORS = {"voronoi": voronoi, "delaunay": delaunay}


def ridge_sides(ridges: list[list[int]]) -> NDArray[np.int64]:
    """The sides of all polygons, [S, 2], each with its smaller corner first."""
    corners = np.concatenate([np.asarray(ridge) for ridge in ridges])
    sizes = np.array([len(ridge) for ridge in ridges])
    first = np.cumsum(sizes) - sizes
    following = np.arange(1, len(corners) + 1)
    following[first + sizes - 1] = first  # a polygon's last corner is followed by its first
    return np.sort(np.stack([corners, corners[following]], axis=1), axis=1)


def merged(position: Floats, sides: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """Corners that Qhull found twice, as one; and no side from a corner to itself."""
    _, kept, same = np.unique(np.round(position, 9), axis=0, return_index=True, return_inverse=True)
    sides = np.sort(same.reshape(-1)[sides], axis=1)
    return position[kept], np.unique(sides[sides[:, 0] != sides[:, 1]], axis=0)


# --- sizes ---


def furnish(position: Floats, throats: NDArray[np.int64], wide: bool, rng: np.random.Generator) -> PoreNetwork:
    """Sizes of pores and throats, such that every throat has a length."""
    position = position * WIDTH
    distance = np.linalg.norm(position[throats[:, 0]] - position[throats[:, 1]], axis=1)
    if wide:  # every pore has the room that its own neighbours leave it
        room = np.full(len(position), WIDTH)
        for end in (0, 1):
            np.minimum.at(room, throats[:, end], distance)
        drawn = np.median(distance) * 0.3 * rng.lognormal(sigma=SPREAD, size=len(position))
    else:
        room = np.full(len(position), distance.min(initial=WIDTH))
        drawn = rng.uniform(*DIAMETER, len(position))
    diameter = np.minimum(drawn, CLOSE * room)
    width = np.minimum(diameter[throats[:, 0]], diameter[throats[:, 1]])
    if wide:
        width = width * np.minimum(1.0, rng.lognormal(mean=-0.5, sigma=SPREAD, size=len(throats)))
    length = distance - (diameter[throats[:, 0]] + diameter[throats[:, 1]]) / 2
    face = 1e-9 * WIDTH
    inlet, outlet = position[:, 0] < face, position[:, 0] > WIDTH - face
    return PoreNetwork(position, diameter, throats, width, length, inlet, outlet)


# --- the exact solution ---


def pressure(network: PoreNetwork) -> Floats:
    """The pressure of every pore, in [0, 1]; a part that touches neither inlet nor outlet has no flow and stays at 0."""
    free = ~(network.inlet | network.outlet)
    p = network.inlet.astype(np.float64)
    if not free.any():
        return p
    matrix = laplacian(network)[free]
    inner, right = matrix[:, free].tocsc(), -(matrix @ p)
    p[free] = solve_symmetric(inner, right)
    return p.clip(0, 1)


def laplacian(network: PoreNetwork) -> csr_array:
    """sum_j k_ij (p_i - p_j) for every pore, with conductances relative to their mean; a pore without a throat has a 1."""
    size, (first, second) = len(network.position), network.throats.T
    k = network.conductance / (network.conductance.mean() if len(network.throats) else 1.0)
    row, column = np.concatenate([first, second]), np.concatenate([second, first])
    around = csr_array((np.concatenate([k, k]), (row, column)), shape=(size, size))
    total = around.sum(axis=1)
    return (diags_array(np.where(total > 0, total, 1.0)) - around).tocsr()


def solve_symmetric(matrix: csr_array, right: Floats) -> Floats:
    """Dense, sparse or iterated, by size. A floating part makes the matrix singular: a leak too small to see pins it."""
    size = matrix.shape[0]
    matrix = matrix + diags_array(np.full(size, 1e-15) * matrix.diagonal())
    if size <= SPARSE:
        return np.linalg.solve(matrix.toarray(), right)
    if size <= ITERATE:
        return splu(matrix.tocsc()).solve(right)
    jacobi = diags_array(1 / matrix.diagonal())
    found, failed = cg(matrix.tocsr(), right, rtol=1e-12, maxiter=100_000, M=jacobi)
    if failed:
        raise InputError("network: expected one whose pressures conjugate gradients can find, but got one they cannot")
    return found
