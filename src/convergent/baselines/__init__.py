"""The models the paper compares with, behind the same call."""

from convergent.baselines.gnn import GNN
from convergent.baselines.ignn import IGNN
from convergent.baselines.sse import SSE

__all__ = ["GNN", "IGNN", "SSE"]
