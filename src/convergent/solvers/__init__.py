"""Solvers: a method is a noun with its settings, ``run`` the one loop they share."""

from convergent.solvers.anderson import Anderson
from convergent.solvers.auto import Auto, suggest
from convergent.solvers.bicgstab import BiCGStab
from convergent.solvers.deflated import Deflated
from convergent.solvers.direct import Direct
from convergent.solvers.elimination import Elimination
from convergent.solvers.gmres import GMRES
from convergent.solvers.loop import run
from convergent.solvers.multigrid import Multigrid
from convergent.solvers.picard import Picard
from convergent.solvers.solution import Solution, Status
from convergent.solvers.solver import Burst, Solver, decoded

__all__ = [
    "GMRES",
    "Anderson",
    "Auto",
    "BiCGStab",
    "Burst",
    "Deflated",
    "Direct",
    "Elimination",
    "Multigrid",
    "Picard",
    "Solution",
    "Solver",
    "Status",
    "decoded",
    "run",
    "suggest",
]
