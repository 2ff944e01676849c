from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from convergent import InputError
from convergent.tasks.openpnm import as_pore_network, from_openpnm, read_network, to_openpnm, undisturbed, write_network
from convergent.tasks.pore_network import VISCOSITY, PoreNetwork, PoreNetworks, as_batch, pressure

KINDS = [
    PoreNetworks(),
    PoreNetworks(wide=True),
    PoreNetworks(generator="delaunay"),
    PoreNetworks(generator="delaunay", wide=True),
    PoreNetworks((1800, 2000)),
]
FIELDS = ("position", "diameter", "throats", "throat_diameter", "throat_length", "inlet", "outlet")


@pytest.fixture
def op() -> Iterator[Any]:
    """OpenPNM, where it is installed, without what its import does to everybody else."""
    with undisturbed():
        openpnm = pytest.importorskip("openpnm")
    yield openpnm
    openpnm.Workspace().clear()


def network(task: PoreNetworks = KINDS[0], seed: int = 0) -> PoreNetwork:
    return task.network(np.random.default_rng(seed))


def tree() -> PoreNetwork:
    """More pores than throats, one of them alone: OpenPNM's own writer would lose two."""
    x = np.array([0.0, 0.2, 0.5, 1.0, 0.7]) * 1e-3
    position = np.column_stack([x, np.zeros(5), np.full(5, 1e-4 / 3)])
    throats = np.array([[0, 1], [1, 2], [2, 3]])
    return PoreNetwork(position, np.full(5, 1e-5), throats, np.full(3, 1e-5), np.diff(x[:4]), x == 0, x == 1e-3)


def assert_same(found: PoreNetwork, made: PoreNetwork) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name), err_msg=name, strict=True)


def stokes(op: Any, net: Any, inlet: str, outlet: str) -> np.ndarray:
    """OpenPNM's own pressures, with our conductance."""
    phase = op.phase.Phase(network=net)
    phase["throat.hydraulic_conductance"] = np.pi * (net["throat.diameter"] / 2) ** 4 / (8 * VISCOSITY * net["throat.length"])
    flow = op.algorithms.StokesFlow(network=net, phase=phase)
    flow.set_value_BC(pores=net.pores(inlet), values=1.0)
    flow.set_value_BC(pores=net.pores(outlet), values=0.0)
    flow.run(solver=op.solvers.ScipySpsolve())  # its default is MKL's, with an OpenMP of its own beside numba's
    return np.asarray(flow["pore.pressure"])


# --- in memory ---


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_pressures_are_those_of_openpnm(op, task, seed) -> None:
    net = network(task, seed)
    np.testing.assert_allclose(stokes(op, to_openpnm(net), "inlet", "outlet"), pressure(net), rtol=0, atol=1e-9)


@pytest.mark.parametrize("task", KINDS)
def test_there_and_back(op, task) -> None:
    net = network(task, 7)
    there = to_openpnm(net)
    assert_same(as_pore_network(there), net)
    back, batch = from_openpnm(there), as_batch(net)
    for name in ("x", "edge_index", "edge_attr", "y", "batch"):
        assert torch.equal(getattr(back, name), getattr(batch, name)), name
    assert back.num_graphs == 1


def test_what_openpnm_gets(op) -> None:
    net = network()
    there = to_openpnm(net)
    assert isinstance(there, op.network.Network)
    assert there.Np == len(net.position)
    assert there.Nt == len(net.throats)
    assert (there.conns[:, 0] < there.conns[:, 1]).all()
    batch = as_batch(net)
    np.testing.assert_array_equal(there["pore.volume"].astype(np.float32), batch.x[:, 3])
    np.testing.assert_array_equal(there["throat.volume"].astype(np.float32), batch.edge_attr[: len(net.throats), 0])
    np.testing.assert_array_equal(there.pores("inlet"), np.flatnonzero(net.inlet))
    np.testing.assert_array_equal(there.pores("outlet"), np.flatnonzero(net.outlet))


def demo(op: Any) -> Any:
    return op.network.Demo(shape=[5, 4, 3], spacing=1e-4)


def cubic(op: Any) -> Any:
    net = op.network.Cubic(shape=[4, 4, 4], spacing=5e-5)
    net["pore.diameter"], net["throat.diameter"], net["throat.length"] = 2e-5, 1e-5, 3e-5
    return net


def own_voronoi(op: Any) -> Any:
    """OpenPNM's tessellation, with sizes such that no two pores overlap."""
    rng = np.random.default_rng(0)
    net = op.network.Voronoi(shape=[1e-3, 1e-3, 1e-3], points=rng.random((20, 3)) * 1e-3)
    net["pore.diameter"] = 1e-7
    net["throat.diameter"] = rng.uniform(1e-6, 1e-5, net.Nt)
    net["throat.length"] = np.linalg.norm(np.diff(net.coords[net.conns], axis=1)[:, 0], axis=1)
    return net


@pytest.mark.parametrize("made", [demo, cubic, own_voronoi])
@pytest.mark.parametrize("ends", [("xmin", "xmax"), ("pore.zmax", "zmin")])
def test_networks_of_openpnm(op, made, ends) -> None:
    net = made(op)
    inlet, outlet = (end.removeprefix("pore.") for end in ends)
    found = as_pore_network(net, *ends)
    np.testing.assert_allclose(pressure(found), stokes(op, net, inlet, outlet), rtol=0, atol=1e-9)
    batch = from_openpnm(net, *ends)
    assert batch.x.shape == (net.Np, 7)
    assert batch.edge_index.shape == (2, 2 * net.Nt)
    np.testing.assert_array_equal(batch.x[:, 4], net["pore.diameter"].astype(np.float32))
    np.testing.assert_array_equal(batch.edge_attr[: net.Nt, 2], net["throat.length"].astype(np.float32))
    np.testing.assert_array_equal(batch.x[:, 6], net[f"pore.{inlet}"])


# A network of OpenPNM is a dictionary of arrays, so what follows needs no OpenPNM.


def arrays(**changed: Any) -> dict[str, Any]:
    net = tree()
    found = {
        "pore.coords": net.position,
        "pore.diameter": net.diameter,
        "throat.conns": net.throats,
        "throat.diameter": net.throat_diameter,
        "throat.length": net.throat_length,
        "pore.left": net.inlet,
        "pore.right": net.outlet,
    }
    return found | {name.replace("_", "."): value for name, value in changed.items()}


def test_throats_may_be_parallel_and_point_either_way() -> None:
    """Two throats side by side pass twice as much, so that less pressure is lost along them."""
    ends = np.array([[1, 0], [0, 1], [2, 1]])
    sizes = {"throat_conns": ends, "throat_length": np.full(3, 1e-4), "pore_right": np.arange(5) == 2}
    net = as_pore_network(arrays(**sizes), "left", "right")
    assert net.throats.tolist() == [[0, 1], [0, 1], [1, 2]]
    np.testing.assert_allclose(pressure(net)[:3], [1, 2 / 3, 0], atol=1e-12)


@pytest.mark.parametrize("name", ["pore.coords", "pore.diameter", "throat.conns", "throat.diameter", "throat.length"])
def test_a_missing_property_is_named(name) -> None:
    lacking = arrays()
    del lacking[name]
    with pytest.raises(InputError, match=rf"^network: expected a property '{name}', but got pore\..*, throat\."):
        from_openpnm(lacking, "left", "right")


def test_a_missing_property_of_openpnm(op) -> None:
    with pytest.raises(InputError, match=r"^network: expected a property 'pore\.diameter', but got pore\.back, pore\.bottom"):
        from_openpnm(op.network.Cubic(shape=[3, 3, 3]), "xmin", "xmax")


@pytest.mark.parametrize("ends", [("inlet", "right"), ("left", "inlet")])
def test_a_missing_label_is_named(ends) -> None:
    with pytest.raises(InputError, match=r"^network: expected a label 'pore\.inlet', but got .*pore\.left, pore\.right"):
        from_openpnm(arrays(), *ends)


def test_a_missing_label_of_openpnm(op) -> None:
    with pytest.raises(InputError, match=r"^network: expected a label 'pore\.inlet', but got .*pore\.xmax, pore\.xmin"):
        from_openpnm(demo(op))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pore_coords": np.zeros((5, 2))}, r"'pore\.coords' of shape \(5, 3\), but got \(5, 2\)"),
        ({"pore_coords": 1.0}, r"'pore\.coords' of shape \(None, 3\), but got \(\)"),
        ({"pore_diameter": np.zeros(4)}, r"'pore\.diameter' of shape \(5,\), but got \(4,\)"),
        ({"pore_diameter": np.array(list("abcde"))}, r"numbers in 'pore\.diameter', but got <U1"),
        ({"pore_diameter": np.full(5, -1e-5)}, r"no number below 0 in 'pore\.diameter', but got -1e-05 at pore 0"),
        ({"throat_conns": np.array([[0, 1], [1, 5], [2, 3]])}, r"pores 0 to 4 in 'throat\.conns', but got 5 at throat 1"),
        ({"throat_conns": np.array([[0, 1], [1, 2], [2.5, 3]])}, r"pores 0 to 4 in 'throat\.conns', but got 2\.5 at throat 2"),
        ({"throat_conns": np.array([[0, 1], [2, 2], [2, 3]])}, r"two different pores in 'throat\.conns', but got 2 at throat 1"),
        ({"throat_diameter": np.array([1, 0, 1])}, r"numbers above 0 in 'throat\.diameter', but got 0 at throat 1"),
        ({"throat_diameter": np.array([1, 1, 1e-100])}, r"a conductance a double can hold in .*, but got 1e-100 at throat 2"),
        ({"throat_length": np.array([1, 1, np.nan])}, r"finite numbers in 'throat\.length', but got nan at throat 2"),
        ({"throat_length": np.array([1, -1, 1])}, r"numbers above 0 in 'throat\.length', but got -1 at throat 1"),
        ({"pore_left": np.zeros(5, bool)}, r"one pore or more with the label 'pore\.left', but got none"),
        ({"pore_left": np.arange(5)}, r"'pore\.left' to be 5 booleans, but got int64 of shape \(5,\)"),
        ({"pore_right": np.arange(5) < 2}, r"no pore with both labels, 'left' and 'right', but got pore 0"),
    ],
)
def test_bad_values_are_named(changed, message) -> None:
    with pytest.raises(InputError, match=rf"^network: expected .*{message}$"):
        from_openpnm(arrays(**changed), "left", "right")


def test_what_is_no_network() -> None:
    with pytest.raises(InputError, match="network: expected a network of OpenPNM, but got list"):
        from_openpnm([1, 2])  # type: ignore[arg-type]


# --- on disk ---


@pytest.mark.parametrize("task", KINDS)
def test_files_keep_every_digit(tmp_path, task) -> None:
    net = network(task, 3)
    write_network(net, tmp_path / "network.csv")
    assert_same(read_network(tmp_path / "network.csv"), net)


def test_files_keep_more_pores_than_throats(tmp_path) -> None:
    write_network(tree(), tmp_path / "tree.csv")
    assert_same(read_network(str(tmp_path / "tree.csv")), tree())


@pytest.mark.parametrize("made", [network, tree])
def test_openpnm_reads_our_files(op, tmp_path, made) -> None:
    net = made()
    write_network(net, tmp_path / "network.csv")
    found = op.io.network_from_csv(tmp_path / "network.csv")
    assert set(found.keys()) == set(to_openpnm(net).keys())
    back = as_pore_network(found)
    for name in FIELDS:  # pandas, with which OpenPNM reads, does not promise the last digit
        np.testing.assert_allclose(getattr(back, name), getattr(net, name), rtol=1e-15, err_msg=name)


@pytest.mark.parametrize("made", [demo, own_voronoi])
def test_we_read_files_of_openpnm(op, tmp_path, made) -> None:
    net = made(op)
    op.io.network_to_csv(net, tmp_path / "network.csv")
    assert_same(read_network(tmp_path / "network.csv", "xmin", "pore.xmax"), as_pore_network(net, "xmin", "xmax"))


def written(folder: Path, *changes: tuple[str, str]) -> Path:
    """The tree as a file, with some of its text changed."""
    path = folder / "network.csv"
    write_network(tree(), path)
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path


def test_what_a_spreadsheet_does_to_a_file(tmp_path) -> None:
    """A mark at the beginning, other ends of lines, capitals, empty lines at the end."""
    path = written(tmp_path, ("True", "TRUE"), ("False", "FALSE"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert_same(read_network(path), tree())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("throat.length", "throat.reach")], r": expected a column 'throat\.length', but got .*throat\.reach, throat\.volume"),
        ([("pore.coords[2]", "pore.z")], r": expected a column 'pore\.coords\[2\]', but got "),
        ([("throat.volume", "throat.length")], r": expected every column once, but got throat\.length again"),
        ([("pore.outlet", "pore.exit")], r": expected a column 'pore\.outlet', but got "),
        ([("True", "yes")], r", row 2, column 'pore\.inlet': expected True or False, but got 'yes'"),
        ([("0.0002", "wide")], r", row 2, column 'throat\.length': expected a finite number, but got 'wide'"),
        ([("0.0002", "2_0")], r", row 2, column 'throat\.length': expected a finite number, but got '2_0'"),
        ([("0.0002", "inf")], r", row 2, column 'throat\.length': expected a finite number, but got 'inf'"),
        ([("0.0002", "")], r", row 2, column 'throat\.length': expected a finite number, but got nothing"),
        ([("0.0002", "-1")], r": expected numbers above 0 in 'throat\.length', but got -1 at throat 0"),
        ([("0.0002,", "")], r", row 2: expected 12 cells, but got 11"),
        ([("\n,,,", "\n,,9,")], r", column 'throat\.diameter': expected 3 values, but got 4"),
        ([("\n0,1", '\n"0,1')], r": expected a table, but could not read it: unexpected end of data"),
        ([("\n0,1", "\n0,7")], r": expected pores 0 to 4 in 'throat\.conns', but got 7 at throat 0"),
        ([("\n0,1", "\n\n0,1")], r", row 2, column 'pore\.coords\[0\]': expected a finite number, but got nothing"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, changes, message) -> None:
    path = written(tmp_path, *changes)
    with pytest.raises(InputError, match=rf"network\.csv{message}") as caught:
        read_network(path)
    assert "\n" not in str(caught.value)


JUNK = {
    "empty": b"",
    "line": b"\n",
    "mark": b"\xef\xbb\xbf",
    "nul": b"\x00",
    "bytes": b"\x00\xff\xfe",
    "pickle": pickle.dumps(tree()),
    "controls": b'"a\nb","\x1b[31m"\n1,2\n',
    "commas": b"x," * 50_000,
    "long": b"y" * 200_000,
}


@pytest.mark.parametrize("content", JUNK.values(), ids=JUNK)
def test_what_is_no_table_is_one_line(tmp_path, content) -> None:
    path = tmp_path / "network.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"network\.csv.*: expected ") as caught:
        read_network(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_no_file_and_no_csv(tmp_path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: expected a table, but could not read it: .*No such file"):
        read_network(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"path: expected a name that ends in \.csv"):
        write_network(tree(), tmp_path / "network.pnm")


# --- the rest of the program ---


def test_undisturbed_puts_everything_back() -> None:
    root, handler = logging.getLogger(), logging.NullHandler()
    before = np.geterr(), root.level, root.handlers[:], warnings.filters[:]

    def disturb() -> None:
        np.seterr(divide="ignore", invalid="ignore", over="raise")
        root.setLevel(logging.DEBUG)
        root.addHandler(handler)
        warnings.simplefilter("ignore")
        assert before != (np.geterr(), root.level, root.handlers[:], warnings.filters[:])
        raise KeyError  # an import may fail half way

    with pytest.raises(KeyError), undisturbed():
        disturb()
    assert before == (np.geterr(), root.level, root.handlers[:], warnings.filters[:])


CHECK = """
import logging, sys, warnings
import numpy as np
from convergent.tasks.openpnm import to_openpnm
from convergent.tasks.pore_network import PoreNetworks

root, net = logging.getLogger(), PoreNetworks().network(np.random.default_rng(0))
before = np.geterr(), root.level, root.handlers[:], warnings.filters[:]
assert "openpnm" not in sys.modules
to_openpnm(net)
assert "openpnm" in sys.modules
assert before == (np.geterr(), root.level, root.handlers[:], warnings.filters[:])
"""


def test_the_first_import_changes_nothing(op) -> None:
    """In a process of its own: here OpenPNM is loaded already."""
    run = subprocess.run([sys.executable, "-W", "error", "-c", CHECK], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
