"""The others: what is out there for the same task, each used as its authors mean it to be used."""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec

from benchmarks.machine import ROOT

BROUGHT = ROOT / ".cache" / "peers"  # sources of peers, for a machine where nothing can be installed
if BROUGHT.is_dir() and str(BROUGHT) not in sys.path:
    sys.path.append(str(BROUGHT))  # last: what is installed comes first


def missing(package: str) -> str | None:
    """Why a peer cannot take part, or None where its package is installed or was brought along."""
    return None if find_spec(package) else f"{package} is not installed"


def torchdeq_solver(name: str, ridge: float | None) -> str:
    """TorchDEQ's name of a solver: as it comes, or its Anderson with another ridge.

    Its Anderson adds 1e-4 to a Gram matrix of squared residuals, which far from that scale makes it an average of old
    steps. With a ``ridge`` below its residuals it is what it is meant to be, and orders of magnitude faster.
    """
    if ridge is None:
        return name
    from torchdeq.solver import register_solver
    from torchdeq.solver.anderson import anderson_solver

    tuned = f"anderson, ridge {ridge:g}"
    register_solver(tuned, partial(anderson_solver, lam=ridge))
    return tuned
