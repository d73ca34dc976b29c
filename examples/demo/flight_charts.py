"""Charts that only the demo draws: lines and areas with marked moments, and a heat map."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from spark.report.charts import INK, MUTED, PAPER, WIDE_IN, add_legend, colors_of, drawn_chart, plain_number
from spark.report.html_report import Chart

# Cells of a heat map have the same colors on every page, and so have the numbers in them.
_DARK_TEXT_IN_CELL: Final = "#1a1a1a"
_LIGHT_TEXT_IN_CELL: Final = "#fafafa"
_DENSE_POINTS: Final = 400


@dataclass(frozen=True)
class Series:
    """One line of a line chart."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


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
        for color, each in zip(colors_of(len(series)), series, strict=True):
            axes.plot(each.x, each.y, color=color, linewidth=0.8 if len(each.x) > _DENSE_POINTS else 1.6)
        if logarithmic:
            axes.set_yscale("log")
            values = [value for each in series for value in each.y]
            axes.set_ylim(10 ** np.floor(np.log10(min(values))), 10 ** np.ceil(np.log10(max(values))))
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
        _label(figure, axes, series, x_label, y_label, marks)

    return drawn_chart(title, caption, draw)


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
        axes.stackplot(series[0].x, *(each.y for each in series), colors=colors_of(len(series)), alpha=0.75)
        _label(figure, axes, series, x_label, y_label, marks)

    return drawn_chart(title, caption, draw)


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
        is_narrow = figure.get_figwidth() < WIDE_IN
        image = axes.pcolormesh(
            table, cmap="RdBu_r", norm=TwoSlopeNorm(0, lowest, reach), edgecolors=PAPER, linewidth=0.6
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
        bar.set_label(color_label, color=MUTED, fontsize=9)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, labelsize=8, colors=MUTED)

    return drawn_chart(title, caption, draw, height_in=1.1 + 0.31 * len(rows))


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
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    _mark(axes, marks or {})
    add_legend(figure, colors_of(len(series)), [each.name for each in series])


def _mark(axes: Axes, marks: Mapping[str, float]) -> None:
    low, high = axes.get_xlim()
    for step, (name, x) in enumerate(sorted(marks.items(), key=lambda mark: mark[1])):
        is_far = x > low + 0.6 * (high - low)
        axes.axvline(x, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        note = axes.annotate(
            textwrap.fill(name, 16),
            (x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-5 if is_far else 5, -3 - 13 * step),
            textcoords="offset points",
            ha="right" if is_far else "left",
            va="top",
            fontsize=8.5,
            color=INK,
            bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )
        note.set_in_layout(False)  # it would take its width from the axes
