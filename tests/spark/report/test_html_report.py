"""The page of a report: readable without a network, whatever the values are."""

import base64
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spark.report.charts import PALETTE, Steps, Times, bar_chart, timeline_bars, timeline_lines
from spark.report.html_report import Chart, Page, Table, cell

SVG = "{http://www.w3.org/2000/svg}"


def texts_of(svg: bytes) -> list[str]:
    return [text for each in ElementTree.fromstring(svg).iter(f"{SVG}text") if (text := "".join(each.itertext()))]


def test_a_page_holds_its_charts(tmp_path: Path) -> None:
    times, series = Times([0, 60, 120], 60), [Steps("a", [3, 4, 5]), Steps("b", [1, None, 1000])]
    charts = [
        timeline_lines("Latency (p99)", "x", "y", times, series, y_label="ms", logarithmic=True),
        timeline_bars("Stack", "x", "y", times, series, y_label="n"),
        bar_chart("Bars", "x", ["q", "r"], [1.5, -2.0], x_label="min", notes=["7", "8"]),
    ]
    table = Table("Checks <all>", "c", ("what", "n", "holds"), [("a & b", 12345, True), (None, 0.25, False)])
    path = tmp_path / "page.html"
    Page("Title", "Subtitle", {"messages": "1"}, [*charts, table]).save(path)
    html = path.read_text()
    for chart in charts:
        assert all(base64.b64encode(svg).decode() in html for svg in (chart.wide, chart.narrow))
    assert "Checks &lt;all&gt;" in html and "a &amp; b" in html and "12,345" in html
    assert 'class="yes">✓' in html and 'class="no">✗' in html
    assert "http:" not in html and "https:" not in html


def test_cells() -> None:
    assert [cell(value) for value in (1234567, 0.125, None, True, "x")] == ["1,234,567", "0.1", "–", "✓", "x"]


@pytest.fixture(scope="module")
def bars() -> Chart:
    names = [f"{hour:02}:00" for hour in range(5, 24)]
    return bar_chart("Hours", "x", names, [float(hour) for hour in range(19)], x_label="n", notes=names)


def test_a_narrow_chart_has_the_same_texts_at_a_size_that_can_be_read(bars: Chart) -> None:
    assert {"05:00", "23:00", "18.0 (23:00)"} <= set(texts_of(bars.narrow)) & set(texts_of(bars.wide))
    # A phone of 390 px shows the chart about 340 px wide.
    *_, width, _ = map(float, ElementTree.fromstring(bars.narrow).attrib["viewBox"].split())
    sizes = [float(size) for size in re.findall(rb"font-size: ([0-9.]+)px", bars.narrow)]
    assert sizes and min(sizes) * 340 / width > 10


def test_the_colors_of_a_chart_follow_the_page(bars: Chart) -> None:
    svg = bars.wide.decode()
    assert "@media screen and (prefers-color-scheme: dark)" in svg
    sheet, drawn = svg.split("</style>", 1)
    # Whatever is drawn has a color for each of the two pages.
    used = set(re.findall(r"var\((--[0-9a-f]{6})\)", drawn))
    assert f"--{PALETTE[0][1:]}" in used and all(sheet.count(f"{name}:") == 2 for name in used)
    assert not re.search(r"(?:fill|stroke): ?#(?!000000)", drawn)


def test_the_page_follows_the_reader_s_colors_and_width(bars: Chart) -> None:
    html = Page("Title", "Subtitle", {}, [bars]).html()
    assert "color-scheme: light dark" in html and "@media screen and (prefers-color-scheme: dark)" in html
    assert html.index('<source media="(max-width: 640px)"') < html.index("<img ")
