"""One piece of bad input: a command, and what was done to a file before."""

from __future__ import annotations

from dataclasses import dataclass

from damage import Damage

TINY = ("--steps", "2", "--graphs", "2", "--validation-graphs", "2", "--validate-every", "2")
PORES = ("--set", "pores=20,30")
RUN, CUT, MINE, NETWORKS, OUT = "run", "cut", "mine", "networks", "out"  # what a playground holds, and what it does not


@dataclass(frozen=True)
class Case:
    """A command, where it stands in a playground, and what was done to a file there before.

    Attributes:
        arguments: of the command; those that name something in the playground begin with a slash.
        file: what is damaged.
        hopeless: whether it has to be refused; a damage that was drawn may be harmless.
    """

    arguments: tuple[str, ...]
    file: str | None = None
    damage: Damage | None = None
    name: str = ""
    hopeless: bool = True

    def __str__(self) -> str:
        shown = " ".join(each if len(each) < 60 else f"{each[:50]}..." for each in self.arguments)
        return f"{shown} [{self.file}: {self.name}]" if self.file else shown
