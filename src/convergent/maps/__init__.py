"""Contracting maps: what is solved."""

from convergent.maps.activated import ActivatedMap
from convergent.maps.base import FixedPointMap
from convergent.maps.linear import LinearMap

__all__ = ["ActivatedMap", "FixedPointMap", "LinearMap"]
