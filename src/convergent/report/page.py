"""The page of a demo: one file with everything it shows, so that it can be passed on and opened offline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from convergent.report import comparison
from convergent.report.contents import Curve, DemoPage, Network, Points, Score, SizeRow
from convergent.report.drawing import Drawn
from convergent.report.figures import draw_curves, draw_points
from convergent.report.network_figure import draw_network
from convergent.report.numbers import fixed, number
from convergent.training.run import write_atomically

__all__ = ["Curve", "DemoPage", "Network", "Points", "Score", "SizeRow", "number", "write_demo_page"]


def write_demo_page(path: Path | str, page: DemoPage) -> None:
    """Write the page. The same contents give the same bytes.

    Raises:
        InputError: lists that belong together differ in length, or the network is not one.
    """
    write_atomically(Path(path), _html(page).encode())


# --- the whole ---


def _html(page: DemoPage) -> str:
    from plotly.offline import get_plotlyjs

    curves, points = draw_curves(page.curves), draw_points(page.points)
    network = None if page.network is None else draw_network(page.network)
    drawn = {"points": points, "network": network, "curves": curves}
    main = [
        _comparison(page.rows),
        _points(page.points, points),
        _network(page.network, network),
        _solves(page.rows),
        _curves(curves),
    ]
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


def _comparison(rows: Sequence[SizeRow]) -> str:
    if not rows:
        return ""
    content = _notes([comparison.BASELINES]) + comparison.accuracy_table(rows) + _notes(comparison.MEASURES)
    return _section("How it compares", [], _finding(comparison.compared(rows)) + content)


def _points(points: Sequence[Points], drawn: Drawn | None) -> str:
    title = "Predicted against exact pressure"
    if drawn is None:
        return _section(title, ["There is no finite prediction to show."])
    words = (
        "One panel for each size of network, all with the same axes. Each dot is a pore of an unseen network; "
        "on the grey line the prediction equals the exact pressure."
    )
    panels = ", ".join(group.name if group.r2 is None else f"{group.name}: R² {fixed(group.r2, 3)}" for group in points)
    return _section(title, [words], _plot("points", f"scatter plots of predicted against exact pressure; {panels}", drawn.note))


def _solves(rows: Sequence[SizeRow]) -> str:
    if not rows:
        return ""
    clock = (
        "Time: for one network, measured in this run on the same networks; the fastest of several repeats, median over the "
        "networks. The exact solve uses NumPy and SciPy."
    )
    finding = _finding(f"{comparison.certificate(rows)} {comparison.timed(rows)}")
    return _section("Convergence and speed", [], finding + _notes([clock]) + comparison.solver_table(rows))


def _curves(drawn: Drawn | None) -> str:
    if drawn is None:
        return _section("Training", ["Nothing was logged that could be shown."])
    words = "Error during training, on a logarithmic scale."
    return _section("Training", [words], _plot("curves", "curves of the error during training", drawn.note))


def _network(network: Network | None, drawn: Drawn | None) -> str:
    if network is None or drawn is None:
        return ""
    pores, throats = len(np.asarray(network.position)), np.asarray(network.ends).shape[1]
    words = f"One of the unseen test networks: {pores:,} pores and {throats:,} throats. Drag to rotate, scroll or pinch to zoom."
    stage = (
        f'<div class="stage">\n{_choice(drawn.figure["views"])}{_plot("network", "three-dimensional view of the network")}\n</div>'
    )
    return _section("A network in 3-D", [words], stage + _notes([drawn.note]))


def _choice(views: Sequence[Mapping[str, Any]]) -> str:
    if not views:
        return ""
    buttons = (
        f'<button type="button" aria-pressed="{"false" if index else "true"}">{escape(view["name"])}</button>'
        for index, view in enumerate(views)
    )
    return '<div class="choice" role="group" aria-label="what the colours show">' + "".join(buttons) + "</div>\n"


def _section(title: str, words: Sequence[str], content: str = "") -> str:
    return f"<section>\n<h2>{escape(title)}</h2>{_notes(words)}\n{content}\n</section>"


def _finding(words: str) -> str:
    return f'<p class="finding">{escape(words)}</p>'


def _plot(name: str, label: str, note: str = "") -> str:
    """The place of a figure, with its note below."""
    return f'<div class="plot" id="{name}" role="img" aria-label="{escape(label)}"></div>{_notes([note])}'


def _notes(words: Sequence[str]) -> str:
    return "".join(f'\n<p class="note">{escape(text)}</p>' for text in words if text)


def _provenance(provenance: Mapping[str, Any]) -> str:
    """A table of two columns; a mapping is a group of rows below its name."""
    groups = []
    for name, value in provenance.items():
        if isinstance(value, Mapping):
            head = f'<tr><th scope="rowgroup" colspan="2">{escape(_words(name))}</th></tr>'
            rows = [head, *(_provenance_row(inner, entry) for inner, entry in value.items())]
        else:
            rows = [_provenance_row(name, value)]
        groups.append("<tbody>\n" + "\n".join(rows) + "\n</tbody>")
    return "<table>\n<caption>How this page was made</caption>\n" + "\n".join(groups) + "\n</table>" if groups else ""


def _provenance_row(name: object, value: object) -> str:
    return f'<tr><th scope="row">{escape(_words(name))}</th><td>{escape(_said(value))}</td></tr>'


def _words(name: object) -> str:
    return str(name).replace("_", " ")


def _said(value: object) -> str:
    """A value in a line: mappings and lists are joined."""
    if isinstance(value, Mapping):
        return " · ".join(f"{_words(name)} {_said(entry)}" for name, entry in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
