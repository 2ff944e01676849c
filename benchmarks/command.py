"""Runs benchmarks and shows what they found: what ``convergent bench`` and ``python -m benchmarks`` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rich.console import Console

from benchmarks.options import Options
from convergent.errors import expect

NAMES = ("w1", "step", "sweep", "near_one", "growth", "certificate", "elimination", "adjoint")
ON_A_DEVICE = ("cuda",)  # only when named, or for a device
ON_BOTH = ("elimination",)


def run(
    names: Sequence[str],
    device: str | None,
    quick: bool,
    out: Path,
    seed: int,
    threads: int,
    parts: Sequence[str] = (),
    page: Path | None = None,
) -> None:
    """Benchmarks, then the page on all files there are in ``out``; with a page and no name, only the page.

    ``device`` None: the one a benchmark is meant for. ``parts`` empty: all of them.
    """
    console = Console()
    console = console if console.is_terminal else Console(width=140)
    if page is not None:
        expect(not page.is_dir(), "--page", "a file to write", f"the folder {page}")
        for option, given in {"--device": device, "--quick": quick, "--parts": parts}.items():
            expect(bool(names) or not given, "NAME", f"a benchmark for {option}: --page alone runs none", "none")
    if names or page is None:
        measure(chosen(names, device, quick, parts), device, Options(quick, seed, threads, parts=tuple(parts)), out, console)
    if page is not None:
        console.print(f"wrote {import_module('benchmarks.page').write_page(out, page)}")


def measure(modules: Mapping[str, ModuleType], device: str | None, options: Options, out: Path, console: Console) -> None:
    """Run each, write its file, and show all tables at the end."""
    use_threads(options.threads)
    reports = []
    for name, module in modules.items():
        place = device or ("cuda" if name in ON_A_DEVICE else "cpu")
        with console.status(f"{name} ...") as status:
            say = lambda what, name=name, status=status: status.update(f"{name}: {what} ...")  # noqa: E731
            report = module.run(replace(options, say=say, keep=lambda report: report.write(out), device=place))
        reports.append(report)
        console.print(f"wrote {report.write(out)}")
    for report in reports:
        report.show(console)


def chosen(names: Sequence[str], device: str | None, quick: bool, parts: Sequence[str]) -> dict[str, ModuleType]:
    """The benchmarks that were asked for, or those of the device; raises at the first word that makes no sense."""
    import torch

    names = names or (ON_A_DEVICE + ON_BOTH if device == "cuda" else NAMES)
    for name in names:
        expect(name in NAMES + ON_A_DEVICE, "NAME", f"one of {', '.join(NAMES + ON_A_DEVICE)}", repr(name))
        expect(device != "cuda" or name in ON_A_DEVICE + ON_BOTH, "--device", f"cpu with {name}", repr(device))
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
    import torch

    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))  # before torch's, which it changes
    if torch.get_num_threads() != count:  # once it was called, torch 2.13 with MKL fails in batched LU from 200 rows on
        torch.set_num_threads(count)
