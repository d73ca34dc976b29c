"""Charts of a report, each as an SVG for wide and for narrow screens, with a caption and a text alternative."""

import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib import dates, rc_context
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
_PAPER: Final = "#ffffff"
_DARK_PALETTE: Final = ("#5aa9d6", "#f0944d", "#55bd8b", "#df6b9a", "#a597d0", "#b9b950", "#8fd0ea", "#cf8560")
# Colors on a dark page.  An SVG names its colors, and its style sheet chooses between the two.
_DARK: Final = {
    **dict(zip(PALETTE, _DARK_PALETTE, strict=True)),
    REST_COLOR: "#5d6975",
    _INK: "#e6eaee",
    _MUTED: "#a9b4bf",
    _GRID: "#313a44",
    _PAPER: "#1a2027",
}
# Cells of a heat map have the same colors on every page, and so have the numbers in them.
_DARK_TEXT_IN_CELL: Final = "#1a1a1a"
_LIGHT_TEXT_IN_CELL: Final = "#fafafa"
_WIDE_IN: Final = 9.6
# The text of a chart has the same size in points at each width; a phone shows this one at about 11 px.
_NARROW_IN: Final = 3.9
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

    def draw(figure: Figure, axes: Axes) -> None:
        starts = np.array(times.starts, "datetime64[s]")
        edges = _days(np.append(starts, starts[-1] + np.timedelta64(times.step_s, "s")))
        below = np.zeros(len(starts))
        for color, each in zip(colors, series, strict=True):
            values = np.array([value or 0 for value in each.values], float)
            axes.stairs(below + values, edges, baseline=below, fill=True, color=color, linewidth=0)
            below += values
        axes.xaxis_date(UTC)
        axes.set_ylim(0, max(1.0, float(below.max(initial=0))) * 1.06)
        axes.set_ylabel(y_label)
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        _time_axis(figure, axes, times)
        _legend(figure, colors, [each.name for each in series])

    colors = [each.color or color for each, color in zip(series, _colors(len(series)), strict=True)]
    return _chart(title, caption, draw, alt)


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

    def draw(figure: Figure, axes: Axes) -> None:
        middles = np.array(times.starts, "datetime64[s]") + np.timedelta64(times.step_s * 500, "ms")
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
        _time_axis(figure, axes, times)
        _legend(figure, colors, [each.name for each in series])

    colors = [each.color or color for each, color in zip(series, _colors(len(series)), strict=True)]
    return _chart(title, caption, draw, alt)


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
    logarithmic: bool = False,
) -> Chart:
    """Draw lines over a common axis.  `marks` are named vertical lines."""

    def draw(figure: Figure, axes: Axes) -> None:
        for color, each in zip(_colors(len(series)), series, strict=True):
            axes.plot(each.x, each.y, color=color, linewidth=0.8 if len(each.x) > _DENSE_POINTS else 1.6)
        if logarithmic:
            axes.set_yscale("log")
            values = [value for each in series for value in each.y]
            axes.set_ylim(10 ** np.floor(np.log10(min(values))), 10 ** np.ceil(np.log10(max(values))))
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
        _label(figure, axes, series, x_label, y_label, marks)

    return _chart(title, caption, draw)


def _label(
    figure: Figure,
    axes: Axes,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    marks: Mapping[str, float] | None,
) -> None:
    """Finish a chart of series over a common axis."""
    axes.margins(x=0.01)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    _mark(axes, marks or {})
    _legend(figure, _colors(len(series)), [each.name for each in series])


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

    def draw(figure: Figure, axes: Axes) -> None:
        axes.stackplot(series[0].x, *(each.y for each in series), colors=_colors(len(series)), alpha=0.75)
        _label(figure, axes, series, x_label, y_label, marks)

    return _chart(title, caption, draw)


def bar_chart(
    title: str,
    caption: str,
    names: Sequence[str],
    values: Sequence[float],
    *,
    x_label: str,
    y_label: str = "",
    notes: Sequence[str] = (),
    alt: str = "",
    value_text: Callable[[float], str] = "{:.1f}".format,
) -> Chart:
    """Draw one bar for each name, from top to bottom, with its value beside it; `notes` follow the values."""

    def draw(figure: Figure, axes: Axes) -> None:
        bars = axes.barh(range(len(names)), values, color=PALETTE[0], height=0.68)
        texts = [value_text(value) for value in values]
        if notes:
            texts = [f"{text} ({note})" for text, note in zip(texts, notes, strict=True)]
        axes.bar_label(bars, texts, padding=3, fontsize=8.5, color=_INK)
        axes.set_yticks(range(len(names)), list(names), fontsize=8.5)
        axes.invert_yaxis()
        axes.set_ylabel(y_label)
        axes.set_xlabel(x_label)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=int(figure.get_figwidth())))
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
        # Room for the texts, which are as wide on a narrow screen as on a wide one.
        axes.margins(x=(0.3 + 0.1 * max(map(len, texts), default=0)) / figure.get_figwidth(), y=0.02)
        axes.grid(visible=False, axis="y")
        axes.axvline(0, color=_MUTED, linewidth=0.8)

    return _chart(title, caption, draw, alt, height_in=0.8 + 0.24 * len(names))


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
    """Draw a coloured grid; a cell without a value stays empty.  On a narrow screen, cells have no numbers."""
    table = np.full((len(rows), len(columns)), np.nan)
    for (row, column), value in values.items():
        table[rows.index(row), columns.index(column)] = value
    reach = max(1.0, float(np.nanpercentile(np.abs(table), 98))) if values else 1.0
    lowest = min(-0.25 * reach, max(-reach, float(np.nanmin(table)))) if values else -1.0

    def draw(figure: Figure, axes: Axes) -> None:
        is_narrow = figure.get_figwidth() < _WIDE_IN
        image = axes.pcolormesh(
            table, cmap="RdBu_r", norm=TwoSlopeNorm(0, lowest, reach), edgecolors=_PAPER, linewidth=0.6
        )
        axes.invert_yaxis()
        shown = range(0, len(columns), 3 if is_narrow else 1)
        axes.set_xticks([column + 0.5 for column in shown], [columns[column] for column in shown])
        axes.set_yticks([row + 0.5 for row in range(len(rows))], list(rows), fontsize=8.5)
        axes.set_xlabel(x_label)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        for y, x in np.argwhere(~np.isnan(table)) if not is_narrow else ():
            strong = abs(table[y, x]) > 0.62 * reach
            color = _LIGHT_TEXT_IN_CELL if strong else _DARK_TEXT_IN_CELL
            axes.text(x + 0.5, y + 0.5, f"{round(table[y, x])}", ha="center", va="center", fontsize=7, color=color)
        where = "bottom" if is_narrow else "right"
        bar = figure.colorbar(image, ax=axes, location=where, pad=0.012, aspect=24, extend="both")
        bar.set_label(color_label, color=_MUTED, fontsize=9)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, labelsize=8, colors=_MUTED)

    return _chart(title, caption, draw, height_in=1.1 + 0.31 * len(rows))


def _chart(
    title: str,
    caption: str,
    draw: Callable[[Figure, Axes], None],
    alt: str = "",
    *,
    height_in: float | None = None,
) -> Chart:
    """Draw a chart once for each width.  `height_in` is that of a chart whose height does not follow its width."""
    wide, narrow = (_svg(draw, width, height_in or height) for width, height in ((_WIDE_IN, 3.8), (_NARROW_IN, 3.2)))
    return Chart(title, caption, wide, narrow, alt)


def _svg(draw: Callable[[Figure, Axes], None], width_in: float, height_in: float) -> bytes:
    figure = Figure(figsize=(width_in, height_in), layout="constrained", facecolor=_PAPER)
    axes = figure.add_subplot(facecolor=_PAPER)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=_GRID, linewidth=0.8)
    axes.tick_params(colors=_MUTED, labelsize=9)
    axes.xaxis.label.set(color=_MUTED, fontsize=9.5)
    axes.yaxis.label.set(color=_MUTED, fontsize=9.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    draw(figure, axes)
    content = io.StringIO()
    # Text stays text: it is small, and readers can select it.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "report"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    named = re.sub(r"((?:fill|stroke): ?)(#[0-9a-f]{6})", _named_color, content.getvalue())
    return named.replace("</style>", f"{_style_sheet()}</style>", 1).encode()


def _named_color(found: re.Match[str]) -> str:
    color = found[2]
    return f"{found[1]}var(--{color[1:]})" if color in _DARK else found[0]


def _style_sheet() -> str:
    light = "".join(f"--{color[1:]}:{color};" for color in _DARK)
    dark = "".join(f"--{color[1:]}:{other};" for color, other in _DARK.items())
    return f":root{{{light}}}@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}"


def _time_axis(figure: Figure, axes: Axes, times: Times) -> None:
    max_ticks = 9 if figure.get_figwidth() == _WIDE_IN else 5
    locator = dates.AutoDateLocator(tz=UTC, minticks=3, maxticks=max_ticks)  # type: ignore[no-untyped-call]  # has no types
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC, show_offset=False))  # type: ignore[no-untyped-call]
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
    letters = int(13.5 * figure.get_figwidth())
    columns = max(1, min(len(names), letters // (max(map(len, shown)) + 6)))
    handles = [Patch(color=color) for color in colors]
    figure.legend(handles, shown, loc="outside lower left", ncols=columns, frameon=False, fontsize=9, labelcolor=_INK)


def _mark(axes: Axes, marks: Mapping[str, float]) -> None:
    low, high = axes.get_xlim()
    for step, (name, x) in enumerate(sorted(marks.items(), key=lambda mark: mark[1])):
        is_far = x > low + 0.6 * (high - low)
        axes.axvline(x, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
        note = axes.annotate(
            textwrap.fill(name, 16),
            (x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-5 if is_far else 5, -3 - 13 * step),
            textcoords="offset points",
            ha="right" if is_far else "left",
            va="top",
            fontsize=8.5,
            color=_INK,
            bbox={"facecolor": _PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )
        note.set_in_layout(False)  # it would take its width from the axes


def _colors(count: int) -> list[str]:
    return [PALETTE[index % len(PALETTE)] for index in range(count)]
