"""The commands and their options. Each command imports its work when it runs, so that ``--help`` needs no torch."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from convergent.errors import ConvergenceError, InputError
from convergent.training.signals import at_once, exit_code

# The base of typer's errors: click's, or that of the copy of click which newer versions bring.
TyperError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


class Commands(TyperGroup):
    """Commands that end with the exit code of the signal that stopped them."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise typer.Exit(exit_code(stop)) from stop


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Learn to solve network problems, with fixed points that are certain to converge and come with an error bound.",
)

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the task, as `convergent tasks` lists them; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu or cuda.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a training run, or its model.safetensors.")]
Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help="csv or parquet.")]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Task folder: your networks, as two tables, nodes and edges (CSV or Parquet).",
        rich_help_panel="Data",
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Task folder: a column of nodes to predict; repeatable.", rich_help_panel="Data"),
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Task classification: the raw data sets; without it they are downloaded.", rich_help_panel="Data"
    ),
]
TRAINING, COMPUTING = "Training", "Computing"


def examples(*commands: str) -> str:
    """The end of a help page: one example on each line."""
    return "\n\n".join(["Examples:", *(f"[bold]convergent {command}[/]" for command in commands)])


def main() -> None:
    """Run the command; every error of the user is one line and exit code 2, and a signal is 128 and its number."""
    with at_once() as request:
        try:
            _main()
        except SystemExit as end:
            # some libraries replace the exception of a signal by a plain KeyboardInterrupt
            if end.code == exit_code(None) and request.received is not None:
                sys.exit(exit_code(request.stopped()))
            raise


def _main() -> None:
    refuse_empty(sys.argv[1:])
    try:
        code = app(prog_name="convergent", standalone_mode=False)
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
    except MemoryError:
        fail("not enough memory")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (KeyboardInterrupt, typer.Abort) as stop:
        sys.exit(exit_code(stop))
    sys.exit(code if isinstance(code, int) else 0)


def fail(message: str) -> None:
    from convergent.cli.words import printable

    typer.echo(f"convergent: {printable(message)}", err=True)
    sys.exit(2)


def refuse_empty(arguments: list[str]) -> None:
    """An empty path would be the present folder."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        name, equals, value = argument.partition("=")
        if not argument or (name.startswith("--") and equals and not value):
            fail(f"{(name or before).partition('=')[0] or 'arguments'}: expected a value, but got ''")


def refuse_beside(context: typer.Context, names: set[str], option: str, reason: str) -> None:
    """Refuse options that would be ignored beside another one."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise InputError(f"{parameter.opts[0]}: expected none with {option}, {reason}, but got one")


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("convergent"))
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    pass


@app.command(epilog=examples("demo --out demo"))
def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder for the training run and the page.")] = Path("demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 1500,
    seed: Annotated[int, typer.Option(help="Seed of the weights and the networks.")] = 0,
    device: Device = "cpu",
) -> None:
    """Train a small solver on pore networks, test it on larger ones, and write a page with the results."""
    from convergent.cli.demo import run
    from convergent.storage.lock import owned

    with owned(out):
        run(out, steps, seed, device)


@app.command(
    epilog=examples(
        "train pore-networks --model 'CGS(8)' --steps 1000",
        "train folder --data networks/ --target pressure --out runs/mine",
        "train --resume runs/mine",
    )
)
def train(
    context: typer.Context,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="What to learn: a name that `convergent tasks` lists.")] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A name that `convergent models` lists, such as 'CGS(8)'; each task has a default."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A new folder for the run; by default runs/TASK-MODEL-SEED.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Continue the run in this folder, with its settings.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the weights and the data.")] = 0,
    as_json: Json = False,
    data: Data = None,
    target: Target = None,
    data_root: DataRoot = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of the task, as `convergent tasks` lists them; repeatable.",
            rich_help_panel="Data",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Training steps.", rich_help_panel=TRAINING)] = 1000,
    graphs: Annotated[int, typer.Option(help="Graphs per step.", rich_help_panel=TRAINING)] = 32,
    renew: Annotated[
        int | None, typer.Option(help="Draw new graphs every so many steps; by default as the task does.", rich_help_panel=TRAINING)
    ] = None,
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.", rich_help_panel=TRAINING)] = 1e-3,
    schedule: Annotated[
        str, typer.Option(metavar="NAME", help="Of the learning rate: restarts, one-cycle or constant.", rich_help_panel=TRAINING)
    ] = "restarts",
    clip: Annotated[float | None, typer.Option(help="Clip gradients to this norm.", rich_help_panel=TRAINING)] = None,
    validate_every: Annotated[int, typer.Option(help="Steps between two validations.", rich_help_panel=TRAINING)] = 100,
    validation_graphs: Annotated[int, typer.Option(help="Graphs of a validation.", rich_help_panel=TRAINING)] = 64,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many validations without improvement.", rich_help_panel=TRAINING)
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between two checkpoints.", rich_help_panel=TRAINING)] = 100,
    model_settings: Annotated[
        list[str] | None,
        typer.Option("--model-set", metavar="NAME=VALUE", help="A setting of the model; repeatable.", rich_help_panel=TRAINING),
    ] = None,
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu or cuda.", rich_help_panel=COMPUTING)] = "cpu",
    devices: Annotated[
        int, typer.Option(min=1, help="Processes (cpu) or cards (cuda) that share every step.", rich_help_panel=COMPUTING)
    ] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Machines, each with that many devices.", rich_help_panel=COMPUTING)] = 1,
) -> None:
    """Train a model. Ctrl-C saves the run; --resume continues it."""
    from convergent.cli import work

    config: dict[str, Any] | None = None
    if resume is None:
        fields = ("steps", "graphs", "renew", "rate", "schedule", "clip", "validate_every", "validation_graphs", "patience")
        given = locals()
        config = {name: given[name] for name in (*fields, "checkpoint_every", "seed", "task", "model")}
        config["task_settings"] = work.task_settings(task, settings, data, target, data_root)
        config["model_settings"] = work.parse(model_settings, "--model-set")
    elif task is not None:
        raise InputError(f"task: expected none with --resume, which takes all settings from {resume}, but got {task!r}")
    else:
        ignored = {parameter.name or "" for parameter in context.command.params}
        ignored -= {"resume", "device", "devices", "nodes", "as_json"}
        refuse_beside(context, ignored, "--resume", f"which takes all settings from {resume}")
    work.train(config, resume or out, resume is not None, device, devices, nodes, as_json)


@app.command(
    epilog=examples("evaluate runs/pores --graphs 100 --set pores=800,800", "evaluate runs/mine --data solved/ --json"),
)
def evaluate(
    context: typer.Context,
    model: Model,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A folder of solved networks; by default new graphs of the task.")
    ] = None,
    graphs: Annotated[int, typer.Option(min=1, help="How many new graphs to test on.")] = 100,
    seed: Annotated[int | None, typer.Option(help="Seed of the new graphs; by default the run's.")] = None,
    settings: Settings = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Test a trained model on graphs it was not trained on."""
    from convergent.cli import work

    if data is not None:
        refuse_beside(context, {"graphs", "seed", "settings"}, "--data", "all of which is tested")
    work.evaluate(model, data, graphs, seed, work.parse(settings, "--set"), device, as_json)


@app.command(
    epilog=examples("predict runs/mine networks/ --out answers/", "predict runs/mine networks/ --out answers/ --resume"),
)
def predict(
    model: Model,
    folder: Annotated[
        Path,
        typer.Argument(metavar="NETWORKS", help="A folder with nodes and edges tables that have the columns of the training data."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder for the tables predictions and graphs.")],
    form: Format = "csv",
    resume: Annotated[bool, typer.Option("--resume", help="Continue predictions that were interrupted.")] = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Predict any number of networks, each with its error bound, iterations and status."""
    from convergent.cli import work

    work.predict(model, folder, out, form, resume, device, as_json)


@app.command(epilog=examples("models --task pore-networks --json"))
def models(
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="Only the models of this task.")] = None,
    as_json: Json = False,
) -> None:
    """List the models that have a name, with their number of parameters."""
    from convergent.cli import work

    work.models(task, as_json)


@app.command(epilog=examples("tasks --json"))
def tasks(as_json: Json = False) -> None:
    """List the tasks and their settings."""
    from convergent.cli import work

    work.tasks(as_json)


@app.command(
    epilog=examples(
        "data pore-networks --graphs 100 --out networks/ --set wide=true",
        "data folder --data networks/ --target pressure",
    )
)
def data(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A name that `convergent tasks` lists.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A new folder for the tables of generated networks.")] = None,
    graphs: Annotated[int, typer.Option(min=1, help="How many networks to generate.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the networks.")] = 0,
    form: Format = "csv",
    as_json: Json = False,
    data: Data = None,
    target: Target = None,
    data_root: DataRoot = None,
    settings: Settings = None,
) -> None:
    """Write generated networks as tables, or check your own and describe them."""
    from convergent.cli import work

    work.data(task, work.task_settings(task, settings, data, target, data_root), out, graphs, seed, form, as_json)


@app.command(
    epilog=examples(
        "bench --quick",
        "bench w1 growth --out results/bench",
        "bench --device cuda --parts iteration,layer",
        "bench --page docs/benchmarks.md",
    )
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
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the random problems.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Of torch, MKL and numba.")] = 2,
    parts: Annotated[str | None, typer.Option(metavar="PART,...", help="Only these parts of the benchmark cuda.")] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page on all results there are, in Markdown; without a NAME nothing is run."),
    ] = None,
) -> None:
    """Measure every speed claim against its peers (in a checkout of the repository)."""
    from convergent.cli.bench import run

    run(names or [], device, quick, out, seed, threads, parts.split(",") if parts else [], page)


@app.command(
    epilog=examples(
        "reproduce value-iteration --quick",
        "reproduce all --device cuda --workers 12 --data-root tudatasets",
    )
)
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Tables and figures to run, or all; without a name they are listed.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, about a minute: a check that everything runs.")] = False,
    device: Device = "cpu",
    workers: Annotated[int, typer.Option(min=0, help="Parallel processes; 0 only assembles results that exist.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each process.")] = 1,
    data_root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The raw TU data sets, for graph classification.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where results go; existing ones are not run again. By default results/reproduce, or reproduce-quick.",
        ),
    ] = None,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Markdown page with all results.")] = None,
) -> None:
    """Run the tables and figures of the paper again, beside the printed numbers."""
    from convergent.cli.reproduce import run

    run(names or [], quick, device, workers, threads, data_root, out, page)
