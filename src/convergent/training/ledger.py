"""What a run knows of its solves and its loss, kept where they are computed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from convergent.solvers import Solution, Status


class Entries(NamedTuple):
    """The ledger as read at one moment."""

    graphs: int  # solved so far
    not_converged: int  # of them
    most_iterations: int
    worst_bound: float  # of those that are finite
    not_finite: int  # steps whose loss or gradient was not
    loss: float  # of the last step
    iterations: int  # of the last step


class Ledger:
    """Sums, maxima and last values of all steps, on the device: nobody waits for it until somebody reads.

    The same tensor is kept and changed in place, so that a captured step can write to it.
    """

    def __init__(self) -> None:
        self.numbers = torch.zeros(6, dtype=torch.float64)
        self.graphs = 0
        self.solving = False  # whether there is any fixed point to speak of

    @torch.no_grad()
    def add(self, loss: Tensor, solution: Solution | None, real: Tensor | None = None, norm: Tensor | None = None) -> None:
        """One step: its loss, its fixed points (of the ``real`` graphs only), and the norm of its gradient where that is known."""
        if self.numbers.device != loss.device:
            self.numbers = self.numbers.to(loss.device)
        sums, peaks, last = self.numbers[:2], self.numbers[2:4], self.numbers[4:]
        if solution is None:
            last[0] = loss
            return
        self.solving = True
        failed, steps, bound = _worst(solution, real)
        odd = torch.zeros_like(failed) if norm is None else ~torch.isfinite(loss + norm)
        sums += torch.stack([failed, odd])
        torch.maximum(peaks, torch.stack([steps, bound]), out=peaks)
        last.copy_(torch.stack([loss.double(), steps]))

    @property
    def loss(self) -> Tensor:
        """Of the last step, as a view of what the next one overwrites."""
        return self.numbers[4]

    def read(self) -> Entries:
        """Waits for the device, once."""
        failed, odd, most, bound, loss, last = self.numbers.tolist()
        return Entries(self.graphs, int(failed), int(most), bound, int(odd), loss, int(last))

    def restore(self, solves: dict[str, int], worst_bound: float) -> None:
        """Go on from what an earlier part of the run knew."""
        self.graphs = solves["graphs"]
        known = [solves["not_converged"], 0, solves["most_iterations"], worst_bound]
        self.numbers[:4] = torch.tensor(known, dtype=torch.float64)


def _worst(solution: Solution, real: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Graphs that did not converge, the most steps, and the largest finite bound, as three scalars.

    A model without a bound on its error has done what it can where it is steady.
    """
    failed = ((solution.status != Status.CONVERGED) & (solution.status != Status.STEADY)).any(1)  # [G]
    bound = solution.error_bound.nan_to_num(0.0, 0.0, 0.0)  # [G, H]
    steps = solution.steps.double()  # [G]
    if real is not None:
        failed, bound, steps = failed & real, bound * real.unsqueeze(1), steps * real
    if not bound.numel():
        nothing = steps.new_zeros(())
        return nothing, nothing, nothing
    return failed.sum(), steps.max(), bound.max()
