from __future__ import annotations

import torch

from convergent.solvers import Solution, Status
from convergent.training.ledger import Ledger


def solution(bounds: list[list[float]], steps: list[int], failed: tuple[int, ...] = ()) -> Solution:
    bound = torch.tensor(bounds, dtype=torch.float64).reshape(len(steps), len(bounds[0]) if bounds else 1)
    status = torch.zeros(bound.shape, dtype=torch.int8)
    status[list(failed), -1] = Status.PRECISION
    return Solution(torch.zeros(1, 1), bound, bound, status, torch.tensor(steps), torch.zeros(1, dtype=torch.bool))


def test_sums_maxima_and_last_values() -> None:
    ledger = Ledger()
    held = ledger.numbers.data_ptr()
    ledger.graphs += 4
    ledger.add(torch.tensor(0.5), solution([[1e-7, 3e-7], [2e-7, torch.inf]], [9, 4], failed=(1,)))
    ledger.add(torch.tensor(0.25), solution([[1e-7, torch.nan], [1e-8, 0.0]], [3, 5]))
    seen = ledger.read()
    assert (seen.graphs, seen.not_converged, seen.most_iterations, seen.worst_bound) == (4, 1, 9, 3e-7)
    assert (seen.not_finite, seen.loss, seen.iterations) == (0, 0.25, 5)
    assert float(ledger.loss) == 0.25
    assert ledger.numbers.data_ptr() == held  # what was captured writes here


def test_padding_does_not_count() -> None:
    ledger = Ledger()
    ledger.add(torch.tensor(1.0), solution([[1e-7], [1.0]], [3, 50], failed=(1,)), real=torch.tensor([True, False]))
    seen = ledger.read()
    assert (seen.not_converged, seen.most_iterations, seen.worst_bound, seen.iterations) == (0, 3, 1e-7, 3)


def test_what_is_not_finite_is_counted() -> None:
    ledger = Ledger()
    for loss, norm in ((1.0, 1.0), (torch.nan, 1.0), (1.0, torch.inf)):
        ledger.add(torch.tensor(loss), solution([[1e-7]], [3]), norm=torch.tensor(norm))
    assert ledger.read().not_finite == 2


def test_a_model_without_fixed_points_has_a_loss() -> None:
    ledger = Ledger()
    ledger.add(torch.tensor(3.0), None)
    assert (ledger.read().loss, ledger.solving) == (3.0, False)
    ledger.add(torch.tensor(2.0), solution([], []))  # nor have no graphs at all
    assert (ledger.read().loss, ledger.read().not_converged) == (2.0, 0)


def test_a_run_goes_on_from_what_it_knew() -> None:
    ledger = Ledger()
    ledger.restore({"graphs": 7, "not_converged": 2, "most_iterations": 30}, 1e-5)
    ledger.add(torch.tensor(1.0), solution([[1e-7]], [3], failed=(0,)))
    seen = ledger.read()
    assert (seen.graphs, seen.not_converged, seen.most_iterations, seen.worst_bound) == (7, 3, 30, 1e-5)
