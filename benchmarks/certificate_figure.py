"""The picture of the benchmark ``certificate``: the solved network, and how the certified bound follows the true error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER, INK, FAINT, LINE = "#0d1117", "#e6edf3", "#8b949e", "#30363d"
COLD_TO_HOT = ("#2fb8ff", "#6f7bff", "#c055e8", "#ff5c8a", "#ff9a4d", "#ffe27a")
BOUND, ERROR, STEP = "#ffe27a", "#ff5c8a", "#2fb8ff"
TURN, TILT = np.radians(-34), np.radians(24)  # of the cube, seen from the front
FOG = 0.72  # how much darker the farthest strut is than the nearest


def draw(report: Mapping[str, Any]) -> Figure:
    """From what the benchmark wrote."""
    from matplotlib.figure import Figure

    (case,) = report["cases"]
    found = case["measured"]
    figure = Figure(figsize=(12, 5.6), facecolor=PAPER)
    left = figure.add_axes((0.0, 0.0, 0.47, 0.88), facecolor=PAPER)
    right = figure.add_axes((0.555, 0.135, 0.42, 0.71), facecolor=PAPER)
    _draw_network(left, found["network"])
    _draw_curves(right, found, report["settings"]["tol"])
    nodes = case["settings"]["nodes"]
    for x, title, words in (
        (0.03, "A network, solved", f"steady heat in a foam of {nodes:,} nodes; rows sum to 1 − 10⁻⁶"),
        (0.5, "The certified bound follows the true error", "largest over all nodes, after each step of Picard iteration"),
    ):
        figure.text(x, 0.935, title, color=INK, fontsize=16)
        figure.text(x, 0.885, words, color=FAINT, fontsize=11)
    return figure


def _draw_network(axes: Axes, network: Mapping[str, Any]) -> None:
    """Struts from the back to the front, coloured by temperature; what is farther away is thinner and darker."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap

    position, struts = np.array(network["position"]), np.array(network["struts"])
    lines, near = _project(position[struts])
    depth = near.mean(axis=1)
    order = np.argsort(depth)
    warm = LinearSegmentedColormap.from_list("temperature", list(COLD_TO_HOT))
    tint = warm(np.array(network["temperature"])[struts].mean(axis=1))
    tint[:, :3] *= (1 - FOG * (1 - depth.clip(0, 1)))[:, None]
    axes.add_collection(LineCollection(lines[order], colors=tint[order], linewidths=0.5 + 2.2 * depth[order], capstyle="round"))
    for label, corner, shift in (("hot face, 1", (0.0, 0.0, 0.0), 0.0), ("cold face, 0", (1.0, 1.0, 0.0), 0.1)):
        (x, y), _ = _project(np.array(corner))
        axes.text(x + shift, y - 0.06, label, color=INK, fontsize=11, ha="center", va="top")
    axes.set(xlim=(-0.95, 0.95), ylim=(-0.84, 0.72), aspect="equal")
    axes.set_axis_off()


def _project(position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of the unit cube [..., 3] -> on the page [..., 2], and how near they are, from 0 (back) to 1 (front)."""
    x, y, z = np.moveaxis(position - 0.5, -1, 0)
    across = x * np.cos(TURN) - y * np.sin(TURN)
    behind = x * np.sin(TURN) + y * np.cos(TURN)
    up = z * np.cos(TILT) + behind * np.sin(TILT)
    away = behind * np.cos(TILT) - z * np.sin(TILT)
    zoom = 4 / (4 + away)  # a little perspective
    return np.stack([across * zoom, up * zoom], axis=-1), 0.5 - away / 1.7


def _draw_curves(axes: Axes, found: Mapping[str, Any], tol: float) -> None:
    steps = found["steps"]
    for name, colour, label in (
        ("bound", BOUND, "certified bound"),
        ("error", ERROR, "true error"),
        ("step_length", STEP, "length of the last step"),
    ):
        axes.plot(steps, found[name], color=colour, linewidth=2.2, label=label)
    axes.fill_between(steps, found["error"], found["bound"], color=BOUND, alpha=0.12, linewidth=0)
    axes.axhline(tol, color=FAINT, linewidth=1, linestyle=(0, (4, 4)))
    axes.text(steps[-1], tol * 1.25, f"tolerance {tol:.0e}".replace("e-0", "e-"), color=FAINT, fontsize=10, ha="right")
    _mark_early_stop(axes, found, tol)
    axes.set(yscale="log", xlim=(0, steps[-1]), ylim=(min(found["step_length"]), max(found["bound"]) * 2), xlabel="steps")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(color=LINE, linewidth=0.6, alpha=0.6)
    axes.tick_params(colors=FAINT, which="both")
    axes.xaxis.label.set_color(FAINT)
    for spine in axes.spines.values():
        spine.set_color(LINE)
    axes.legend(loc="upper right", frameon=False, labelcolor=INK, fontsize=11)


def _mark_early_stop(axes: Axes, found: Mapping[str, Any], tol: float) -> None:
    """Where a rule that looks at the last step would end, and the error it leaves."""
    place = next((index for index, length in enumerate(found["step_length"]) if length <= tol), None)
    if place is None:
        return
    step, length, error = found["steps"][place], found["step_length"][place], found["error"][place]
    axes.plot([step, step], [length, error], color=INK, linewidth=1, linestyle=(0, (2, 2)))
    axes.plot([step, step], [length, error], "o", color=INK, markersize=5)
    text = f"a solver that stops here, by its last step,\nis wrong by {error / tol:,.0f} × the tolerance"
    axes.annotate(
        text,
        (step, length),
        (0.03, 0.08),
        textcoords="axes fraction",
        color=INK,
        fontsize=10.5,
        arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.8, "shrinkB": 4},
    )
