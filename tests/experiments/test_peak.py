from __future__ import annotations

import pytest
import torch

from convergent.experiments import peak as module
from convergent.experiments.peak import limited, peak, ran_out

MEGABYTE = 2**20
linux = pytest.mark.skipif(not module.CLEAR.exists(), reason="only Linux says how much memory a process took")


def hold(megabytes: int) -> int:
    return torch.ones(megabytes * MEGABYTE, dtype=torch.uint8).numel()


@linux
def test_the_peak_is_what_was_held_for_a_moment():
    result, memory = peak(lambda: hold(64), "cpu")
    assert result == 64 * MEGABYTE
    assert memory is not None
    assert 60 * MEGABYTE < memory < 80 * MEGABYTE


@linux
def test_an_earlier_peak_is_forgotten():
    hold(128)
    memory = peak(lambda: hold(1), "cpu")[1]
    assert memory is not None
    assert memory < 32 * MEGABYTE


def test_a_system_that_does_not_say_gives_none(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "CLEAR", tmp_path / "none")
    assert peak(lambda: 3, "cpu") == (3, None)
    with limited("cpu", 1e-6) as limit:
        assert limit is None
        assert hold(1) == MEGABYTE


@linux
def test_more_than_the_limit_is_refused_and_the_limit_goes_away():
    with limited("cpu", 0.25) as limit, pytest.raises(RuntimeError) as refused:
        hold(1024)
    assert limit == 256 * MEGABYTE
    assert ran_out(refused.value)
    assert hold(512) == 512 * MEGABYTE


def test_only_errors_about_memory_count_as_such():
    assert ran_out(MemoryError())
    assert ran_out(RuntimeError("CUSOLVER_STATUS_ALLOC_FAILED"))
    assert not ran_out(RuntimeError("shapes do not match"))
    assert not ran_out(RuntimeError("an illegal memory access was encountered"))


@pytest.mark.cuda
def test_on_a_gpu():
    with limited("cuda", 1):
        _, memory = peak(lambda: torch.ones(64 * MEGABYTE, dtype=torch.uint8, device="cuda").sum(), "cuda")
        assert memory is not None
        assert memory >= 64 * MEGABYTE
        with pytest.raises(torch.OutOfMemoryError) as refused:
            torch.ones(2048 * MEGABYTE, dtype=torch.uint8, device="cuda")
    assert ran_out(refused.value)
