"""A report of charts and tables as one HTML page that needs no network: every chart is a PNG inside it."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from jinja2 import Environment
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

PALETTE: Final = ("#2a6f97", "#e07a2f", "#3a9d6e", "#b23a6b", "#6b5b95", "#8a8a2a")
_INK: Final = "#1f2933"
_MUTED: Final = "#6b7785"
_GRID: Final = "#e4e8ec"
_DOTS_PER_INCH: Final = 144
_DENSE_POINTS: Final = 400


@dataclass(frozen=True)
class Chart:
    """A chart with its heading and a sentence that says what it shows."""

    title: str
    caption: str
    png: bytes

    @property
    def data_uri(self) -> str:
        return "data:image/png;base64," + base64.b64encode(self.png).decode()

    @property
    def file_name(self) -> str:
        words = "".join(letter if letter.isalnum() else " " for letter in self.title.lower()).split()
        return "-".join(words) + ".png"


@dataclass(frozen=True)
class Table:
    """A table; cells are text, numbers (shown with thousands separators), or True and False (a tick, a cross)."""

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass
class Page:
    """What a report holds, in order.  `facts` are the few figures at its top."""

    title: str
    subtitle: str
    facts: Mapping[str, str] = field(default_factory=dict)
    sections: list[Chart | Table] = field(default_factory=list)

    def html(self) -> str:
        """The whole page."""
        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        environment.filters["cell"] = cell
        environment.tests["chart"] = lambda section: isinstance(section, Chart)
        environment.tests["numeric"] = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
        return environment.from_string(_TEMPLATE).render(page=self)

    def write(self, directory: Path) -> Path:
        """Write ``report.html``, and each chart as a PNG beside it; returns the page's path."""
        directory.mkdir(parents=True, exist_ok=True)
        for section in self.sections:
            if isinstance(section, Chart):
                (directory / section.file_name).write_bytes(section.png)
        path = directory / "report.html"
        path.write_text(self.html(), encoding="utf-8")
        return path


def cell(value: object) -> str:
    """How a table shows a value."""
    if isinstance(value, bool):
        return "✓" if value else "✗"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "–" if value is None else str(value)


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
    fill: bool = False,
    logarithmic: bool = False,
    x_format: FuncFormatter | None = None,
    x_ticks: Sequence[float] | None = None,
) -> Chart:
    """Lines over a common axis.  `marks` are named vertical lines; `fill` shades below the lines."""
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
    """Areas on top of each other; all series have the same x."""
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
    title: str, caption: str, names: Sequence[str], values: Sequence[float], *, y_label: str, notes: Sequence[str] = ()
) -> Chart:
    """One bar for each name, its value above it; `notes` stand below the names."""
    figure, axes = _axes(9.6, 3.5)
    bars = axes.bar(range(len(names)), values, color=PALETTE[0], width=0.68)
    axes.bar_label(bars, [f"{value:.1f}" for value in values], padding=2, fontsize=8.5, color=_INK)
    labels = [f"{name}\n{note}" for name, note in zip(names, notes, strict=True)] if notes else list(names)
    axes.set_xticks(range(len(names)), labels, fontsize=8.5)
    axes.set_ylabel(y_label)
    axes.margins(x=0.02, y=0.12)
    axes.grid(visible=False, axis="x")
    axes.axhline(0, color=_MUTED, linewidth=0.8)
    return Chart(title, caption, _png(figure))


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
    """A coloured grid; a cell without a value is left empty."""
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


_TEMPLATE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ page.title }}</title>
<style>
  :root { color-scheme: light; }
  body { margin: 0; background: #f4f6f8; color: #1f2933; font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
  main { max-width: 1040px; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
  h1 { font-size: 1.9rem; margin: 0 0 .2rem; letter-spacing: -.01em; }
  h2 { font-size: 1.12rem; margin: 0 0 .15rem; }
  p { margin: 0; color: #52606d; }
  .facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .8rem; margin: 1.5rem 0; }
  .fact, section { background: #fff; border: 1px solid #e4e8ec; border-radius: 10px; }
  .fact { padding: .75rem 1rem; }
  .fact b { display: block; font-size: 1.45rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
  .fact span { color: #6b7785; font-size: .85rem; }
  section { padding: 1.1rem 1.3rem 1.2rem; margin-top: 1rem; }
  section p { font-size: .92rem; margin-bottom: .7rem; }
  img { display: block; width: 100%; height: auto; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
  th { text-align: left; color: #6b7785; font-weight: 600; border-bottom: 2px solid #e4e8ec; }
  th, td { padding: .38rem .6rem; }
  td { border-bottom: 1px solid #eef1f4; }
  .number { text-align: right; }
  .yes { color: #2c8a5b; font-weight: 700; } .no { color: #c0392b; font-weight: 700; }
</style>
</head>
<body>
<main>
  <h1>{{ page.title }}</h1>
  <p>{{ page.subtitle }}</p>
  <div class="facts">
  {% for name, value in page.facts.items() %}
    <div class="fact"><b>{{ value }}</b><span>{{ name }}</span></div>
  {% endfor %}
  </div>
  {% for section in page.sections %}
  <section>
    <h2>{{ section.title }}</h2>
    <p>{{ section.caption }}</p>
    {% if section is chart %}
    <img src="{{ section.data_uri }}" alt="{{ section.title }}">
    {% else %}
    <div class="wide"><table>
      <tr>{% for name in section.columns %}
        <th{% if section.rows and section.rows[0][loop.index0] is numeric %} class="number"{% endif %}>{{ name }}</th>
      {% endfor %}</tr>
      {% for row in section.rows %}
      <tr>{% for value in row %}
        {% set kind = "yes" if value is true else "no" if value is false else "number" if value is numeric else "" %}
        <td class="{{ kind }}">{{ value | cell }}</td>
      {% endfor %}</tr>
      {% endfor %}
    </table></div>
    {% endif %}
  </section>
  {% endfor %}
</main>
</body>
</html>
"""
