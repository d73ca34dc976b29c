"""Charts of a report, each as an SVG for wide and for narrow screens, with a caption and a text alternative."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib import dates, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from spark.report.html_report import Chart

PALETTE: Final = ("#2a6f97", "#e07a2f", "#3a9d6e", "#b23a6b", "#6b5b95", "#8a8a2a", "#4fa3c7", "#a65628")
REST_COLOR: Final = "#b8c2cc"
INK: Final = "#1f2933"
MUTED: Final = "#52606d"
_GRID: Final = "#e4e8ec"
PAPER: Final = "#ffffff"
_DARK_PALETTE: Final = ("#5aa9d6", "#f0944d", "#55bd8b", "#df6b9a", "#a597d0", "#b9b950", "#8fd0ea", "#cf8560")
# Colors on a dark page.  An SVG names its colors, and its style sheet chooses between the two.
_DARK: Final = {
    **dict(zip(PALETTE, _DARK_PALETTE, strict=True)),
    REST_COLOR: "#5d6975",
    INK: "#e6eaee",
    MUTED: "#a9b4bf",
    _GRID: "#313a44",
    PAPER: "#1a2027",
}
WIDE_IN: Final = 9.6
# The text of a chart has the same size in points at each width; a phone shows this one at about 11 px.
_NARROW_IN: Final = 3.9
_DENSE_POINTS: Final = 200


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
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        _time_axis(figure, axes, times)
        add_legend(figure, colors, [each.name for each in series])

    colors = [each.color or color for each, color in zip(series, colors_of(len(series)), strict=True)]
    return drawn_chart(title, caption, draw, alt)


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
            width = 0.9 if len(heights) > _DENSE_POINTS else 1.6
            axes.plot(middles, heights, color=color, linewidth=width, marker=mark, markersize=3)
        if logarithmic:
            axes.set_yscale("symlog", linthresh=1)
            axes.yaxis.set_minor_formatter(NullFormatter())
        values = [value for each in series for value in each.values if value is not None]
        # Leave room above the largest value.
        top = max(values, default=0) * (1.5 if logarithmic else 1.05)
        axes.set_ylim(0 if min(values, default=0) >= 0 else None, top if top > 0 else 1)
        axes.set_ylabel(y_label)
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
        _time_axis(figure, axes, times)
        add_legend(figure, colors, [each.name for each in series])

    colors = [each.color or color for each, color in zip(series, colors_of(len(series)), strict=True)]
    return drawn_chart(title, caption, draw, alt)


def short_name(name: str, max_length: int = 30) -> str:
    """Return `name`, without its middle if it is longer than `max_length`."""
    if len(name) <= max_length:
        return name
    head = max_length // 2
    return f"{name[:head]}…{name[-(max_length - head - 1) :]}"


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
        axes.bar_label(bars, texts, padding=3, fontsize=8.5, color=INK)
        axes.set_yticks(range(len(names)), list(names), fontsize=8.5)
        axes.invert_yaxis()
        axes.set_ylabel(y_label)
        axes.set_xlabel(x_label)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=int(figure.get_figwidth())))
        axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
        # Room for the texts, which are as wide on a narrow screen as on a wide one.
        axes.margins(x=(0.3 + 0.1 * max(map(len, texts), default=0)) / figure.get_figwidth(), y=0.02)
        axes.grid(visible=False, axis="y")
        axes.axvline(0, color=MUTED, linewidth=0.8)

    return drawn_chart(title, caption, draw, alt, height_in=0.8 + 0.24 * len(names))


def drawn_chart(
    title: str,
    caption: str,
    draw: Callable[[Figure, Axes], None],
    alt: str = "",
    *,
    height_in: float | None = None,
) -> Chart:
    """Draw a chart once for each width.  `height_in` is that of a chart whose height does not follow its width."""
    wide, narrow = (_svg(draw, width, height_in or height) for width, height in ((WIDE_IN, 3.8), (_NARROW_IN, 3.2)))
    return Chart(title, caption, wide, narrow, alt)


def _svg(draw: Callable[[Figure, Axes], None], width_in: float, height_in: float) -> bytes:
    figure = Figure(figsize=(width_in, height_in), layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot(facecolor=PAPER)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=_GRID, linewidth=0.8)
    axes.tick_params(colors=MUTED, labelsize=9)
    axes.xaxis.label.set(color=MUTED, fontsize=9.5)
    axes.yaxis.label.set(color=MUTED, fontsize=9.5)
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
    max_ticks = 9 if figure.get_figwidth() == WIDE_IN else 5
    locator = dates.AutoDateLocator(tz=UTC, minticks=3, maxticks=max_ticks)  # type: ignore[no-untyped-call]  # has no types
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC, show_offset=False))  # type: ignore[no-untyped-call]
    first, last = np.array([times.starts[0], times.starts[-1] + times.step_s], "datetime64[s]")
    axes.set_xlim(first, last)
    axes.set_xlabel(f"time (UTC), from {str(first).replace('T', ' ')}")


def _days(moments: npt.NDArray[np.datetime64]) -> npt.NDArray[np.float64]:
    """Return the times as matplotlib counts them: in days since 1970."""
    return moments.astype("datetime64[s]").astype(np.float64) / 86_400


def plain_number(value: float, _position: int = 0) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


def add_legend(figure: Figure, colors: Sequence[str], names: Sequence[str]) -> None:
    # Matplotlib leaves out names that begin with an underscore, and takes dollars for formulas.
    shown = [short_name(name).replace("$", r"\$") for name in names]
    shown = [f" {name}" if name.startswith("_") else name for name in shown]
    letters = int(13.5 * figure.get_figwidth())
    columns = max(1, min(len(names), letters // (max(map(len, shown)) + 6)))
    handles = [Patch(color=color) for color in colors]
    figure.legend(handles, shown, loc="outside lower left", ncols=columns, frameon=False, fontsize=9, labelcolor=INK)


def colors_of(count: int) -> list[str]:
    return [PALETTE[index % len(PALETTE)] for index in range(count)]
