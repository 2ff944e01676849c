"""python -m campaign: see ``--help``."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from campaign import report
from campaign.outcome import Outcome
from convergent.errors import InputError, expect

PARTS = {"systems": 6.0, "kills": 3.0, "inputs": 2.0}  # and their shares of the time
DEVICES = ("cpu", "cuda")


def main(
    seconds: Annotated[float, typer.Option(min=1, help="For all parts together.")] = 120,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    parts: Annotated[str, typer.Option(metavar="PART,...", help=f"Some of {', '.join(PARTS)}.")] = ",".join(PARTS),
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu or cuda, for systems.")] = "cpu",
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where it writes; entries of other parts stay.")] = Path(
        "results/campaign.json"
    ),
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core by default.")] = None,
    first: Annotated[int, typer.Option(min=0, help="The number to begin with.")] = 0,
    again: Annotated[
        str | None, typer.Option(metavar="SEED:NUMBER", help="Run one number again, of the one part that is named.")
    ] = None,
) -> None:
    """Look for what must never happen. The exit code is 1 where something was found, 130 after Ctrl-C."""
    chosen = _chosen(parts, device)
    console = Console()
    if again is not None:
        raise typer.Exit(_again(chosen, again, device, console))
    ended, stopped = [], False
    total = sum(PARTS[part] for part in chosen)
    for part in chosen:
        outcome, stopped = _run(part, seed, seconds * PARTS[part] / total, device, workers, first, out)
        report.show(_name(part, device), outcome, console)
        ended.append(outcome)
        if stopped:
            break
    console.print(f"wrote {out}")
    if stopped:
        raise typer.Exit(130)
    raise typer.Exit(int(any(outcome.violations for outcome in ended)))


def _chosen(parts: str, device: str) -> list[str]:
    chosen = parts.split(",")
    for part in chosen:
        expect(part in PARTS, "--parts", f"some of {', '.join(PARTS)}", repr(part))
    expect(device in DEVICES, "--device", f"one of {', '.join(DEVICES)}", repr(device))
    if device == "cuda":
        import torch

        expect(torch.cuda.is_available(), "--device", "cpu, as there is no CUDA device", repr(device))
    return chosen


def _name(part: str, device: str) -> str:
    return f"systems on {device}" if part == "systems" else part


def _run(part: str, seed: int, seconds: float, device: str, workers: int | None, first: int, out: Path) -> tuple[Outcome, bool]:
    """One part to the end of its time or to Ctrl-C; either way what was found is written."""
    outcome, stopped, began = Outcome(), False, time.monotonic()
    settings = {"workers": workers, "first": first, **({"device": device} if part == "systems" else {})}
    try:
        for number, found in _watched(part, seed, seconds, device, workers, first, outcome):
            outcome.add(found)
            settings["last"] = max(number, settings.get("last") or 0)
    except KeyboardInterrupt:
        stopped = True
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C does not lose what was done
        report.merge(out, _name(part, device), report.entry(outcome, seed, time.monotonic() - began, stopped, settings))
        signal.signal(signal.SIGINT, before)
    return outcome, stopped


def _watched(
    part: str, seed: int, seconds: float, device: str, workers: int | None, first: int, outcome: Outcome
) -> Iterator[tuple[int, Outcome]]:
    """Numbers and what they found, with a bar."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn(), TextColumn("{task.fields[found]}"))
    module: Any = import_module(f"campaign.{part}")
    began = time.monotonic()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(_name(part, device), total=seconds, found="")
        for number, found in module.run(seed, seconds, device, workers, first):
            yield number, found
            done = " ".join(
                f"{outcome.counts[name]:,} {name}" for name in ("systems", "kills", "inputs", "calls") if outcome.counts[name]
            )
            bad = outcome.violations.total()
            progress.update(task, completed=time.monotonic() - began, found=f"{done}, {bad} violations")


def _again(chosen: list[str], again: str, device: str, console: Console) -> int:
    """One number, with all that it found."""
    expect(len(chosen) == 1, "--parts", "one part with --again", ",".join(chosen))
    seed, colon, number = again.partition(":")
    expect(bool(colon) and seed.isdigit() and number.isdigit(), "--again", "SEED:NUMBER", repr(again))
    outcome = import_module(f"campaign.{chosen[0]}").again(int(seed), int(number), device)
    console.out(report.dumped({"counts": outcome.nested(), "failures": outcome.failures, "remarks": outcome.noted}))
    return int(bool(outcome.violations))


if __name__ == "__main__":
    try:
        typer.run(main)
    except InputError as error:
        Console(stderr=True).print(f"campaign: {error}", markup=False)
        raise SystemExit(2) from None
