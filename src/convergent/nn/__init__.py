"""Networks that build contracting maps from graphs."""

from convergent.nn.conv import ConvergentConv
from convergent.nn.encoder import AttentionGN, GNLayer
from convergent.nn.mlp import MLP
from convergent.nn.solver import ConvergentGraphSolver

__all__ = ["MLP", "AttentionGN", "ConvergentConv", "ConvergentGraphSolver", "GNLayer"]
