"""The page of a demo: one file that holds all it shows, so that it can be sent on and opened offline."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from convergent.report.contents import Curve, DemoPage, Network, Points, SizeRow
from convergent.report.figures import Drawn, draw_curves, draw_network, draw_points
from convergent.training.run import write_atomically

__all__ = ["Curve", "DemoPage", "Network", "Points", "SizeRow", "number", "write_demo_page"]

COLUMNS = "pores", "networks", "mean squared error", "mean error", "largest error", "iterations", "certified within", "converged"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def write_demo_page(path: Path | str, page: DemoPage) -> None:
    """Write the page. The same contents give the same bytes.

    Raises:
        InputError: lists that belong together differ in length, or the network is not one.
    """
    write_atomically(Path(path), _html(page).encode())


def number(value: float, digits: int = 3, up: bool = False) -> str:
    """A number to be read: 0.0123, 4.5 × 10⁻⁷. A bound is rounded ``up``, so that it stays one."""
    value = float(value)
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    short = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_HALF_EVEN).create_decimal_from_float(value).normalize()
    if short == 0:
        return "0"
    if -3 <= short.adjusted() < 6:
        return f"{short:,f}".replace("-", "−")
    mantissa = short.scaleb(-short.adjusted()).normalize()
    return f"{mantissa:f} × 10{str(short.adjusted()).translate(RAISED)}".replace("-", "−")


# --- the whole ---


def _html(page: DemoPage) -> str:
    from plotly.offline import get_plotlyjs

    curves, points = draw_curves(page.curves), draw_points(page.points)
    network = None if page.network is None else draw_network(page.network)
    drawn = {"curves": curves, "points": points, "network": network}
    main = [_side_by_side(_curves(curves), _points(points)), _table(page.rows), _network(page.network, network)]
    return Template(_beside("page.html")).substitute(
        title=escape(page.title),
        style=_beside("page.css"),
        summary=escape(page.summary),
        headlines=_headlines(page.headlines),
        main="\n".join(filter(None, main)),
        footer=_provenance(page.provenance),
        figures=_script_data({name: each.figure for name, each in drawn.items() if each}),
        plotly=get_plotlyjs(),
        script=_beside("page.js"),
    )


def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _script_data(data: Any) -> str:
    """JSON that cannot end the script it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- its parts, from top to bottom ---


def _headlines(headlines: Sequence[tuple[str, str]]) -> str:
    if not headlines:
        return ""
    entries = (f'<div><dt>{escape(label)}</dt><dd class="big">{escape(value)}</dd></div>' for label, value in headlines)
    return '<dl class="headlines">\n' + "\n".join(entries) + "\n</dl>"


def _curves(drawn: Drawn | None) -> str:
    if drawn is None:
        return _section("Training", ["Nothing was logged that could be shown."])
    return _section("Training", ["Step by step, on a logarithmic scale."], _plot("curves", "curves of the training", drawn.note))


def _points(drawn: Drawn | None) -> str:
    title = "Predicted against exact"
    if drawn is None:
        return _section(title, ["There is no finite prediction to show."])
    words = "Every dot is a pore of a network that the solver has not seen."
    return _section(title, [words], _plot("points", "predicted against exact pressure of pores", drawn.note))


def _side_by_side(*sections: str) -> str:
    return '<div class="pair">\n' + "\n".join(sections) + "\n</div>"


def _table(rows: Sequence[SizeRow]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    body = "\n".join(map(_row, rows))
    table = f'<div class="wide" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'
    words = "Certified within: no fixed point of these networks is further than this from the exact one."
    return _section("By size of the network", [words], table)


def _row(row: SizeRow) -> str:
    everything = row.converged == row.networks
    state = f"all {row.networks:,}" if everything else f"{row.converged:,} of {row.networks:,}"
    cells = [
        f"{row.networks:,}",
        number(row.mse),
        number(row.mean_error),
        number(row.largest_error),
        f"{row.iterations:,}",
        number(row.worst_bound, up=True),
    ]
    plain = "".join(f"<td>{cell}</td>" for cell in cells)
    mark = "" if everything else ' class="warn"'
    return f'<tr><th scope="row">{row.nodes:,}</th>{plain}<td{mark}>{state}</td></tr>'


def _network(network: Network | None, drawn: Drawn | None) -> str:
    if network is None or drawn is None:
        return ""
    pores, throats = len(np.asarray(network.position)), np.asarray(network.ends).shape[1]
    words = f"{pores:,} pores and {throats:,} throats, never seen before. Drag to turn, scroll or pinch to come closer."
    stage = f'<div class="stage">\n{_choice(drawn.figure["views"])}{_plot("network", "the network in space")}\n</div>'
    return _section("One network, to turn", [words], stage + _notes([drawn.note]))


def _choice(views: Sequence[Mapping[str, Any]]) -> str:
    if not views:
        return ""
    buttons = (
        f'<button type="button" aria-pressed="{"false" if index else "true"}">{escape(view["name"])}</button>'
        for index, view in enumerate(views)
    )
    return '<div class="choice" role="group" aria-label="colour by">' + "".join(buttons) + "</div>\n"


def _section(title: str, words: Sequence[str], content: str = "") -> str:
    return f"<section>\n<h2>{escape(title)}</h2>{_notes(words)}\n{content}\n</section>"


def _plot(name: str, label: str, note: str = "") -> str:
    """Where a figure goes. Its note stands below, so that figures side by side begin at one height."""
    return f'<div class="plot" id="{name}" role="img" aria-label="{escape(label)}"></div>{_notes([note])}'


def _notes(words: Sequence[str]) -> str:
    return "".join(f'\n<p class="note">{escape(text)}</p>' for text in words if text)


def _provenance(provenance: Mapping[str, Any]) -> str:
    entries = (f"<div><dt>{escape(_words(name))}</dt><dd>{escape(_said(value))}</dd></div>" for name, value in provenance.items())
    return "<dl>\n" + "\n".join(entries) + "\n</dl>"


def _words(name: object) -> str:
    return str(name).replace("_", " ")


def _said(value: object) -> str:
    """A value in a line: settings and versions are mappings, sizes are lists."""
    if isinstance(value, Mapping):
        return " · ".join(f"{_words(name)} {_said(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
