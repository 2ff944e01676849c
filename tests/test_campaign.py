"""The campaign finds what is wrong: references are exact, a wrong certificate is seen, kills are kills, the exit code says so."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from campaign import __main__ as command
from campaign import calls, compare, inputs, kills, pool, systems
from campaign.blocks import Structure
from campaign.certificates import Asked, Checks
from campaign.draw import TRANSFORMS, Drawn, drawn
from campaign.exact_rows import weight_with_exact_rows
from campaign.extended import LONG, SLOPES, TORCH, slope
from campaign.linear import solve_linear
from campaign.loaded import loaded
from campaign.nonlinear import Activated, MaxPlus, solve_nonlinear
from campaign.outcome import Outcome
from campaign.report import entry, merge
from campaign.shapes import random_structure
from torch import Tensor

from convergent import ActivatedMap, Auto, Graph, LinearMap, Picard, certify, solve
from convergent.kernels.activations import ACTIVATIONS
from convergent.solvers import Solver, loop

ROOT = Path(__file__).resolve().parent.parent
DOUBLE = torch.float64


def structure(nodes: int = 6, edges: int = 20, seed: int = 0) -> Structure:
    draw = torch.Generator().manual_seed(seed)
    return Structure(*torch.randint(nodes, (2, edges), generator=draw), torch.tensor([nodes]))


def weights(given: Structure, factor: float, heads: int = 2) -> Tensor:
    size = torch.rand(len(given.row), heads, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    return factor * size / given.sum_rows(size)[given.row]


# --- references ---


def exact(given: Structure, weight: Tensor, bias: Tensor) -> list[Fraction]:
    """Gauss's elimination with fractions."""
    size = given.num_nodes
    rows = [[Fraction(i == j) for j in range(size)] + [Fraction(value)] for i, value in enumerate(bias.tolist())]
    for i, j, value in zip(given.row.tolist(), given.column.tolist(), weight.tolist(), strict=True):
        rows[i][j] -= Fraction(value)
    for k in range(size):
        for i in range(size):
            if i != k:
                factor = rows[i][k] / rows[k][k]
                rows[i] = [mine - factor * other for mine, other in zip(rows[i], rows[k], strict=True)]
    return [rows[i][size] / rows[i][i] for i in range(size)]


@pytest.mark.parametrize("factor", [0.5, 1 - 1e-12])
def test_linear_references_are_within_their_error(factor: float) -> None:
    given = structure()
    weight, bias = weights(given, factor), torch.randn(6, 2, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    found = solve_linear(given, weight, bias)
    for head in range(2):
        for node, true in enumerate(exact(given, weight[:, head], bias[:, head])):
            value = Fraction(float(found.value.high[node, head])) + Fraction(float(found.value.low[node, head]))
            assert abs(value - true) <= Fraction(float(found.error[node, head]))
    assert bool((found.error <= 1e-15 * found.value.high.abs()).all())


def test_references_of_rows_that_sum_to_one() -> None:
    """A path with its ends given; and one that leads away from them, whose inverse float64 does not hold."""
    inner = torch.arange(1, 11)
    given = Structure(torch.cat([inner, inner]), torch.cat([inner - 1, inner + 1]), torch.tensor([12]))
    weight = torch.tensor([[0.25, -0.25]], dtype=DOUBLE).repeat(20, 1)
    weight[10:] = torch.tensor([0.75, 0.75], dtype=DOUBLE)
    bias = torch.randn(12, 2, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    found = solve_linear(given, weight, bias)
    for head in range(2):
        for node, true in enumerate(exact(given, weight[:, head], bias[:, head])):
            value = Fraction(float(found.value.high[node, head])) + Fraction(float(found.value.low[node, head]))
            assert abs(value - true) <= Fraction(float(found.error[node, head]))
    assert bool((found.error <= 1e-15).all())
    far = Structure(torch.cat([inner, inner]), torch.cat([inner - 1, (inner + 1).clamp(max=10)]), torch.tensor([12]))
    weight[:10], weight[10:] = 2.0**-20, 1 - 2.0**-20
    assert bool(torch.isinf(solve_linear(far, weight, bias).error).any())


def test_every_activation_has_a_reference() -> None:
    assert set(LONG) == set(TORCH) == set(SLOPES) == set(ACTIVATIONS)


@pytest.mark.parametrize("name", sorted(LONG))
def test_activations_in_long_double(name: str) -> None:
    z = torch.linspace(-7, 7, 141, dtype=DOUBLE)
    wide = LONG[name](z.numpy().astype(np.longdouble)).astype(np.float64)
    torch.testing.assert_close(torch.from_numpy(wide), TORCH[name](z), rtol=1e-14, atol=1e-15)
    assert float(slope(name, z).abs().max()) <= SLOPES[name]


@pytest.mark.parametrize("name", sorted(LONG))
def test_nonlinear_references_have_a_small_defect(name: str) -> None:
    given = structure()
    weight, bias = weights(given, 0.9 / SLOPES[name]), torch.randn(6, 2, generator=torch.Generator().manual_seed(3), dtype=DOUBLE)
    found = solve_nonlinear(Activated(given, weight, bias, name), torch.zeros_like(bias))
    graph = Graph(torch.stack([given.row, given.column]), 6)
    assert bool((ActivatedMap(graph, weight, bias, name).defect(found.value.high).abs() < 1e-14).all())
    assert bool((found.error < 1e-15).all())


def test_max_plus_references() -> None:
    given = structure()
    reward, bias = torch.rand(20, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(4)), torch.zeros(6, 2, dtype=DOUBLE)
    found = solve_nonlinear(MaxPlus(given, reward, bias, 0.9), bias)
    x = bias
    for _ in range(500):
        x = torch.maximum(bias, (reward + 0.9 * x[given.column]).new_full((6, 2), -torch.inf).scatter_reduce(
            0, given.row.unsqueeze(1).expand(-1, 2), reward + 0.9 * x[given.column], "amax"))  # fmt: skip
    torch.testing.assert_close(found.value.high, x)
    assert bool((found.error < 1e-15).all())


# --- draws ---


def test_draws_repeat_and_contract() -> None:
    for number in range(30):
        first, second = drawn(5, number, "cpu"), drawn(5, number, "cpu")
        assert torch.equal(first.weight, second.weight)
        assert first.solver == second.solver
        if first.kind != "MaxPlusMap":
            sums = SLOPES[first.activation] * first.structure.sum_rows(first.weight.abs().double())
            one = first.about["contraction"] == "exactly one"
            assert not sums.numel() or (float(sums.max()) == 1 if one else float(sums.max()) < 1)
        assert bool(torch.isfinite(first.bias).all())


def test_draws_come_close_to_one_in_single_precision() -> None:
    made = [drawn(0, number, "cpu") for number in range(200)]
    rows = [each.structure.sum_rows(each.weight.abs().double()) for each in made if each.weight.dtype == torch.float32]
    assert max(float(each.max()) for each in rows if each.numel()) > 1 - 1e-9


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rows_of_exactly_one_that_every_node_leaves(dtype: torch.dtype) -> None:
    draw = np.random.default_rng(3)
    for _ in range(10):
        given, _ = random_structure(draw, "cpu")
        made = weight_with_exact_rows(draw, given, 2, dtype)
        assert made is not None
        weight, about = made
        sums = given.sum_rows(weight.abs().double())
        assert weight.dtype == dtype
        assert float(sums.max()) == 1
        assert about["rows"] == "exactly one"
        graph = Graph(torch.stack([given.row, given.column]), given.num_nodes, batch=given.graph_of)
        assert float(LinearMap(graph, weight, torch.zeros(given.num_nodes, 2, dtype=dtype)).contraction.max()) >= 1


def test_rows_of_exactly_one_are_drawn_and_asked_every_way() -> None:
    made = [drawn(0, number, "cpu") for number in range(300)]
    assert sum(each.about["contraction"] == "exactly one" for each in made) > 20
    assert {each.transposed for each in made if each.about["contraction"] == "exactly one"} == {False, True}
    assert set(TRANSFORMS) <= {each.gradient for each in made}


def test_a_graph_alone_is_that_graph() -> None:
    whole = drawn(0, 1, "cpu")
    part = whole.only(3)
    assert part.structure.num_nodes == int(whole.structure.sizes[3])
    first = int(whole.structure.sizes[:3].sum())
    assert torch.equal(part.bias, whole.bias[first : first + part.structure.num_nodes])


# --- systems ---


def problem(solver: Solver, factor: float = 0.9) -> Drawn:
    given = Structure(*structure(6, 40).__dict__.values())
    bias = torch.rand(6, 2, generator=torch.Generator().manual_seed(2), dtype=DOUBLE) + 0.5
    return Drawn(given, "LinearMap", weights(given, factor), bias, solver, "cpu", about={"contraction": "easy"})


def found_in(made: Drawn) -> Outcome:
    outcome = Outcome()
    systems._check(made, outcome)
    return outcome


def test_a_right_solver_is_not_accused() -> None:
    outcome = found_in(problem(Picard(tol=1e-6)))
    assert outcome.counts["systems"] == 2
    assert not outcome.violations


def test_half_a_certificate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certify, "plain_amplification", lambda contraction, gap=0.0: 0.5 / (1 - contraction))
    assert "bound below the true error" in found_in(problem(Picard(tol=1e-3))).violations


def test_a_solver_that_stops_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lax(Picard):
        def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
            return 10 * (self.tol or 0.0), 0.0

    monkeypatch.delitem(Solver.methods, "Lax", raising=False)
    monkeypatch.setitem(Solver.methods, "Lax", Lax)
    assert "converged above the tolerance" in found_in(problem(Lax(tol=1e-6))).violations
    Solver.methods.pop("Lax")


def test_an_answer_that_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made, answers = problem(Picard(tol=1e-6)), iter([0.0, 1e-9])
    made.repeats = True
    before = loop._State.finish

    def finish(state: Any) -> Any:
        solution, whole = before(state)
        solution.value.add_(next(answers))
        return solution, whole

    monkeypatch.setattr(loop._State, "finish", finish)
    assert "two equal calls differ in value" in found_in(made).violations


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = problem(Picard(tol=1e-9))
    made.gradient, made.cotangent = "implicit", torch.ones(6, 2, dtype=DOUBLE)
    assert not found_in(made).violations
    before = LinearMap.pullback
    monkeypatch.setattr(LinearMap, "pullback", lambda *given: tuple(1.001 * part for part in before(*given)))
    outcome = found_in(made)
    assert {"gradient of the weight", "gradient of the bias"} <= set(outcome.violations)


def transformed(gradient: str) -> Drawn:
    made = problem(Auto(tol=1e-9))
    made.gradient, made.cotangent = gradient, torch.ones(6, 2, dtype=DOUBLE)
    made.direction = torch.randn(40, 2, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    return made


@pytest.mark.parametrize("gradient", TRANSFORMS)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_wrong_derivative_of_a_transform_is_found(monkeypatch: pytest.MonkeyPatch, gradient: str, transposed: bool) -> None:
    made = transformed(gradient)
    made.transposed = transposed
    right = found_in(made)
    assert not right.violations
    assert right.counts["tangents"] + right.counts["gradients"] >= 2
    name = "pushforward" if gradient in ("jvp", "forward") else "pullback"
    before = getattr(LinearMap, name)

    def wrong(*given: Any) -> Any:
        found = before(*given)
        return 1.001 * found if isinstance(found, Tensor) else tuple(1.001 * part for part in found)

    monkeypatch.setattr(LinearMap, name, wrong)
    kind = "tangent" if name == "pushforward" else "gradient of the weight"
    assert f"{gradient}: {kind}" in found_in(made).violations


def test_a_wrong_member_of_a_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = transformed("vmap")
    before = loop._State.finish

    def finish(state: Any) -> Any:
        solution, whole = before(state)
        if solution.value.shape[1] > made.bias.shape[1]:
            solution.value[:, -1] += 1e-6
        return solution, whole

    made.solver = Picard(tol=1e-9)
    monkeypatch.setattr(loop._State, "finish", finish)
    assert "vmap: further off than the tolerance" in found_in(made).violations


def test_infinite_and_missing_bounds_are_found() -> None:
    made = problem(Picard(tol=1e-6))
    solution = solve(made.map(made.weight, made.bias), made.solver)
    solution.error_bound[0, 0] = torch.nan
    outcome = Outcome()
    Checks(outcome, made.structure, solution, systems.exact(made, solution.value), Asked(1e-6, 0.0, None, "max")).run()
    assert {"bound is NaN", "converged above the tolerance"} <= set(outcome.violations)


def import_and_wait() -> None:
    with systems._patience("cpu"):
        importlib.import_module("half_imported")
        time.sleep(30)


def test_an_import_is_not_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_imported.py").write_text("import time\ntime.sleep(0.3)\nwhole = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(systems, "PATIENCE", 0.1)
    with pytest.raises(systems.TooSlow):
        import_and_wait()
    assert sys.modules.pop("half_imported").whole


def dies(seed: int, number: int, device: str) -> Outcome:
    if number == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return Outcome()


def test_a_crash_is_a_violation() -> None:
    outcome = pool.alone(dies, (0, "cpu"), 1)
    assert outcome.violations == {f"process ended by signal {int(signal.SIGSEGV)}": 1}
    assert outcome.failures[0]["again"] == "0:1"


# --- kills ---


@pytest.fixture(scope="module")
def forks() -> Iterator[Any]:
    with loaded("tests/kills.py").Forks() as server:
        yield server


def test_kills_are_kills_and_lost_work_is_found(forks: Any, tmp_path: Path) -> None:
    out, wanted = tmp_path / "out", tmp_path / "wanted"
    begin = "from pathlib import Path; p = Path({place!r}); p.mkdir(exist_ok=True); "
    write = begin + "(p / 'a.csv').write_text('1'); (p / 'b.csv').write_text('2')"

    class Lossy:
        name = "lossy"

        def source(self, place: Path, resumes: bool, prelude: str = "") -> str:
            return prelude + ("pass" if resumes else write.format(place=str(place)))

    work: Any = Lossy()
    ended = forks.run(work.source(wanted, False), watch=wanted)
    assert ended.code == 0
    done = kills.Done(work, wanted, ended.operations, 0.1)
    plan = kills.Plan(done, (("SIGKILL", "operation", ended.operations),))
    outcome = kills.check(plan, forks, out, {"again": "0:0"})
    assert outcome.counts["kills"] == 1
    assert list(outcome.violations) == ["lossy: resumed, and different: b.csv"]
    assert outcome.failures[0]["settings"]["strikes"] == [["SIGKILL", "operation", ended.operations]]


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", -15), ("SIGINT", 130), ("SIGKILL", -9)])
def test_signals_arrive(forks: Any, tmp_path: Path, name: str, code: int) -> None:
    facts = {"mark": kills.MARK, "name": "x", "signal": name}
    wait = "import time\ntry:\n    time.sleep(20)\nexcept KeyboardInterrupt:\n    raise SystemExit(130)"
    ended = forks.run(kills.MOMENT.format(delay=0.1, pid="os.getpid()", **facts) + wait, watch=tmp_path, seconds=30)
    assert ended.code == code


def test_every_operation_of_every_work_is_planned() -> None:
    done = [kills.Done(kills.Work(name, (), (), "."), Path(name), count, 1.0) for name, count in (("a", 5), ("b", 3))]
    plans = [kills.planned(0, number, done) for number in range(0, 16, 2)]
    assert {(plan.done.work.name, plan.strikes[0][2]) for plan in plans} == {
        *(("a", n) for n in range(1, 6)),
        *(("b", n) for n in range(1, 4)),
    }
    assert {plan.strikes[0][0] for plan in plans} == {"SIGKILL"}


def test_comparison_of_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps({"seconds": len(name) + len(str(tmp_path)), "best": 1}))
        (tmp_path / name / "rows.csv").write_text("a\n1\n")
    assert compare.differences(tmp_path / "one", tmp_path / "two") == []
    (tmp_path / "one" / "rows.csv").write_text("a\n1\n1\n")
    (tmp_path / "one" / ".rows.part").write_text("")
    assert compare.differences(tmp_path / "one", tmp_path / "two") == ["left over: .rows.part", "different: rows.csv"]


# --- inputs ---


@pytest.mark.parametrize("number", range(1, 60, 2))
def test_calls_are_python(number: int) -> None:
    compile(calls.random_call(0, number).source, "call", "exec")


@pytest.mark.parametrize(
    ("expected", "code", "said", "verdict"),
    [
        ("refused", -11, "", "ended by signal 11"),
        ("refused", 0, "accepted", "wrong input is accepted"),
        ("refused", 0, "raised IndexError x", "no InputError but IndexError"),
        ("refused", 0, "refused x: expected", None),
        ("accepted", 0, "changed", "another layout changes the result"),
        ("accepted", 0, "accepted", None),
        ("any", 0, "raised TypeError x", None),
        ("any", 1, "", "traceback of another kind"),
    ],
)
def test_verdicts_on_calls(expected: str, code: int, said: str, verdict: str | None) -> None:
    assert calls.Call("", expected, {}).verdict(code, said) == verdict


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ("TypeError: unhashable type: 'list'", "traceback, TypeError"),
        ("exit code 1: something", "exit code 1"),
        ("left behind or changed: out", "left behind or changed"),
        ("expected one line, but got '' and ''", "expected one line"),
    ],
)
def test_classes_of_bad_input(wrong: str, kind: str) -> None:
    assert inputs.classified(wrong) == kind


# --- the command ---


def run_campaign(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_WAIT_POLICY": "passive"}
    return subprocess.run(
        [sys.executable, "-m", "campaign", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_entries_of_other_parts_stay(tmp_path: Path) -> None:
    path, outcome = tmp_path / "campaign.json", Outcome()
    outcome.counts.update(["systems", "solver/Auto"])
    outcome.violation("bound below the true error", "graph 0", again="0:3")
    for name in ("systems on cuda", "systems on cpu", "systems on cpu"):
        merge(path, name, entry(outcome, 0, 1.0, False, {}))
    found = json.loads(path.read_text())["campaign"]
    assert list(found) == ["systems on cpu", "systems on cuda"]
    assert found["systems on cpu"]["solver"] == {"Auto": 1}
    assert found["systems on cpu"]["failures"][0]["again"] == "0:3"
    assert str(ROOT) not in path.read_text()


@pytest.mark.parametrize(("found", "code"), [(0, 0), (1, 1)])
def test_the_exit_code_says_whether_something_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: int, code: int
) -> None:
    outcome = Outcome()
    outcome.counts["systems"] = 5
    for _ in range(found):
        outcome.violation("bound below the true error", "graph 0")
    monkeypatch.setattr(systems, "run", lambda *_: iter([(0, outcome)]))
    with pytest.raises(command.typer.Exit) as ended:
        command.main(1, 0, "systems", "cpu", tmp_path / "campaign.json", None, 0, None)
    assert ended.value.exit_code == code
    assert json.loads((tmp_path / "campaign.json").read_text())["campaign"]["systems on cpu"]["systems"] == 5


def test_an_interrupt_writes_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Iterator[tuple[int, Outcome]]:
        outcome = Outcome()
        outcome.counts["systems"] = 7
        yield 0, outcome
        raise KeyboardInterrupt

    monkeypatch.setattr(systems, "run", interrupted)
    with pytest.raises(command.typer.Exit) as ended:
        command.main(1, 0, "systems", "cpu", tmp_path / "campaign.json", None, 0, None)
    assert ended.value.exit_code == 130
    written = json.loads((tmp_path / "campaign.json").read_text())["campaign"]["systems on cpu"]
    assert (written["systems"], written["stopped_early"]) == (7, True)


def test_a_few_seconds_of_systems(tmp_path: Path) -> None:
    done = run_campaign("--seconds", "2", "--parts", "systems", "--workers", "1", "--out", str(tmp_path / "campaign.json"))
    assert done.returncode in (0, 1), done.stderr
    found = json.loads((tmp_path / "campaign.json").read_text())["campaign"]["systems on cpu"]
    assert found["systems"] > 0
    assert bool(found["violations"]) == bool(done.returncode)


@pytest.mark.parametrize(
    ("arguments", "named"), [(("--parts", "x"), "--parts"), (("--again", "5"), "--parts"), (("--device", "x"), "--device")]
)
def test_bad_options(arguments: tuple[str, str], named: str) -> None:
    done = run_campaign(*arguments)
    assert done.returncode == 2
    assert f"campaign: {named}: expected" in done.stderr


def test_the_page_tells_what_the_campaign_found() -> None:
    parts = json.loads((ROOT / "results" / "campaign.json").read_text(encoding="utf-8"))["campaign"]
    page = (ROOT / "docs" / "certificates.md").read_text(encoding="utf-8")
    tried = parts["inputs"]["inputs"] + parts["inputs"]["calls"]
    for count in (parts["systems on cpu"]["systems"], parts["systems on cuda"]["systems"], parts["kills"]["kills"], tried):
        assert f"{count:,}" in page
    assert not any(part["violations"] for part in parts.values())
