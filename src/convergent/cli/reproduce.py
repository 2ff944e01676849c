"""``convergent reproduce``: experiments by name, a bar, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from convergent.cli.device import usable
from convergent.cli.words import escaped, plain
from convergent.errors import InputError, expect
from convergent.experiments.experiment import Experiment
from convergent.experiments.job import Job
from convergent.experiments.runner import Plan, Progress
from convergent.experiments.runner import run as run_experiments
from convergent.training.progress import bar
from convergent.training.run import read_json

MODULES = (
    "value_iteration",
    "pores",
    "classification",
    "classification_tuning",
    "runtime",
    "complexity",
)  # each defines its experiments
ALL = "all"


def run(
    names: Sequence[str],
    quick: bool,
    device: str,
    workers: int,
    threads: int,
    data_root: Path | None,
    out: Path | None,
    page: Path | None,
) -> None:
    """Small budgets have a folder of their own by default, so that they never take the place of full ones."""
    out = Path("results/reproduce-quick" if quick else "results/reproduce") if out is None else out
    kinds = known()
    console = Console(emoji=False)
    if not names and page is None:
        listed(kinds, console)
        return
    usable(device)
    expect(data_root is None or data_root.is_dir(), "--data-root", "a folder", f"{data_root}: no such folder")
    for name in names:
        expect(name in (*kinds, ALL), "name", f"one of {', '.join([*kinds, ALL])}", repr(name))
    experiments = [kinds[name](quick, data_root) for name in (kinds if ALL in names else names)]
    ready = []
    for experiment in experiments:
        if not workers or (reason := experiment.missing()) is None:
            ready.append(experiment)
        elif ALL in names:
            console.print(f"[yellow]{experiment.name} is left out:[/] {escaped(reason)}")
        else:
            raise InputError(f"{experiment.name}: cannot be run here: {reason}")
    if ready:
        for path in watched(ready, Plan(out, device, workers, threads)):
            shown(path, console)
    if page is not None:
        console.print(plain(f"wrote {import_module('convergent.report.reproduction').write_page(out, page)}"))


def known() -> dict[str, type[Experiment]]:
    for module in MODULES:
        import_module(f"convergent.experiments.{module}")
    return dict(sorted(Experiment.kinds.items()))


def listed(kinds: dict[str, type[Experiment]], console: Console) -> None:
    table = Table("name", "what", box=None)
    for name, kind in kinds.items():
        table.add_row(plain(name), plain(kind.title))
    console.print(table)


def watched(experiments: Sequence[Experiment], plan: Plan) -> list[Path]:
    """With a bar on the terminal."""
    with bar(Console(stderr=True), "last") as progress:
        task = progress.add_task("jobs", total=None, last="")

        def tell(state: Progress, job: Job | None) -> None:
            failed = f", {len(state.failed)} failed" if state.failed else ""
            last = "" if job is None else f"{job.title}{failed}"
            progress.update(task, total=state.total, completed=state.done, last=last)

        try:
            return run_experiments(experiments, plan, tell)
        except KeyboardInterrupt:
            progress.stop()
            Console(stderr=True).print("stopped; finished work is saved. The same command continues with it.")
            raise


def shown(path: Path, console: Console) -> None:
    """Where the results are, and what they say of the paper's conclusions."""
    report = read_json(path)
    console.print(f"[bold]{escaped(report['title'])}[/]  wrote {escaped(str(path))}")
    words = {True: "[green]true[/]", False: "[red]false[/]", None: "-"}
    for statement in report["statements"]:
        console.print(f"  {words[statement['holds']]:>6}  {escaped(statement['text'])} ({escaped(statement['evidence'])})")
