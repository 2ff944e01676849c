"""Runs benchmarks and shows what they found: what ``convergent bench`` and ``python -m benchmarks`` do."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch
from rich.console import Console

from benchmarks.options import Options
from convergent.errors import expect

NAMES = ("w1", "step", "sweep", "near_one", "growth", "certificate", "elimination")
ON_A_DEVICE = ("cuda",)  # only when named, or for a device


def run(
    names: Sequence[str], device: str | None, quick: bool, out: Path, seed: int, threads: int, parts: Sequence[str] = ()
) -> None:
    """``device`` None: the one a benchmark is meant for, of which there is one here. ``parts`` empty: all of them."""
    modules = chosen(names, device, quick, parts)
    use_threads(threads)
    console = Console()
    console = console if console.is_terminal else Console(width=140)
    reports = []
    for name, module in modules.items():
        place = device or ("cuda" if name in ON_A_DEVICE else "cpu")
        with console.status(f"{name} ...") as status:
            say = lambda what, name=name, status=status: status.update(f"{name}: {what} ...")  # noqa: E731
            report = module.run(Options(quick, seed, threads, say, lambda report: report.write(out), place, tuple(parts)))
        reports.append(report)
        console.print(f"wrote {report.write(out)}")
    for report in reports:
        report.show(console)


def chosen(names: Sequence[str], device: str | None, quick: bool, parts: Sequence[str]) -> dict[str, ModuleType]:
    """The benchmarks that were asked for, or those of the device; raises at the first word that makes no sense."""
    names = names or (ON_A_DEVICE if device == "cuda" else NAMES)
    for name in names:
        expect(name in NAMES + ON_A_DEVICE, "NAME", f"one of {', '.join(NAMES + ON_A_DEVICE)}", repr(name))
        expect(device != "cuda" or name in ON_A_DEVICE, "--device", f"cpu with {name}", repr(device))
        expect(device != "cpu" or quick or name in NAMES, "--device", f"cuda with {name}, or --quick", repr(device))
        missing = name in ON_A_DEVICE and device is None and not torch.cuda.is_available()
        expect(not missing, "NAME", f"one of {', '.join(NAMES)}, as there is no CUDA device", repr(name))
    modules = {name: import_module(f"benchmarks.{name}") for name in names}
    there = [part for module in modules.values() for part in getattr(module, "PARTS", ())]
    for part in parts:
        expect(part in there, "--parts", f"some of {', '.join(there)}" if there else f"none with {', '.join(names)}", repr(part))
    return modules


def use_threads(count: int) -> None:
    import numba

    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))  # before torch's, which it changes
    if torch.get_num_threads() != count:  # once it was called, torch 2.13 with MKL fails in batched LU from 200 rows on
        torch.set_num_threads(count)
