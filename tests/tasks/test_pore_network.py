from __future__ import annotations

import numpy as np
import pytest
import torch

from convergent import InputError
from convergent.tasks.pore_network import (
    EDGE_FEATURES,
    GENERATORS,
    NODE_FEATURES,
    VISCOSITY,
    PoreNetwork,
    PoreNetworks,
    as_batch,
    laplacian,
    pressure,
)

KINDS = [PoreNetworks(), PoreNetworks(wide=True), PoreNetworks(generator="delaunay"), PoreNetworks((1800, 2000))]


def network(task: PoreNetworks = KINDS[0], seed: int = 0) -> PoreNetwork:
    return task.network(np.random.default_rng(seed))


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_pressures_balance_and_stay_between_inlet_and_outlet(task, seed) -> None:
    net = network(task, seed)
    p = pressure(net)
    assert net.inlet.any()
    assert net.outlet.any()
    assert (p[net.inlet] == 1).all()
    assert (p[net.outlet] == 0).all()
    assert p.min() >= 0
    assert p.max() <= 1
    matrix = laplacian(net)
    balance = abs(matrix @ p) / matrix.diagonal()
    assert balance[~(net.inlet | net.outlet)].max() < 1e-10


@pytest.mark.parametrize("task", KINDS)
def test_pores_do_not_overlap(task) -> None:
    for seed in range(5):
        net = network(task, seed)
        assert (net.throat_length > 0).all()
        assert (net.throat_diameter > 0).all()
        first, second = net.throats.T
        assert (net.throat_diameter <= np.minimum(net.diameter[first], net.diameter[second])).all()
        assert (first < second).all()
        assert len(np.unique(net.throats, axis=0)) == len(net.throats)
        assert net.position.min() >= 0
        assert net.position.max() <= 1e-3


def test_a_straight_tube() -> None:
    """Three throats of equal width in a row: the pressure falls with their lengths."""
    x = np.array([0.0, 0.2, 0.5, 1.0]) * 1e-3
    position = np.column_stack([x, np.zeros(4), np.zeros(4)])
    throats = np.array([[0, 1], [1, 2], [2, 3]])
    net = PoreNetwork(position, np.zeros(4), throats, np.full(3, 1e-5), np.diff(x), x == 0, x == 1e-3)
    np.testing.assert_allclose(pressure(net), [1, 0.8, 0.5, 0], atol=1e-12)
    np.testing.assert_allclose(net.conductance[0], np.pi * (0.5e-5) ** 4 / (8 * VISCOSITY * 0.2e-3))


def test_pores_that_nothing_leads_to_are_at_rest() -> None:
    position = np.column_stack([np.linspace(0, 1e-3, 5), np.zeros(5), np.zeros(5)])
    throats = np.array([[0, 4], [1, 2]])  # 1 and 2 float, 3 is alone
    inlet, outlet = np.arange(5) == 0, np.arange(5) == 4
    net = PoreNetwork(position, np.full(5, 1e-5), throats, np.full(2, 1e-6), np.full(2, 1e-4), inlet, outlet)
    np.testing.assert_allclose(pressure(net), [1, 0, 0, 0, 0], atol=1e-12)


def test_the_wide_mode_is_wide() -> None:
    net = network(PoreNetworks((1000, 1200), wide=True))
    low, high = np.percentile(net.throat_diameter, [2.5, 97.5])
    assert high / low > 50


def test_the_number_of_pores() -> None:
    sizes = [len(network(PoreNetworks((100, 120)), seed).position) for seed in range(20)]
    assert 60 < np.mean(sizes) < 160


def test_as_graphs() -> None:
    batch = PoreNetworks().sample(4, np.random.default_rng(0))
    assert batch.num_graphs == 4
    assert batch.x.shape[1] == len(NODE_FEATURES)
    assert batch.edge_attr.shape[1] == len(EDGE_FEATURES)
    row, column = batch.edge_index
    assert torch.equal(batch.batch[row], batch.batch[column])
    half = as_batch(network())
    count = half.edge_index.shape[1] // 2
    assert torch.equal(half.edge_index[:, :count], half.edge_index[:, count:].flip(0))
    assert torch.equal(half.edge_attr[:count], half.edge_attr[count:])


def test_the_same_seed_gives_the_same_network() -> None:
    assert np.array_equal(network(seed=5).throat_length, network(seed=5).throat_length)
    assert len(network(seed=6).throat_length) != len(network(seed=5).throat_length)


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="pores: expected a range from 20 on"):
        PoreNetworks((5, 10))
    with pytest.raises(InputError, match="generator: expected one of"):
        PoreNetworks(generator="cubic")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pores": "x"}, "pores: expected two whole numbers, 1 or more, but got 'x'"),
        ({"pores": (1, 2, 3)}, "pores: expected two whole numbers"),
        ({"pores": (10**10, 10**10)}, "pores: expected sizes whose networks fit in memory"),
        ({"wide": "x"}, "wide: expected true or false, but got 'x'"),
        ({"generator": 5}, "generator: expected one of voronoi, delaunay, but got 5"),
    ],
)
def test_settings_have_types_and_limits(change, message) -> None:
    with pytest.raises(InputError, match=message):
        PoreNetworks(**change)


def test_more_networks_than_fit_in_memory() -> None:
    with pytest.raises(InputError, match="graphs: expected at most 107,374 networks of up to 200 pores, as more may not"):
        PoreNetworks().sample(10**9, np.random.default_rng(0))


def test_generators_by_name() -> None:
    assert tuple(GENERATORS) == ("voronoi", "delaunay")  # as the settings have them
