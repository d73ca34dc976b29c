"""Report of charts and tables as one HTML page.  Each chart is an SVG inside it, so it needs no network."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jinja2 import Environment


@dataclass(frozen=True)
class Chart:
    """Chart with a heading and a caption; `alt` is the text for readers who do not see it.

    It is an SVG, once for wide and once for narrow screens.
    """

    title: str
    caption: str
    wide: bytes
    narrow: bytes
    alt: str = ""


@dataclass(frozen=True)
class Table:
    """Table; a cell is text, a number (shown with thousands separators), True (a tick), False (a cross) or None.

    Each number in column `bars` has a bar beside it.  With `has_total` the last row is a sum.
    """

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    bars: str | None = None
    has_total: bool = False

    def is_numeric(self, index: int) -> bool:
        """Return whether the column holds only numbers and gaps, and at least one number."""
        cells = [row[index] for row in self.rows if row[index] is not None]
        return bool(cells) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in cells)

    def wraps(self, index: int) -> bool:
        """Return whether the column holds text that is too long for one line."""
        return any(isinstance(row[index], str) and len(str(row[index])) > 24 for row in self.rows)

    def bar_percent(self, value: object) -> float:
        """Return the length of a bar, in percent of the longest one."""
        index = list(self.columns).index(self.bars or "")
        cells = [row[index] for row in (self.rows[:-1] if self.has_total else self.rows)]
        most = max((value for value in cells if isinstance(value, int | float)), default=0)
        return round(100 * value / most, 1) if isinstance(value, int | float) and most else 0.0


@dataclass(frozen=True)
class Part:
    """Heading of the sections that follow, and a sentence or two about them."""

    title: str
    text: str = ""

    @property
    def anchor(self) -> str:
        """Return the name of the part in links."""
        return "-".join("".join(letter if letter.isalnum() else " " for letter in self.title.lower()).split())


@dataclass
class Page:
    """Content of a report, in order.  `facts` are the few figures at its top."""

    title: str
    subtitle: str
    facts: Mapping[str, str] = field(default_factory=dict)
    sections: list[Chart | Table | Part] = field(default_factory=list)
    footer: str = ""

    def html(self) -> str:
        """Return the whole page."""
        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        environment.filters["cell"] = cell
        environment.filters["data_uri"] = _data_uri
        environment.tests["chart"] = lambda section: isinstance(section, Chart)
        environment.tests["part"] = lambda section: isinstance(section, Part)
        return environment.from_string(_TEMPLATE).render(page=self)

    @property
    def parts(self) -> list[Part]:
        return [section for section in self.sections if isinstance(section, Part)]

    def save(self, path: Path) -> None:
        """Write the page to one file."""
        path.write_text(self.html(), encoding="utf-8")


def cell(value: object) -> str:
    """Return the text of a value in a table."""
    if isinstance(value, bool):
        return "✓" if value else "✗"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "–" if value is None else str(value)


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


_TEMPLATE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ page.title }}</title>
<style>
  :root {
    color-scheme: light dark; --page: #f4f6f8; --paper: #fff; --ink: #1f2933; --muted: #52606d; --grid: #e4e8ec;
    --link: #1f5a85; --bar: #2a6f97; --yes: #1f7a4a; --no: #b83227;
  }
  @media screen and (prefers-color-scheme: dark) {
    :root {
      --page: #11161b; --paper: #1a2027; --ink: #e6eaee; --muted: #a9b4bf; --grid: #313a44;
      --link: #7fbde6; --bar: #5aa9d6; --yes: #55bd8b; --no: #ff8a7d;
    }
  }
  body { margin: 0; background: var(--page); color: var(--ink);
    font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
  main { max-width: 1040px; margin: 0 auto; padding: 2.2rem 1.2rem 3rem; }
  h1 { font-size: 1.9rem; line-height: 1.25; margin: 0 0 .2rem; letter-spacing: -.01em; }
  h1, h2, h3, .long, .fact b { overflow-wrap: anywhere; }
  h2 { font-size: 1.45rem; margin: 2.2rem 0 .15rem; letter-spacing: -.01em; }
  section h2, section h3 { font-size: 1.12rem; margin: 0 0 .15rem; letter-spacing: 0; }
  p { margin: 0; color: var(--muted); }
  nav { margin: 1.1rem 0 0; }
  nav a { display: inline-block; color: var(--link); margin-right: 1.1rem; }
  .facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .8rem; margin: 1.5rem 0; }
  .fact, section { background: var(--paper); border: 1px solid var(--grid); border-radius: 10px; }
  .fact { padding: .75rem 1rem; }
  .fact b { display: block; font-size: 1.45rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
  .fact span { color: var(--muted); font-size: .85rem; }
  section { padding: 1.1rem 1.3rem 1.2rem; margin-top: 1rem; }
  section p { font-size: .92rem; margin-bottom: .7rem; max-width: 108ch; }
  img { display: block; width: 100%; height: auto; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
  th { text-align: left; color: var(--muted); font-weight: 600; vertical-align: bottom;
    border-bottom: 2px solid var(--grid); }
  th, td { padding: .38rem .55rem; }
  td { border-bottom: 1px solid var(--grid); vertical-align: top; white-space: nowrap; }
  thead td { border-bottom: 2px solid var(--grid); }
  td.long { white-space: normal; min-width: 13rem; }
  .number { text-align: right; }
  .barred { width: 14%; min-width: 5rem; }
  .barred i { display: block; height: .62rem; margin-top: .42rem; background: var(--bar); border-radius: 2px; }
  tr.total td { border-top: 2px solid var(--grid); border-bottom: 0; font-weight: 600; }
  .yes { color: var(--yes); font-weight: 700; } .no { color: var(--no); font-weight: 700; }
  footer { margin-top: 2rem; font-size: .85rem; color: var(--muted); }
  @media (max-width: 640px) {
    main { padding: 1.2rem .6rem 2rem; }
    h1 { font-size: 1.5rem; }
    section { padding: .9rem .7rem; }
    .facts { grid-template-columns: 1fr 1fr; gap: .5rem; }
    .fact { padding: .6rem .7rem; }
    th, td { padding: .38rem .4rem; }
    td:first-child { white-space: normal; }
    td.long { min-width: 7rem; }
  }
  @media print {
    @page { margin: 14mm; }
    body { background: #fff; font-size: 11pt; }
    main { max-width: none; padding: 0; }
    nav { display: none; }
    section, .fact { break-inside: avoid; }
    section.table { break-inside: auto; }
    tr, img { break-inside: avoid; }
    h1, h2, h3 { break-after: avoid; }
    .barred i { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  }
</style>
</head>
<body>
<main>
  <header>
  <h1>{{ page.title }}</h1>
  <p>{{ page.subtitle }}</p>
  {% if page.parts %}
  <nav aria-label="Parts of this page">
  {% for part in page.parts %}
    <a href="#{{ part.anchor }}">{{ part.title }}</a>
  {% endfor %}
  </nav>
  {% endif %}
  </header>
  <div class="facts">
  {% for name, value in page.facts.items() %}
    <div class="fact"><b>{{ value }}</b><span>{{ name }}</span></div>
  {% endfor %}
  </div>
  {% set level = "h3" if page.parts else "h2" %}
  {% for section in page.sections %}
  {% if section is part %}
  <h2 id="{{ section.anchor }}">{{ section.title }}</h2>
  {% if section.text %}
  <p>{{ section.text }}</p>
  {% endif %}
  {% elif section is chart %}
  <section>
    <{{ level }}>{{ section.title }}</{{ level }}>
    <p>{{ section.caption }}</p>
    <picture>
    <source media="(max-width: 640px)" srcset="{{ section.narrow | data_uri }}">
    <img src="{{ section.wide | data_uri }}" alt="{{ section.alt or section.title ~ ". " ~ section.caption }}">
    </picture>
  </section>
  {% else %}
  <section class="table">
    <{{ level }}>{{ section.title }}</{{ level }}>
    <p>{{ section.caption }}</p>
    <div class="wide"><table>
      <thead><tr>{% for name in section.columns %}
        <th scope="col"{% if section.is_numeric(loop.index0) %} class="number"{% endif %}>{{ name }}</th>
        {% if name == section.bars %}
        <td aria-hidden="true"></td>
        {% endif %}
      {% endfor %}</tr></thead>
      <tbody>
      {% for row in section.rows %}
      <tr{% if loop.last and section.has_total %} class="total"{% endif %}>{% for value in row %}
        {% set number = section.is_numeric(loop.index0) %}
        {% set kind = "yes" if value is true else "no" if value is false else "number" if number else
          "long" if section.wraps(loop.index0) else "" %}
        <td class="{{ kind }}">{{ value | cell }}</td>
        {% if section.columns[loop.index0] == section.bars %}
        <td class="barred" aria-hidden="true">
          {%- if not (section.has_total and row is sameas section.rows[-1]) -%}
          <i style="width: {{ section.bar_percent(value) }}%"></i>
          {%- endif -%}
        </td>
        {% endif %}
      {% endfor %}</tr>
      {% endfor %}
      </tbody>
    </table></div>
  </section>
  {% endif %}
  {% endfor %}
  {% if page.footer %}
  <footer>{{ page.footer }}</footer>
  {% endif %}
</main>
</body>
</html>
"""
