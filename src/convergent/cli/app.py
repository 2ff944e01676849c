"""The commands and their options. What they do is imported when they do it, so that help comes at once."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from convergent.errors import ConvergenceError, InputError

# The base of typer's errors: click's, or that of the copy of click which newer versions bring.
TyperError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Learned network solvers that are certain to converge.",
)

Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the task; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
Device = Annotated[str, typer.Option(help="cpu, or cuda where there is one.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A run's folder, or its model.safetensors.")]
Format = Annotated[str, typer.Option("--format", help="csv or parquet.")]


def main() -> None:
    """Run the command; every error of the user is one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except TyperError as error:
        message: str = error.format_message()
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(message, err=True)
            sys.exit(2)
        fail(message.replace("\n", " "))
    except (InputError, ConvergenceError) as error:
        fail(str(error))
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed; it comes with: pip install 'convergent[all]'")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def fail(message: str) -> None:
    typer.echo(f"convergent: {message}", err=True)
    sys.exit(2)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("convergent"))
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    pass


@app.command(epilog="Example: convergent demo --out demo")
def demo(
    out: Annotated[Path, typer.Option(help="Where the run and the page go.")] = Path("demo"),
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 1500,
    seed: int = 0,
    device: Device = "cpu",
) -> None:
    """Train a small solver on pore networks, test it on larger ones, and write a page to look at."""
    from convergent.cli.demo import run

    run(out, steps, seed, device)


@app.command(
    epilog="Examples: [bold]convergent train pore-networks --model 'CGS(8)' --steps 1000[/]  |  "
    "[bold]convergent train folder --data networks/ --target pressure --out runs/mine[/]  |  "
    "[bold]convergent train --resume runs/mine[/]"
)
def train(
    task: Annotated[str | None, typer.Argument(help="One of those that `convergent tasks` lists.")] = None,
    model: Annotated[str | None, typer.Option(help="One of those that `convergent models` lists, such as 'CGS(8)'.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; by default runs/TASK-MODEL-SEED.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with the run in this folder.")] = None,
    data: Annotated[Path | None, typer.Option(help="Your own networks (task folder): nodes and edges tables.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="A column of nodes to predict (task folder); may be repeated.")] = None,
    data_root: Annotated[Path | None, typer.Option(help="Raw files of the classification sets; else they are downloaded.")] = None,
    steps: int = 1000,
    graphs: Annotated[int, typer.Option(help="Graphs in every step.")] = 32,
    renew: Annotated[int | None, typer.Option(help="Steps after which new graphs are made; by default the task's own.")] = None,
    rate: Annotated[float, typer.Option(help="Adam's learning rate.")] = 1e-3,
    schedule: Annotated[str, typer.Option(help="restarts, one-cycle or constant.")] = "restarts",
    clip: Annotated[float | None, typer.Option(help="The largest norm of a gradient.")] = None,
    validate_every: int = 100,
    validation_graphs: int = 64,
    patience: Annotated[int | None, typer.Option(help="Validations without a better one before training stops.")] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between two points to resume from.")] = 100,
    seed: int = 0,
    settings: Settings = None,
    model_settings: Annotated[
        list[str] | None,
        typer.Option("--model-set", metavar="NAME=VALUE", help="A setting of the model; may be repeated."),
    ] = None,
    device: Device = "cpu",
    devices: Annotated[int, typer.Option(min=1, help="Processes or cards that share every step.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Machines, each with as many devices.")] = 1,
    as_json: Json = False,
) -> None:
    """Train a model; Ctrl-C keeps what there is."""
    from convergent.cli import work

    config: dict[str, Any] | None = None
    if resume is None:
        fields = ("steps", "graphs", "renew", "rate", "schedule", "clip", "validate_every", "validation_graphs", "patience")
        given = locals()
        config = {name: given[name] for name in (*fields, "checkpoint_every", "seed", "task", "model")}
        config["task_settings"] = work.task_settings(settings, data, target, data_root)
        config["model_settings"] = work.parse(model_settings, "--model-set")
    elif task is not None:
        raise InputError(f"task: expected none with --resume, which takes all settings from {resume}, but got {task!r}")
    work.train(config, resume or out, resume is not None, device, devices, nodes, as_json)


@app.command(
    epilog="Examples: [bold]convergent evaluate runs/pores --graphs 100 --set pores=800,800[/]  |  "
    "[bold]convergent evaluate runs/mine --data solved/ --json[/]"
)
def evaluate(
    model: Model,
    data: Annotated[Path | None, typer.Option(help="A folder of solved networks; else new graphs of the task.")] = None,
    graphs: Annotated[int, typer.Option(min=1, help="New graphs to test on.")] = 100,
    seed: Annotated[int | None, typer.Option(help="Of the new graphs; by default the run's.")] = None,
    settings: Settings = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Measure a trained model on graphs it has not seen."""
    from convergent.cli import work

    work.evaluate(model, data, graphs, seed, work.parse(settings, "--set"), device, as_json)


@app.command(
    epilog="Examples: [bold]convergent predict runs/mine networks/ --out answers/[/]  |  "
    "[bold]convergent predict runs/mine networks/ --out answers/ --resume[/]"
)
def predict(
    model: Model,
    folder: Annotated[Path, typer.Argument(help="Networks: nodes and edges tables, with the columns the model was trained on.")],
    out: Annotated[Path, typer.Option(help="A new folder for predictions and graphs tables.")],
    form: Format = "csv",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with predictions that were cut off.")] = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Answer any number of networks, each with its error bound, iterations and status."""
    from convergent.cli import work

    work.predict(model, folder, out, form, resume, device, as_json)


@app.command(epilog="Example: [bold]convergent models --task pore-networks --json[/]")
def models(
    task: Annotated[str | None, typer.Option(help="Only those of one task.")] = None,
    as_json: Json = False,
) -> None:
    """List every named model of the paper with its task and its parameters, here and in the paper."""
    from convergent.cli import work

    work.models(task, as_json)


@app.command(epilog="Example: [bold]convergent tasks --json[/]")
def tasks(as_json: Json = False) -> None:
    """List the tasks and their settings."""
    from convergent.cli import work

    work.tasks(as_json)


@app.command(
    epilog="Examples: [bold]convergent data pore-networks --graphs 100 --out networks/ --set wide=true[/]  |  "
    "[bold]convergent data folder --data networks/ --target pressure[/]"
)
def data(
    task: Annotated[str, typer.Argument(help="One of those that `convergent tasks` lists.")],
    out: Annotated[Path | None, typer.Option(help="A folder for the tables of generated networks.")] = None,
    graphs: Annotated[int, typer.Option(min=1, help="Networks to generate.")] = 100,
    seed: int = 0,
    data: Annotated[Path | None, typer.Option(help="Your own networks (task folder), to be checked.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="A column of nodes to predict (task folder).")] = None,
    data_root: Annotated[Path | None, typer.Option(help="Raw files of the classification sets.")] = None,
    settings: Settings = None,
    form: Format = "csv",
    as_json: Json = False,
) -> None:
    """Write generated networks as tables, or check and describe what is there."""
    from convergent.cli import work

    work.data(task, work.task_settings(settings, data, target, data_root), out, graphs, seed, form, as_json)


@app.command(
    epilog="Examples: [bold]convergent bench --quick[/]  |  [bold]convergent bench w1 growth --out results/bench[/]  |  "
    "[bold]convergent bench --device cuda --parts iteration,layer[/]"
)
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Which benchmarks; by default all of the device.", show_default=False),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="cpu, or cuda, which has a benchmark of its own; by default the one a benchmark is meant for."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, about a minute: to see that all of it runs.")] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the JSON files go.")] = Path("results/bench"),
    seed: Annotated[int, typer.Option(help="Of the random problems.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Of torch, MKL and numba.")] = 2,
    parts: Annotated[str | None, typer.Option(metavar="PART,...", help="Only these parts of the benchmark cuda.")] = None,
) -> None:
    """Measure every speed claim against its peers (in a checkout of the repository)."""
    from convergent.cli.bench import run

    run(names or [], device, quick, out, seed, threads, parts.split(",") if parts else [])


@app.command(
    epilog="Examples: [bold]convergent reproduce value-iteration --quick[/]  |  "
    "[bold]convergent reproduce all --device cuda --workers 12 --data-root tudatasets[/]"
)
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Which tables and figures, or all; without a name, which there are.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small budget: to see that all of it runs.")] = False,
    device: Device = "cpu",
    workers: Annotated[int, typer.Option(min=0, help="Processes side by side; 0: put together what was run before.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Of every process.")] = 1,
    data_root: Annotated[Path | None, typer.Option(help="A folder with the raw TU sets, for classification.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where results go; what is there is not run again. By default results/reproduce, or reproduce-quick.",
        ),
    ] = None,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page that shows all results, in Markdown.")] = None,
) -> None:
    """Run tables and figures of the paper again, and lay them beside the printed ones."""
    from convergent.cli.reproduce import run

    run(names or [], quick, device, workers, threads, data_root, out, page)
