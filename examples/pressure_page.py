"""The pictures and the page of the example."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path

import matplotlib
import numpy
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pressure_network import PoreNetwork

Array = NDArray[numpy.float64]

PAPER, INK, FAINT = "#0d1117", "#e6edf3", "#8b949e"
WARM = LinearSegmentedColormap.from_list("pressure", ["#2fb8ff", "#6f7bff", "#c055e8", "#ff5c8a", "#ff9a4d", "#ffe27a"])
GLOW = matplotlib.colormaps["inferno"]
TURN, TILT = numpy.radians(-34), numpy.radians(24)  # of the cube, seen from the front


def draw_pressure(network: PoreNetwork, pressure: Array, path: Path) -> None:
    """The cube with a corner cut away, and a slice through its middle, both coloured by pressure."""
    figure, cube, flat = _canvas(
        "Pressure in the pore network",
        "every throat; one corner is cut away",
        "slice through the middle, throats as wide as they are",
    )
    middle = network.position[network.throats].mean(axis=1)
    value = pressure[network.throats].mean(axis=1)
    shown = ~((middle[:, 0] > 0.45) & (middle[:, 1] < 0.5) & (middle[:, 2] > 0.5))
    scale = Normalize(0, 1)
    _draw_cube(cube, network, shown, WARM(scale(value)), _spacing(network) * 0.16)
    _draw_slice(flat, network, WARM(scale(value)))
    _colourbar(figure, flat, ScalarMappable(scale, WARM), "pressure")
    figure.savefig(path, facecolor=PAPER)


def draw_sensitivity(network: PoreNetwork, share: Array, path: Path) -> None:
    """The throats that matter most for the permeability, and how unequally it is shared."""
    figure, cube, curve = _canvas(
        "What every throat does to the permeability",
        "bright: the throats whose share k dQ/dk makes up a quarter of the flow Q",
        "how unequally the throats share it",
    )
    share = share.clip(min=share.max() * 1e-9)
    order = numpy.argsort(share)[::-1]
    total = numpy.cumsum(share[order])
    leading = order[: int(numpy.searchsorted(total, 0.25 * total[-1])) + 1]
    top = numpy.zeros(len(share), dtype=bool)
    top[leading] = True
    scale = LogNorm(share[leading].min(), share.max())
    colour = numpy.tile(matplotlib.colors.to_rgba("#30363d", 0.5), (len(share), 1))
    colour[top] = GLOW(0.25 + 0.75 * scale(share[top]).filled(0))
    rest = ~top & (numpy.arange(len(share)) % max(1, len(share) // 20_000) == 0)  # a hint of the others
    _draw_cube(cube, network, rest, colour, _spacing(network) * 0.06, fog=0)
    _draw_cube(cube, network, top, colour, _spacing(network) * 0.2 * (share / share[leading].mean()).clip(0.2, 3) ** 0.5)

    part = numpy.arange(1, len(order) + 1) / len(order)
    curve.plot(part, total / total[-1], color=GLOW(0.75), linewidth=2.5)
    curve.fill_between(part, total / total[-1], color=GLOW(0.75), alpha=0.15, linewidth=0)
    for level, name in ((0.25, "a quarter"), (0.5, "half")):
        few = float(part[numpy.searchsorted(total, level * total[-1])])
        curve.plot(few, level, "o", color=INK, markersize=6)
        text = f"{name} of it: {few:.0%} of the throats"
        curve.annotate(text, (few, level), (14, -5), textcoords="offset points", color=INK)
    curve.set(xlim=(0, 1), ylim=(0, 1), xlabel="part of the throats, most important first", ylabel="part of  Σ k dQ/dk = Q")
    curve.set_aspect("equal")
    curve.grid(color="#21262d")
    _style(curve)
    figure.savefig(path, facecolor=PAPER)


def _canvas(title: str, left_title: str, right_title: str) -> tuple[Figure, Axes, Axes]:
    figure = Figure(figsize=(15, 7.8), dpi=130, facecolor=PAPER)
    left = figure.add_axes((0.01, 0.02, 0.53, 0.86), facecolor=PAPER)
    right = figure.add_axes((0.585, 0.14, 0.345, 0.345 * 15 / 7.8), facecolor=PAPER)
    figure.text(0.03, 0.925, title, color=INK, fontsize=19)
    figure.text(0.03, 0.865, left_title, color=FAINT, fontsize=12)
    figure.text(0.585, 0.865, right_title, color=FAINT, fontsize=12)
    return figure, left, right


def _spacing(network: PoreNetwork) -> float:
    return float(len(network.position) ** (-1 / 3))


def _project(position: Array) -> tuple[Array, Array]:
    """Points of the cube [..., 3] -> on the page [..., 2], and how near they are, from 0 (back) to 1 (front)."""
    x, y, z = numpy.moveaxis(position - 0.5, -1, 0)
    across = x * numpy.cos(TURN) - y * numpy.sin(TURN)
    behind = x * numpy.sin(TURN) + y * numpy.cos(TURN)
    up = z * numpy.cos(TILT) + behind * numpy.sin(TILT)
    away = behind * numpy.cos(TILT) - z * numpy.sin(TILT)
    zoom = 4 / (4 + away)  # a little perspective
    return numpy.stack([across * zoom, up * zoom], axis=-1), 0.5 - away / 1.7


def _draw_cube(
    axes: Axes,
    network: PoreNetwork,
    shown: NDArray[numpy.bool_],
    colour: Array,
    width: float | Array,
    fog: float = 0.75,
) -> None:
    """Throats from the back to the front; what is further away is darker. ``width`` is in units of the cube."""
    lines, near = _project(network.position[network.throats[shown]])
    depth = near.mean(axis=1)
    order = numpy.argsort(depth)
    tint = colour[shown].copy()
    tint[:, :3] *= (1 - fog * (1 - depth.clip(0, 1)))[:, None]
    points = 15 * 0.53 * 72 / 1.96  # of one unit of the cube
    widths = numpy.broadcast_to(width, len(shown))[shown] * points
    axes.add_collection(LineCollection(lines[order], colors=tint[order], linewidths=widths[order].clip(0.15, 6), capstyle="round"))
    _frame(axes)


def _frame(axes: Axes) -> None:
    corners = numpy.array([[x, y, z] for x in (0.0, 1.0) for y in (0.0, 1.0) for z in (0.0, 1.0)])
    pairs = [(i, j) for i in range(8) for j in range(i) if abs(corners[i] - corners[j]).sum() == 1]
    lines, _ = _project(corners[numpy.array(pairs)])
    axes.add_collection(LineCollection(lines, colors=FAINT, linewidths=0.5, alpha=0.5, zorder=0))
    for label, place, shift in (("inlet, p = 1", [0.0, 0.0, 0.0], -0.02), ("outlet, p = 0", [1.0, 1.0, 0.0], 0.13)):
        (x, y), _ = _project(numpy.array(place))
        axes.text(x + shift, y - 0.05, label, color=INK, fontsize=12, ha="center", va="top")
    axes.set(xlim=(-0.98, 0.98), ylim=(-0.84, 0.74))
    axes.set_aspect("equal")
    axes.set_axis_off()


def _draw_slice(axes: Axes, network: PoreNetwork, colour: Array) -> None:
    """The throats near the middle plane, seen from above, as wide as they are."""
    thick = min(1.0, 1.6 * _spacing(network))
    ends = network.position[network.throats]
    height = abs(ends[:, :, 2].mean(axis=1) - 0.5)
    shown = height < thick / 2
    order = numpy.argsort(-height[shown])
    points = 15 * 0.345 * 72
    widths = (2 * network.radius[shown] * points).clip(0.3, 12)
    tint = colour[shown].copy()
    tint[:, :3] *= (1 - 0.6 * height[shown] / (thick / 2))[:, None]
    flat = ends[shown][:, :, :2][order]
    axes.add_collection(LineCollection(flat, colors=tint[order], linewidths=widths[order], capstyle="round"))
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xlabel="x, along the flow", ylabel="y")
    axes.set_aspect("equal")
    _style(axes)


def _style(axes: Axes) -> None:
    axes.tick_params(colors=FAINT, labelsize=9)
    axes.xaxis.label.set_color(FAINT)
    axes.yaxis.label.set_color(FAINT)
    for spine in axes.spines.values():
        spine.set_color("#30363d")


def _colourbar(figure: Figure, axes: Axes, mappable: ScalarMappable, label: str) -> None:
    place = axes.get_position()
    bar = figure.colorbar(mappable, cax=figure.add_axes((place.x1 + 0.012, place.y0, 0.01, place.height)))
    bar.set_label(label, color=FAINT)
    bar.ax.tick_params(colors=FAINT, labelsize=9)
    bar.outline.set_visible(False)


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>convergent: the pressure in a pore network</title>
<style>
  body {{ margin: 0 auto; padding: 2.5rem 1.5rem; max-width: 76rem; background: {paper}; color: {ink};
         font: 16px/1.5 system-ui, sans-serif; }}
  h1 {{ font-weight: 500; margin: 0 0 .5rem; }}
  p {{ color: {faint}; max-width: 52rem; margin-top: 0; }}
  img {{ width: 100%; display: block; margin: 1.5rem 0; border: 1px solid #21262d; border-radius: 8px; }}
  .tables {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1.5rem; }}
  table {{ border-collapse: collapse; width: 100%; }}
  caption {{ text-align: left; font-weight: 600; padding-bottom: .4rem; }}
  td {{ border-top: 1px solid #21262d; padding: .3rem 0; vertical-align: top; }}
  td + td {{ text-align: right; font-variant-numeric: tabular-nums; padding-left: 1rem; }}
</style>
<h1>The pressure in a pore network</h1>
<p>Each pore's pressure is the conductance-weighted mean of its neighbours': the fixed point of a contracting map.
The certificate bounds the error of every pore's pressure. The gradient of the total flow in the conductances of all
throats comes from one adjoint solve.</p>
{images}
<div class="tables">
{tables}
</div>
</html>
"""


def write_page(path: Path, sections: list[tuple[str, list[tuple[str, str]]]], pictures: list[str]) -> None:
    """One file that holds its pictures, so that it can be sent on."""
    images = []
    for name in pictures:
        data = base64.b64encode((path.parent / name).read_bytes()).decode()
        images.append(f'<img alt="{escape(Path(name).stem)}" src="data:image/png;base64,{data}">')
    tables = []
    for title, rows in sections:
        cells = "\n".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in rows)
        tables.append(f"<table><caption>{escape(title)}</caption>\n{cells}\n</table>")
    page = PAGE.format(paper=PAPER, ink=INK, faint=FAINT, images="\n".join(images), tables="\n".join(tables))
    path.write_text(page, encoding="utf-8")
