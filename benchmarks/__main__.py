"""python -m benchmarks [NAME ...] [--quick] [--out FOLDER]"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.options import Options

NAMES = ("w1", "step", "sweep", "near_one", "growth")
ON_A_DEVICE = ("cuda",)  # only when named


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure every speed claim against its peers.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which of {', '.join(NAMES + ON_A_DEVICE)}; all but the last by default"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, about a minute: to see that all of it runs")
    parser.add_argument("--out", type=Path, default=Path("results/bench"), help="folder of the JSON files (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random problems (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of torch, MKL and numba (%(default)s)")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - {*NAMES, *ON_A_DEVICE}:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES + ON_A_DEVICE)}")
    use_threads(arguments.threads)
    console = Console()
    console = console if console.is_terminal else Console(width=140)
    reports = []
    for name in arguments.names or NAMES:
        with console.status(f"{name} ...") as status:
            say = lambda what, name=name, status=status: status.update(f"{name}: {what} ...")  # noqa: E731
            keep = lambda report: report.write(arguments.out)  # noqa: E731
            options = Options(arguments.quick, arguments.seed, arguments.threads, say, keep)
            report = import_module(f"benchmarks.{name}").run(options)
        reports.append(report)
        console.print(f"wrote {report.write(arguments.out)}")
    for report in reports:
        report.show(console)


def use_threads(count: int) -> None:
    import numba

    torch.set_num_threads(count)
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))


if __name__ == "__main__":
    main()
