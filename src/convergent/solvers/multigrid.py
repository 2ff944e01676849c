"""placeholder, replaced below"""

from dataclasses import dataclass

from convergent.solvers.bicgstab import BiCGStab


@dataclass(frozen=True)
class Multigrid(BiCGStab):
    """V-cycle preconditioned BiCGStab."""
