"""Charts of a report, each as a PNG with a caption and a text alternative."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from spark.report.html_report import Chart

PALETTE: Final = ("#2a6f97", "#e07a2f", "#3a9d6e", "#b23a6b", "#6b5b95", "#8a8a2a", "#4fa3c7", "#a65628")
REST_COLOR: Final = "#b8c2cc"
_INK: Final = "#1f2933"
_MUTED: Final = "#52606d"
_GRID: Final = "#e4e8ec"
_DOTS_PER_INCH: Final = 144
_DENSE_POINTS: Final = 400


@dataclass(frozen=True)
class Series:
    """One line of a line chart."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Times:
    """Steps of a time axis: their begins (seconds since 1970, UTC) and their length."""

    starts: Sequence[int]
    step_s: int


@dataclass(frozen=True)
class Steps:
    """Values for the steps of a time axis; None for a missing one."""

    name: str
    values: Sequence[float | None]
    color: str | None = None


def timeline_bars(title: str, caption: str, alt: str, times: Times, series: Sequence[Steps], *, y_label: str) -> Chart:
    """Draw stacked bars, one for each step; the lowest series is named first."""
    figure, axes = _axes(9.6, 3.9)
    starts = np.array(times.starts, "datetime64[s]")
    edges = _days(np.append(starts, starts[-1] + np.timedelta64(times.step_s, "s")))
    below = np.zeros(len(starts))
    colors = [each.color or color for each, color in zip(series, _colors(len(series)), strict=True)]
    for color, each in zip(colors, series, strict=True):
        values = np.array([value or 0 for value in each.values], float)
        axes.stairs(below + values, edges, baseline=below, fill=True, color=color, linewidth=0)
        below += values
    axes.xaxis_date(UTC)
    axes.set_ylim(0, max(1.0, float(below.max(initial=0))) * 1.06)
    axes.set_ylabel(y_label)
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    _time_axis(axes, times)
    _legend(figure, colors, [each.name for each in series])
    return Chart(title, caption, _png(figure), alt)


def timeline_lines(
    title: str,
    caption: str,
    alt: str,
    times: Times,
    series: Sequence[Steps],
    *,
    y_label: str,
    logarithmic: bool = False,
) -> Chart:
    """Draw a line for each series, with gaps for missing values; values are at the middle of their step."""
    figure, axes = _axes(9.6, 3.9)
    middles = np.array(times.starts, "datetime64[s]") + np.timedelta64(times.step_s * 500, "ms")
    colors = [each.color or color for each, color in zip(series, _colors(len(series)), strict=True)]
    for color, each in zip(colors, series, strict=True):
        heights = np.array([np.nan if value is None else value for value in each.values], float)
        # A value between two gaps would be an invisible line.
        mark = "o" if np.count_nonzero(~np.isnan(heights)) < 60 else None
        width = 0.9 if len(heights) > _DENSE_POINTS // 2 else 1.6
        axes.plot(middles, heights, color=color, linewidth=width, marker=mark, markersize=3)
    if logarithmic:
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_minor_formatter(NullFormatter())
    values = [value for each in series for value in each.values if value is not None]
    # Leave room above the largest value.
    top = max(values, default=0) * (1.5 if logarithmic else 1.05)
    axes.set_ylim(0 if min(values, default=0) >= 0 else None, top if top > 0 else 1)
    axes.set_ylabel(y_label)
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    _time_axis(axes, times)
    _legend(figure, colors, [each.name for each in series])
    return Chart(title, caption, _png(figure), alt)


def short_name(name: str, max_length: int = 30) -> str:
    """Return `name`, without its middle if it is longer than `max_length`."""
    if len(name) <= max_length:
        return name
    head = max_length // 2
    return f"{name[:head]}…{name[-(max_length - head - 1) :]}"


def line_chart(
    title: str,
    caption: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    marks: Mapping[str, float] | None = None,
    fill: bool = False,
    logarithmic: bool = False,
    x_format: FuncFormatter | None = None,
    x_ticks: Sequence[float] | None = None,
) -> Chart:
    """Draw lines over a common axis.  `marks` are named vertical lines; `fill` shades below the lines."""
    figure, axes = _axes(9.6, 3.7)
    for color, each in zip(_colors(len(series)), series, strict=True):
        is_dense = len(each.x) > _DENSE_POINTS
        axes.plot(each.x, each.y, color=color, linewidth=0.8 if is_dense else 1.6, label=each.name)
        if fill:
            axes.fill_between(each.x, each.y, color=color, alpha=0.35 if is_dense else 0.12, linewidth=0)
    if logarithmic:
        axes.set_yscale("log")
        values = [value for each in series for value in each.y]
        axes.set_ylim(10 ** np.floor(np.log10(min(values))), 10 ** np.ceil(np.log10(max(values))))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    if x_ticks is not None:
        axes.set_xticks(x_ticks)
    if x_format is not None:
        axes.xaxis.set_major_formatter(x_format)
    _mark(axes, marks or {})
    if len(series) > 1:
        axes.legend(loc="upper right", bbox_to_anchor=(1.0, 1.16), ncols=len(series), frameon=False, fontsize=9)
    return Chart(title, caption, _png(figure))


def stacked_chart(
    title: str,
    caption: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    marks: Mapping[str, float] | None = None,
) -> Chart:
    """Draw stacked areas; all series have the same x."""
    figure, axes = _axes(9.6, 3.7)
    areas = [each.y for each in series]
    axes.stackplot(series[0].x, *areas, labels=[each.name for each in series], colors=_colors(len(series)), alpha=0.75)
    axes.margins(x=0.01)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _mark(axes, marks or {})
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, 1.16), ncols=len(series), frameon=False, fontsize=9)
    return Chart(title, caption, _png(figure))


def bar_chart(
    title: str,
    caption: str,
    names: Sequence[str],
    values: Sequence[float],
    *,
    y_label: str,
    x_label: str = "",
    notes: Sequence[str] = (),
    alt: str = "",
    value_text: Callable[[float], str] = "{:.1f}".format,
) -> Chart:
    """Draw one bar for each name with its value above; `notes` are below the names."""
    figure, axes = _axes(9.6, 3.5)
    bars = axes.bar(range(len(names)), values, color=PALETTE[0], width=0.68)
    axes.bar_label(bars, [value_text(value) for value in values], padding=2, fontsize=8.5, color=_INK)
    labels = [f"{name}\n{note}" for name, note in zip(names, notes, strict=True)] if notes else list(names)
    axes.set_xticks(range(len(names)), labels, fontsize=8.5)
    axes.set_ylabel(y_label)
    axes.set_xlabel(x_label)
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.margins(x=0.02, y=0.12)
    axes.grid(visible=False, axis="x")
    axes.axhline(0, color=_MUTED, linewidth=0.8)
    return Chart(title, caption, _png(figure), alt)


def heat_map(
    title: str,
    caption: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Mapping[tuple[str, str], float],
    *,
    x_label: str,
    color_label: str,
) -> Chart:
    """Draw a coloured grid; a cell without a value stays empty."""
    table = np.full((len(rows), len(columns)), np.nan)
    for (row, column), value in values.items():
        table[rows.index(row), columns.index(column)] = value
    figure, axes = _axes(9.6, 0.9 + 0.31 * len(rows))
    reach = max(1.0, float(np.nanpercentile(np.abs(table), 98))) if values else 1.0
    lowest = min(-0.25 * reach, max(-reach, float(np.nanmin(table)))) if values else -1.0
    image = axes.imshow(
        table, aspect="auto", cmap="RdBu_r", norm=TwoSlopeNorm(0, lowest, reach), interpolation="nearest"
    )
    axes.set_xticks(range(len(columns)), list(columns))
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_xlabel(x_label)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for y, x in np.argwhere(~np.isnan(table)):
        strong = abs(table[y, x]) > 0.62 * reach
        axes.text(
            x, y, f"{round(table[y, x])}", ha="center", va="center", fontsize=7, color="white" if strong else _INK
        )
    bar = figure.colorbar(image, ax=axes, pad=0.012, aspect=24, extend="both")
    bar.set_label(color_label, color=_MUTED, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, colors=_MUTED)
    return Chart(title, caption, _png(figure))


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=_DOTS_PER_INCH, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=_GRID, linewidth=0.8)
    axes.tick_params(colors=_MUTED, labelsize=9)
    axes.xaxis.label.set(color=_MUTED, fontsize=9.5)
    axes.yaxis.label.set(color=_MUTED, fontsize=9.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure, axes


def _time_axis(axes: Axes, times: Times) -> None:
    locator = dates.AutoDateLocator(tz=UTC, minticks=3, maxticks=9)  # type: ignore[no-untyped-call]  # has no types
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    first, last = np.array([times.starts[0], times.starts[-1] + times.step_s], "datetime64[s]")
    axes.set_xlim(first, last)
    axes.set_xlabel(f"time (UTC), from {str(first).replace('T', ' ')}")


def _days(moments: npt.NDArray[np.datetime64]) -> npt.NDArray[np.float64]:
    """Return the times as matplotlib counts them: in days since 1970."""
    return moments.astype("datetime64[s]").astype(np.float64) / 86_400


def _plain(value: float, _position: int = 0) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


def _legend(figure: Figure, colors: Sequence[str], names: Sequence[str]) -> None:
    # Matplotlib leaves out names that begin with an underscore, and takes dollars for formulas.
    shown = [short_name(name).replace("$", r"\$") for name in names]
    shown = [f" {name}" if name.startswith("_") else name for name in shown]
    columns = max(1, min(len(names), 130 // (max(map(len, shown)) + 6)))
    handles = [Patch(color=color) for color in colors]
    figure.legend(handles, shown, loc="outside lower left", ncols=columns, frameon=False, fontsize=9)


def _mark(axes: Axes, marks: Mapping[str, float]) -> None:
    low, high = axes.get_xlim()
    for step, (name, x) in enumerate(sorted(marks.items(), key=lambda mark: mark[1])):
        is_far = x > low + 0.7 * (high - low)
        axes.axvline(x, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            name,
            (x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-5 if is_far else 5, -10 - 13 * step),
            textcoords="offset points",
            ha="right" if is_far else "left",
            fontsize=8.5,
            color=_INK,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )


def _colors(count: int) -> list[str]:
    return [PALETTE[index % len(PALETTE)] for index in range(count)]


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", facecolor="white")
    return content.getvalue()
