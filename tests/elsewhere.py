"""A device that is not there: tensors on it are kept on the CPU and marked, and whoever mixes them with others is told.

It shows, where there is no GPU, that code brings numbers from one place to the other before it uses them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

DEVICE = torch.device("cuda", 0)
MOVES = (Tensor.to, Tensor.cpu, Tensor.cuda)


class Elsewhere(TorchFunctionMode):
    """Within it ``there(tensor)`` is a tensor on a pretended GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.marked = WeakTensorKeyDictionary()

    def there(self, tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        self.marked[tensor] = True
        return tensor

    def is_there(self, tensor: Tensor) -> bool:
        return tensor in self.marked

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "__get__" and function in (Tensor.device.__get__, Tensor.is_cuda.__get__):  # type: ignore[attr-defined]
            marked = self.is_there(args[0])
            if function == Tensor.device.__get__:  # type: ignore[attr-defined]
                return DEVICE if marked else torch.device("cpu")
            return marked
        if function in MOVES:
            return self.move(function, args, kwargs)
        places = {self.is_there(tensor) for tensor in _tensors((args, kwargs)) if tensor.dim()}
        if len(places) > 1:
            raise RuntimeError(f"{name}: tensors on the host and elsewhere")
        marked = bool(places) and places.pop()
        if "device" in kwargs and kwargs["device"] is not None:
            marked = torch.device(kwargs["device"]).type == "cuda"
            kwargs["device"] = "cpu"
        found = function(*args, **kwargs)
        if marked:
            for tensor in _tensors(found):
                self.marked[tensor] = True
        return found

    def move(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        tensor, *rest = args
        named = [part for part in (*rest, *kwargs.values()) if isinstance(part, str | torch.device)]
        if function is Tensor.cpu:
            named = [torch.device("cpu")]
        goes_there = torch.device(named[0]).type == "cuda" if named else self.is_there(tensor)
        plain = [part for part in rest if not isinstance(part, str | torch.device)]
        found = tensor.to(*plain) if plain else tensor
        if found is tensor and named:
            found = tensor.view_as(tensor)  # a tensor of its own, with a place of its own
        if goes_there:
            self.marked[found] = True
        return found


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
