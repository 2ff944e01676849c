from __future__ import annotations

import pytest
import torch

from convergent import InputError
from convergent.nn import MLP


def test_layers_and_activations() -> None:
    mlp = MLP([3, 8, 4, 2], "tanh", last="relu", dropout=0.5)
    kinds = [type(layer).__name__ for layer in mlp]
    assert kinds == ["Linear", "Activation", "Dropout", "Linear", "Activation", "Dropout", "Linear", "Activation"]
    assert (mlp(torch.randn(5, 3)) >= 0).all()
    assert len(MLP([3, 2])) == 1


def test_reset_parameters_draws_again() -> None:
    mlp = MLP([3, 8, 2])
    before = mlp[0].weight.clone()
    mlp.reset_parameters()
    assert not torch.equal(before, mlp[0].weight)


@pytest.mark.parametrize("sizes", [[3], [], [3, 0, 2]])
def test_bad_sizes(sizes) -> None:
    with pytest.raises(InputError, match="sizes: expected two or more positive numbers"):
        MLP(sizes)


def test_unknown_activation() -> None:
    with pytest.raises(InputError, match="activation: expected one of"):
        MLP([3, 4, 2], "swosh")
