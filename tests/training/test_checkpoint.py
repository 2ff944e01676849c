from __future__ import annotations

import pytest
import torch

from convergent import InputError
from convergent.training.checkpoint import read_checkpoint, require_fit

KEEPER = {"best": float("inf"), "best_step": -1, "since_best": 0, "validation": {}, "seconds": 1.0}
GOOD = {
    "state_dict": {"a": torch.arange(10.0)},
    "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}}, "param_groups": []}],
    "lr_schedulers": [{"last_epoch": 3}],
    "loops": {},
    "callbacks": {"keeper": KEEPER},
    "global_step": 3,
    "solves": {"graphs": 1},
    "worst_bound": 1e-7,
    "random": torch.get_rng_state(),
    "epoch": 0,
}


def test_there_and_back(tmp_path) -> None:
    torch.save(GOOD, tmp_path / "checkpoint.pt")
    found = read_checkpoint(tmp_path / "checkpoint.pt")
    assert set(found) == set(GOOD)
    assert torch.equal(found["state_dict"]["a"], GOOD["state_dict"]["a"])


@pytest.mark.parametrize(
    "change",
    [
        {"state_dict": []},
        {"state_dict": {"a": 5}},
        {"optimizer_states": []},
        {"lr_schedulers": [{}]},
        {"callbacks": {}},
        {"callbacks": {"keeper": {**KEEPER, "best": "x"}}},
        {"callbacks": {"keeper": {name: KEEPER[name] for name in ("best", "seconds")}}},
        {"global_step": -1},
        {"random": 5},
    ],
    ids=str,
)
def test_what_is_not_as_it_was_written(tmp_path, change) -> None:
    torch.save({**GOOD, **change}, tmp_path / "checkpoint.pt")
    with pytest.raises(InputError, match=r"checkpoint\.pt: expected a checkpoint, but it is not as it was written .*delete it"):
        read_checkpoint(tmp_path / "checkpoint.pt")


def test_a_flipped_bit_is_found(tmp_path) -> None:
    torch.save(GOOD, tmp_path / "checkpoint.pt")
    content = bytearray((tmp_path / "checkpoint.pt").read_bytes())
    place = content.index(torch.arange(10.0).numpy().tobytes())
    content[place + 7] ^= 1
    (tmp_path / "checkpoint.pt").write_bytes(bytes(content))
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["state_dict"]["a"][1] != 1  # torch does not notice
    with pytest.raises(InputError, match="it could not be read; restore it, or delete it"):
        read_checkpoint(tmp_path / "checkpoint.pt")


def test_the_state_of_an_optimiser_for_other_weights() -> None:
    require_fit(GOOD, [torch.ones(2)])
    with pytest.raises(ValueError, match=r"exp_avg of parameter 0: expected \[3\], but got \[2\]"):
        require_fit(GOOD, [torch.ones(3)])
