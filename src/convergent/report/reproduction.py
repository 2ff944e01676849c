"""The page on the paper's experiments, made from results only: what is not in a file of results is not on the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convergent.experiments.printed import VALUE_ITERATION
from convergent.report import reproduction_figures as figures
from convergent.report import reproduction_tables as tables
from convergent.report.reproduction_summary import summary
from convergent.training.run import read_json, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Report = Mapping[str, Any]  # what experiments write
Draw = Callable[[Mapping[str, Any]], "Figure | None"]

VERDICTS = {True: "✓ holds", False: "✗ does not hold", None: "? undecided"}
SMALL = "Small budget: for the form only. Its numbers and statements say nothing about the paper."
STATES = "## Experiments and statements"
DONE, QUICK, MISSING = "complete", "small budget: for the form only", "not run"

HEAD = """# The paper, run again

Every table and figure of *Convergent Graph Solvers* (ICLR 2022), computed again. `convergent reproduce all` writes the files in
`results/reproduce/`; this page is made from them and from the numbers printed in the paper (option `--page`). Numbers are means ±
standard deviations."""


@dataclass(frozen=True)
class Section:
    """Of one experiment: its name, what it is called where it was not run, and what is made of its table."""

    name: str
    title: str
    table: Callable[[Mapping[str, Any]], str] = lambda _: ""
    figures: Mapping[str, tuple[str, Draw]] = field(default_factory=dict)  # caption and how to draw, by file


def _on_value_iteration(name: str, title: str, caption: str = "", draw: Draw | None = None) -> Section:
    printed = VALUE_ITERATION[name]
    usual = ("Error in every column; hollow: the paper's.", partial(figures.errors_by_size, printed=printed))
    return Section(name, title, partial(tables.value_iteration, printed=printed), {name: (caption, draw) if draw else usual})


SECTIONS = (
    Section(
        "pore-networks",
        "Pore networks",
        partial(tables.by_size, measure="mse", what="1,000 times the mean squared error, by pores", scale=1000),
        {
            "pore-networks": ("Error against the size of the network: medians over five runs.", figures.mse_by_pores),
            "pore-networks-layers": ("Error of stacks of n layers at 800 pores; a dot for every run.", figures.mse_by_layers),
        },
    ),
    Section(
        "training-curves",
        "Training curves on pore networks",
        figures={"training-curves": ("Medians over runs; of CGS the range of all five.", figures.training_curves)},
    ),
    _on_value_iteration("value-iteration", "Graph value iteration"),
    Section(
        "value-iteration-example",
        "Predicted and true values",
        figures={"value-iteration-example": ("States coloured by their value.", figures.values_on_graphs)},
    ),
    Section("classification", "Graph classification", tables.classification),
    Section("classification-tuning", "Settings of graph classification", tables.tuning),
    Section("classification-folds", "Folds of graph classification", tables.tuning),
    _on_value_iteration("ablation-layers", "Layers of the encoder"),
    _on_value_iteration("ablation-fixed-bias", "A fixed bias"),
    _on_value_iteration("ablation-gamma", "The contraction γ", "Error against γ; dashed: the paper's.", figures.errors_by_gamma),
    _on_value_iteration("ablation-nonlinear", "Maps with an activation"),
    Section(
        "sample-efficiency",
        "Sample efficiency",
        partial(tables.by_size, measure="mape", what="mean absolute percentage error by training graphs"),
        {"sample-efficiency": ("Error against the number of training graphs.", figures.errors_by_graphs)},
    ),
    Section("runtime", "Runtime on the CPU", tables.runtime, {"runtime": ("Time and memory on the CPU.", figures.runtime)}),
    Section("runtime-gpu", "Runtime on a GPU", tables.runtime, {"runtime-gpu": ("Time and memory on a GPU.", figures.runtime)}),
    Section(
        "complexity",
        "Memory against iterations",
        tables.complexity,
        {"complexity": ("Memory of a training step.", figures.memory_by_iterations)},
    ),
)


def write_page(folder: Path, page: Path) -> Path:
    """Make the page from ``folder``/NAME.json, and its figures in a folder beside it that has the name of the page.

    Raises:
        InputError: a file of results is not JSON.
    """
    reports = {path.stem: read_json(path) for path in sorted(Path(folder).glob("*.json"))}
    known = {section.name for section in SECTIONS}
    unknown = [Section(name, name) for name in reports if name not in known]
    sections = [*SECTIONS, *unknown]
    page.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        HEAD,
        summary(reports),
        STATES,
        _overview(sections, reports),
        *(_section(section, reports.get(section.name), page) for section in sections),
    ]
    write_atomically(page, ("\n\n".join(filter(None, parts)) + "\n").encode())
    return page


# --- its parts, from top to bottom ---


def _overview(sections: Sequence[Section], reports: Mapping[str, Report]) -> str:
    """A line per experiment: how far it is, and how its statements fared."""
    body = []
    for section in sections:
        report = reports.get(section.name, {})
        verdicts = Counter(statement.get("holds") for statement in report.get("statements", ()))
        counts = [str(verdicts[verdict]) if report else tables.NONE for verdict in VERDICTS]
        body.append([_title(section, report), _state(report), *counts, str(report.get("date", tables.NONE))[:10]])
    return tables.grid(["experiment", "state", *VERDICTS.values(), "date"], body)


def _state(report: Report) -> str:
    if absent := len(report.get("missing", ())):
        return f"{absent} of {absent + len(report['jobs'])} runs missing"
    return MISSING if not report else QUICK if report.get("quick") else DONE


def _title(section: Section, report: Report | None) -> str:
    return str((report or {}).get("title") or section.title)


def _section(section: Section, report: Report | None, page: Path) -> str:
    heading = f"## {_title(section, report)}"
    if not report:
        return f'{heading}\n\n!!! warning "Not run"\n    There is no `{section.name}.json`.'
    table = report.get("table") or {}
    parts = [
        heading,
        f'!!! warning "Small budget"\n    {SMALL}' if report.get("quick") else "",
        _absent(report),
        section.table(table),
        *(drawn(table, name, caption, draw, page) for name, (caption, draw) in section.figures.items()),
        _bullets("Statements", map(_verdict, report.get("statements", ()))),
        _bullets("Where the settings are not the paper's", report.get("deviations", ())),
        _origin(report),
    ]
    return "\n\n".join(filter(None, parts))


def _absent(report: Report) -> str:
    missing = report.get("missing", ())
    return f'!!! warning "Not complete"\n    Not run yet: {", ".join(missing)}.' if missing else ""


def drawn(table: Mapping[str, Any], name: str, caption: str, draw: Draw, page: Path) -> str:
    figure = draw(table)
    if figure is None:
        return ""
    figures.save(figure, page.parent / page.stem / f"{name}.png")
    return f"![{caption}]({page.stem}/{name}.png)\n\n*{caption}*"


def _verdict(statement: Mapping[str, Any]) -> str:
    evidence = f" ({statement['evidence']})" if statement.get("evidence") else ""
    return f"**{VERDICTS[statement.get('holds')]}:** {statement.get('text', '')}{evidence}"


def _bullets(title: str, lines: Any) -> str:
    found = [f"- {line}" for line in lines]
    return "\n".join([f"**{title}**", "", *found]) if found else ""


def _origin(report: Report) -> str:
    """Seeds, commits, machines, date: what it takes to do it again."""
    commits = ", ".join(f"`{str(commit)[:10]}`" for commit in report.get("commits", ()))
    facts = {
        "seeds": ", ".join(map(str, report.get("seeds", ()))),
        "run at": commits,
        "on": "; ".join(map(_machine, report.get("machines", ()))),
        "assembled": str(report.get("date", "")),
    }
    return "<small>" + " · ".join(f"{name} {said}" for name, said in facts.items() if said) + "</small>"


def _machine(machine: Mapping[str, Any]) -> str:
    threads = f"{machine['threads']} threads" if machine.get("threads") else None
    device = f"device {machine['device']}" if machine.get("device") else None
    return ", ".join(str(part) for part in (machine.get("system"), machine.get("cpu"), threads, machine.get("gpu"), device) if part)
