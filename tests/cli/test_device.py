from __future__ import annotations

import os

import pytest
import torch

from convergent import InputError
from convergent.cli.device import usable


def test_as_many_processes_as_cores() -> None:
    cores = os.cpu_count() or 1
    assert usable("cpu", cores) == "cpu"
    with pytest.raises(InputError, match=f"--devices: expected at most {cores}, the number of cores here, but got {cores + 1}"):
        usable("cpu", cores + 1)


@pytest.mark.cuda
def test_as_many_processes_as_cards() -> None:
    cards = torch.cuda.device_count()
    assert usable("cuda", cards) == "cuda"
    with pytest.raises(InputError, match=f"--devices: expected at most {cards}, the number of cards here, but got {cards + 1}"):
        usable("cuda", cards + 1)
