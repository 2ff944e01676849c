"""The ``convergent`` command."""

from convergent.cli.app import main

__all__ = ["main"]
